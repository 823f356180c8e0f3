//! What becomes of graphs that somebody disturbs.

use std::collections::BTreeMap;
use std::time::Duration;

use grove_api::dynamo::words;
use grove_api::{DynamoGraphDeployment, Pack, PodCliqueSet};
use grove_dynamo::translate::{Surroundings, translate};
use grove_simcluster::fault::{Match, WatchFault};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

use super::killed::{graph_writes, is_ready};
use super::topologies::{ALL, ENFORCED, LEVELS, change_topology, constrained, create_topology, lose_topology};
use super::world::{CONTROLLER, NAMESPACE, World};
use crate::graphs::{graph, with_worker};

#[tokio::test(start_paused = true)]
async fn a_set_that_is_deleted_by_hand_comes_back() {
    let world = World::start().await;
    world
        .create(&with_worker(json!({"topologyConstraint": {"packDomain": "rack"}})))
        .await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    let (set, pods) = (world.get::<PodCliqueSet>("g").await.uid(), world.pod_uids("g-").await);
    let begin = world.cluster.store().revision();
    world.delete::<PodCliqueSet>("g").await;
    world
        .eventually("another set runs", async |world| {
            let sets = world.list::<PodCliqueSet>().await;
            sets.iter().any(|other| other.uid() != set) && world.ready_pods().await.len() == 3
        })
        .await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.says("g", ENFORCED, ALL).await;
    world.settle().await;
    assert_eq!(world.pod_uids("g-").await.intersection(&pods).count(), 0);
    let said: Vec<bool> = graph_writes(&world, begin)
        .iter()
        .filter_map(|(_, graph)| Some(is_ready(graph.as_ref()?)))
        .collect();
    assert_eq!(said.first(), Some(&false), "nothing is ready without a set: {said:?}");
    assert!(said.is_sorted(), "and nothing of the set before counts: {said:?}");
    let told = world.told("g").await;
    assert_eq!(told.len(), 1, "the same constraints are applied again: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_changed_or_deleted_by_hand_is_mended() {
    let world = World::start().await;
    world.create(&graph(json!({}))).await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    world.delete::<Service>("g-frontend").await;
    world
        .merge::<Service>(
            "g-worker",
            json!({"spec": {"selector": {"nvidia.com/dynamo-component": "other"}}}),
        )
        .await;
    world.settle().await;
    assert!(world.get::<Service>("g-frontend").await.spec.is_some());
    let selector = selector(&world, "g-worker").await;
    assert_eq!(selector["nvidia.com/dynamo-component"], "Worker");
}

async fn selector(world: &World, service: &str) -> BTreeMap<String, String> {
    let spec = world.get::<Service>(service).await.spec;
    spec.and_then(|spec| spec.selector).unwrap_or_default()
}

/// A Service that is nobody's.
fn theirs(name: &str) -> Service {
    let spec = json!({"ports": [{"name": "theirs", "port": 1}], "selector": {"app": "theirs"}});
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}))
        .expect("a Service")
}

async fn warnings(world: &World) -> Vec<String> {
    let told = world.told("g").await.into_iter();
    told.filter(|(type_, ..)| type_ == "Warning")
        .map(|(_, reason, _)| reason)
        .collect()
}

// shows: DGD-20, DGD-21, DGD-24, DGD-25
#[tokio::test(start_paused = true)]
async fn a_level_that_is_gone_is_told_once_and_forgotten_when_it_returns() {
    let world = World::start().await;
    constrained(&world).await;
    world.settle().await;
    let pods = world.pod_uids("g-").await;
    change_topology(&world, &[LEVELS[0], LEVELS[2]]).await;
    world.says("g", ENFORCED, ("False", "TopologyLevelsUnavailable")).await;
    let status = world.status("g").await;
    let enforced = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == ENFORCED)
        .expect("a condition");
    assert_eq!(
        enforced.message,
        "Topology level 'rack' is no longer available in the cluster topology"
    );
    world.settle().await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    assert_eq!(world.pod_uids("g-").await, pods, "no pod pays for it");
    assert_eq!(warnings(&world).await, ["TopologyLevelsUnavailable"]);
    change_topology(&world, &LEVELS).await;
    world.says("g", ENFORCED, ALL).await;
    world.settle().await;
    assert_eq!(warnings(&world).await.len(), 1);
}

