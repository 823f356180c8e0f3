//! The rules of admission, as `kubectl` would show them, for graphs of both versions.

use anyhow::{Context as _, Result, ensure};
use grove_admission::Webhook;
use grove_admission::review::Request;
use grove_api::{ClusterTopology, PodCliqueSet};
use grove_e2e::eventually;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{LIMIT, Stage};

const TOPOLOGY: &str = "is immutable and cannot be added, removed, or changed after creation; delete and recreate the \
                        DynamoGraphDeployment to change topology constraints";

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

pub(crate) async fn refused(stage: &Stage, manifest: &Value, message: &str) -> Result<()> {
    match stage.create(manifest).await {
        Err(kube::Error::Api(status)) => {
            ensure!(
                status.message.contains(message),
                "{message}\nis not in\n{}",
                status.message
            );
            Ok(())
        }
        other => anyhow::bail!("not refused with {message}: {other:?}"),
    }
}

// shows: DGD-4, DGD-12, DGD-13, DGD-14, DGD-15, DGD-19
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_on_create() -> Result<()> {
    let stage = Stage::new("create").await?;
    let rack = |manifest: Value, items: &str| {
        set(
            manifest,
            &format!("/spec/{items}/0/topologyConstraint"),
            json!({"packDomain": "rack"}),
        )
    };
    let host = |manifest: Value| set(manifest, "/spec/topologyConstraint", json!({"packDomain": "host"}));
    let narrower = "spec.components[0].topologyConstraint.packDomain: Invalid value: \"rack\": must be equal to or narrower \
                    than the deployment-level domain \"host\"";
    refused(&stage, &host(rack(new("a"), "components")), narrower).await?;
    refused(&stage, &host(rack(old("a"), "services")), narrower).await?;
    // The schema of the newer version knows the words; the older one takes anything, and admission judges.
    let row = |manifest: Value| set(manifest, "/spec/topologyConstraint", json!({"packDomain": "row"}));
    refused(&stage, &row(new("a")), "Unsupported value: \"row\"").await?;
    refused(
        &stage,
        &row(old("a")),
        "Invalid value: \"row\": is not a topology domain; use one of region, zone",
    )
    .await?;
    let region = set(new("a"), "/spec/topologyConstraint", json!({"packDomain": "region"}));
    let missing = "does not exist in ClusterTopology \"grove-topology\"; available domains: [block host rack zone]";
    refused(&stage, &region, missing).await?;
    let named = |field: &str| json!({field: "h100", "packDomain": "rack"});
    let not_found =
        "clusterTopologyName: Invalid value: \"h100\": references a ClusterTopology resource that was not found";
    refused(
        &stage,
        &set(new("a"), "/spec/topologyConstraint", named("clusterTopologyName")),
        not_found,
    )
    .await?;
    for field in ["topologyProfile", "topologyName"] {
        refused(
            &stage,
            &set(old("a"), "/spec/topologyConstraint", named(field)),
            not_found,
        )
        .await?;
    }
    for (field, why) in [
        ("eppConfig", "gateways and their endpoint pickers are not supported"),
        ("replica", "unknown field"),
    ] {
        let message = format!("spec.components[0].{field}: Forbidden: {why}");
        refused(
            &stage,
            &set(new("a"), &format!("/spec/components/0/{field}"), json!({})),
            &message,
        )
        .await?;
        refused(
            &stage,
            &set(old("a"), &format!("/spec/services/0/{field}"), json!({})),
            &message,
        )
        .await?;
    }
    refused(
        &stage,
        &set(old("a"), "/spec/services", json!(7)),
        "must be a list of services with names, or a map",
    )
    .await?;
    let restart = set(new("a"), "/spec/restart", json!({"id": "1"}));
    refused(&stage, &restart, "spec.restart: Forbidden: must be unset on create").await
}

async fn give_topology(stage: &Stage, name: &str) -> Result<()> {
    let levels =
        json!([{"domain": "rack", "key": "example.com/rack"}, {"domain": "host", "key": "kubernetes.io/hostname"}]);
    let topology = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"levels": levels}}))?;
    let topologies: Api<ClusterTopology> = Api::all(stage.client.clone());
    topologies.create(&PostParams::default(), &topology).await?;
    Ok(())
}

