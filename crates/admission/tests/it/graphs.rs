//! Graphs of Dynamo through their webhook: what the topology must say, and when nobody asks it.

use anyhow::Result;
use grove_admission::Webhook;
use grove_api::{ClusterTopology, DynamoGraphDeployment, DynamoGraphDeploymentScalingAdapter};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::kit::{message, request, serve, serve_with_kinds};

const CONFIGURATION: &str = "\
dynamo: {enabled: true}
topologyAwareScheduling:
  enabled: true
  levels: [{domain: rack, key: example.com/rack}, {domain: host, key: kubernetes.io/hostname}]
";

fn graph(constraint: Value) -> Value {
    let template = json!({"spec": {"containers": [{"name": "main", "image": "server"}]}});
    json!({
        "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "g", "namespace": "ns"},
        "spec": {"components": [{"name": "Frontend", "type": "frontend", "podTemplate": template}], "topologyConstraint": constraint},
    })
}

fn create(graph: &Value) -> Value {
    request("CREATE", "dynamographdeployments", Value::Null, graph.clone())
}

/// Not even the kind of topology is installed: nothing can be promised.
// shows: DGD-15
#[tokio::test]
async fn without_a_topology_a_constraint_is_refused() -> Result<()> {
    let served = serve(CONFIGURATION).await?;
    let constrained = graph(json!({"packDomain": "rack"}));
    let answer = served.ask(Webhook::ValidateGraph, create(&constrained)).await?;
    assert_eq!(
        message(&answer),
        "spec.topologyConstraint.clusterTopologyName: Invalid value: \"grove-topology\": references a ClusterTopology resource \
         that was not found"
    );
    let free = served.ask(Webhook::ValidateGraph, create(&graph(Value::Null))).await?;
    assert_eq!(free["allowed"], true, "{free}");

    // What exists stays: a label, a scaling.
    let mut labelled = constrained.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let mut scaled = constrained.clone();
    scaled["spec"]["components"][0]["replicas"] = json!(2);
    for edited in [labelled, scaled] {
        let update = request("UPDATE", "dynamographdeployments", constrained.clone(), edited);
        let answer = served.ask(Webhook::ValidateGraph, update).await?;
        assert_eq!(answer["allowed"], true, "{answer}");
    }
    Ok(())
}

/// Stored by something that our types cannot read, an object is still no new one: no topology is asked, and constraints stay.
// shows: DGD-16
#[tokio::test]
async fn what_cannot_be_read_can_be_mended_without_its_topology() -> Result<()> {
    let served = serve(CONFIGURATION).await?;
    let mended = graph(json!({"packDomain": "rack"}));
    let mut stored = mended.clone();
    stored["spec"]["components"][0]["replicas"] = json!("two");
    let update = |new: &Value| request("UPDATE", "dynamographdeployments", stored.clone(), new.clone());
    let answer = served.ask(Webhook::ValidateGraph, update(&mended)).await?;
    assert_eq!(answer["allowed"], true, "{answer}");

    let immutable = "is immutable and cannot be added, removed, or changed after creation; delete and recreate the \
                     DynamoGraphDeployment to change topology constraints";
    let mut other = mended.clone();
    other["spec"]["topologyConstraint"] = Value::Null;
    other["spec"]["components"][0]["topologyConstraint"] = json!({"packDomain": "host"});
    let answer = served.ask(Webhook::ValidateGraph, update(&other)).await?;
    assert_eq!(
        message(&answer),
        format!(
            "spec.topologyConstraint: Forbidden: {immutable}; spec.components[0].topologyConstraint: Forbidden: {immutable}"
        )
    );
    let mut wrong = mended;
    wrong["spec"]["components"][0]["replicas"] = json!(-1);
    let answer = served.ask(Webhook::ValidateGraph, update(&wrong)).await?;
    assert_eq!(answer["allowed"], false, "what comes is judged: {answer}");
    Ok(())
}

