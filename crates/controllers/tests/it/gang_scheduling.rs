//! GS1–GS12: gangs start whole, and scaled gangs after their base.

use grove_api::conditions::podgang::SCHEDULED;
use grove_api::podgang::PodGangPhase;
use grove_api::{PodCliqueScalingGroup, PodCliqueSet, PodGang};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::support::workloads::{Minimum, Order, simple, workload};
use crate::support::{Placer, World, by_both_profiles};

async fn world(placer: Placer, minimum: Minimum, places: usize) -> World {
    let world = World::placed_by(placer, places).await;
    world.create_set(&workload(minimum, Order::Any)).await;
    world.settle().await;
    world
}

/// Gives the cluster so many places, lets it rest, and says how many pods are ready and pending.
async fn with_places(world: &World, places: usize) -> (usize, usize) {
    world.grow_to(places);
    world.settle().await;
    (world.ready().await, world.pending().await)
}

async fn scale_group(world: &World, group: &str, replicas: i32) {
    world.scale::<PodCliqueScalingGroup>(group, replicas).await;
}

async fn scale_set(world: &World, replicas: i32) {
    world.scale::<PodCliqueSet>("w", replicas).await;
}

by_both_profiles! {
    gs01_a_gang_that_does_not_fit_waits_whole,
    gs02_a_scaled_group_waits_as_its_own_gang,
    gs03_a_second_replica_waits_whole,
    gs04_replicas_and_groups_scale_together,
    gs05_the_minimum_runs_first_then_the_rest,
    gs06_a_scaled_gang_needs_only_its_own_minimum,
    gs07_scaled_gangs_come_one_by_one_as_room_does,
    gs08_scaled_before_any_capacity_the_base_comes_first,
    gs09_a_second_replica_comes_gang_by_gang,
    gs10_two_replicas_before_any_capacity,
    gs11_set_and_group_scale_in_turn,
    gs12_everything_up_front,
}

async fn gs01_a_gang_that_does_not_fit_waits_whole(placer: Placer) {
    let world = world(placer, Minimum::All, 9).await;
    assert_eq!(with_places(&world, 9).await, (0, 10));
    assert_eq!(with_places(&world, 10).await, (10, 0));
    let gang = world.get::<PodGang>("w-0").await;
    let status = gang.status.expect("a status");
    assert_eq!(status.phase, PodGangPhase::Running);
    // The condition of whoever places survives all that the operator wrote beside it.
    let mut scheduled = status
        .conditions
        .iter()
        .filter(|condition| condition.type_ == SCHEDULED);
    assert_eq!(
        scheduled.next().map(|condition| condition.status.as_str()),
        Some("True")
    );
    world.audit();
}

async fn gs02_a_scaled_group_waits_as_its_own_gang(placer: Placer) {
    let world = world(placer, Minimum::All, 10).await;
    scale_group(&world, "w-0-sg-x", 3).await;
    assert_eq!(with_places(&world, 13).await, (10, 4));
    assert_eq!(with_places(&world, 14).await, (14, 0));
    world.audit();
}

async fn gs03_a_second_replica_waits_whole(placer: Placer) {
    let world = world(placer, Minimum::All, 10).await;
    scale_set(&world, 2).await;
    assert_eq!(with_places(&world, 19).await, (10, 10));
    assert_eq!(with_places(&world, 20).await, (20, 0));
    world.audit();
}

async fn gs04_replicas_and_groups_scale_together(placer: Placer) {
    let world = world(placer, Minimum::All, 10).await;
    scale_set(&world, 2).await;
    assert_eq!(with_places(&world, 20).await, (20, 0));
    scale_group(&world, "w-0-sg-x", 3).await;
    scale_group(&world, "w-1-sg-x", 3).await;
    assert_eq!(with_places(&world, 27).await, (24, 4));
    assert_eq!(with_places(&world, 28).await, (28, 0));
    world.audit();
}

async fn gs05_the_minimum_runs_first_then_the_rest(placer: Placer) {
    let world = world(placer, Minimum::One, 2).await;
    assert_eq!(with_places(&world, 2).await, (0, 10));
    assert_eq!(with_places(&world, 3).await, (3, 7));
    for clique in ["w-0-pc-a", "w-0-sg-x-0-pc-b", "w-0-sg-x-0-pc-c"] {
        let bound = world.pods_of(clique).await;
        let bound = bound.iter().filter(|pod| crate::support::is_ready(pod)).count();
        assert_eq!(bound, 1, "{clique}");
    }
    assert_eq!(with_places(&world, 10).await, (10, 0));
    world.audit();
}

async fn gs06_a_scaled_gang_needs_only_its_own_minimum(placer: Placer) {
    let world = world(placer, Minimum::One, 10).await;
    scale_group(&world, "w-0-sg-x", 3).await;
    assert_eq!(with_places(&world, 11).await, (10, 4));
    assert_eq!(with_places(&world, 12).await, (12, 2));
    assert_eq!(with_places(&world, 14).await, (14, 0));
    world.audit();
}

async fn gs07_scaled_gangs_come_one_by_one_as_room_does(placer: Placer) {
    let world = world(placer, Minimum::One, 10).await;
    scale_group(&world, "w-0-sg-x", 4).await;
    assert_eq!(with_places(&world, 10).await, (10, 8));
    assert_eq!(with_places(&world, 12).await, (12, 6));
    let phase = async |gang: &str| world.get::<PodGang>(gang).await.status.expect("a status").phase;
    assert_eq!(phase("w-0-sg-x-1").await, PodGangPhase::Running);
    assert_eq!(phase("w-0-sg-x-2").await, PodGangPhase::Pending);
    assert_eq!(with_places(&world, 14).await, (14, 4));
    assert_eq!(phase("w-0-sg-x-2").await, PodGangPhase::Running);
    assert_eq!(with_places(&world, 18).await, (18, 0));
    world.audit();
}

