//! SO1–SO4: containers start in the order that is asked for, while the whole gang is placed at once.

use jiff::Timestamp;

use crate::workloads::{Minimum, workload};
use crate::world::World;

fn started(minimum: Minimum, order: &str) -> World {
    let mut world = World::new(&workload(minimum, order));
    world.places = 10;
    world.settle();
    assert_eq!(world.ready(), 10);
    world
}

/// When the first and the last pod of a clique became ready.
fn ready(world: &World, clique: &str) -> (Timestamp, Timestamp) {
    let times: Vec<Timestamp> = world.pods_of(clique).iter().filter_map(|pod| pod.ready_at).collect();
    (*times.iter().min().unwrap(), *times.iter().max().unwrap())
}

#[test]
fn so1_cliques_start_in_the_order_of_the_template() {
    let world = started(Minimum::All, "InOrder");
    let (a, b, c) = (
        ready(&world, "w-0-pc-a"),
        ready(&world, "w-0-sg-x-0-pc-b"),
        ready(&world, "w-0-sg-x-1-pc-c"),
    );
    assert!(a.1 < b.0 && b.1 < c.0, "{a:?} {b:?} {c:?}");
}

#[test]
fn so2_a_scaled_gang_keeps_its_own_order() {
    let world = started(Minimum::One, "InOrder");
    let (b, c) = (ready(&world, "w-0-sg-x-1-pc-b"), ready(&world, "w-0-sg-x-1-pc-c"));
    assert!(b.0 < c.0, "{b:?} {c:?}");
}

#[test]
fn so3_an_explicit_order_is_kept() {
    let world = started(Minimum::All, "Explicit");
    let (a, c, b) = (
        ready(&world, "w-0-pc-a"),
        ready(&world, "w-0-sg-x-0-pc-c"),
        ready(&world, "w-0-sg-x-0-pc-b"),
    );
    assert!(a.1 < c.0 && c.1 < b.0, "{a:?} {c:?} {b:?}");
}

#[test]
fn without_an_order_all_start_at_once() {
    let world = started(Minimum::All, "AnyOrder");
    let all = ready(&world, "w-0");
    assert_eq!(all.0, all.1);
}
