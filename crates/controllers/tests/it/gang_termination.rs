//! GT1–GT6: what stays below its minimum is torn down and comes back; what is above it is replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use grove_api::conditions::podclique::MIN_AVAILABLE_BREACHED;
use grove_api::conditions::scaling_group::GANG_TERMINATION_IN_PROGRESS;
use grove_api::{PodClique, PodCliqueScalingGroup};
use grove_simcluster::fault::{Match, WatchFault};

use crate::support::workloads::{Minimum, Order, running, running_by, workload};
use crate::support::{OPERATOR, Placer, World, by_both_profiles};

/// How many pods are the same as before.
async fn kept(world: &World, prefix: &str, before: &BTreeSet<String>) -> usize {
    world.uids_of(prefix).await.intersection(before).count()
}

/// How many pods of the group's two replicas and of the standalone clique are the same as before.
async fn kept_of_parts(world: &World, before: &BTreeSet<String>) -> [usize; 3] {
    let [first, second, alone] = ["w-0-sg-x-0", "w-0-sg-x-1", "w-0-pc-a"].map(|prefix| kept(world, prefix, before));
    [first.await, second.await, alone.await]
}

/// Gives all places back and sees everything run again.
async fn recovers(world: &World) {
    world.cordon_all(false).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
}

by_both_profiles! {
    gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay,
    gt2_a_lost_pod_of_a_group_at_its_minimum_recycles_the_replica,
    gt3_a_loss_above_the_minimum_is_tolerated,
    gt4_a_group_recycles_one_replica_and_the_set_when_none_is_left,
    gt5_a_lost_pod_recycles_only_its_replica_of_the_group,
    gt6_a_lost_pod_of_a_scaled_gang_is_just_replaced,
}

async fn gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay(placer: Placer) {
    let world = running_by(placer, Minimum::All, 10).await;
    let before = world.uids_of("w-0").await;
    let place = world.lose_pod("w-0-pc-a").await;
    world.settle().await;
    assert_eq!(
        kept(&world, "w-0", &before).await,
        9,
        "nothing happens before the delay"
    );
    world.pass(10).await;
    assert_eq!(kept(&world, "w-0", &before).await, 0, "all pods are new");
    assert_eq!((world.ready().await, world.pending().await), (0, 10));
    // Waiting for a place is no reason to recycle again.
    let waiting = world.uids_of("w-0").await;
    world.pass(10_000).await;
    assert_eq!(world.uids_of("w-0").await, waiting);
    world.cordon(&place, false).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    let group = world.get::<PodCliqueScalingGroup>("w-0-sg-x").await;
    let conditions = group.status.expect("a status").conditions;
    let mut flags = conditions
        .iter()
        .filter(|condition| condition.type_ == GANG_TERMINATION_IN_PROGRESS);
    assert!(flags.all(|flag| flag.status != "True"), "the episode is over");
    world.audit();
}

async fn gt2_a_lost_pod_of_a_group_at_its_minimum_recycles_the_replica(placer: Placer) {
    let world = running_by(placer, Minimum::All, 10).await;
    let before = world.uids_of("w-0").await;
    let place = world.lose_pod("w-0-sg-x-0-pc-c").await;
    world.settle().await;
    assert_eq!(kept(&world, "w-0", &before).await, 9);
    world.pass(11).await;
    assert_eq!(kept(&world, "w-0", &before).await, 0);
    world.cordon(&place, false).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world.audit();
}

async fn gt3_a_loss_above_the_minimum_is_tolerated(placer: Placer) {
    let world = running_by(placer, Minimum::One, 10).await;
    let before = world.uids_of("w-0").await;
    world.lose_pod("w-0-pc-a").await;
    world.settle().await;
    world.pass(1_000).await;
    assert_eq!(kept(&world, "w-0", &before).await, 9);
    world.lose_pod("w-0-pc-a").await;
    world.settle().await;
    world.pass(11).await;
    assert_eq!(kept(&world, "w-0", &before).await, 0);
    recovers(&world).await;
    world.audit();
}

async fn gt4_a_group_recycles_one_replica_and_the_set_when_none_is_left(placer: Placer) {
    let world = running_by(placer, Minimum::One, 10).await;
    let before = world.uids_of("w-0").await;
    for _ in 0..3 {
        world.lose_pod("w-0-sg-x-0-pc-c").await;
    }
    world.settle().await;
    world.pass(11).await;
    assert_eq!(kept_of_parts(&world, &before).await, [0, 4, 2]);
    for _ in 0..3 {
        world.lose_pod("w-0-sg-x-1-pc-c").await;
    }
    world.settle().await;
    world.pass(11).await;
    assert_eq!(kept(&world, "w-0", &before).await, 0);
    recovers(&world).await;
    world.audit();
}

/// W2, but pc-c needs all three of its pods.
async fn gt5_a_lost_pod_recycles_only_its_replica_of_the_group(placer: Placer) {
    let world = World::placed_by(placer, 10).await;
    let manifest = workload(Minimum::One, Order::Any);
    let clique_c = manifest.find("name: pc-c").expect("pc-c");
    let (head, tail) = manifest.split_at(clique_c);
    world
        .create_set(&format!(
            "{head}{}",
            tail.replacen("minAvailable: 1", "minAvailable: 3", 1)
        ))
        .await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    let before = world.uids_of("w-0").await;
    world.lose_pod("w-0-sg-x-0-pc-c").await;
    world.settle().await;
    assert_eq!(kept(&world, "w-0", &before).await, 9);
    world.pass(11).await;
    assert_eq!(kept_of_parts(&world, &before).await, [0, 4, 2]);
    recovers(&world).await;
    assert_eq!(kept(&world, "w-0", &before).await, 6);
    world.audit();
}

async fn gt6_a_lost_pod_of_a_scaled_gang_is_just_replaced(placer: Placer) {
    let world = running_by(placer, Minimum::One, 11).await;
    let before = world.uids_of("w-0").await;
    world.lose_pod("w-0-sg-x-1-pc-c").await;
    world.settle().await;
    world.pass(1_000).await;
    assert_eq!(kept(&world, "w-0", &before).await, 9);
    assert_eq!(world.ready().await, 10);
    world.audit();
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
