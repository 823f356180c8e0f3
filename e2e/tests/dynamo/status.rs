//! What a graph says of its constraints while its pods run: every row of the status table and of the events, word for word.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use grove_api::PodCliqueSet;
use grove_e2e::eventually;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::rules::{new, set};
use crate::stage::{KEPT, LIMIT, Saying, Stage};
use crate::topologies::{LEVELS, change_topology, give_topology, lose_topology};

/// What is said when the level that a component names is gone.
const LEVEL_GONE: Saying<'_> = (
    "False",
    "TopologyLevelsUnavailable",
    "Topology level 'rack' is no longer available in the cluster topology",
);
const NO_RACK: [(&str, &str); 2] = [LEVELS[0], LEVELS[2]];

/// A graph of one worker that runs anywhere.
fn running(name: &str) -> Value {
    let mut graph = new(name);
    let pod = &mut graph["spec"]["components"][0]["podTemplate"]["spec"];
    pod.as_object_mut().expect("a pod").remove("nodeSelector");
    graph
}

/// The same in one zone of a topology, with its worker in one rack.
fn constrained(name: &str, topology: &str) -> Value {
    let of_graph = json!({"clusterTopologyName": topology, "packDomain": "zone"});
    let graph = set(running(name), "/spec/topologyConstraint", of_graph);
    set(
        graph,
        "/spec/components/0/topologyConstraint",
        json!({"packDomain": "rack"}),
    )
}

/// What people were told of a graph by its controller, in order: type, reason, note.
async fn told(stage: &Stage, graph: &str) -> Result<Vec<(String, String, String)>> {
    let events: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let mut events = events.list(&ListParams::default()).await?.items;
    events.retain(|event| {
        let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
        event.reporting_instance.as_deref() == Some("grove-dynamo") && about == Some(graph)
    });
    events.sort_by_key(|event| event.event_time.clone());
    let text = |text: Option<String>| text.unwrap_or_default();
    let told = events.into_iter().map(|event| {
        // Each is told once: an event that was counted up would be another transition that nobody sees.
        assert_eq!((event.series, event.deprecated_count), (None, None), "{:?}", event.note);
        (text(event.type_), text(event.reason), text(event.note))
    });
    Ok(told.collect())
}

/// Waits until people were told these things, and no others.
async fn is_told(stage: &Stage, graph: &str, expected: &[(&str, &str, String)]) -> Result<()> {
    let what = format!("{} events about {}/{graph}", expected.len(), stage.namespace);
    eventually(what, LIMIT, async || -> Result<()> {
        let found = told(stage, graph).await?;
        let as_expected = found
            .iter()
            .map(|(type_, reason, note)| (type_.as_str(), reason.as_str(), note.clone()));
        ensure!(as_expected.eq(expected.iter().cloned()), "told are {found:#?}");
        Ok(())
    })
    .await?;
    Ok(())
}

fn warning<'a>((_, reason, message): Saying<'a>) -> (&'a str, &'a str, String) {
    let note = format!("Topology constraints no longer enforced: {message}");
    ("Warning", reason, note)
}

async fn pods(stage: &Stage) -> Result<BTreeSet<Option<String>>> {
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let pods = pods.list(&ListParams::default()).await?;
    Ok(pods.iter().map(ResourceExt::uid).collect())
}

