//! What stays below its minimum is torn down and comes back, whatever comes in between; GT1–GT6 themselves are in `gangs`.

use std::collections::BTreeSet;
use std::time::Duration;

use grove_api::conditions::podclique::MIN_AVAILABLE_BREACHED;
use grove_api::{PodClique, PodCliqueSet};
use grove_simcluster::fault::{Match, WatchFault};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::support::workloads::{Minimum, Order, running, workload};
use crate::support::{OPERATOR, Placer, World, by_both_profiles, is_ready};

/// How many pods are the same as before.
async fn kept(world: &World, prefix: &str, before: &BTreeSet<String>) -> usize {
    world.uids_of(prefix).await.intersection(before).count()
}

/// What is known of a breach is in the API: an operator that starts in the middle goes on where the other stopped.
#[tokio::test(start_paused = true)]
async fn the_delay_goes_on_while_the_operator_is_away() {
    let mut world = running(Minimum::All, 10).await;
    let before = world.uids_of("w-0").await;
    world.lose_pod("w-0-pc-a").await;
    world.settle().await;
    world.crash_operator().await;
    world.pass(8).await;
    assert_eq!(kept(&world, "w-0", &before).await, 9);
    world.start_operator();
    world.settle().await;
    assert_eq!(kept(&world, "w-0", &before).await, 0);
}

/// A container that crashes counts as lost; one that is still starting does not.
#[tokio::test(start_paused = true)]
async fn a_container_that_takes_long_to_start_is_no_breach() {
    let fleet = grove_simcluster::FleetOptions {
        ready_delay: std::time::Duration::from_secs(300),
        ..Default::default()
    };
    let world = World::with_fleet(10, fleet).await;
    world.create_set(&workload(Minimum::All, Order::Any)).await;
    world.settle().await;
    let before = world.uids_of("w-0").await;
    world.pass(400).await;
    assert_eq!(kept(&world, "w-0", &before).await, 10);
    assert_eq!(world.ready().await, 10);
}

/// KAI #1103: a label that was out of date led to the deletion of something alive. The watch of pods is late here, and so
/// is all that the operator believes and writes; before it tears down it asks, and finds everybody well.
#[tokio::test(start_paused = true)]
async fn pain_kai_1103_what_has_recovered_is_not_torn_down_on_old_news() {
    let world = running(Minimum::All, 10).await;
    let before = world.uids_of("w-0").await;
    let place = world.lose_pod("w-0-pc-a").await;
    world.settle().await;
    let pods = Match::any().user(OPERATOR).resource("", "pods");
    let struck = world
        .cluster
        .faults()
        .strike_watches(&pods, WatchFault::Delay(Duration::from_secs(60)));
    assert_eq!(struck, 1);
    world.cordon(&place, false).await;
    world.pass(30).await;
    let clique = world.get::<PodClique>("w-0-pc-a").await;
    let status = clique.status.expect("a status");
    assert!(
        status
            .conditions
            .iter()
            .any(|condition| condition.type_ == MIN_AVAILABLE_BREACHED && condition.status == "True"),
        "the operator does not know better yet"
    );
    assert_eq!(world.ready().await, 10);
    assert_eq!(kept(&world, "w-0", &before).await, 9);
    world.pass(60).await;
    assert_eq!(kept(&world, "w-0", &before).await, 9, "nor when the news has come");
}

/// What was asked for besides the template survives: an autoscaler's number, and that of somebody with `kubectl scale`.
async fn comes_back_as_large(manifest: String) {
    let world = World::with_places(13).await;
    world.create_set(&manifest).await;
    world.settle().await;
    world.scale::<PodClique>("w-0-pc-a", 5).await;
    world.settle().await;
    assert_eq!(world.ready().await, 13);
    let before = world.uids_of("w-0").await;
    let place = world.lose_pod("w-0-sg-x-0-pc-b").await;
    world.pass(60).await;
    assert_eq!(kept(&world, "w-0", &before).await, 0);
    assert_eq!(world.get::<PodClique>("w-0-pc-a").await.spec.replicas, 5);
    world.cordon(&place, false).await;
    world.settle().await;
    assert_eq!(world.ready().await, 13);
    // From here on the number is the new clique's own.
    world.scale::<PodClique>("w-0-pc-a", 3).await;
    world.settle().await;
    world.lose_pod("w-0-sg-x-0-pc-b").await;
    world.pass(60).await;
    assert_eq!(world.get::<PodClique>("w-0-pc-a").await.spec.replicas, 3);
}

