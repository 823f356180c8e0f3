//! The rules of admission for new graphs, as `kubectl` would show them, for graphs of both versions.

use anyhow::{Context as _, Result, ensure};
use grove_api::topology::DomainWord;
use serde_json::{Value, json};

use crate::stage::{Stage, create};

/// What the API server puts before our words.
const DENIED: &str = "admission webhook \"dynamographdeployment.nvidia.com\" denied the request: ";
/// The levels of the topology that holds where none is named, as a refusal lists them.
const AVAILABLE: &str = "available domains: [block host rack zone]";

fn main_container() -> Value {
    json!({"image": "server", "command": ["/bin/sh", "-c"], "args": ["python3 -m dynamo.vllm --model m"]})
}

/// A graph of one worker that asks for no node.
pub(crate) fn new(name: &str) -> Value {
    let mut main = main_container();
    main["name"] = json!("main");
    let template = json!({"spec": {"containers": [main], "nodeSelector": {"nowhere": "at-all"}}});
    json!({"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": name},
        "spec": {"components": [{"name": "Worker", "type": "worker", "podTemplate": template}]}})
}

/// The same in the older version, services as a list.
pub(crate) fn old(name: &str) -> Value {
    let worker = json!({"name": "Worker", "componentType": "worker",
        "extraPodSpec": {"mainContainer": main_container(), "nodeSelector": {"nowhere": "at-all"}}});
    json!({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": name},
        "spec": {"services": [worker]}})
}

pub(crate) fn set(mut manifest: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    manifest.pointer_mut(parent).expect("a parent")[field] = value;
    manifest
}

/// Whether somebody was refused with these words and no others.
pub(crate) fn is_denied<T>(outcome: Result<T, kube::Error>, message: &str) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) => {
            let told = status.message.strip_prefix(DENIED);
            let told = told.with_context(|| format!("not the webhook's: {}", status.message))?;
            ensure!(told == message, "{told}\nis not\n{message}");
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => anyhow::bail!("not refused with {message}"),
    }
}

/// Whether a graph would be refused with these words and no others.
pub(crate) async fn denied(stage: &Stage, manifest: &Value, message: &str) -> Result<()> {
    let judged = create(&stage.client, &stage.namespace, manifest, true).await;
    is_denied(judged, message).with_context(|| manifest.to_string())
}

/// Whether a graph would be admitted.
async fn admitted(stage: &Stage, manifest: &Value) -> Result<()> {
    let judged = create(&stage.client, &stage.namespace, manifest, true).await;
    judged.map(drop).with_context(|| manifest.to_string())
}

/// A graph in either version with these words.
fn with_words(of_graph: Option<&str>, of_worker: Option<&str>) -> [Value; 2] {
    [(new("a"), "components"), (old("a"), "services")].map(|(mut graph, items)| {
        if let Some(word) = of_graph {
            graph["spec"]["topologyConstraint"] = json!({"packDomain": word});
        }
        if let Some(word) = of_worker {
            graph["spec"][items][0]["topologyConstraint"] = json!({"packDomain": word});
        }
        graph
    })
}

/// What is said of a word that the topology has not, at its place.
fn missing(path: &str, word: &str) -> Option<String> {
    let is_there = ["zone", "block", "rack", "host"].contains(&word);
    let detail = format!("does not exist in ClusterTopology \"grove-topology\"; {AVAILABLE}");
    (!is_there).then(|| format!("{path}.packDomain: Invalid value: \"{word}\": {detail}"))
}

const OF_GRAPH: &str = "spec.topologyConstraint";
const OF_WORKER: &str = "spec.components[0].topologyConstraint";

/// Every word on the graph, on its worker, and every pair of both.
// shows: DGD-3, DGD-4, DGD-12, DGD-13, DGD-14
#[tokio::test(flavor = "multi_thread")]
async fn words_are_judged_by_their_order_and_by_the_live_topology() -> Result<()> {
    let stage = Stage::new("words").await?;
    let mut cases: Vec<(Option<DomainWord>, Option<DomainWord>)> = vec![(None, None)];
    for word in DomainWord::ALL {
        cases.extend([(Some(word), None), (None, Some(word))]);
        cases.extend(DomainWord::ALL.map(|other| (Some(word), Some(other))));
    }
    assert_eq!(cases.len(), 1 + 2 * 7 + 49);
    for (of_graph, of_worker) in cases {
        let mut expected = Vec::new();
        if let (Some(of_graph), Some(of_worker)) = (of_graph, of_worker)
            && of_worker < of_graph
        {
            expected.push(format!(
                "{OF_WORKER}.packDomain: Invalid value: \"{}\": must be equal to or narrower than the deployment-level domain \
                 \"{}\"",
                of_worker.as_str(),
                of_graph.as_str()
            ));
        }
        let (of_graph, of_worker) = (of_graph.map(DomainWord::as_str), of_worker.map(DomainWord::as_str));
        expected.extend(of_graph.and_then(|word| missing(OF_GRAPH, word)));
        expected.extend(of_worker.and_then(|word| missing(OF_WORKER, word)));
        for graph in with_words(of_graph, of_worker) {
            match expected.is_empty() {
                true => admitted(&stage, &graph).await?,
                false => denied(&stage, &graph, &expected.join("; ")).await?,
            }
        }
    }
    Ok(())
}