// shows: DGD-20, DGD-21, DGD-22, DGD-24, DGD-25, DGD-31
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_the_topology_is_said_and_told_once_each_time() -> Result<()> {
    let stage = Stage::new("status").await?;
    let operator = stage.operator().await?;
    give_topology(&stage, "told", &LEVELS).await?;
    stage.create(&constrained("a", "told")).await?;
    stage.is_ready("a").await?;
    stage.says_of_constraints("a", KEPT).await?;
    let applied = "Topology constraints applied: deployment in one zone, Worker in one rack";
    let mut expected = vec![("Normal", "TopologyConstraintsApplied", applied.to_owned())];
    is_told(&stage, "a", &expected).await?;
    let before = pods(&stage).await?;

    change_topology(&operator, "told", &NO_RACK).await?;
    stage.says_of_constraints("a", LEVEL_GONE).await?;
    stage.is_ready("a").await.context("pods run on")?;
    expected.push(warning(LEVEL_GONE));
    is_told(&stage, "a", &expected).await?;

    change_topology(&operator, "told", &LEVELS).await?;
    stage.says_of_constraints("a", KEPT).await?;
    lose_topology(&stage, "told").await?;
    let message = "ClusterTopology 'told' not found. Required constraints removed.";
    let gone = ("False", "TopologyDefinitionNotFound", message);
    stage.says_of_constraints("a", gone).await?;
    stage.is_ready("a").await.context("pods run on")?;
    expected.push(warning(gone));
    is_told(&stage, "a", &expected).await?;

    // From one way of not being kept to another is no transition.
    give_topology(&stage, "told", &NO_RACK).await?;
    stage.says_of_constraints("a", LEVEL_GONE).await?;
    change_topology(&operator, "told", &LEVELS).await?;
    stage.says_of_constraints("a", KEPT).await?;
    change_topology(&operator, "told", &NO_RACK).await?;
    stage.says_of_constraints("a", LEVEL_GONE).await?;
    expected.push(warning(LEVEL_GONE));
    is_told(&stage, "a", &expected).await?;
    assert_eq!(pods(&stage).await?, before, "no pod pays for it");
    Ok(())
}

// shows: DGD-1, DGD-23
#[tokio::test(flavor = "multi_thread")]
async fn without_constraints_nothing_is_said_of_them() -> Result<()> {
    let stage = Stage::new("unconstrained").await?;
    stage.create(&running("a")).await?;
    stage.is_ready("a").await?;
    let conditions = stage.stored("a").await?.status.unwrap_or_default().conditions;
    let types: Vec<&str> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["Ready"]);
    assert_eq!(told(&stage, "a").await?, []);
    Ok(())
}

/// The framework has the last word on what is made of a graph: a set that it refuses is told on the graph in its words, and
/// made as soon as it is taken. Meanwhile nobody knows whether constraints are kept.
// shows: DGD-33
#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_the_framework_refuses_is_told_on_the_graph() -> Result<()> {
    let stage = Stage::new("refused").await?;
    give_topology(&stage, "fleeting", &LEVELS).await?;
    let constraint = json!({"clusterTopologyName": "fleeting", "packDomain": "rack"});
    stage
        .create(&set(new("a"), "/spec/topologyConstraint", constraint))
        .await?;
    stage.says_of_constraints("a", KEPT).await?;
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
    let waiting = "Waiting for topology condition from the scheduling framework";
    let pending = ("Unknown", "TopologyConditionPending", waiting);
    stage.says_of_constraints("a", pending).await?;
    give_topology(&stage, "fleeting", &LEVELS).await?;
    stage.says_of_constraints("a", KEPT).await
}

/// What the configuration fills into sets of users that say nothing is not for graphs: they ask for closeness themselves.
// shows: DGD-1, DGD-6, DGD-26
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_without_constraints_gets_none_from_the_configuration() -> Result<()> {
    let stage = Stage::new("no-default").await?;
    let sets: Api<PodCliqueSet> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let theirs = grove_scenarios::set("theirs", (1, 1), json!({}));
    let theirs = sets.create(&PostParams::default(), &theirs).await?;
    ensure!(
        theirs.spec.template.topology_constraint.is_some(),
        "the default is in force"
    );
    stage.create(&running("g")).await?;
    stage.is_ready("g").await?;
    let template = sets.get("g").await?.spec.template;
    let mut constraints = vec![template.topology_constraint];
    constraints.extend(template.cliques.into_iter().map(|clique| clique.topology_constraint));
    constraints.extend(
        template
            .scaling_groups
            .into_iter()
            .map(|group| group.topology_constraint),
    );
    ensure!(constraints.iter().all(Option::is_none), "{constraints:?}");
    let status = stage.stored("g").await?.status.unwrap_or_default();
    let types: Vec<&str> = status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    ensure!(types == ["Ready"], "{types:?}");
    ensure!(told(&stage, "g").await?.is_empty(), "nothing is told of constraints");
    Ok(())
}