/// The topology goes, by an admin who insists.
async fn lose_topology(stage: &Stage, name: &str) -> Result<()> {
    let topologies: Api<ClusterTopology> = Api::all(stage.client.clone());
    topologies.delete(name, &DeleteParams::default()).await?;
    let lifted = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // It is gone already if nobody had come to hold it.
    let _ = topologies.patch(name, &PatchParams::default(), &lifted).await;
    eventually("the topology to be gone", LIMIT, async || -> Result<()> {
        ensure!(topologies.get_opt(name).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    Ok(())
}

pub(crate) async fn edit(stage: &Stage, name: &str, patch: Value) -> Result<(), kube::Error> {
    let graphs = stage.graphs("v1beta1");
    graphs
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(drop)
}

// shows: DGD-1, DGD-6, DGD-16, DGD-17
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_on_update_and_what_never_is() -> Result<()> {
    let stage = Stage::new("update").await?;
    give_topology(&stage, "passing").await?;
    let constraint = json!({"clusterTopologyName": "passing", "packDomain": "rack"});
    stage
        .create(&set(new("a"), "/spec/topologyConstraint", constraint))
        .await?;
    stage.create(&new("bare")).await?;

    let forbidden = async |name: &str, patch: Value, message: &str| -> Result<()> {
        match edit(&stage, name, patch).await {
            Err(kube::Error::Api(status)) if status.message.contains(message) => Ok(()),
            other => anyhow::bail!("not refused with {message}: {other:?}"),
        }
    };
    let message = format!("spec.topologyConstraint: Forbidden: {TOPOLOGY}");
    forbidden(
        "a",
        json!({"spec": {"topologyConstraint": {"packDomain": "host"}}}),
        &message,
    )
    .await?;
    forbidden("a", json!({"spec": {"topologyConstraint": null}}), &message).await?;
    forbidden(
        "bare",
        json!({"spec": {"topologyConstraint": {"packDomain": "rack"}}}),
        &message,
    )
    .await?;
    let mut components = stage.stored("bare").await?.spec.components;
    components[0].topology_constraint = Some(serde_json::from_value(json!({"packDomain": "rack"}))?);
    let message = format!("spec.components[0].topologyConstraint: Forbidden: {TOPOLOGY}");
    forbidden("bare", json!({"spec": {"components": components}}), &message).await?;

    stage.says("a", "TopologyConstraintsEnforced", "True").await?;
    lose_topology(&stage, "passing").await?;
    stage.says("a", "TopologyConstraintsEnforced", "False").await?;
    edit(&stage, "a", json!({"metadata": {"labels": {"team": "chat"}}}))
        .await
        .context("a label")?;
    let mut components = stage.stored("a").await?.spec.components;
    components[0].replicas = 2;
    edit(&stage, "a", json!({"spec": {"components": components}}))
        .await
        .context("a number of replicas")?;
    Ok(())
}

/// The framework has the last word on what is made of a graph: a set that it refuses is told on the graph in its words, and
/// made as soon as it is taken.
// shows: DGD-33
#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_the_framework_refuses_is_told_on_the_graph() -> Result<()> {
    let stage = Stage::new("refused").await?;
    give_topology(&stage, "fleeting").await?;
    let constraint = json!({"clusterTopologyName": "fleeting", "packDomain": "rack"});
    stage
        .create(&set(new("a"), "/spec/topologyConstraint", constraint))
        .await?;
    stage.says("a", "TopologyConstraintsEnforced", "True").await?;
    lose_topology(&stage, "fleeting").await?;
    let sets: Api<PodCliqueSet> = Api::namespaced(stage.client.clone(), &stage.namespace);
    sets.delete("a", &DeleteParams::default()).await?;
    eventually("the refusal to be told", LIMIT, async || -> Result<()> {
        let status = stage.stored("a").await?.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let words = "ClusterTopology 'fleeting' not found";
        let told = ready.is_some_and(|ready| ready.status == "False" && ready.message.contains(words));
        ensure!(told && status.state.as_deref() == Some("failed"), "{status:?}");
        Ok(())
    })
    .await?;
    ensure!(
        sets.get_opt("a").await?.is_none(),
        "a set without its constraint was made"
    );
    give_topology(&stage, "fleeting").await?;
    stage.says("a", "TopologyConstraintsEnforced", "True").await
}

/// The operator may not read topologies: nothing can be promised, and trying again would not help.
// shows: DGD-15
#[tokio::test(flavor = "multi_thread")]
async fn a_topology_that_the_operator_may_not_read_is_a_refusal() -> Result<()> {
    let stage = Stage::new("unreadable").await?;
    let webhooks = stage.webhooks_without_rights().await?;
    let graph = set(new("a"), "/spec/topologyConstraint", json!({"packDomain": "rack"}));
    let answer = webhooks.answer(Webhook::ValidateGraph, &creation(&graph)?).await;
    let message = answer.to_review(&creation(&graph)?)["response"]["status"].take();
    assert_eq!(
        (&message["code"], &message["reason"]),
        (&json!(422), &json!("Invalid")),
        "{message}"
    );
    let message = message["message"].as_str().unwrap_or_default();
    for part in [
        "spec.topologyConstraint: failed to read the topology that the constraints are about: clustertopologies.grove.io \
         \"grove-topology\" is forbidden: User \"user\" cannot get resource",
        "give the operator the rights that `grove rbac` prints",
    ] {
        ensure!(message.contains(part), "{part}\nis not in\n{message}");
    }
    let free = webhooks.answer(Webhook::ValidateGraph, &creation(&new("a"))?).await;
    ensure!(
        free.is_admitted(),
        "without a constraint nobody reads a topology: {free:?}"
    );
    Ok(())
}

fn creation(graph: &Value) -> Result<Request> {
    let kind = json!({"group": "nvidia.com", "version": "v1beta1", "kind": "DynamoGraphDeployment"});
    let resource = json!({"group": "nvidia.com", "version": "v1beta1", "resource": "dynamographdeployments"});
    let request = json!({"uid": "u", "kind": kind, "resource": resource, "name": "a", "namespace": "unreadable",
        "operation": "CREATE", "userInfo": {"username": "ann"}, "object": graph});
    let review = json!({"request": request}).to_string();
    Request::parse(review.as_bytes()).map_err(anyhow::Error::msg)
}
