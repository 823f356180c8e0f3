//! RU7–RU21: pods of a new template replace those of the old one, and nothing else does.
//!
//! What must hold at every moment is checked against the history of all pods, write by write.

use std::collections::BTreeSet;
use std::time::Duration;

use grove_api::podcliqueset::PodCliqueSetUpdateProgress;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet};
use grove_simcluster::FleetOptions;
use grove_simcluster::fault::{Match, WatchFault};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::support::workloads::{Minimum, running, simple};
use crate::support::{OPERATOR, World};

async fn progress(world: &World) -> PodCliqueSetUpdateProgress {
    let set = world.get::<PodCliqueSet>("w").await;
    let progress = set.status.and_then(|status| status.update_progress);
    progress.expect("an update that began")
}

async fn has_ended(world: &World) -> bool {
    progress(world).await.update_ended_at.is_some()
}

/// Waits until an update runs of which the first pods are on their way.
async fn under_way(world: &World, prefix: &str, image: &str) {
    world
        .eventually("the update is under way", async |world| {
            world.images_of(prefix).await.contains(image)
        })
        .await;
}

async fn settled(world: &World) {
    world.settle().await;
    assert!(has_ended(world).await, "{:?}", progress(world).await);
}

#[tokio::test(start_paused = true)]
async fn ru07_one_pod_at_a_time_one_replica_at_a_time() {
    let world = running(Minimum::All, 20).await;
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    let others = world.uids_of("w-0-sg-x").await;
    let begin = world.revision();
    world.set_image(&["pc-a"], "two").await;
    settled(&world).await;
    world.replay(begin, |scene| {
        let ready = scene.ready("w-0-pc-a") + scene.ready("w-1-pc-a");
        assert!(ready >= 3, "one pod in all, not {}", 4 - ready);
    });
    world.all_run("w-0-pc-a", "two").await;
    world.all_run("w-1-pc-a", "two").await;
    assert_eq!(world.uids_of("w-0-sg-x").await, others, "what did not change stays");
    let status = world.set_status("w").await;
    assert_eq!((status.updated_replicas, status.available_replicas), (2, 2));
    let progress = progress(&world).await;
    let counted = (progress.updated_pod_cliques_count, progress.total_pod_cliques_count);
    assert_eq!(counted, (2, 2));
}