// shows: DGD-22, DGD-31
#[tokio::test(start_paused = true)]
async fn a_topology_that_is_gone_keeps_nothing_and_metadata_can_still_change() {
    let world = World::start().await;
    constrained(&world).await;
    world.settle().await;
    let pods = world.pod_uids("g-").await;
    lose_topology(&world).await;
    world.says("g", ENFORCED, ("False", "TopologyDefinitionNotFound")).await;
    world
        .says("g", "TopologyLevelsAvailable", ("False", "TopologyDefinitionNotFound"))
        .await;
    world
        .merge::<DynamoGraphDeployment>("g", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    world.settle().await;
    assert_eq!(warnings(&world).await, ["TopologyDefinitionNotFound"]);
    create_topology(&world).await;
    world.says("g", ENFORCED, ALL).await;
    world.settle().await;
    assert_eq!(world.pod_uids("g-").await, pods, "no pod pays for it");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_told_and_left_alone() {
    let world = World::start().await;
    world.create(&theirs("g-frontend")).await;
    world.create(&graph(json!({}))).await;
    world
        .eventually("the graph says so", async |world| {
            world.status("g").await.state.as_deref() == Some("failed")
        })
        .await;
    let status = world.status("g").await;
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .expect("a condition");
    assert_eq!(
        ready.message,
        "Service default/g-frontend already exists and belongs to nobody; rename or delete it"
    );
    assert_eq!(selector(&world, "g-frontend").await["app"], "theirs");
    world.delete::<Service>("g-frontend").await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    assert_eq!(world.list::<Pod>().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_namesake_that_was_not_seen_yet_is_not_written_to() {
    let world = World::start().await;
    world.create(&graph(json!({}))).await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    let services = Match::any().user(CONTROLLER).resource("", "services");
    let late = WatchFault::Delay(Duration::from_secs(60));
    let struck = world.cluster.faults().strike_watches(&services, late);
    assert!(struck > 0, "nobody watches Services");
    world.delete::<Service>("g-worker").await;
    world.create(&theirs("g-worker")).await;
    let changed = with_worker(json!({"type": "decode"}));
    world
        .merge::<DynamoGraphDeployment>("g", json!({"spec": changed.spec}))
        .await;
    world
        .eventually("the graph says whose the name is", async |world| {
            let conditions = world.status("g").await.conditions;
            let taken = "Service default/g-worker already exists and belongs to nobody; rename or delete it";
            conditions.iter().any(|condition| condition.message == taken)
        })
        .await;
    let stored = world.get::<Service>("g-worker").await;
    assert_eq!(stored.metadata.labels, None, "only what its own author wrote");
    assert_eq!(
        selector(&world, "g-worker").await,
        theirs("g-worker")
            .spec
            .and_then(|spec| spec.selector)
            .unwrap_or_default()
    );
}

/// A graph with a set that another operator made of it: the same in all but a constraint, written in its own form.
async fn with_their_set(world: &World, wanted: &DynamoGraphDeployment) {
    let made = world.create(wanted).await;
    let mut set = translate(&made, &Surroundings::default()).expect("a graph").set;
    set.metadata.annotations = Some(BTreeMap::from([(words::APPLIED_HASH.to_owned(), "theirs".to_owned())]));
    for clique in &mut set.spec.template.cliques {
        // Nobody has made our account yet.
        clique.spec.pod_spec.service_account_name = None;
    }
    let worker = &mut set.spec.template.cliques[1];
    worker.spec.pod_spec.termination_grace_period_seconds = Some(7);
    if let Some(constraint) = &mut worker.topology_constraint {
        let required = constraint.pack_domain.take();
        constraint.pack = Some(Pack {
            required,
            preferred: None,
        });
    }
    let sets = world.all::<PodCliqueSet>();
    sets.create(&PostParams::default(), &set).await.expect("a set");
    world.settle().await;
    assert_eq!(world.ready_pods().await.len(), 3);
}

/// What docs/migration.md says of a set that was left behind: it is the graph's, so it is written as ours would be.
#[tokio::test(start_paused = true)]
async fn a_set_that_another_operator_made_is_taken_over() {
    let mut world = World::start().await;
    world.stop_controller().await;
    with_their_set(&world, &graph(json!({}))).await;
    let before = world.pod_uids("g-0-worker").await;
    world.start_controller();
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    assert!(world.pod_uids("g-0-worker").await.is_disjoint(&before));
    world.delete::<DynamoGraphDeployment>("g").await;
    world.settle().await;

    world.stop_controller().await;
    with_their_set(
        &world,
        &with_worker(json!({"topologyConstraint": {"packDomain": "rack"}})),
    )
    .await;
    let before = world.pod_uids("g-0-worker").await;
    world.start_controller();
    world
        .eventually("the graph says why it cannot be", async |world| {
            let conditions = world.status("g").await.conditions;
            let why = "must not set both pack.required and deprecated packDomain";
            conditions.iter().any(|condition| condition.message.contains(why))
        })
        .await;
    assert_eq!(world.pod_uids("g-0-worker").await, before, "and its pods run on");
}
