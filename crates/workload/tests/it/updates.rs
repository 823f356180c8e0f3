//! RU7–RU21 and OD1–OD9: pods of a new template replace those of the old one, and nothing else does.

use std::collections::BTreeSet;

use grove_api::podcliqueset::UpdateStrategyType;

use crate::workloads::{Minimum, on_delete, running};
use crate::world::World;

/// Lets the update run to its end; after each pass `check` sees the world. Returns the passes that it took.
fn run_update(world: &mut World, mut check: impl FnMut(&World)) -> usize {
    for pass in 0..300 {
        world.pass();
        check(world);
        if pass > 2 && has_ended(world) {
            world.settle();
            return pass;
        }
    }
    panic!("the update did not end: {:?}", world.set.status);
}

fn has_ended(world: &World) -> bool {
    let progress = world
        .set
        .status
        .as_ref()
        .and_then(|status| status.update_progress.as_ref());
    progress.is_some_and(|progress| progress.update_ended_at.is_some())
}

fn images(world: &World, prefix: &str) -> BTreeSet<String> {
    world.pods_of(prefix).iter().map(|pod| pod.image.clone()).collect()
}

fn all_run(world: &World, prefix: &str, image: &str) {
    assert_eq!(images(world, prefix), BTreeSet::from([image.to_owned()]), "{prefix}");
}

fn unready(world: &World, prefix: &str, of: usize) -> usize {
    of - world.pods_of(prefix).iter().filter(|pod| pod.seen.is_ready()).count()
}

#[test]
fn ru7_one_pod_at_a_time_one_replica_at_a_time() {
    let mut world = running(Minimum::All, 30);
    world.edit(|set| set.spec.replicas = 2);
    world.settle();
    let others = world.uids_of("w-0-sg-x");
    world.set_image("pc-a", "two");
    let mut busy = BTreeSet::new();
    run_update(&mut world, |world| {
        let missing = [unready(world, "w-0-pc-a", 2), unready(world, "w-1-pc-a", 2)];
        assert!(missing.iter().sum::<usize>() <= 1, "one pod in all: {missing:?}");
        busy.extend((0..2).filter(|replica| missing[*replica] > 0));
        let listed = &world.set.status.as_ref().unwrap().update_progress;
        assert!(
            listed
                .as_ref()
                .is_none_or(|progress| progress.currently_updating.len() <= 1)
        );
    });
    assert_eq!(busy, BTreeSet::from([0, 1]));
    all_run(&world, "w-0-pc-a", "two");
    all_run(&world, "w-1-pc-a", "two");
    assert_eq!(world.uids_of("w-0-sg-x"), others, "what did not change stays");
    let status = world.set.status.clone().unwrap();
    assert_eq!((status.updated_replicas, status.available_replicas), (2, 2));
    let progress = status.update_progress.unwrap();
    assert_eq!(
        (progress.updated_pod_cliques_count, progress.total_pod_cliques_count),
        (2, 2)
    );
    assert_eq!(world.settle(), 0);
}

/// The status of a replica's parts may be older than its pods.
#[test]
fn a_replica_that_only_seems_broken_loses_nothing_that_is_ready() {
    let mut world = running(Minimum::All, 30);
    world.edit(|set| set.spec.replicas = 2);
    world.settle();
    world.set_image("pc-a", "two");
    while !has_ended(&world) {
        world.pass();
        world.cliques_look_without("w-1-sg-x");
        let ready = ["w-0-pc-a", "w-1-pc-a"].map(|clique| 2 - unready(&world, clique, 2));
        assert!(ready.iter().sum::<usize>() >= 3, "one pod in all: {ready:?}");
    }
    all_run(&world, "w-0-pc-a", "two");
    all_run(&world, "w-1-pc-a", "two");
}

#[test]
fn ru8_one_replica_of_a_group_at_a_time() {
    let mut world = running(Minimum::All, 30);
    world.set_image("pc-b", "two");
    run_update(&mut world, |world| {
        let missing = [unready(world, "w-0-sg-x-0", 4), unready(world, "w-0-sg-x-1", 4)];
        assert!(missing[0] == 0 || missing[1] == 0, "{missing:?}");
    });
    all_run(&world, "w-0-sg-x-0-pc-b", "two");
    all_run(&world, "w-0-sg-x-1-pc-b", "two");
    let status = world.group("w-0-sg-x").status.clone().unwrap();
    assert_eq!((status.updated_replicas, status.available_replicas), (2, 2));
}

#[test]
fn ru9_everything_changes() {
    let mut world = running(Minimum::All, 30);
    let before = world.uids_of("w-0");
    for clique in ["pc-a", "pc-b", "pc-c"] {
        world.set_image(clique, "two");
    }
    run_update(&mut world, |_| {});
    all_run(&world, "w-0", "two");
    assert_eq!(world.uids_of("w-0").intersection(&before).count(), 0);
    assert_eq!(world.ready(), 10);
}

