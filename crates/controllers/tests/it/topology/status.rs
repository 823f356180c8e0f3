//! What the status of a set says about its topology: E2E-TOP-17 and 20 to 23, and everything that can become of one.

use grove_api::ClusterTopology;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::kit::{BLOCK, HOST, OFF, RACK, delete, keys, levels, packed, set, world};
use crate::support::World;

const LEVELS: &str = "TopologyLevelsUnavailable";
const CONSTRAINTS: &str = "TopologyConstraints";
const FINE: (&str, &str) = ("True", "TopologyLevelsAvailable");

async fn generation(world: &World, set: &str) -> Option<i64> {
    world.set(set).await.expect("the set").metadata.generation
}

// shows: V3-217, V3-222, V3-50, G244-21
#[tokio::test(start_paused = true)]
async fn e2e_top_17_and_22_topology_level_removed() {
    let mut world = world(&levels(&["rack", "block", "host"])).await;
    world.try_create(&set("w", (1, 2), packed("block"))).await.unwrap();
    world.await_condition("w", CONSTRAINTS, FINE).await;
    world.await_gang_keys("w-0", keys(BLOCK, HOST)).await;
    world
        .eventually("two pods run", async |world| world.ready().await == 2)
        .await;
    let before = world.placement().await;

    world.launch(&levels(&["rack", "host"])).await.unwrap();
    let gone = world
        .await_condition("w", CONSTRAINTS, ("False", "TopologyLevelNotFound"))
        .await;
    assert_eq!(
        gone.message,
        "Topology level 'block' not found in ClusterTopology 'grove-topology'. Remove packDomain or update ClusterTopology."
    );
    assert_eq!(gone.observed_generation, generation(&world, "w").await);
    world
        .await_condition("w", LEVELS, ("True", "ClusterTopologyLevelsUnavailable"))
        .await;
    world.await_gang_keys("w-0", keys("", HOST)).await;
    assert_eq!(world.placement().await, before);
}

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

// shows: V3-220, V3-85
#[tokio::test(start_paused = true)]
async fn e2e_top_20_topology_constraints_condition_true() {
    let world = world(&levels(&["rack", "host"])).await;
    world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    let fine = world.await_condition("w", CONSTRAINTS, FINE).await;
    assert_eq!(fine.message, "All topology constraints satisfied");
    assert_eq!(fine.observed_generation, generation(&world, "w").await);
    world
        .await_condition("w", LEVELS, ("False", "AllClusterTopologyLevelsAvailable"))
        .await;
    world.try_create(&set("plain", (1, 1), json!({}))).await.unwrap();
    world
        .eventually("both run", async |world| world.ready().await == 2)
        .await;
    assert_eq!(world.condition("plain", CONSTRAINTS).await, None);
    assert_eq!(world.condition("plain", LEVELS).await, None);
}

// shows: V3-221
#[tokio::test(start_paused = true)]
async fn e2e_top_21_topology_constraints_condition_false_when_disabled() {
    let mut world = world(&levels(&["rack", "host"])).await;
    world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    world.await_condition("w", CONSTRAINTS, FINE).await;
    world.launch(OFF).await.unwrap();
    let off = world
        .await_condition("w", CONSTRAINTS, ("False", "TopologyDisabled"))
        .await;
    assert_eq!(
        off.message,
        "Topology support disabled in operator configuration. Required constraints removed."
    );
    assert_eq!(off.observed_generation, generation(&world, "w").await);
}

// shows: V3-223, V3-91
#[tokio::test(start_paused = true)]
async fn e2e_top_23_observed_generation_tracking() {
    let world = world(&levels(&["rack", "host"])).await;
    world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    let first = world.await_condition("w", CONSTRAINTS, FINE).await;
    assert_eq!(first.observed_generation, Some(1));
    world.patch_set("w", json!({"spec": {"replicas": 2}})).await.unwrap();
    world
        .eventually("the condition speaks of generation 2", async |world| {
            let condition = world.condition("w", CONSTRAINTS).await;
            condition.is_some_and(|condition| condition.observed_generation == Some(2))
        })
        .await;
    let second = world.await_condition("w", CONSTRAINTS, FINE).await;
    assert_eq!(
        second.last_transition_time, first.last_transition_time,
        "nothing turned"
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
