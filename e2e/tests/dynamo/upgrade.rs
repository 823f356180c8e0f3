//! An upgrade: graphs and all that became of them, as the release before left them, and this operator that starts among them.
//!
//! `upgrade.jsonl` holds one with constraints, `upgrade-plain.jsonl` those without. They are recorded by the operator of a
//! release, on the commit of that release: `GROVE_RECORD=1 cargo test -p grove-e2e --test dynamo upgrade`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use grove_api::PodCliqueSet;
use grove_e2e::{ControlPlane, Identity, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::TypeMeta;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::changes::edit;
use crate::recorded::Recorded;
use crate::recording::is_recording;
use crate::rules::new;
use crate::stage::{KEPT, LIMIT, Stage};

/// What ran before, and how many pods of it.
#[derive(Clone, Copy, Debug)]
struct Before {
    recorded: Recorded,
    pods: usize,
}

/// A frontend, a leader and its worker, with constraints.
const CONSTRAINED: Before = Before {
    recorded: Recorded {
        fixture: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dynamo/upgrade.jsonl"),
        namespace: "upgrade",
    },
    pods: 3,
};
/// Without constraints: a frontend and a worker of vLLM, and a frontend, a leader and a worker of SGLang.
const PLAIN: Before = Before {
    recorded: Recorded {
        fixture: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dynamo/upgrade-plain.jsonl"),
        namespace: "upgrade-plain",
    },
    pods: 5,
};

/// What is left alone, owners first.
const KEPT_KINDS: [(&str, &str); 8] = [
    ("grove.io/v1alpha1", "PodCliqueSet"),
    ("apps/v1", "ControllerRevision"),
    ("v1", "ServiceAccount"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("v1", "Service"),
    ("nvidia.com/v1beta1", "DynamoGraphDeploymentScalingAdapter"),
    ("grove.io/v1alpha1", "PodClique"),
];

/// The objects that were there before this operator started, by namespace, and by kind and name; of pods the UIDs.
static RAN: OnceLock<BTreeMap<&str, BTreeMap<String, Value>>> = OnceLock::new();

/// A frontend that autoscalers scale, and a worker on two nodes of one rack.
fn graph() -> Value {
    let mut graph = plain("g");
    graph["spec"]["topologyConstraint"] = json!({"packDomain": "zone"});
    let components = &mut graph["spec"]["components"];
    components[0]["scalingAdapter"] = json!({});
    components[1]["multinode"] = json!({"nodeCount": 2});
    components[1]["topologyConstraint"] = json!({"packDomain": "rack"});
    graph
}

/// A frontend and a worker on one node, without constraints.
fn plain(name: &str) -> Value {
    let mut graph = new(name);
    let mut worker = graph["spec"]["components"][0].take();
    worker["podTemplate"]["spec"]["nodeSelector"] = json!({});
    let main = json!({"name": "main", "image": "server"});
    let frontend = json!({"name": "Frontend", "type": "frontend", "podTemplate": {"spec": {"containers": [main]}}});
    graph["spec"]["components"] = json!([frontend, worker]);
    graph
}

/// The same for SGLang, with its worker on two nodes.
fn sglang(name: &str) -> Value {
    let mut graph = plain(name);
    let worker = &mut graph["spec"]["components"][1];
    worker["multinode"] = json!({"nodeCount": 2});
    worker["podTemplate"]["spec"]["containers"][0]["args"] = json!(["python3 -m dynamo.sglang --model-path m --tp 2"]);
    graph
}

/// Everything of a namespace's graphs by kind and name, as it is written: of pods only who they are.
async fn everything(client: &Client, before: Before) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for (api_version, kind) in KEPT_KINDS.into_iter().chain([("v1", "Pod")]) {
        let types = TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        for object in before
            .recorded
            .api_of(client, &types)?
            .list(&ListParams::default())
            .await?
        {
            if object.metadata.owner_references.is_some() {
                found.insert(format!("{kind} {}", object.name_any()), as_kept(object, kind)?);
            }
        }
    }
    Ok(found)
}

fn as_kept(mut object: DynamicObject, kind: &str) -> Result<Value> {
    if kind == "Pod" {
        return Ok(json!(object.uid()));
    }
    // Who wrote what, and when, and how it is, changes with everybody who tells of it.
    object.metadata.managed_fields = None;
    object.metadata.resource_version = None;
    let is_scaled = kind == "PodClique";
    if is_scaled {
        object.metadata.generation = None;
    }
    let mut object = serde_json::to_value(object)?;
    object["status"] = Value::Null;
    if is_scaled {
        // One that stands alone is what is scaled.
        object["spec"]["replicas"] = Value::Null;
    }
    Ok(object)
}

/// Waits until so many pods run, and no others are there.
async fn running(client: &Client, before: Before, count: usize) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), before.recorded.namespace);
    eventually(
        format!("{count} pods to run in {}", before.recorded.namespace),
        LIMIT,
        async || -> Result<()> {
            let pods = pods.list(&ListParams::default()).await?.items;
            let phase = |pod: &Pod| pod.status.clone().unwrap_or_default().phase.unwrap_or_default();
            let phases: Vec<String> = pods.iter().map(phase).collect();
            let run = phases.iter().filter(|phase| *phase == "Running").count();
            ensure!((run, phases.len()) == (count, count), "they are {phases:?}");
            Ok(())
        },
    )
    .await?;
    Ok(())
}