#[tokio::test]
async fn another_engine_is_refused_with_a_warning() -> Result<()> {
    let served = serve(CONFIGURATION).await?;
    let old = graph(Value::Null);
    let mut new = old.clone();
    new["spec"]["backendFramework"] = json!("vllm");
    let answer = served
        .ask(
            Webhook::ValidateGraph,
            request("UPDATE", "dynamographdeployments", old.clone(), new),
        )
        .await?;
    assert_eq!(
        message(&answer),
        "spec.backendFramework: Forbidden: is immutable and cannot be changed after creation"
    );
    let warning =
        "spec.backendFramework: pods of another engine are another graph; delete this one and create it again";
    assert_eq!(answer["warnings"], json!([warning]));
    let same = request("UPDATE", "dynamographdeployments", old.clone(), old);
    let answer = served.ask(Webhook::ValidateGraph, same).await?;
    assert!(answer["warnings"].is_null(), "{answer}");
    Ok(())
}

/// The topology is read at the moment of the question: a graph right after its topology is admitted.
// shows: DGD-14
#[tokio::test]
async fn the_live_topology_is_asked() -> Result<()> {
    let served = serve_with_kinds(CONFIGURATION).await?;
    let topology =
        json!({"metadata": {"name": "h100"}, "spec": {"levels": [{"domain": "rack", "key": "example.com/rack"}]}});
    let topologies: Api<ClusterTopology> = Api::all(served.cluster.client());
    topologies
        .create(&PostParams::default(), &serde_json::from_value(topology)?)
        .await?;
    let on = |word: &str| graph(json!({"clusterTopologyName": "h100", "packDomain": word}));
    let answer = served.ask(Webhook::ValidateGraph, create(&on("rack"))).await?;
    assert_eq!(answer["allowed"], true, "{answer}");
    let answer = served.ask(Webhook::ValidateGraph, create(&on("host"))).await?;
    assert_eq!(
        message(&answer),
        "spec.topologyConstraint.packDomain: Invalid value: \"host\": does not exist in ClusterTopology \"h100\"; available \
         domains: [rack]"
    );
    Ok(())
}

/// Autoscalers come by `scale`, people also by a plain update; and nobody makes an adapter but the operator.
#[tokio::test]
async fn an_adapter_may_ask_for_what_its_component_can_have() -> Result<()> {
    let served = serve_with_kinds(CONFIGURATION).await?;
    let mut stored = graph(Value::Null);
    stored["metadata"]["namespace"] = json!("default");
    stored["spec"]["components"][0]["minAvailable"] = json!(2);
    let graphs: Api<DynamoGraphDeployment> = Api::namespaced(served.cluster.client(), "default");
    graphs
        .create(&PostParams::default(), &serde_json::from_value(stored)?)
        .await?;
    let adapter = |replicas: i32| {
        json!({"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentScalingAdapter",
            "metadata": {"name": "g-frontend", "namespace": "default"},
            "spec": {"replicas": replicas, "dgdRef": {"name": "g", "componentName": "Frontend"}}})
    };
    let resource = "dynamographdeploymentscalingadapters";
    let created = request("CREATE", resource, Value::Null, adapter(2));
    let answer = served.ask(Webhook::ValidateGraph, created).await?;
    assert!(
        message(&answer).contains("adapters are made by the operator"),
        "{answer}"
    );

    let adapters: Api<DynamoGraphDeploymentScalingAdapter> = Api::namespaced(served.cluster.client(), "default");
    adapters
        .create(&PostParams::default(), &serde_json::from_value(adapter(2))?)
        .await?;
    for (replicas, allowed) in [(0, true), (1, false), (2, true), (9, true)] {
        for sub_resource in ["", "scale"] {
            let mut update = request("UPDATE", resource, adapter(3), adapter(replicas));
            update["subResource"] = json!(sub_resource);
            let answer = served.ask(Webhook::ValidateGraph, update).await?;
            assert_eq!(answer["allowed"], allowed, "{replicas} {sub_resource}: {answer}");
        }
    }
    Ok(())
}
