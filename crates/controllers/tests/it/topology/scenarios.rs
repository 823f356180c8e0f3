//! The operational scenarios of the designs that no test of E2E-TOP covers as they stand.

use grove_api::config::{self, Overrides};
use serde_json::json;

use super::hooks::refusal;
use super::kit::{
    BLOCK, DEFAULT, HOST, OFF, RACK, clique, kai_definition, keys, levels, packed, set, two_racks, with_kai,
    with_policies, world,
};
use crate::support::World;

const CONSTRAINTS: &str = "TopologyConstraints";
const FINE: (&str, &str) = ("True", "TopologyLevelsAvailable");

// shows: V3-302
#[tokio::test(start_paused = true)]
async fn scenario_2_tas_disabled() {
    let mut world = world(&levels(&["rack", "host"])).await;
    world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    world.await_condition("w", CONSTRAINTS, FINE).await;
    world.await_gang_keys("w-0", keys(RACK, HOST)).await;
    world.launch(OFF).await.unwrap();
    world.serve_webhooks(OFF).await;
    let off = world
        .await_condition("w", CONSTRAINTS, ("False", "TopologyDisabled"))
        .await;
    assert_eq!(
        off.message,
        "Topology support disabled in operator configuration. Required constraints removed."
    );
    world.await_gang_keys("w-0", keys("", HOST)).await;
    let said = refusal(world.try_create(&set("n", (1, 1), packed("rack"))).await);
    assert!(
        said.contains("topology support is not enabled in the operator"),
        "{said}"
    );
    // A set that was admitted can still be scaled.
    world.patch_set("w", json!({"spec": {"replicas": 2}})).await.unwrap();
    world.await_gang_keys("w-1", keys("", "")).await;
}

// shows: V3-303, V3-32
/// Nothing is written by a configuration that is not valid: the process ends before it talks to anybody.
#[test]
fn scenario_3_tas_enabled_with_invalid_config() {
    let text = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\ntopologyAwareScheduling:\n  \
                enabled: true\n  levels: [{domain: rack, key: a/rack}, {domain: rack, key: a/other}]\n";
    let problems = config::parse(text.as_bytes(), &Overrides::default()).unwrap_err();
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let expected = "duplicate topology domain 'rack' in configuration";
    assert!(told.iter().any(|line| line.contains(expected)), "{told:?}");
}

// shows: V3-304
#[tokio::test(start_paused = true)]
async fn scenario_4_valid_workload_submission() {
    let configuration = levels(&["rack", "host"]);
    let world = world(&configuration).await;
    world.serve_webhooks(&configuration).await;
    world
        .try_create(&set("inference-workload", (2, 2), packed("rack")))
        .await
        .unwrap();
    world.await_gang_keys("inference-workload-0", keys(RACK, HOST)).await;
    world.await_gang_keys("inference-workload-1", keys(RACK, HOST)).await;
    world
        .eventually("four pods run", async |world| world.ready().await == 4)
        .await;
}

// shows: V3-307, V3-47, V3-49
#[tokio::test(start_paused = true)]
async fn scenario_7_adding_a_level_disturbs_nobody() {
    let mut world = World::without_operator(1, two_racks()).await;
    world.install(kai_definition()).await;
    world.launch(&with_kai(&["rack", "host"])).await.unwrap();
    world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    world.await_gang_keys("w-0", keys(RACK, HOST)).await;
    world
        .eventually("the pod runs", async |world| world.ready().await == 1)
        .await;
    let before = world.gang("w-0").await.unwrap();

    world.launch(&with_kai(&["rack", "block", "host"])).await.unwrap();
    // By meaning, however they are listed.
    world.await_kai_labels(DEFAULT, &[BLOCK, RACK, HOST]).await;
    world.try_create(&set("n", (1, 1), packed("block"))).await.unwrap();
    world.await_gang_keys("n-0", keys(BLOCK, HOST)).await;
    let after = world.gang("w-0").await.unwrap();
    assert_eq!(
        (after.spec, after.metadata.generation),
        (before.spec, before.metadata.generation)
    );
    world.await_condition("w", CONSTRAINTS, FINE).await;
}

