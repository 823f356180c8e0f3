//! GT1–GT6: what stays below its minimum is torn down and comes back; what is above it is replaced.

use crate::workloads::{Minimum, running};
use crate::world::World;

/// Time goes by, and the cluster comes to rest again.
fn after(world: &mut World, seconds: i64) {
    world.advance(seconds);
    world.settle();
}

#[test]
fn gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay() {
    let mut world = running(Minimum::All, 10);
    let before = world.uids_of("w-0");
    world.lose_pod("w-0-pc-a");
    world.settle();
    assert_eq!(
        world.uids_of("w-0").intersection(&before).count(),
        9,
        "nothing happens before the delay"
    );
    after(&mut world, 10);
    assert_eq!(
        world.uids_of("w-0").intersection(&before).count(),
        0,
        "all pods are new"
    );
    assert_eq!((world.ready(), world.pending()), (0, 10));
    // Waiting for a place is no reason to recycle again.
    let waiting = world.uids_of("w-0");
    after(&mut world, 10_000);
    assert_eq!(world.uids_of("w-0"), waiting);
    world.places += 1;
    world.settle();
    assert_eq!(world.ready(), 10);
}

#[test]
fn gt2_a_lost_pod_of_a_group_at_its_minimum_recycles_the_replica() {
    let mut world = running(Minimum::All, 10);
    let before = world.uids_of("w-0");
    world.lose_pod("w-0-sg-x-0-pc-c");
    world.settle();
    after(&mut world, 11);
    assert_eq!(world.uids_of("w-0").intersection(&before).count(), 0);
    world.places += 1;
    world.settle();
    assert_eq!(world.ready(), 10);
}

#[test]
fn gt3_a_loss_above_the_minimum_is_tolerated() {
    let mut world = running(Minimum::One, 10);
    let before = world.uids_of("w-0");
    world.lose_pod("w-0-pc-a");
    world.settle();
    after(&mut world, 1_000);
    assert_eq!(world.uids_of("w-0").intersection(&before).count(), 9);
    world.lose_pod("w-0-pc-a");
    world.settle();
    after(&mut world, 11);
    assert_eq!(world.uids_of("w-0").intersection(&before).count(), 0);
}

#[test]
fn gt4_a_group_recycles_one_replica_and_the_set_when_none_is_left() {
    let mut world = running(Minimum::One, 10);
    let before = world.uids_of("w-0");
    for _ in 0..3 {
        world.lose_pod("w-0-sg-x-0-pc-c");
    }
    world.settle();
    after(&mut world, 11);
    let kept = |world: &World, prefix: &str| world.uids_of(prefix).intersection(&before).count();
    assert_eq!(
        (
            kept(&world, "w-0-sg-x-0"),
            kept(&world, "w-0-sg-x-1"),
            kept(&world, "w-0-pc-a")
        ),
        (0, 4, 2)
    );
    let taken: Vec<_> = world
        .pods_of("w-0-sg-x-0")
        .iter()
        .filter(|pod| pod.seen.is_scheduled())
        .map(|_| ())
        .collect();
    assert!(taken.is_empty(), "there is one free place, and its gang needs two");
    for _ in 0..3 {
        world.lose_pod("w-0-sg-x-1-pc-c");
    }
    world.settle();
    after(&mut world, 11);
    assert_eq!(kept(&world, "w-0"), 0);
    world.places = 10;
    world.settle();
    assert_eq!(world.ready(), 10);
}

#[test]
fn gt6_a_lost_pod_of_a_scaled_gang_is_just_replaced() {
    let mut world = running(Minimum::One, 10);
    let before = world.uids_of("w-0");
    world.lose_pod("w-0-sg-x-1-pc-c");
    world.places += 1;
    world.settle();
    after(&mut world, 1_000);
    assert_eq!(world.uids_of("w-0").intersection(&before).count(), 9);
    assert_eq!(world.ready(), 10);
}

#[test]
fn pods_stuck_on_a_dead_node_neither_block_nor_count() {
    let mut world = running(Minimum::All, 11);
    world.kill_node_under("w-0-pc-a");
    world.settle();
    assert_eq!(world.ready(), 10, "the replacement did not wait for the node");
    let stuck = world.pods.values().filter(|pod| pod.seen.is_terminating).count();
    assert_eq!(stuck, 1);
    assert_eq!(world.clique("w-0-pc-a").status.as_ref().unwrap().replicas, 2);
    after(&mut world, 10_000);
    assert_eq!(world.ready(), 10);
}
