//! GS1–GS12 of the upstream scenarios: gangs start whole, and scaled gangs after their base.

use grove_api::podgang::PodGangPhase;

use crate::workloads::{Minimum, workload};
use crate::world::World;

fn world(minimum: Minimum) -> World {
    World::new(&workload(minimum, "AnyOrder"))
}

/// Gives the cluster so many places, lets it rest, and says how many pods are ready and pending.
fn with_places(world: &mut World, places: usize) -> (usize, usize) {
    world.places = places;
    world.settle();
    (world.ready(), world.pending())
}

#[test]
fn gs1_a_gang_that_does_not_fit_waits_whole() {
    let mut world = world(Minimum::All);
    assert_eq!(with_places(&mut world, 9), (0, 10));
    assert_eq!(with_places(&mut world, 10), (10, 0));
    assert_eq!(world.gangs[0].status.as_ref().unwrap().phase, PodGangPhase::Running);
    assert_eq!(world.settle(), 0, "nothing is written at rest");
}

#[test]
fn gs2_a_scaled_group_waits_as_its_own_gang() {
    let mut world = world(Minimum::All);
    with_places(&mut world, 10);
    world.scale_group("w-0-sg-x", 3);
    assert_eq!(with_places(&mut world, 13), (10, 4));
    assert_eq!(with_places(&mut world, 14), (14, 0));
}

#[test]
fn gs3_a_second_replica_waits_whole() {
    let mut world = world(Minimum::All);
    with_places(&mut world, 10);
    world.edit(|set| set.spec.replicas = 2);
    assert_eq!(with_places(&mut world, 19), (10, 10));
    assert_eq!(with_places(&mut world, 20), (20, 0));
}

#[test]
fn gs4_replicas_and_groups_scale_together() {
    let mut world = world(Minimum::All);
    with_places(&mut world, 10);
    world.edit(|set| set.spec.replicas = 2);
    with_places(&mut world, 20);
    world.scale_group("w-0-sg-x", 3);
    world.scale_group("w-1-sg-x", 3);
    assert_eq!(with_places(&mut world, 27), (24, 4));
    assert_eq!(with_places(&mut world, 28), (28, 0));
}

#[test]
fn gs5_the_minimum_runs_first_then_the_rest() {
    let mut world = world(Minimum::One);
    assert_eq!(with_places(&mut world, 2), (0, 10));
    assert_eq!(with_places(&mut world, 3), (3, 7));
    let ready = |world: &World, prefix: &str| world.pods_of(prefix).iter().filter(|pod| pod.seen.is_ready()).count();
    for clique in ["w-0-pc-a", "w-0-sg-x-0-pc-b", "w-0-sg-x-0-pc-c"] {
        assert_eq!(ready(&world, clique), 1, "{clique}");
    }
    assert_eq!(with_places(&mut world, 10), (10, 0));
}

#[test]
fn gs6_a_scaled_gang_needs_only_its_own_minimum() {
    let mut world = world(Minimum::One);
    with_places(&mut world, 10);
    world.scale_group("w-0-sg-x", 3);
    assert_eq!(with_places(&mut world, 11), (10, 4));
    assert_eq!(with_places(&mut world, 12), (12, 2));
    assert_eq!(with_places(&mut world, 14), (14, 0));
}

#[test]
fn gs8_scaled_before_any_capacity_the_base_comes_first() {
    let mut world = world(Minimum::One);
    with_places(&mut world, 0);
    world.scale_group("w-0-sg-x", 3);
    assert_eq!(with_places(&mut world, 3), (3, 11));
    // Two scaled gangs of two pods each.
    assert_eq!(with_places(&mut world, 7), (7, 7));
    assert_eq!(with_places(&mut world, 14), (14, 0));
}

#[test]
fn gs9_and_gs10_a_second_replica_comes_gang_by_gang() {
    for before_capacity in [false, true] {
        let mut world = world(Minimum::One);
        with_places(&mut world, if before_capacity { 0 } else { 10 });
        world.edit(|set| set.spec.replicas = 2);
        if before_capacity {
            assert_eq!(with_places(&mut world, 6), (6, 14));
            assert_eq!(with_places(&mut world, 10), (10, 10));
        } else {
            assert_eq!(with_places(&mut world, 13), (13, 7));
        }
        assert_eq!(with_places(&mut world, 20), (20, 0));
    }
}

#[test]
fn gs12_everything_up_front() {
    let mut world = world(Minimum::One);
    world.edit(|set| set.spec.replicas = 2);
    with_places(&mut world, 0);
    world.scale_group("w-0-sg-x", 3);
    world.scale_group("w-1-sg-x", 3);
    assert_eq!(with_places(&mut world, 0), (0, 28));
    assert_eq!(with_places(&mut world, 6), (6, 22));
    assert_eq!(with_places(&mut world, 14), (14, 14));
    assert_eq!(with_places(&mut world, 28), (28, 0));
}

#[test]
fn scaled_gangs_stay_gated_until_the_base_is_scheduled() {
    let mut world = world(Minimum::One);
    assert_eq!(with_places(&mut world, 0), (0, 10));
    let gated = |world: &World, prefix: &str| world.pods_of(prefix).iter().filter(|pod| pod.seen.is_gated).count();
    assert_eq!((gated(&world, "w-0-sg-x-0"), gated(&world, "w-0-sg-x-1")), (0, 4));
    with_places(&mut world, 3);
    assert_eq!(gated(&world, "w-0"), 0);
}

#[test]
fn scale_to_zero_and_back() {
    let mut world = world(Minimum::All);
    assert_eq!(with_places(&mut world, 20), (10, 0));
    world.edit(|set| set.spec.replicas = 0);
    assert_eq!(with_places(&mut world, 20), (0, 0));
    assert!(world.pods.is_empty() && world.cliques.is_empty() && world.groups.is_empty() && world.gangs.is_empty());
    world.edit(|set| set.spec.replicas = 1);
    assert_eq!(with_places(&mut world, 20), (10, 0));
    world.scale_group("w-0-sg-x", 0);
    assert_eq!(with_places(&mut world, 20), (2, 0));
    world.scale_group("w-0-sg-x", 2);
    assert_eq!(with_places(&mut world, 20), (10, 0));
    assert_eq!(world.set.status.as_ref().unwrap().available_replicas, 1);
}

#[test]
fn the_sets_status_lists_its_gangs() {
    let mut world = world(Minimum::One);
    with_places(&mut world, 3);
    let status = world.set.status.as_ref().unwrap();
    let phases: Vec<(&str, PodGangPhase)> = status
        .pod_gang_statuses
        .iter()
        .map(|gang| (gang.name.as_str(), gang.phase))
        .collect();
    assert_eq!(
        phases,
        [("w-0", PodGangPhase::Running), ("w-0-sg-x-0", PodGangPhase::Pending)]
    );
}
