//! What the status of a set says about everything that can become of its topology.

use grove_api::ClusterTopology;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::kit::{HOST, Look as _, RACK, delete, keys, levels, packed, set, world};

const LEVELS: &str = "TopologyLevelsUnavailable";
const CONSTRAINTS: &str = "TopologyConstraints";
const FINE: (&str, &str) = ("True", "TopologyLevelsAvailable");

// shows: V3-88
#[tokio::test(start_paused = true)]
async fn several_levels_removed_are_all_named() {
    let mut world = world(&levels(&["block", "rack", "host"])).await;
    let mut template = packed("block");
    let mut clique = super::kit::clique("a", 1);
    clique["topologyConstraint"] = json!({"packDomain": "rack"});
    template["cliques"] = json!([clique]);
    world.try_create(&set("w", (1, 1), template)).await.unwrap();
    world.await_condition("w", CONSTRAINTS, FINE).await;
    world.launch(&levels(&["host"])).await.unwrap();
    let gone = world
        .await_condition("w", CONSTRAINTS, ("False", "TopologyLevelsRemoved"))
        .await;
    assert_eq!(
        gone.message,
        "Topology levels removed from ClusterTopology: [block, rack]. Update packDomain constraints."
    );
}

// shows: V3-5, V3-68, V3-89, G244-75
/// Edit, delete and return of a topology while the operator runs; nothing is restarted, nothing is polled.
#[tokio::test(start_paused = true)]
async fn status_and_gangs_follow_every_turn_of_a_topology() {
    let world = world(&levels(&["host"])).await;
    let level = |word: &str, key: &str| json!({"domain": word, "key": key});
    world.create_topology("mine", &[("rack", RACK), ("host", HOST)]).await;
    let mut template = packed("rack");
    template["clusterTopologyName"] = json!("mine");
    world.try_create(&set("w", (1, 2), template)).await.unwrap();
    world.await_condition("w", CONSTRAINTS, FINE).await;
    world.await_gang_keys("w-0", keys(RACK, HOST)).await;

    let edit = async |levels: serde_json::Value| {
        let patch = Patch::Merge(json!({"spec": {"levels": levels}}));
        world
            .topologies()
            .patch("mine", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    edit(json!([level("host", HOST)])).await;
    world
        .await_condition("w", CONSTRAINTS, ("False", "TopologyLevelNotFound"))
        .await;
    world.await_gang_keys("w-0", keys("", HOST)).await;
    edit(json!([level("rack", "other/rack"), level("host", HOST)])).await;
    world.await_condition("w", CONSTRAINTS, FINE).await;
    world.await_gang_keys("w-0", keys("other/rack", HOST)).await;

    // Somebody takes it away by force, finalizer and all.
    delete::<ClusterTopology>(&world, "mine").await;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world
        .topologies()
        .patch("mine", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let gone = world
        .await_condition("w", CONSTRAINTS, ("Unknown", "ClusterTopologyNotFound"))
        .await;
    assert!(gone.message.contains("'mine'"), "{}", gone.message);
    world
        .await_condition("w", LEVELS, ("Unknown", "ClusterTopologyNotFound"))
        .await;
    world.await_gang_keys("w-0", keys("", HOST)).await;

    world.create_topology("mine", &[("rack", RACK), ("host", HOST)]).await;
    world.await_condition("w", CONSTRAINTS, FINE).await;
    world.await_gang_keys("w-0", keys(RACK, HOST)).await;
}
