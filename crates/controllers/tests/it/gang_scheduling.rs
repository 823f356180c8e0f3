//! Gangs start whole, and scaled gangs after their base; GS1–GS12 themselves are in `gangs`.

use grove_api::PodGang;
use grove_api::podgang::PodGangPhase;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::support::workloads::{Minimum, Order, simple, workload};
use crate::support::{Placer, World};

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
