//! What the status of a set says about its topology: E2E-TOP-17 and 20 to 23.

use serde_json::json;

use crate::look::{Look, keys};
use crate::manifests::{BLOCK, HOST, OFF, levels, packed, set};
use crate::stage::Stage;

const LEVELS: &str = "TopologyLevelsUnavailable";
const CONSTRAINTS: &str = "TopologyConstraints";
const FINE: (&str, &str) = ("True", "TopologyLevelsAvailable");
const GONE: (&str, &str) = ("False", "TopologyLevelNotFound");

async fn generation(stage: &impl Stage, set: &str) -> Option<i64> {
    stage.set(set).await.expect("the set").metadata.generation
}

// shows: V3-217, V3-50, G244-21
pub async fn e2e_top_17_topology_level_removed_status_condition_updated(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "block", "host"])).await;
    stage.try_create(&set("w", (1, 2), packed("block"))).await.unwrap();
    stage.await_condition("w", CONSTRAINTS, FINE).await;
    stage.await_gang_keys("w-0", keys(BLOCK, HOST)).await;
    stage.await_running(2).await;
    let before = stage.placement().await;

    stage.launch(&levels(&["rack", "host"])).await;
    let gone = stage.await_condition("w", CONSTRAINTS, GONE).await;
    let expected = "Topology level 'block' not found in ClusterTopology";
    assert!(gone.message.starts_with(expected), "{}", gone.message);
    assert_eq!(gone.observed_generation, generation(stage, "w").await);
    stage.await_gang_keys("w-0", keys("", HOST)).await;
    assert_eq!(stage.placement().await, before);
}

// shows: V3-220, V3-85
pub async fn e2e_top_20_topology_constraints_condition_true(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    stage.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    let fine = stage.await_condition("w", CONSTRAINTS, FINE).await;
    assert_eq!(fine.message, "All topology constraints satisfied");
    assert_eq!(fine.observed_generation, generation(stage, "w").await);
    let available = ("False", "AllClusterTopologyLevelsAvailable");
    stage.await_condition("w", LEVELS, available).await;
    stage.try_create(&set("plain", (1, 1), json!({}))).await.unwrap();
    stage.await_running(2).await;
    assert_eq!(stage.condition("plain", CONSTRAINTS).await, None);
    assert_eq!(stage.condition("plain", LEVELS).await, None);
}

// shows: V3-221
pub async fn e2e_top_21_topology_constraints_condition_false_topology_disabled(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    stage.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    stage.await_condition("w", CONSTRAINTS, FINE).await;
    stage.launch(OFF).await;
    let off = ("False", "TopologyDisabled");
    let off = stage.await_condition("w", CONSTRAINTS, off).await;
    assert_eq!(
        off.message,
        "Topology support disabled in operator configuration. Required constraints removed."
    );
    assert_eq!(off.observed_generation, generation(stage, "w").await);
}

// shows: V3-222
pub async fn e2e_top_22_topology_constraints_condition_false_level_not_found(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "block", "host"])).await;
    stage.try_create(&set("w", (1, 1), packed("block"))).await.unwrap();
    stage.await_condition("w", CONSTRAINTS, FINE).await;
    stage.launch(&levels(&["rack", "host"])).await;
    let gone = stage.await_condition("w", CONSTRAINTS, GONE).await;
    assert_eq!(
        gone.message,
        "Topology level 'block' not found in ClusterTopology 'grove-topology'. Remove packDomain or update ClusterTopology."
    );
    assert_eq!(gone.observed_generation, generation(stage, "w").await);
    let unavailable = ("True", "ClusterTopologyLevelsUnavailable");
    stage.await_condition("w", LEVELS, unavailable).await;
    stage.await_told("w", &[GONE.1, unavailable.1]).await;
}

// shows: V3-223, V3-91
pub async fn e2e_top_23_observed_generation_tracking(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    stage.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    let first = stage.await_condition("w", CONSTRAINTS, FINE).await;
    assert_eq!(first.observed_generation, Some(1));
    stage.patch_set("w", json!({"spec": {"replicas": 2}})).await.unwrap();
    stage
        .eventually("the condition speaks of generation 2", async |stage| {
            let condition = stage.condition("w", CONSTRAINTS).await;
            condition.is_some_and(|condition| condition.observed_generation == Some(2))
        })
        .await;
    let second = stage.await_condition("w", CONSTRAINTS, FINE).await;
    assert_eq!(
        second.last_transition_time, first.last_transition_time,
        "nothing turned"
    );
}