async fn gs08_scaled_before_any_capacity_the_base_comes_first(placer: Placer) {
    let world = world(placer, Minimum::One, 0).await;
    scale_group(&world, "w-0-sg-x", 3).await;
    assert_eq!(with_places(&world, 3).await, (3, 11));
    assert_eq!(
        with_places(&world, 7).await,
        (7, 7),
        "two scaled gangs of two pods each"
    );
    assert_eq!(with_places(&world, 14).await, (14, 0));
    world.audit();
}

async fn gs09_a_second_replica_comes_gang_by_gang(placer: Placer) {
    let world = world(placer, Minimum::One, 10).await;
    scale_set(&world, 2).await;
    assert_eq!(with_places(&world, 12).await, (10, 10));
    assert_eq!(with_places(&world, 13).await, (13, 7));
    assert_eq!(with_places(&world, 15).await, (15, 5));
    assert_eq!(with_places(&world, 20).await, (20, 0));
    world.audit();
}

async fn gs10_two_replicas_before_any_capacity(placer: Placer) {
    let world = world(placer, Minimum::One, 0).await;
    scale_set(&world, 2).await;
    assert_eq!(with_places(&world, 6).await, (6, 14));
    assert_eq!(with_places(&world, 10).await, (10, 10));
    assert_eq!(with_places(&world, 20).await, (20, 0));
    world.audit();
}

async fn gs11_set_and_group_scale_in_turn(placer: Placer) {
    let world = world(placer, Minimum::One, 10).await;
    scale_group(&world, "w-0-sg-x", 3).await;
    assert_eq!(with_places(&world, 14).await, (14, 0));
    scale_set(&world, 2).await;
    assert_eq!(with_places(&world, 17).await, (17, 7));
    assert_eq!(with_places(&world, 24).await, (24, 0));
    scale_group(&world, "w-1-sg-x", 3).await;
    assert_eq!(with_places(&world, 26).await, (26, 2));
    assert_eq!(with_places(&world, 28).await, (28, 0));
    world.audit();
}

async fn gs12_everything_up_front(placer: Placer) {
    let world = world(placer, Minimum::One, 0).await;
    scale_set(&world, 2).await;
    world.settle().await;
    scale_group(&world, "w-0-sg-x", 3).await;
    scale_group(&world, "w-1-sg-x", 3).await;
    assert_eq!(with_places(&world, 0).await, (0, 28));
    assert_eq!(with_places(&world, 6).await, (6, 22));
    assert_eq!(with_places(&world, 14).await, (14, 14));
    assert_eq!(with_places(&world, 28).await, (28, 0));
    world.audit();
}

/// The minimum of a gang starts whole or not at all, at every moment of the run.
#[tokio::test(start_paused = true)]
async fn pods_of_scaled_gangs_stay_gated_until_the_base_is_placed() {
    let world = world(Placer::Scheduler, Minimum::One, 0).await;
    let gated = async |prefix: &str| {
        let pods = world.pods_of(prefix).await;
        let is_gated = |pod: &k8s_openapi::api::core::v1::Pod| {
            let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
            gates.is_some_and(|gates| !gates.is_empty())
        };
        pods.iter().filter(|pod| is_gated(pod)).count()
    };
    assert_eq!((gated("w-0-sg-x-0").await, gated("w-0-sg-x-1").await), (0, 4));
    with_places(&world, 3).await;
    assert_eq!(gated("w-0").await, 0);
    let status = world.set_status("w").await;
    let gangs = status
        .pod_gang_statuses
        .iter()
        .map(|gang| (gang.name.as_str(), gang.phase));
    let expected = [("w-0", PodGangPhase::Running), ("w-0-sg-x-0", PodGangPhase::Pending)];
    assert_eq!(gangs.collect::<Vec<_>>(), expected);
}

/// dynamo #7811, PR #8328, #10527: a gang of one pod for a workload of many ranks, and a status that stuck or drifted.
/// Without a minimum all ranks are needed; what somebody bends in what was made is bent back.
#[tokio::test(start_paused = true)]
async fn pain_dynamo_7811_a_gang_counts_all_of_its_ranks() {
    let world = World::with_places(3).await;
    let manifest = simple("w", 1, 4).replace("        minAvailable: 4\n", "");
    assert!(!manifest.contains("minAvailable"));
    world.create_set(&manifest).await;
    world.settle().await;
    let minimum = async || world.get::<PodGang>("w-0").await.spec.pod_groups[0].min_replicas;
    assert_eq!(minimum().await, 4);
    assert_eq!(world.ready().await, 0, "three of four ranks are of no use");
    world.grow_to(4);
    world.settle().await;
    assert_eq!(world.ready().await, 4);

    let alone = json!({"spec": {"podgroups": [{"name": "w-0-a", "minReplicas": 1, "podReferences": []}]}});
    world.merge::<PodGang>("w-0", alone).await;
    let everything = json!({"spec": {"selector": {"app.kubernetes.io/part-of": "other"}}});
    world.merge::<Service>("w-0", everything).await;
    world.settle().await;
    assert_eq!(minimum().await, 4);
    let selector = world.get::<Service>("w-0").await.spec.expect("a spec").selector;
    assert_eq!(selector.expect("a selector")["app.kubernetes.io/part-of"], "w");
    let status = world.set_status("w").await;
    assert_eq!(status.available_replicas, 1);
}