#[test]
fn ru10_without_room_one_pod_is_replaced_and_waits() {
    let mut world = running(Minimum::All, 10);
    let before = world.uids_of("w-0");
    world.places = 0;
    world.set_image("pc-a", "two");
    for _ in 0..50 {
        world.pass();
    }
    assert_eq!(world.uids_of("w-0").intersection(&before).count(), 9);
    assert_eq!((world.ready(), world.pending()), (9, 1));
    assert!(!has_ended(&world));
    world.places = 10;
    run_update(&mut world, |_| {});
    all_run(&world, "w-0-pc-a", "two");
}

#[test]
fn ru11_a_replica_that_is_added_during_an_update_follows_the_new_template() {
    let mut world = running(Minimum::All, 40);
    world.set_image("pc-a", "two");
    for _ in 0..3 {
        world.pass();
    }
    world.edit(|set| set.spec.replicas = 2);
    let mut added = BTreeSet::new();
    run_update(&mut world, |world| added.extend(images(world, "w-1-pc-a")));
    assert_eq!(added, BTreeSet::from(["two".to_owned()]));
    assert_eq!(world.ready(), 20);
}

#[test]
fn ru12_a_replica_that_is_removed_during_its_update_does_not_hold_it_up() {
    let mut world = running(Minimum::All, 40);
    world.edit(|set| set.spec.replicas = 2);
    world.settle();
    world.set_image("pc-a", "two");
    let updates_last = |world: &World| {
        let progress = world.set.status.as_ref().unwrap().update_progress.clone();
        progress.is_some_and(|progress| progress.currently_updating.iter().any(|entry| entry.replica_index == 1))
    };
    for _ in 0..60 {
        world.pass();
        if updates_last(&world) {
            break;
        }
    }
    assert!(updates_last(&world));
    world.edit(|set| set.spec.replicas = 1);
    run_update(&mut world, |_| {});
    all_run(&world, "w-0-pc-a", "two");
    assert_eq!(world.ready(), 10);
}

#[test]
fn ru14_a_group_replica_that_is_added_during_an_update_is_not_rolled_twice() {
    let mut world = running(Minimum::All, 40);
    world.set_image("pc-b", "two");
    for _ in 0..4 {
        world.pass();
    }
    world.scale_group("w-0-sg-x", 3);
    let mut added = BTreeSet::new();
    run_update(&mut world, |world| added.extend(world.uids_of("w-0-sg-x-2")));
    assert_eq!(added.len(), 4, "four pods, each made once");
    all_run(&world, "w-0-sg-x-2-pc-b", "two");
}

#[test]
fn ru16_a_group_replica_that_is_removed_during_an_update_does_not_hold_it_up() {
    let mut world = running(Minimum::One, 40);
    world.scale_group("w-0-sg-x", 3);
    world.settle();
    world.set_image("pc-b", "two");
    for _ in 0..6 {
        world.pass();
    }
    world.scale_group("w-0-sg-x", 1);
    run_update(&mut world, |_| {});
    assert_eq!(world.pods_of("w-0-sg-x").len(), 4);
    all_run(&world, "w-0-sg-x-0-pc-b", "two");
}

#[test]
fn ru18_and_20_a_clique_is_scaled_out_and_in_during_an_update() {
    for replicas in [4, 1] {
        let mut world = running(Minimum::One, 40);
        world.set_image("pc-a", "two");
        for _ in 0..4 {
            world.pass();
        }
        world.scale_clique("w-0-pc-a", replicas);
        run_update(&mut world, |world| {
            assert!(
                world.pods_of("w-0-pc-a").iter().any(|pod| pod.seen.is_ready()),
                "the minimum is kept"
            );
        });
        all_run(&world, "w-0-pc-a", "two");
        assert_eq!(world.pods_of("w-0-pc-a").len(), replicas as usize);
    }
}

#[test]
fn ru13_15_17_19_21_scaled_before_and_after_an_update() {
    let mut world = running(Minimum::One, 60);
    world.scale_group("w-0-sg-x", 3);
    world.scale_clique("w-0-pc-a", 3);
    world.settle();
    for clique in ["pc-a", "pc-b"] {
        world.set_image(clique, "two");
    }
    run_update(&mut world, |_| {});
    let updated = world.uids_of("w-0");
    assert_eq!(updated.len(), 15);
    world.scale_group("w-0-sg-x", 1);
    world.scale_clique("w-0-pc-a", 2);
    world.settle();
    assert_eq!(world.uids_of("w-0").len(), 6);
    assert!(world.uids_of("w-0").is_subset(&updated), "scaling in replaces nothing");
    all_run(&world, "w-0-pc-a", "two");
    all_run(&world, "w-0-sg-x-0-pc-b", "two");
    assert!(has_ended(&world));
}