#[tokio::test(start_paused = true)]
async fn ru08_one_replica_of_a_group_at_a_time() {
    let world = running(Minimum::All, 10).await;
    let begin = world.revision();
    world.set_image(&["pc-b"], "two").await;
    settled(&world).await;
    world.replay(begin, |scene| {
        let ready = [scene.ready("w-0-sg-x-0"), scene.ready("w-0-sg-x-1")];
        assert!(ready.contains(&4), "one replica is whole: {ready:?}");
        assert_eq!(scene.ready("w-0-pc-a"), 2);
    });
    world.all_run("w-0-sg-x-0-pc-b", "two").await;
    world.all_run("w-0-sg-x-1-pc-b", "two").await;
    let group = world.get::<PodCliqueScalingGroup>("w-0-sg-x").await;
    let status = group.status.expect("a status");
    assert_eq!((status.updated_replicas, status.available_replicas), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn ru09_everything_changes() {
    let world = running(Minimum::All, 10).await;
    let before = world.uids_of("w-0").await;
    world.set_image(&["pc-a", "pc-b", "pc-c"], "two").await;
    settled(&world).await;
    world.all_run("w-0", "two").await;
    assert_eq!(world.uids_of("w-0").await.intersection(&before).count(), 0);
    assert_eq!(world.ready().await, 10);
}

#[tokio::test(start_paused = true)]
async fn ru10_without_room_one_pod_is_replaced_and_waits() {
    let world = running(Minimum::All, 10).await;
    let before = world.uids_of("w-0").await;
    world.cordon_all(true).await;
    world.set_image(&["pc-a"], "two").await;
    world.pass(1_000).await;
    assert_eq!(world.uids_of("w-0").await.intersection(&before).count(), 9);
    assert_eq!((world.ready().await, world.pending().await), (9, 1));
    assert!(!has_ended(&world).await);
    world.cordon_all(false).await;
    settled(&world).await;
    world.all_run("w-0-pc-a", "two").await;
}

#[tokio::test(start_paused = true)]
async fn ru11_a_replica_that_is_added_during_an_update_follows_the_new_template() {
    let world = running(Minimum::All, 20).await;
    let begin = world.revision();
    world.set_image(&["pc-a"], "two").await;
    under_way(&world, "w-0-pc-a", "two").await;
    world.scale::<PodCliqueSet>("w", 2).await;
    settled(&world).await;
    world.replay(begin, |scene| {
        for pod in scene.of("w-1-pc-a") {
            assert_eq!(pod["spec"]["containers"][0]["image"], "two");
        }
    });
    assert_eq!(world.ready().await, 20);
}

async fn replica_1_has_its_turn(world: &World) {
    world
        .eventually("the last replica is updated", async |world| {
            let entries = progress(world).await.currently_updating;
            entries.iter().any(|entry| entry.replica_index == 1)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn ru12_a_replica_that_is_removed_during_its_update_does_not_hold_it_up() {
    let world = running(Minimum::All, 20).await;
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    world.set_image(&["pc-a"], "two").await;
    replica_1_has_its_turn(&world).await;
    world.scale::<PodCliqueSet>("w", 1).await;
    settled(&world).await;
    world.all_run("w-0-pc-a", "two").await;
    assert_eq!(world.ready().await, 10);
}

#[tokio::test(start_paused = true)]
async fn ru13_a_replica_that_is_removed_after_its_update_leaves_the_others_alone() {
    let world = running(Minimum::All, 20).await;
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    world.set_image(&["pc-a"], "two").await;
    settled(&world).await;
    let updated = world.uids_of("w-0").await;
    world.scale::<PodCliqueSet>("w", 1).await;
    settled(&world).await;
    assert_eq!(world.uids_of("w").await, updated);
}

#[tokio::test(start_paused = true)]
async fn ru14_a_group_replica_that_is_added_during_an_update_is_not_rolled_twice() {
    let world = running(Minimum::All, 14).await;
    let begin = world.revision();
    world.set_image(&["pc-b"], "two").await;
    under_way(&world, "w-0-sg-x", "two").await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await;
    settled(&world).await;
    let mut added = BTreeSet::new();
    world.replay(begin, |scene| {
        added.extend(scene.of("w-0-sg-x-2").map(|pod| pod["metadata"]["uid"].to_string()));
    });
    assert_eq!(added.len(), 4, "four pods, each made once");
    world.all_run("w-0-sg-x-2-pc-b", "two").await;
}

#[tokio::test(start_paused = true)]
async fn ru15_a_group_replica_that_was_added_before_is_updated_too() {
    let world = running(Minimum::All, 14).await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await;
    world.settle().await;
    let begin = world.revision();
    world.set_image(&["pc-b"], "two").await;
    settled(&world).await;
    world.all_run("w-0-sg-x-2-pc-b", "two").await;
    world.replay(begin, |scene| {
        let whole = (0..3).filter(|replica| scene.ready(&format!("w-0-sg-x-{replica}")) == 4);
        assert!(whole.count() >= 2, "one replica at a time");
    });
}

#[tokio::test(start_paused = true)]
async fn ru16_a_group_replica_that_is_removed_during_an_update_does_not_hold_it_up() {
    let world = running(Minimum::One, 14).await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await;
    world.settle().await;
    world.set_image(&["pc-b"], "two").await;
    under_way(&world, "w-0-sg-x", "two").await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 1).await;
    settled(&world).await;
    assert_eq!(world.pods_of("w-0-sg-x").await.len(), 4);
    world.all_run("w-0-sg-x-0-pc-b", "two").await;
}

#[tokio::test(start_paused = true)]
async fn ru17_a_group_replica_that_was_removed_before_is_not_missed() {
    let world = running(Minimum::One, 14).await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await;
    world.settle().await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 2).await;
    world.settle().await;
    world.set_image(&["pc-b"], "two").await;
    settled(&world).await;
    assert_eq!(world.ready().await, 10);
    world.all_run("w-0-sg-x-1-pc-b", "two").await;
}

/// Scales pc-a before or during an update, and looks at the minimum all the while.
async fn scaled_clique(replicas: i32, during: bool) {
    let world = running(Minimum::One, 14).await;
    if !during {
        world.scale::<PodClique>("w-0-pc-a", replicas).await;
        world.settle().await;
    }
    let begin = world.revision();
    world.set_image(&["pc-a"], "two").await;
    if during {
        under_way(&world, "w-0-pc-a", "two").await;
        world.scale::<PodClique>("w-0-pc-a", replicas).await;
    }
    settled(&world).await;
    if replicas > 1 {
        world.replay(begin, |scene| {
            assert!(scene.ready("w-0-pc-a") >= 1, "the minimum is kept");
        });
    }
    world.all_run("w-0-pc-a", "two").await;
    assert_eq!(world.pods_of("w-0-pc-a").await.len(), replicas as usize);
}

#[tokio::test(start_paused = true)]
async fn ru18_a_clique_is_scaled_out_during_an_update() {
    scaled_clique(4, true).await;
}

#[tokio::test(start_paused = true)]
async fn ru19_a_clique_is_scaled_out_before_an_update() {
    scaled_clique(4, false).await;
}

#[tokio::test(start_paused = true)]
async fn ru20_a_clique_is_scaled_in_during_an_update() {
    scaled_clique(1, true).await;
}

#[tokio::test(start_paused = true)]
async fn ru21_a_clique_is_scaled_in_before_an_update() {
    scaled_clique(1, false).await;
}

#[tokio::test(start_paused = true)]
async fn back_and_forth_ends_where_it_began() {
    let world = running(Minimum::All, 10).await;
    let hash = async || {
        let status = world.get::<PodCliqueSet>("w").await.status;
        status.and_then(|status| status.current_generation_hash)
    };
    let before = hash().await;
    world.set_image(&["pc-a"], "two").await;
    under_way(&world, "w-0-pc-a", "two").await;
    world.set_image(&["pc-a"], "one").await;
    settled(&world).await;
    world.all_run("w-0-pc-a", "one").await;
    assert_eq!(hash().await, before);
}

/// lws #280: a group had pods of two templates at once. A replica of a group is recreated whole; a member that is lost
/// before its replica's turn comes back as it was.
#[tokio::test(start_paused = true)]
async fn pain_lws_280_a_replica_of_a_group_never_mixes_templates() {
    let world = running(Minimum::One, 20).await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await;
    world.settle().await;
    let begin = world.revision();
    world.set_image(&["pc-b", "pc-c"], "two").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let last = world.pods_of("w-0-sg-x-2-pc-c").await;
    world.delete::<Pod>(&last[0].name_any()).await;
    world.settle().await;
    world.all_run("w-0-sg-x", "two").await;
    world.replay(begin, |scene| {
        for replica in 0..3 {
            let images = scene.ready_images(&format!("w-0-sg-x-{replica}-"));
            assert!(images.len() <= 1, "replica {replica} runs {images:?}");
        }
    });
}

/// What is above the minimum is not left out: that an update has ended is told when all pods are there, not before.
#[tokio::test(start_paused = true)]
async fn an_update_ends_when_all_pods_are_ready_and_not_just_the_minimum() {
    let world = running(Minimum::One, 20).await;
    let begin = world.revision();
    world.set_image(&["pc-a", "pc-b", "pc-c"], "two").await;
    world.settle().await;
    let ended = |set: &serde_json::Value| set["status"]["updateProgress"]["updateEndedAt"].is_string();
    let sets = world
        .history()
        .writes()
        .of_kind("grove.io", "podcliquesets")
        .after(begin);
    let end = sets.iter().find(|write| write.after().is_some_and(|set| ended(&set)));
    let end = end.expect("the update has ended").revision;
    let mut ready = 0;
    world.replay_until(end, |scene| ready = scene.ready("w-0-"));
    assert_eq!(ready, 10);
}

/// A pod that became ready since it was last seen is not taken as a broken one.
#[tokio::test(start_paused = true)]
async fn what_has_become_ready_is_no_broken_pod_on_old_news() {
    let fleet = FleetOptions {
        ready_delay: Duration::from_secs(30),
        ..FleetOptions::default()
    };
    let world = World::with_fleet(10, fleet).await;
    world.create_set(&simple("w", 1, 3)).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let pods = Match::any().user(OPERATOR).resource("", "pods");
    let late = WatchFault::Delay(Duration::from_secs(60));
    assert_eq!(world.cluster.faults().strike_watches(&pods, late), 1);
    world
        .eventually("all pods are ready", async |world| world.ready().await == 3)
        .await;
    let begin = world.revision();
    world.set_image(&["a"], "two").await;
    world.settle().await;
    world.update_ends().await;
    world.replay(begin, |scene| assert!(scene.ready("w-0-a") >= 2));
    world.all_run("w-0-a", "two").await;
}
