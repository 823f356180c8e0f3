//! Many sets and large ones: they come, rest, and go without a trace.
//!
//! The sizes are those of a test that is not optimised; `GROVE_EXHAUSTIVE=1` makes them 1,000 sets and 5,000 pods.

use std::time::{Duration, Instant};

use grove_api::PodCliqueSet;

use crate::support::workloads::simple;
use crate::support::{World, is_exhaustive};

const TEN_MINUTES: Duration = Duration::from_secs(600);

/// `sets` of `pods` each run, rest for ten minutes, and go.
async fn come_rest_and_go(sets: usize, pods: usize) {
    let begun = Instant::now();
    let world = World::roomy(10, (sets * pods).div_ceil(10)).await;
    let begin = world.revision();
    let size = i32::try_from(pods).expect("a number of pods");
    for set in 0..sets {
        world.create_set(&simple(&format!("s{set:03}"), 1, size)).await;
    }
    world.settle().await;
    assert_eq!(world.ready().await, sets * pods);
    let running = begun.elapsed();

    let (revision, requests) = (world.revision(), world.operator_requests().count());
    tokio::time::sleep(TEN_MINUTES).await;
    assert_eq!(world.operator_writes(revision).count(), 0);
    assert_eq!(world.operator_requests().count(), requests, "nothing is even asked");

    for set in 0..sets {
        world.delete::<PodCliqueSet>(&format!("s{set:03}")).await;
    }
    world.settle().await;
    let left = world.remaining(begin);
    assert!(
        left.is_empty(),
        "{} objects are left: {:?}",
        left.len(),
        left.first_key_value()
    );
    let gone = begun.elapsed();
    println!("{sets} sets of {pods} pods: running after {running:.1?}, gone after {gone:.1?}");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_sets_rest_and_go() {
    come_rest_and_go(if is_exhaustive() { 1_000 } else { 50 }, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_of_five_thousand_pods_rests_and_goes() {
    come_rest_and_go(1, if is_exhaustive() { 5_000 } else { 300 }).await;
}
