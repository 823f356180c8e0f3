//! An operator that ends at any moment, and another that goes on: nothing is done twice, nothing is undone.

use grove_api::PodCliqueSet;

use crate::support::workloads::{Minimum, running};

/// A restart at rest reads, and writes nothing.
#[tokio::test(start_paused = true)]
async fn a_restart_at_rest_writes_nothing() {
    let mut world = running(Minimum::One, 10).await;
    let before = world.uids_of("w").await;
    for _ in 0..3 {
        let begin = world.revision();
        world.stop_operator().await;
        world.start_operator();
        world.pass(60).await;
        assert_eq!(world.operator_writes(begin).count(), 0);
    }
    assert_eq!(world.uids_of("w").await, before);
}

/// grove #808, #809, dynamo #14278: scaled to zero under one operator, back under the next.
#[tokio::test(start_paused = true)]
async fn pain_grove_808_scale_from_zero_works_under_the_next_operator() {
    let mut world = running(Minimum::All, 10).await;
    world.scale::<PodCliqueSet>("w", 0).await;
    world.settle().await;
    world.stop_operator().await;
    world.scale::<PodCliqueSet>("w", 1).await;
    world.start_operator();
    world.settle().await;
    assert_eq!(world.ready().await, 10);
}

/// lws #225: an operator that starts in the middle of an update goes on with it, one unit at a time.
#[tokio::test(start_paused = true)]
async fn pain_lws_225_a_restart_during_an_update_does_not_hurry_it() {
    let mut world = running(Minimum::All, 20).await;
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    let begin = world.revision();
    world.set_image(&["pc-a", "pc-b"], "two").await;
    for _ in 0..8 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        world.stop_operator().await;
        world.start_operator();
    }
    world.settle().await;
    world.replay(begin, |scene| {
        let whole = (0..2).filter(|replica| scene.ready(&format!("w-{replica}-")) == 10);
        assert!(whole.count() >= 1, "one replica works at every moment");
    });
    world.all_run("w-0-pc-a", "two").await;
    world.all_run("w-1-sg-x-1-pc-b", "two").await;
    assert_eq!(world.ready().await, 20);
}