#[test]
fn a_second_update_during_an_update_converges_to_the_newest() {
    let mut world = running(Minimum::All, 40);
    world.edit(|set| set.spec.replicas = 2);
    world.settle();
    world.set_image("pc-a", "two");
    for _ in 0..5 {
        world.pass();
    }
    world.set_image("pc-a", "three");
    world.set_image("pc-b", "three");
    run_update(&mut world, |_| {});
    for replica in ["w-0", "w-1"] {
        all_run(&world, &format!("{replica}-pc-a"), "three");
        all_run(&world, &format!("{replica}-sg-x-1-pc-b"), "three");
    }
    assert_eq!(world.set.status.as_ref().unwrap().updated_replicas, 2);
}

#[test]
fn a_bad_update_stops_at_one_replica_and_a_fixing_one_is_not_held_up() {
    let mut world = running(Minimum::All, 40);
    world.edit(|set| set.spec.replicas = 3);
    world.settle();
    world.broken_image = Some("bad".into());
    world.set_image("pc-a", "bad");
    for _ in 0..60 {
        world.pass();
    }
    assert_eq!(
        world.set.status.as_ref().unwrap().available_replicas,
        2,
        "one replica was lost to the bad image"
    );
    assert_eq!(world.pods_of("w").iter().filter(|pod| pod.image == "bad").count(), 1);
    world.set_image("pc-a", "good");
    run_update(&mut world, |world| {
        assert!(world.set.status.as_ref().unwrap().available_replicas >= 2);
    });
    for replica in ["w-0", "w-1", "w-2"] {
        all_run(&world, &format!("{replica}-pc-a"), "good");
    }
}

#[test]
fn a_replica_without_room_does_not_hold_up_the_others() {
    let mut world = running(Minimum::All, 10);
    world.edit(|set| set.spec.replicas = 2);
    world.settle();
    assert_eq!((world.ready(), world.pending()), (10, 10));
    world.set_image("pc-a", "two");
    for _ in 0..60 {
        world.pass();
    }
    all_run(&world, "w-0-pc-a", "two");
    all_run(&world, "w-1-pc-a", "two");
    assert_eq!(world.ready(), 10);
    assert!(!has_ended(&world), "one replica does not work yet");
    world.places = 20;
    run_update(&mut world, |_| {});
}

#[test]
fn back_and_forth_ends_where_it_began() {
    let mut world = running(Minimum::All, 40);
    let before = world.set.status.as_ref().unwrap().current_generation_hash.clone();
    world.set_image("pc-a", "two");
    for _ in 0..4 {
        world.pass();
    }
    world.set_image("pc-a", "one");
    run_update(&mut world, |_| {});
    all_run(&world, "w-0-pc-a", "one");
    assert_eq!(world.set.status.as_ref().unwrap().current_generation_hash, before);
}

#[test]
fn od1_to_od5_nothing_is_replaced_until_somebody_deletes_it() {
    let mut world = running(Minimum::One, 40);
    on_delete(&mut world);
    world.settle();
    let before = world.uids_of("w-0");
    world.set_image("pc-a", "two");
    world.set_image("pc-c", "two");
    world.settle();
    assert_eq!(world.uids_of("w-0"), before);
    assert!(has_ended(&world));
    let updated = |world: &World| world.clique("w-0-pc-a").status.as_ref().unwrap().updated_replicas;
    assert_eq!(updated(&world), 0);

    // OD2, OD4: who deletes a pod gets a new one.
    world.lose_pod("w-0-pc-a");
    world.lose_pod("w-0-sg-x-0-pc-c");
    world.settle();
    assert_eq!(updated(&world), 1);
    assert_eq!(images(&world, "w-0-sg-x-0-pc-c").len(), 2);

    // OD3: scaling in prefers the outdated one.
    world.scale_clique("w-0-pc-a", 1);
    world.settle();
    all_run(&world, "w-0-pc-a", "two");
    assert_eq!(world.settle(), 0);
}

#[test]
fn od9_what_was_left_over_is_replaced_once_the_strategy_says_so() {
    let mut world = running(Minimum::All, 40);
    on_delete(&mut world);
    world.settle();
    for clique in ["pc-a", "pc-b"] {
        world.set_image(clique, "two");
    }
    world.settle();
    all_run(&world, "w-0-pc-a", "one");
    world.edit(|set| set.spec.update_strategy.as_mut().unwrap().type_ = UpdateStrategyType::RollingRecreate);
    run_update(&mut world, |_| {});
    all_run(&world, "w-0-pc-a", "two");
    all_run(&world, "w-0-sg-x-0-pc-b", "two");
    on_delete(&mut world);
    world.set_image("pc-a", "three");
    world.settle();
    all_run(&world, "w-0-pc-a", "two");
}
