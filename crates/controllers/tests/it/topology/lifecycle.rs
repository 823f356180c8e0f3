//! Topologies come, change and go with the operator's configuration: E2E-TOP-1 to 6.

use kube::ResourceExt;
use serde_json::json;

use super::hooks::refusal;
use super::kit::{
    BLOCK, DEFAULT, HOST, NUMA, OFF, RACK, kai_definition, keys, levels, packed, set, with_kai, with_policies, world,
};
use crate::support::World;

async fn with_kai_api() -> World {
    let world = World::without_operator(1, super::kit::two_racks()).await;
    world.install(kai_definition()).await;
    world
}

// shows: V3-201, V3-301, V3-2, V3-3, V3-15, V3-17, V3-24, V3-25, V3-39, G244-1, G244-30, G244-39, G244-40
// shows: G244-42
#[tokio::test(start_paused = true)]
async fn e2e_top_1_and_scenario_1_initial_setup_with_valid_topology() {
    let mut world = with_kai_api().await;
    world.launch(&with_kai(&["rack", "host"])).await.unwrap();
    world.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    let topology = world.topology(DEFAULT).await.unwrap();
    let found: Vec<&str> = topology.spec.levels.iter().map(|level| level.key.as_str()).collect();
    assert_eq!(found, [RACK, HOST]);
    assert_eq!(world.kai_labels(DEFAULT).await.unwrap(), [RACK, HOST]);
    assert_eq!(topology.labels()["app.kubernetes.io/managed-by"], "grove-operator");
    assert_eq!(topology.finalizers(), ["grove.io/clustertopology.grove.io"]);
    let status = topology.status.unwrap();
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(
        status.conditions[0].message,
        "ClusterTopology configured and KAI Topology created successfully"
    );
    let kai = world.kai_topologies().get(DEFAULT).await.unwrap();
    assert_eq!(kai.owner_references()[0].uid, topology.metadata.uid.unwrap());
}

// shows: V3-202, V3-18, V3-74
#[tokio::test(start_paused = true)]
async fn e2e_top_2_topology_disabled_to_enabled_transition() {
    let mut world = world(OFF).await;
    world.try_create(&set("old", (1, 2), json!({}))).await.unwrap();
    world
        .eventually("two pods run", async |world| world.ready().await == 2)
        .await;
    assert_eq!(world.gang_keys("old-0").await, Some(keys("", "")));
    assert!(world.topology(DEFAULT).await.is_none());
    let before = world.placement().await;

    world
        .launch(&with_policies(&["rack", "host"], ", preferredPacking: Always"))
        .await
        .unwrap();
    assert!(world.topology(DEFAULT).await.is_some());
    world.await_gang_keys("old-0", keys("", HOST)).await;
    world.try_create(&set("new", (1, 2), packed("rack"))).await.unwrap();
    world.await_gang_keys("new-0", keys(RACK, HOST)).await;
    world
        .eventually("four pods run", async |world| world.ready().await == 4)
        .await;
    let mut after = world.placement().await;
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before, "running pods are not disturbed");
}

// shows: V3-203, V3-38, V3-41, V3-42, V3-43, V3-44, G244-45, G244-54
#[tokio::test(start_paused = true)]
async fn e2e_top_3_topology_enabled_to_disabled_transition() {
    let on = levels(&["rack", "host"]);
    let mut world = world(&on).await;
    world.try_create(&set("w", (1, 2), packed("rack"))).await.unwrap();
    world.await_gang_keys("w-0", keys(RACK, HOST)).await;
    world
        .eventually("two pods run", async |world| world.ready().await == 2)
        .await;
    let before = world.placement().await;

    world.launch(OFF).await.unwrap();
    world.serve_webhooks(OFF).await;
    world
        .await_condition("w", "TopologyConstraints", ("False", "TopologyDisabled"))
        .await;
    world
        .await_condition(
            "w",
            "TopologyLevelsUnavailable",
            ("Unknown", "TopologyAwareSchedulingDisabled"),
        )
        .await;
    world.await_gang_keys("w-0", keys("", HOST)).await;
    let annotation = world.gang("w-0").await.unwrap();
    assert_eq!(annotation.annotations()["grove.io/topology-name"], DEFAULT);
    world
        .eventually("the default topology is gone", async |world| {
            world.topology(DEFAULT).await.is_none()
        })
        .await;
    let said = refusal(world.try_create(&set("n", (1, 1), packed("rack"))).await);
    assert!(
        said.contains("topology support is not enabled in the operator"),
        "{said}"
    );
    assert_eq!(world.placement().await, before);
}

// shows: V3-204, V3-46, V3-78, G244-31
#[tokio::test(start_paused = true)]
async fn e2e_top_4_add_new_topology_level() {
    let mut world = world(&levels(&["rack", "host"])).await;
    world.try_create(&set("w", (1, 2), packed("rack"))).await.unwrap();
    world.await_gang_keys("w-0", keys(RACK, HOST)).await;

    world.launch(&levels(&["rack", "host", "numa"])).await.unwrap();
    let topology = world.topology(DEFAULT).await.unwrap();
    assert_eq!(topology.spec.levels.len(), 3);
    world.await_gang_keys("w-0", keys(RACK, NUMA)).await;
    world.try_create(&set("n", (1, 2), packed("numa"))).await.unwrap();
    world.await_gang_keys("n-0", keys(NUMA, NUMA)).await;
}

// shows: V3-205, V3-46, V3-50, G244-23
#[tokio::test(start_paused = true)]
async fn e2e_top_5_remove_topology_level() {
    let mut world = world(&levels(&["rack", "block", "host"])).await;
    world.try_create(&set("w", (1, 2), packed("block"))).await.unwrap();
    world.await_gang_keys("w-0", keys(BLOCK, HOST)).await;
    world
        .eventually("two pods run", async |world| world.ready().await == 2)
        .await;
    let before = world.placement().await;

    world.launch(&levels(&["rack", "host"])).await.unwrap();
    assert_eq!(world.topology(DEFAULT).await.unwrap().spec.levels.len(), 2);
    let condition = world
        .await_condition("w", "TopologyConstraints", ("False", "TopologyLevelNotFound"))
        .await;
    assert!(condition.message.contains("'block'"), "{}", condition.message);
    let generation = world.set("w").await.unwrap().metadata.generation;
    assert_eq!(condition.observed_generation, generation);
    assert_eq!(world.placement().await, before);
}

// shows: V3-206, V3-309, V3-37, V3-12
#[tokio::test(start_paused = true)]
async fn e2e_top_6_and_scenario_9_kai_topology_creation_failure_and_recovery() {
    let mut world = world(&with_kai(&["rack", "host"])).await;
    world
        .await_topology_ready(DEFAULT, ("False", "KAITopologyCreationFailed"))
        .await;
    let (_, _, message) = world.topology_ready(DEFAULT).await.unwrap();
    assert_eq!(message, "Failed to create KAI Topology CR: API not available");
    let status = world.topology(DEFAULT).await.unwrap().status.unwrap();
    assert_eq!(status.last_errors[0].code, "KAI_TOPOLOGY_CREATE_ERROR");
    assert_eq!(
        status.last_errors[0].description,
        "Failed to create KAI Topology resource: API not available"
    );

    world.install(kai_definition()).await;
    world.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    assert_eq!(world.kai_labels(DEFAULT).await.unwrap(), [RACK, HOST]);
    assert!(
        world
            .topology(DEFAULT)
            .await
            .unwrap()
            .status
            .unwrap()
            .last_errors
            .is_empty()
    );
    world.stop_operator().await;
}