/// Puts the objects of the release before into the cluster, and waits until their pods run.
pub(crate) async fn install(plane: &ControlPlane) -> Result<()> {
    if is_recording() {
        return Ok(());
    }
    let client = plane.client(Identity::Admin).await?;
    let mut all = BTreeMap::new();
    for before in [CONSTRAINED, PLAIN] {
        let namespace = before.recorded.namespace;
        plane.create_namespace(namespace).await?;
        before.recorded.restore(&client).await?;
        running(&client, before, before.pods).await?;
        let ran = everything(&client, before).await?;
        ensure!(ran.len() > KEPT_KINDS.len() + before.pods, "{:?}", ran.keys());
        all.insert(namespace, ran);
    }
    RAN.get_or_init(|| all);
    Ok(())
}

/// Writes down everything that became of graphs.
async fn record(before: Before, graphs: &[Value]) -> Result<()> {
    let stage = Stage::new(before.recorded.namespace).await?;
    for graph in graphs {
        let made = stage.create(graph).await?;
        stage
            .is_ready(made["metadata"]["name"].as_str().context("a name")?)
            .await?;
    }
    let mut kinds = vec![("nvidia.com/v1beta1", "DynamoGraphDeployment")];
    kinds.extend(KEPT_KINDS);
    kinds.insert(kinds.len() - 1, ("grove.io/v1alpha1", "PodCliqueScalingGroup"));
    kinds.extend([("scheduler.grove.io/v1alpha1", "PodGang"), ("v1", "Pod")]);
    // Constraints were kept on the nodes that they had.
    before.recorded.record(&stage.client, &kinds, true).await
}

/// A graph's worker with so many replicas.
async fn scale(stage: &Stage, graph: &str, replicas: i32) -> Result<()> {
    let mut components = stage.stored(graph).await?.spec.components;
    components[1].replicas = replicas;
    Ok(edit(stage, graph, json!({"spec": {"components": components}})).await?)
}

/// The new operator goes on with graphs as if it had made them: nothing is written anew, and no pod is replaced. `graphs` are
/// their names, with the pods of one replica of the worker.
async fn goes_on(before: Before, graphs: &[(&str, usize)]) -> Result<Stage> {
    let stage = Stage::existing(before.recorded.namespace).await?;
    let ran = RAN.get().and_then(|all| all.get(before.recorded.namespace));
    let ran = ran.context("graphs of the release before")?;
    // A second replica shows that the operator has taken the graph over.
    for (graph, _) in graphs {
        scale(&stage, graph, 2).await?;
    }
    let more: usize = graphs.iter().map(|(_, pods)| pods).sum();
    running(&stage.client, before, before.pods + more).await?;
    for (graph, _) in graphs {
        stage.is_ready(graph).await?;
    }
    let after = everything(&stage.client, before).await?;
    for (name, object) in ran {
        assert_eq!(after.get(name), Some(object), "{name}");
    }
    for (graph, _) in graphs {
        scale(&stage, graph, 1).await?;
    }
    running(&stage.client, before, before.pods).await?;
    assert_eq!(&everything(&stage.client, before).await?, ran);
    Ok(stage)
}

// shows: DGD-6
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_leaves_a_graph_as_it_is_and_goes_on() -> Result<()> {
    if is_recording() {
        return record(CONSTRAINED, &[graph()]).await;
    }
    let stage = goes_on(CONSTRAINED, &[("g", 2)]).await?;
    stage.says_of_constraints("g", KEPT).await
}

/// Also where the configuration has a default for sets of users: nobody asked for closeness, and nobody gets it later.
// shows: DGD-1, DGD-6
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_gives_no_constraint_to_a_graph_without_one() -> Result<()> {
    if is_recording() {
        return record(PLAIN, &[plain("plain"), sglang("sglang")]).await;
    }
    let stage = goes_on(PLAIN, &[("plain", 1), ("sglang", 2)]).await?;
    for graph in ["plain", "sglang"] {
        let conditions = stage.stored(graph).await?.status.unwrap_or_default().conditions;
        let types: Vec<&str> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        ensure!(types == ["Ready"], "{graph}: {types:?}");
        let set: PodCliqueSet = Api::namespaced(stage.client.clone(), &stage.namespace)
            .get(graph)
            .await?;
        ensure!(set.spec.template.topology_constraint.is_none(), "{graph}");
    }
    Ok(())
}
