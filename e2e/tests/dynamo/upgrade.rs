//! An upgrade: a graph and all that became of it, as the release before left them, and this operator that starts among them.
//!
//! `upgrade.jsonl` holds them. It is recorded by the operator of a release, on the commit of that release:
//! `GROVE_RECORD=1 cargo test -p grove-e2e --test dynamo upgrade`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use grove_e2e::{ControlPlane, Identity, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::TypeMeta;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::changes::edit;
use crate::recorded::Recorded;
use crate::recording::is_recording;
use crate::rules::{new, set};
use crate::stage::{KEPT, LIMIT, Stage};

const BEFORE: Recorded = Recorded {
    fixture: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dynamo/upgrade.jsonl"),
    namespace: "upgrade",
};
/// A frontend, a leader and its worker.
const PODS: usize = 3;

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

/// The objects that were there before this operator started, by kind and name, and the UIDs of the pods.
static RAN: OnceLock<BTreeMap<String, Value>> = OnceLock::new();

/// A frontend that autoscalers scale, and a worker on two nodes of one rack.
fn graph() -> Value {
    let mut graph = set(new("g"), "/spec/topologyConstraint", json!({"packDomain": "zone"}));
    let mut worker = graph["spec"]["components"][0].take();
    worker["podTemplate"]["spec"]["nodeSelector"] = json!({});
    worker["multinode"] = json!({"nodeCount": 2});
    worker["topologyConstraint"] = json!({"packDomain": "rack"});
    let main = json!({"name": "main", "image": "server"});
    let frontend = json!({"name": "Frontend", "type": "frontend", "scalingAdapter": {},
        "podTemplate": {"spec": {"containers": [main]}}});
    graph["spec"]["components"] = json!([frontend, worker]);
    graph
}

/// Everything of a graph by kind and name, as it is written: of pods only who they are.
async fn everything(client: &Client) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for (api_version, kind) in KEPT_KINDS.into_iter().chain([("v1", "Pod")]) {
        let types = TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        for object in BEFORE.api_of(client, &types)?.list(&ListParams::default()).await? {
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
    let mut object = serde_json::to_value(object)?;
    object["status"] = Value::Null;
    Ok(object)
}

/// Waits until so many pods run, and no others are there.
async fn running(client: &Client, count: usize) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), BEFORE.namespace);
    eventually(
        format!("{count} pods of a graph to run"),
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
    plane.create_namespace(BEFORE.namespace).await?;
    let client = plane.client(Identity::Admin).await?;
    BEFORE.restore(&client).await?;
    running(&client, PODS).await?;
    let ran = everything(&client).await?;
    ensure!(ran.len() > KEPT_KINDS.len() + PODS, "{:?}", ran.keys());
    RAN.get_or_init(|| ran);
    Ok(())
}

/// Writes down everything that became of a graph.
async fn record() -> Result<()> {
    let stage = Stage::new(BEFORE.namespace).await?;
    stage.create(&graph()).await?;
    stage.is_ready("g").await?;
    stage.says_of_constraints("g", KEPT).await?;
    let mut kinds = vec![("nvidia.com/v1beta1", "DynamoGraphDeployment")];
    kinds.extend(KEPT_KINDS);
    kinds.insert(kinds.len() - 1, ("grove.io/v1alpha1", "PodCliqueScalingGroup"));
    kinds.extend([("scheduler.grove.io/v1alpha1", "PodGang"), ("v1", "Pod")]);
    // Constraints were kept on the nodes that they had.
    BEFORE.record(&stage.client, &kinds, true).await
}

/// The graph's worker with so many replicas.
async fn scale(stage: &Stage, replicas: i32) -> Result<()> {
    let mut components = stage.stored("g").await?.spec.components;
    components[1].replicas = replicas;
    Ok(edit(stage, "g", json!({"spec": {"components": components}})).await?)
}

/// The new operator goes on with the graph as if it had made it: nothing is written anew, and no pod is replaced.
// shows: DGD-1, DGD-6
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_leaves_a_graph_as_it_is_and_goes_on() -> Result<()> {
    if is_recording() {
        return record().await;
    }
    let stage = Stage::existing(BEFORE.namespace).await?;
    let before = RAN.get().context("a graph of the release before")?;
    // A second group of nodes shows that the operator has taken the graph over.
    scale(&stage, 2).await?;
    running(&stage.client, PODS + 2).await?;
    stage.is_ready("g").await?;
    stage.says_of_constraints("g", KEPT).await?;
    let after = everything(&stage.client).await?;
    for (name, object) in before {
        assert_eq!(after.get(name), Some(object), "{name}");
    }
    scale(&stage, 1).await?;
    running(&stage.client, PODS).await?;
    assert_eq!(&everything(&stage.client).await?, before);
    Ok(())
}
