//! The operational scenarios 1 to 12.

use grove_api::config::{self, Overrides};
use serde_json::json;

use crate::look::{Look, keys, refusal};
use crate::manifests::{
    BLOCK, DEFAULT, HOST, OFF, RACK, clique, kai_definition, levels, packed, set, with_gpus, with_kai, with_policies,
};
use crate::stage::Stage;

const CONSTRAINTS: &str = "TopologyConstraints";
const FINE: (&str, &str) = ("True", "TopologyLevelsAvailable");
const GONE: (&str, &str) = ("False", "TopologyLevelNotFound");
const DISABLED: (&str, &str) = ("False", "TopologyDisabled");
const DENIED: &str = "admission webhook \"podcliqueset.grove.io\" denied the request";

// shows: V3-301, V3-9
pub async fn scenario_01_initial_setup(stage: &mut impl Stage) {
    stage.install(kai_definition()).await;
    stage.launch(&with_kai(&["rack", "host"])).await;
    stage.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    let status = stage.topology(DEFAULT).await.unwrap().status.unwrap();
    assert_eq!(status.observed_generation, Some(1));
    let message = &status.conditions[0].message;
    assert_eq!(
        message,
        "ClusterTopology configured and KAI Topology created successfully"
    );
}

// shows: V3-302
pub async fn scenario_02_tas_disabled(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    stage.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    stage.await_condition("w", CONSTRAINTS, FINE).await;
    stage.await_gang_keys("w-0", keys(RACK, HOST)).await;
    stage.launch(OFF).await;
    let off = stage.await_condition("w", CONSTRAINTS, DISABLED).await;
    assert_eq!(
        off.message,
        "Topology support disabled in operator configuration. Required constraints removed."
    );
    stage.await_gang_keys("w-0", keys("", HOST)).await;
    let said = refusal(stage.try_create(&set("n", (1, 1), packed("rack"))).await);
    let expected = "topology support is not enabled in the operator";
    assert!(said.contains(expected), "{said}");
    // A set that was admitted can still be scaled.
    stage.patch_set("w", json!({"spec": {"replicas": 2}})).await.unwrap();
    stage.await_gang_keys("w-1", keys("", "")).await;
}

/// The process ends before it talks to anybody, so nothing is there afterwards.
// shows: V3-303, V3-32
pub async fn scenario_03_tas_enabled_with_invalid_config(stage: &mut impl Stage) {
    let text = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\ntopologyAwareScheduling:\n  \
                enabled: true\n  levels: [{domain: rack, key: a/rack}, {domain: rack, key: a/other}]\n";
    let problems = config::parse(text.as_bytes(), &Overrides::default()).unwrap_err();
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let expected = "duplicate topology domain 'rack' in configuration";
    assert!(told.iter().any(|line| line.contains(expected)), "{told:?}");
    assert!(stage.topology(DEFAULT).await.is_none());
}

// shows: V3-304
pub async fn scenario_04_valid_workload_submission(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    let workload = with_gpus(set("inference-workload", (2, 2), packed("rack")), 8);
    stage.try_create(&workload).await.unwrap();
    for replica in ["inference-workload-0", "inference-workload-1"] {
        stage.await_gang_keys(replica, keys(RACK, HOST)).await;
    }
    stage.await_running(4).await;
    for replica in ["inference-workload-0-", "inference-workload-1-"] {
        stage.domain_of(replica, RACK).await;
    }
}

// shows: V3-305
pub async fn scenario_05_constraint_not_in_cluster_topology(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    let said = refusal(stage.try_create(&set("w", (1, 1), packed("block"))).await);
    let expected = "topology level 'block' not defined in ClusterTopology 'grove-topology'";
    assert!(said.contains(DENIED) && said.contains(expected), "{said}");
    assert!(stage.set("w").await.is_none());
}

// shows: V3-306
pub async fn scenario_06_submission_while_tas_is_disabled(stage: &mut impl Stage) {
    stage.launch(OFF).await;
    let said = refusal(stage.try_create(&set("w", (1, 1), packed("rack"))).await);
    let expected = "topology support is not enabled in the operator";
    assert!(said.contains(DENIED) && said.contains(expected), "{said}");
    assert!(stage.set("w").await.is_none());
}

// shows: V3-307, V3-47, V3-49
pub async fn scenario_07_adding_a_level_disturbs_nobody(stage: &mut impl Stage) {
    stage.install(kai_definition()).await;
    stage.launch(&with_kai(&["rack", "host"])).await;
    stage.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    stage.await_gang_keys("w-0", keys(RACK, HOST)).await;
    stage.await_running(1).await;
    let before = stage.gang("w-0").await.unwrap();

    stage.launch(&with_kai(&["rack", "block", "host"])).await;
    // By meaning, however they are listed.
    stage.await_kai_labels(DEFAULT, &[BLOCK, RACK, HOST]).await;
    stage.try_create(&set("n", (1, 1), packed("block"))).await.unwrap();
    stage.await_gang_keys("n-0", keys(BLOCK, HOST)).await;
    let after = stage.gang("w-0").await.unwrap();
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.metadata.generation, before.metadata.generation);
    stage.await_condition("w", CONSTRAINTS, FINE).await;
}