/// The schema of the newer version knows the words; the older one takes anything, and admission judges.
// shows: DGD-5, DGD-12
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_word_is_refused_at_its_place() -> Result<()> {
    let stage = Stage::new("no-words").await?;
    let known = "is not a topology domain; use one of region, zone, datacenter, block, rack, host, numa";
    for word in ["row", "topology.kubernetes.io/rack", "Rack", ""] {
        for (of_graph, of_worker, path) in [(Some(word), None, OF_GRAPH), (None, Some(word), OF_WORKER)] {
            let [newer, older] = with_words(of_graph, of_worker);
            let of_schema = format!(
                "DynamoGraphDeployment.nvidia.com \"a\" is invalid: {path}.packDomain: Unsupported value: \"{word}\": supported \
                 values: \"region\", \"zone\", \"datacenter\", \"block\", \"rack\", \"host\", \"numa\""
            );
            match create(&stage.client, &stage.namespace, &newer, true).await {
                Err(kube::Error::Api(status)) => assert_eq!(status.message, of_schema),
                other => anyhow::bail!("{word:?} is not refused: {other:?}"),
            }
            let expected = format!("{path}.packDomain: Invalid value: \"{word}\": {known}");
            let missing = missing(path, word).context("no topology has it")?;
            denied(&stage, &older, &format!("{expected}; {missing}")).await?;
        }
    }
    Ok(())
}

// shows: DGD-14, DGD-15, DGD-19
#[tokio::test(flavor = "multi_thread")]
async fn a_topology_that_is_named_must_be_there() -> Result<()> {
    let stage = Stage::new("named").await?;
    let absent = "spec.topologyConstraint.clusterTopologyName: Invalid value: \"h100\": references a ClusterTopology resource \
                  that was not found";
    let spelled = [
        (new("a"), "clusterTopologyName"),
        (old("a"), "topologyProfile"),
        (old("a"), "topologyName"),
    ];
    for (graph, field) in spelled {
        let named = |more: Value| -> Value {
            let mut constraint = more;
            constraint[field] = json!("h100");
            set(graph.clone(), "/spec/topologyConstraint", constraint)
        };
        denied(&stage, &named(json!({"packDomain": "rack"})), absent).await?;
        let alone = "spec.topologyConstraint.packDomain: Required value: is required when no component topologyConstraint is set";
        denied(&stage, &named(json!({})), &format!("{alone}; {absent}")).await?;
        denied(&stage, &set(graph, "/spec/topologyConstraint", json!({})), alone).await?;
    }
    Ok(())
}

/// The schema of the newer version counts; the older one takes anything, and admission counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_has_at_most_25_services() -> Result<()> {
    let stage = Stage::new("many").await?;
    let of = |count: usize| {
        let worker = old("a")["spec"]["services"][0].take();
        let named = |index: usize| set(worker.clone(), "/name", json!(format!("w{index}")));
        let services: Vec<Value> = (0..count).map(named).collect();
        set(old("a"), "/spec/services", json!(services))
    };
    admitted(&stage, &of(25)).await?;
    denied(
        &stage,
        &of(26),
        "spec.components: Too many: 26: must have at most 25 items",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_grove_does_not_do_is_refused_by_name() -> Result<()> {
    let stage = Stage::new("scope").await?;
    let fields = [
        ("eppConfig", "gateways and their endpoint pickers are not supported"),
        (
            "ingress",
            "ingresses are not made here; point yours at the frontend's Service",
        ),
        ("modelRef", "DynamoModels are not served"),
        ("replica", "unknown field; correct or remove it"),
    ];
    for (field, why) in fields {
        let message = format!("spec.components[0].{field}: Forbidden: {why}");
        for (graph, items) in [(new("a"), "components"), (old("a"), "services")] {
            let written = set(graph, &format!("/spec/{items}/0/{field}"), json!({"enabled": true}));
            denied(&stage, &written, &message).await?;
        }
    }
    for field in ["checkpoint", "checkpoints"] {
        let message = format!("spec.{field}: Forbidden: checkpointing is not supported");
        denied(&stage, &set(new("a"), &format!("/spec/{field}"), json!({})), &message).await?;
    }
    for (annotation, value) in [
        ("nvidia.com/enable-grove", "false"),
        ("nvidia.com/workload-provider", "component"),
    ] {
        let message = format!(
            "metadata.annotations[{annotation}]: Forbidden: this operator requires the Grove pathway, but the annotation says \
             \"{value}\"; remove it"
        );
        for graph in [new("a"), old("a")] {
            denied(
                &stage,
                &set(graph, "/metadata/annotations", json!({annotation: value})),
                &message,
            )
            .await?;
        }
    }
    let restart = set(new("a"), "/spec/restart", json!({"id": "1"}));
    let message = "spec.restart: Forbidden: must be unset on create; set it later to restart the pods";
    denied(&stage, &restart, message).await?;
    // What cannot even be converted is told by the API server, in our words.
    let number = set(old("a"), "/spec/services", json!(7));
    let judged = create(&stage.client, &stage.namespace, &number, true).await;
    let words = "must be a list of services with names, or a map";
    match judged {
        Err(kube::Error::Api(status)) if status.message.contains(words) => Ok(()),
        other => anyhow::bail!("not refused with {words}: {other:?}"),
    }
}
