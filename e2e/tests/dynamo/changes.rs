//! The rules of admission for graphs that exist, in both versions: what cannot change, and what always can.

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::rules::{is_denied, new, old, set};
use crate::stage::{KEPT, Stage};
use crate::topologies::{LEVELS, give_topology, lose_topology};

const TOPOLOGY: &str = "is immutable and cannot be added, removed, or changed after creation; delete and recreate the \
                        DynamoGraphDeployment to change topology constraints";

/// Changes a graph by a merge patch, in one of its versions.
pub(crate) async fn edit(stage: &Stage, name: &str, patch: Value) -> Result<(), kube::Error> {
    edit_in(stage, "v1beta1", name, patch).await
}

async fn edit_in(stage: &Stage, version: &str, name: &str, patch: Value) -> Result<(), kube::Error> {
    let graphs = stage.graphs(version);
    let edited = graphs.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    edited.map(drop)
}

/// A graph of the name with these constraints on itself and on its worker; null for none.
fn graph(name: &str, of_graph: &Value, of_worker: &Value) -> [(&'static str, Value); 2] {
    let versions = [
        ("v1beta1", new(name), "components"),
        ("v1alpha1", old(name), "services"),
    ];
    versions.map(|(version, mut graph, items)| {
        if !of_graph.is_null() {
            graph["spec"]["topologyConstraint"] = of_graph.clone();
        }
        if !of_worker.is_null() {
            graph["spec"][items][0]["topologyConstraint"] = of_worker.clone();
        }
        (version, graph)
    })
}

/// The patch that makes `from` have the constraints of `to`: a merge takes away only what it names.
fn patch(mut to: Value, from: &Value) -> Value {
    if to["spec"]["topologyConstraint"].is_null() && !from["spec"]["topologyConstraint"].is_null() {
        to["spec"]["topologyConstraint"] = Value::Null;
    }
    json!({"spec": to["spec"]})
}

/// Added, removed and changed: on the deployment, on the service, and on both at once.
// shows: DGD-6, DGD-16, DGD-17
#[tokio::test(flavor = "multi_thread")]
async fn constraints_cannot_be_added_removed_or_changed() -> Result<()> {
    let stage = Stage::new("immutable").await?;
    let none = Value::Null;
    let word = |word: &str| json!({"packDomain": word});
    let states = [
        (none.clone(), none.clone()),
        (word("zone"), none.clone()),
        (word("block"), none.clone()),
        (none.clone(), word("rack")),
        (none.clone(), word("host")),
        (word("zone"), word("rack")),
        (word("block"), word("host")),
    ];
    let of_graph = format!("spec.topologyConstraint: Forbidden: {TOPOLOGY}");
    let of_worker = format!("spec.components[0].topologyConstraint: Forbidden: {TOPOLOGY}");
    for (index, from) in states.iter().enumerate() {
        let name = format!("g{index}");
        let before = graph(&name, &from.0, &from.1);
        stage.create(&before[index % 2].1).await.context("a good graph")?;
        for to in &states {
            let mut expected = Vec::new();
            expected.extend((from.0 != to.0).then_some(of_graph.as_str()));
            expected.extend((from.1 != to.1).then_some(of_worker.as_str()));
            for ((version, after), (_, before)) in graph(&name, &to.0, &to.1).into_iter().zip(&before) {
                let edited = edit_in(&stage, version, &name, patch(after, before)).await;
                let context = || format!("{version}: {from:?} to {to:?}");
                match expected.is_empty() {
                    true => edited.with_context(context)?,
                    false => is_denied(edited, &expected.join("; ")).with_context(context)?,
                }
            }
        }
    }
    Ok(())
}

/// The name of the topology belongs to the constraint.
// shows: DGD-16, DGD-31, DGD-36
#[tokio::test(flavor = "multi_thread")]
async fn another_topology_cannot_be_named_but_for_another_graph() -> Result<()> {
    let stage = Stage::new("renamed").await?;
    give_topology(&stage, "first", &LEVELS).await?;
    give_topology(&stage, "second", &LEVELS).await?;
    let named = |name: &str, word: &str| {
        let constraint = json!({"clusterTopologyName": name, "packDomain": word});
        set(new("a"), "/spec/topologyConstraint", constraint)
    };
    stage.create(&named("first", "zone")).await?;
    let message = format!("spec.topologyConstraint: Forbidden: {TOPOLOGY}");
    let edited = edit(
        &stage,
        "a",
        json!({"spec": {"topologyConstraint": {"clusterTopologyName": "second"}}}),
    );
    is_denied(edited.await, &message)?;
    // Deleted and created again it is another graph, with constraints of its own.
    stage.says_of_constraints("a", KEPT).await?;
    let uid = stage.stored("a").await?.metadata.uid;
    stage.graphs("v1beta1").delete("a", &DeleteParams::foreground()).await?;
    let made = grove_e2e::eventually("the name to be free", crate::stage::LIMIT, async || {
        stage.create(&named("second", "rack")).await
    });
    assert_ne!(made.await?["metadata"]["uid"], json!(uid));
    stage.says_of_constraints("a", KEPT).await
}

/// With its topology gone a graph can still be labelled and scaled: nothing of it is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_whose_topology_is_gone_can_still_change() -> Result<()> {
    let stage = Stage::new("update").await?;
    give_topology(&stage, "passing", &LEVELS).await?;
    let constraint = json!({"clusterTopologyName": "passing", "packDomain": "rack"});
    stage
        .create(&set(new("a"), "/spec/topologyConstraint", constraint))
        .await?;
    stage.says_of_constraints("a", KEPT).await?;
    lose_topology(&stage, "passing").await?;
    let message = "ClusterTopology 'passing' not found. Required constraints removed.";
    stage
        .says_of_constraints("a", ("False", "TopologyDefinitionNotFound", message))
        .await?;
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

/// Metadata can change, but not to ask for what would be passed over in silence.
#[tokio::test(flavor = "multi_thread")]
async fn another_pathway_cannot_be_asked_for_later() -> Result<()> {
    let stage = Stage::new("pathway").await?;
    stage.create(&new("a")).await?;
    let asked = json!({"metadata": {"annotations": {"nvidia.com/enable-grove": "false"}}});
    let message = "metadata.annotations[nvidia.com/enable-grove]: Forbidden: this operator requires the Grove pathway, but the \
                   annotation says \"false\"; remove it";
    is_denied(edit(&stage, "a", asked).await, message)?;
    Ok(edit(&stage, "a", json!({"metadata": {"annotations": {"note": "mine"}}})).await?)
}