// shows: V3-308, V3-51, G244-22
pub async fn scenario_08_removing_a_level_touches_only_those_that_used_it(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "block", "host"])).await;
    stage.try_create(&set("wl-1", (1, 1), packed("block"))).await.unwrap();
    stage.try_create(&set("wl-2", (1, 1), packed("rack"))).await.unwrap();
    stage.await_running(2).await;
    let before = stage.placement().await;
    stage.launch(&levels(&["rack", "host"])).await;
    let gone = stage.await_condition("wl-1", CONSTRAINTS, GONE).await;
    let expected = "Topology level 'block' not found";
    assert!(gone.message.contains(expected), "{}", gone.message);
    stage.await_gang_keys("wl-1-0", keys("", HOST)).await;
    stage.await_gang_keys("wl-2-0", keys(RACK, HOST)).await;
    stage.await_condition("wl-2", CONSTRAINTS, FINE).await;
    assert_eq!(stage.placement().await, before);
    let said = refusal(stage.try_create(&set("n", (1, 1), packed("block"))).await);
    assert!(said.contains("topology level 'block' not defined"), "{said}");
}

// shows: V3-309, V3-11
pub async fn scenario_09_kai_topology_creation_failure(stage: &mut impl Stage) {
    stage.launch(&with_kai(&["rack", "host"])).await;
    let failed = ("False", "KAITopologyCreationFailed");
    stage.await_topology_ready(DEFAULT, failed).await;
    let (_, _, message) = stage.topology_ready(DEFAULT).await.unwrap();
    assert_eq!(message, "Failed to create KAI Topology CR: API not available");
    // The operator works on, and tries again.
    stage.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    stage.await_running(1).await;
    stage.install(kai_definition()).await;
    stage.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
}

// shows: V3-310
pub async fn scenario_10_hierarchy_constraint_violation(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "host"])).await;
    let mut template = packed("host");
    template["cliques"] = json!([clique("a", 1)]);
    template["podCliqueScalingGroups"] =
        json!([{"name": "workers", "cliqueNames": ["a"], "topologyConstraint": {"packDomain": "rack"}}]);
    let said = refusal(stage.try_create(&set("w", (1, 1), template)).await);
    let expected = "child topology constraint 'rack' must be equal to or stricter than parent constraint 'host'";
    assert!(said.contains(DENIED) && said.contains(expected), "{said}");
}

// shows: V3-311, V3-81, V3-82
pub async fn scenario_11_dynamic_constraint_update_on_running_workload(stage: &mut impl Stage) {
    let configuration = with_policies(&["rack", "host"], ", constraintUpdates: UnscheduledOnly");
    stage.launch(&configuration).await;
    let workload = with_gpus(set("inference-wl", (2, 3), packed("rack")), 2);
    stage.try_create(&workload).await.unwrap();
    stage.await_running(6).await;
    let before = stage.placement().await;
    let patch = json!({"spec": {"template": packed("host")}});
    stage.patch_set("inference-wl", patch).await.unwrap();
    for replica in ["inference-wl-0", "inference-wl-1"] {
        stage.await_gang_keys(replica, keys(HOST, HOST)).await;
    }
    stage
        .patch_set("inference-wl", json!({"spec": {"replicas": 3}}))
        .await
        .unwrap();
    stage.await_running(9).await;
    stage.await_gang_keys("inference-wl-2", keys(HOST, HOST)).await;
    stage.domain_of("inference-wl-2-", HOST).await;
    let mut after = stage.placement().await;
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before, "pods that run are not rescheduled");
}

// shows: V3-312, V3-40, V2-38
pub async fn scenario_12_complete_tas_lifecycle(stage: &mut impl Stage) {
    let always = |words: &[&str]| with_policies(words, ", preferredPacking: Always");
    stage.launch(OFF).await;
    stage.try_create(&set("plain", (1, 1), json!({}))).await.unwrap();
    stage.await_running(1).await;
    assert!(stage.topology(DEFAULT).await.is_none());

    stage.launch(&always(&["rack", "host"])).await;
    stage.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    stage.await_gang_keys("plain-0", keys("", HOST)).await;
    stage.try_create(&set("racked", (1, 1), packed("rack"))).await.unwrap();
    stage.await_gang_keys("racked-0", keys(RACK, HOST)).await;

    stage.launch(&always(&["rack", "block", "host"])).await;
    let blocked = set("blocked", (1, 1), packed("block"));
    stage.try_create(&blocked).await.unwrap();
    stage.await_gang_keys("blocked-0", keys(BLOCK, HOST)).await;
    stage.await_gang_keys("racked-0", keys(RACK, HOST)).await;

    stage.launch(&always(&["rack", "host"])).await;
    stage.await_condition("blocked", CONSTRAINTS, GONE).await;
    stage.await_gang_keys("blocked-0", keys("", HOST)).await;
    stage.await_condition("racked", CONSTRAINTS, FINE).await;

    stage.launch(OFF).await;
    for set in ["racked", "blocked"] {
        stage.await_condition(set, CONSTRAINTS, DISABLED).await;
        stage.await_gang_keys(&format!("{set}-0"), keys("", HOST)).await;
    }
    stage.await_topology_gone(DEFAULT).await;
    stage.await_running(3).await;
}