#[tokio::test(start_paused = true)]
async fn a_clique_scaled_by_hand_comes_back_as_large_as_it_was() {
    comes_back_as_large(workload(Minimum::All, Order::Any)).await;
}

#[tokio::test(start_paused = true)]
async fn a_clique_that_an_autoscaler_scaled_comes_back_as_large_as_it_was() {
    let config = "roleName: pc-a\n        autoScalingConfig: {minReplicas: 2, maxReplicas: 5}\n";
    comes_back_as_large(workload(Minimum::All, Order::Any).replace("roleName: pc-a\n", config)).await;
}

/// Having run before it had no pods says nothing about the pods that it asks for now: they never had a place, and the
/// rest is well.
#[tokio::test(start_paused = true)]
async fn a_clique_that_returns_from_zero_to_no_room_tears_nothing_down() {
    let world = running(Minimum::All, 10).await;
    let nodes: BTreeSet<String> = world
        .pods_of("w-0-pc-a")
        .await
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    world.scale::<PodClique>("w-0-pc-a", 0).await;
    world.settle().await;
    for node in &nodes {
        world.cordon(node, true).await;
    }
    let before = world.uids_of("w-0-sg-x").await;
    world.scale::<PodClique>("w-0-pc-a", 2).await;
    world.pass(1_000).await;
    assert_eq!(kept(&world, "w-0-sg-x", &before).await, 8);
    for node in &nodes {
        world.cordon(node, false).await;
    }
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    // What has a place again and loses it is torn down as ever.
    world.lose_pod("w-0-pc-a").await;
    world.pass(60).await;
    assert_eq!(kept(&world, "w-0-sg-x", &before).await, 0);
}

by_both_profiles! {
    a_loss_that_the_operator_did_not_see_is_a_loss,
}

/// Nobody has recorded that the gang was whole but whoever placed it.
async fn a_loss_that_the_operator_did_not_see_is_a_loss(placer: Placer) {
    let mut world = World::placed_by(placer, 0).await;
    world.create_set(&workload(Minimum::All, Order::Any)).await;
    world.settle().await;
    world.crash_workload_operator().await;
    world.grow_to(10);
    world
        .eventually("all pods are ready", async |world| world.ready().await == 10)
        .await;
    let place = world.lose_pod("w-0-pc-a").await;
    world.settle().await;
    let before = world.uids_of("w-0").await;
    world.start_operator();
    world.pass(60).await;
    assert_eq!(kept(&world, "w-0", &before).await, 0);
    let now = world.uids_of("w-0").await;
    world.pass(60).await;
    assert_eq!(kept(&world, "w-0", &now).await, now.len(), "and once is enough");
    world.cordon(&place, false).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
}

/// A group that lacks its minimum all the time says nothing new when it loses another replica, which had run.
#[tokio::test(start_paused = true)]
async fn a_loss_in_a_group_that_was_short_already_is_a_loss() {
    let world = World::roomy_by(Placer::Cluster, 9, 1).await;
    // Room for one pod of pc-b, of which there are two.
    for node in 0..9 {
        let zone = if node == 0 { "b" } else { "rest" };
        let patch = Patch::Merge(json!({"metadata": {"labels": {"zone": zone}}}));
        let nodes = Api::<Node>::all(world.client.clone());
        let (name, how) = (format!("n{node:03}"), PatchParams::default());
        nodes.patch(&name, &how, &patch).await.expect("a node");
    }
    let mut set: PodCliqueSet = serde_saphyr::from_str(&workload(Minimum::All, Order::Any)).expect("a set");
    for clique in &mut set.spec.template.cliques {
        let zone = if clique.name == "pc-b" { "b" } else { "rest" };
        clique.spec.pod_spec.node_selector = Some([("zone".to_owned(), zone.to_owned())].into());
    }
    world.create(&set).await;
    world.settle().await;
    assert_eq!(world.ready().await, 9);
    let before = world.uids_of("w-0").await;
    let pods = world.pods_of("w-0-sg-x").await;
    let placed = pods.iter().find(|pod| pod.name_any().contains("pc-b") && is_ready(pod));
    world.lose_pod(&placed.expect("one of them").name_any()).await;
    world.pass(60).await;
    assert_eq!(kept(&world, "w-0", &before).await, 0);
}
