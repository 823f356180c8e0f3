//! Topologies come, change and go with the operator's configuration: E2E-TOP-1 to 6.

use kube::ResourceExt;
use serde_json::json;

use crate::look::{Look, keys, refusal};
use crate::manifests::{
    BLOCK, DEFAULT, HOST, NUMA, OFF, RACK, kai_definition, levels, packed, set, with_kai, with_policies,
};
use crate::stage::Stage;

// shows: V3-201, V3-2, V3-3, V3-15, V3-17, V3-24, V3-25, V3-39, G244-1, G244-30, G244-39, G244-40, G244-42
pub async fn e2e_top_01_initial_setup_with_valid_topology(stage: &mut impl Stage) {
    stage.install(kai_definition()).await;
    stage.launch(&with_kai(&["rack", "host"])).await;
    stage.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    let topology = stage.topology(DEFAULT).await.unwrap();
    let found: Vec<&str> = topology.spec.levels.iter().map(|level| level.key.as_str()).collect();
    assert_eq!(found, [RACK, HOST]);
    assert_eq!(stage.kai_labels(DEFAULT).await.unwrap(), [RACK, HOST]);
    assert_eq!(topology.labels()["app.kubernetes.io/managed-by"], "grove-operator");
    assert_eq!(topology.finalizers(), ["grove.io/clustertopology.grove.io"]);
    let kai = stage.kai_topologies().get(DEFAULT).await.unwrap();
    assert_eq!(kai.owner_references()[0].uid, topology.metadata.uid.unwrap());
}

// shows: V3-202, V3-18, V3-74
pub async fn e2e_top_02_topology_disabled_to_enabled_transition(stage: &mut impl Stage) {
    stage.launch(OFF).await;
    stage.try_create(&set("old", (1, 2), json!({}))).await.unwrap();
    stage.await_running(2).await;
    assert_eq!(stage.gang_keys("old-0").await, Some(keys("", "")));
    assert!(stage.topology(DEFAULT).await.is_none());
    let before = stage.placement().await;

    let on = with_policies(&["rack", "host"], ", preferredPacking: Always");
    stage.launch(&on).await;
    assert!(stage.topology(DEFAULT).await.is_some());
    stage.await_gang_keys("old-0", keys("", HOST)).await;
    stage.try_create(&set("new", (1, 2), packed("rack"))).await.unwrap();
    stage.await_gang_keys("new-0", keys(RACK, HOST)).await;
    stage.await_running(4).await;
    let mut after = stage.placement().await;
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before, "running pods are not disturbed");
}

// shows: V3-203, V3-38, V3-41, V3-42, V3-43, V3-44, G244-45, G244-54
pub async fn e2e_top_03_topology_enabled_to_disabled_transition(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    stage.try_create(&set("w", (1, 2), packed("rack"))).await.unwrap();
    stage.await_gang_keys("w-0", keys(RACK, HOST)).await;
    stage.await_running(2).await;
    let before = stage.placement().await;

    stage.launch(OFF).await;
    let off = ("False", "TopologyDisabled");
    stage.await_condition("w", "TopologyConstraints", off).await;
    let unknown = ("Unknown", "TopologyAwareSchedulingDisabled");
    stage.await_condition("w", "TopologyLevelsUnavailable", unknown).await;
    stage.await_gang_keys("w-0", keys("", HOST)).await;
    let gang = stage.gang("w-0").await.unwrap();
    assert_eq!(gang.annotations()["grove.io/topology-name"], DEFAULT);
    stage.await_topology_gone(DEFAULT).await;
    let said = refusal(stage.try_create(&set("n", (1, 1), packed("rack"))).await);
    let expected = "topology support is not enabled in the operator";
    assert!(said.contains(expected), "{said}");
    assert_eq!(stage.placement().await, before);
}

// shows: V3-204, V3-46, V3-78, G244-31
pub async fn e2e_top_04_add_new_topology_level(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    stage.try_create(&set("w", (1, 2), packed("rack"))).await.unwrap();
    stage.await_gang_keys("w-0", keys(RACK, HOST)).await;

    stage.launch(&levels(&["rack", "host", "numa"])).await;
    assert_eq!(stage.topology(DEFAULT).await.unwrap().spec.levels.len(), 3);
    stage.await_gang_keys("w-0", keys(RACK, NUMA)).await;
    stage.try_create(&set("n", (1, 2), packed("numa"))).await.unwrap();
    stage.await_gang_keys("n-0", keys(NUMA, NUMA)).await;
    stage.await_running(4).await;
}

// shows: V3-205, V3-46, V3-50, G244-23
pub async fn e2e_top_05_remove_topology_level(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "block", "host"])).await;
    stage.try_create(&set("w", (1, 2), packed("block"))).await.unwrap();
    stage.await_gang_keys("w-0", keys(BLOCK, HOST)).await;
    stage.await_running(2).await;
    let before = stage.placement().await;

    stage.launch(&levels(&["rack", "host"])).await;
    assert_eq!(stage.topology(DEFAULT).await.unwrap().spec.levels.len(), 2);
    let gone = ("False", "TopologyLevelNotFound");
    let condition = stage.await_condition("w", "TopologyConstraints", gone).await;
    assert!(condition.message.contains("'block'"), "{}", condition.message);
    let generation = stage.set("w").await.unwrap().metadata.generation;
    assert_eq!(condition.observed_generation, generation);
    assert_eq!(stage.placement().await, before);
}

// shows: V3-206, V3-37, V3-12
pub async fn e2e_top_06_kai_topology_creation_failure_and_recovery(stage: &mut impl Stage) {
    stage.launch(&with_kai(&["rack", "host"])).await;
    let failed = ("False", "KAITopologyCreationFailed");
    stage.await_topology_ready(DEFAULT, failed).await;
    let status = stage.topology(DEFAULT).await.unwrap().status.unwrap();
    assert_eq!(status.last_errors[0].code, "KAI_TOPOLOGY_CREATE_ERROR");
    let described = "Failed to create KAI Topology resource: API not available";
    assert_eq!(status.last_errors[0].description, described);

    stage.install(kai_definition()).await;
    stage.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    assert_eq!(stage.kai_labels(DEFAULT).await.unwrap(), [RACK, HOST]);
    let status = stage.topology(DEFAULT).await.unwrap().status.unwrap();
    assert_eq!(status.last_errors, []);
    let turns = ["KAITopologyCreationFailed", "TopologyReady"];
    stage.await_told(DEFAULT, &turns).await;
}