// shows: V3-308, V3-51, G244-22
#[tokio::test(start_paused = true)]
async fn scenario_8_removing_a_level_touches_only_those_that_used_it() {
    let mut world = world(&levels(&["rack", "block", "host"])).await;
    world.try_create(&set("wl-1", (1, 1), packed("block"))).await.unwrap();
    world.try_create(&set("wl-2", (1, 1), packed("rack"))).await.unwrap();
    world
        .eventually("both run", async |world| world.ready().await == 2)
        .await;
    let before = world.placement().await;
    let shorter = levels(&["rack", "host"]);
    world.launch(&shorter).await.unwrap();
    world.serve_webhooks(&shorter).await;
    let gone = world
        .await_condition("wl-1", CONSTRAINTS, ("False", "TopologyLevelNotFound"))
        .await;
    assert!(
        gone.message.contains("Topology level 'block' not found"),
        "{}",
        gone.message
    );
    world.await_gang_keys("wl-1-0", keys("", HOST)).await;
    world.await_gang_keys("wl-2-0", keys(RACK, HOST)).await;
    world.await_condition("wl-2", CONSTRAINTS, FINE).await;
    assert_eq!(world.placement().await, before);
    let said = refusal(world.try_create(&set("n", (1, 1), packed("block"))).await);
    assert!(said.contains("topology level 'block' not defined"), "{said}");
}

// shows: V3-310
#[tokio::test(start_paused = true)]
async fn scenario_10_hierarchy_constraint_violation() {
    let configuration = levels(&["rack", "host"]);
    let world = world(&configuration).await;
    world.serve_webhooks(&configuration).await;
    let mut template = packed("host");
    template["cliques"] = json!([clique("a", 1)]);
    template["podCliqueScalingGroups"] =
        json!([{"name": "workers", "cliqueNames": ["a"], "topologyConstraint": {"packDomain": "rack"}}]);
    let said = refusal(world.try_create(&set("w", (1, 1), template)).await);
    assert!(
        said.contains("admission webhook \"podcliqueset.grove.io\" denied the request"),
        "{said}"
    );
    let expected = "child topology constraint 'rack' must be equal to or stricter than parent constraint 'host'";
    assert!(said.contains(expected), "{said}");
}

// shows: V3-312, V3-40, V2-38
#[tokio::test(start_paused = true)]
async fn scenario_12_complete_tas_lifecycle() {
    let always = |words: &[&str]| with_policies(words, ", preferredPacking: Always");
    let mut world = world(OFF).await;
    world.try_create(&set("plain", (1, 1), json!({}))).await.unwrap();
    world
        .eventually("it runs", async |world| world.ready().await == 1)
        .await;
    assert!(world.topology(DEFAULT).await.is_none());

    world.launch(&always(&["rack", "host"])).await.unwrap();
    world.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    world.await_gang_keys("plain-0", keys("", HOST)).await;
    world.try_create(&set("racked", (1, 1), packed("rack"))).await.unwrap();
    world.await_gang_keys("racked-0", keys(RACK, HOST)).await;

    world.launch(&always(&["rack", "block", "host"])).await.unwrap();
    world
        .try_create(&set("blocked", (1, 1), packed("block")))
        .await
        .unwrap();
    world.await_gang_keys("blocked-0", keys(BLOCK, HOST)).await;
    world.await_gang_keys("racked-0", keys(RACK, HOST)).await;

    world.launch(&always(&["rack", "host"])).await.unwrap();
    world
        .await_condition("blocked", CONSTRAINTS, ("False", "TopologyLevelNotFound"))
        .await;
    world.await_gang_keys("blocked-0", keys("", HOST)).await;
    world.await_condition("racked", CONSTRAINTS, FINE).await;

    world.launch(OFF).await.unwrap();
    for set in ["racked", "blocked"] {
        world
            .await_condition(set, CONSTRAINTS, ("False", "TopologyDisabled"))
            .await;
        world.await_gang_keys(&format!("{set}-0"), keys("", HOST)).await;
    }
    world
        .eventually("the default topology is gone", async |world| {
            world.topology(DEFAULT).await.is_none()
        })
        .await;
    world
        .eventually("all three run", async |world| world.ready().await == 3)
        .await;
}
