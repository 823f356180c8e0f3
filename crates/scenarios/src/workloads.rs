//! Constraints of workloads: E2E-TOP-7 to 16, 18 and 19.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::{PodClique, PodGang};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::look::{Look, keys, keys_of, refusal};
use crate::manifests::{DEFAULT, HOST, NUMA, OFF, RACK, levels, packed, set, three_scopes, with_gpus, with_policies};
use crate::stage::Stage;

const RACK_AND_HOST: [&str; 2] = ["rack", "host"];

/// Waits until that many pods run, and returns all gangs.
async fn running(stage: &impl Stage, pods: usize) -> Vec<PodGang> {
    stage.await_running(pods).await;
    stage.found::<PodGang>().await.into_values().collect()
}

/// There are so many gangs, and each demands and prefers these keys by itself: replicas are independent of each other.
fn all_demand(gangs: &[PodGang], count: usize, (required, preferred): (&str, &str)) {
    assert_eq!(gangs.len(), count);
    for gang in gangs {
        let found = keys_of(gang.spec.topology_constraint.as_ref());
        assert_eq!(found, keys(required, preferred), "{}", gang.name_any());
        assert_eq!(gang.annotations()["grove.io/topology-name"], DEFAULT);
        assert_eq!(gang.spec.topology_ref.as_deref(), Some(DEFAULT));
    }
}

async fn scale_clique(stage: &impl Stage, name: &str, pods: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": pods}}));
    let cliques = stage.of::<PodClique>();
    let scaled = cliques.patch_scale(name, &PatchParams::default(), &patch).await;
    scaled.expect("a clique that can be scaled");
}

// shows: V3-207, V3-93
pub async fn e2e_top_07_pod_clique_set_with_rack_level_constraint(stage: &mut impl Stage) {
    stage.launch(&levels(&RACK_AND_HOST)).await;
    // A pod fills a host, so a replica fills a rack.
    let workload = with_gpus(set("w", (2, 2), packed("rack")), 8);
    stage.try_create(&workload).await.unwrap();
    let gangs = running(stage, 4).await;
    all_demand(&gangs, 2, (RACK, HOST));
    assert_eq!(gangs[0].annotations()["grove.io/replica-pack-required"], RACK);
    let racks = [stage.domain_of("w-0-", RACK).await, stage.domain_of("w-1-", RACK).await];
    assert_ne!(racks[0], racks[1], "each replica has a rack of its own");
}

// shows: V3-208
pub async fn e2e_top_08_pod_clique_set_with_host_level_constraint(stage: &mut impl Stage) {
    stage.launch(&levels(&RACK_AND_HOST)).await;
    let workload = with_gpus(set("w", (2, 3), packed("host")), 2);
    stage.try_create(&workload).await.unwrap();
    all_demand(&running(stage, 6).await, 2, (HOST, HOST));
    let hosts = [stage.domain_of("w-0-", HOST).await, stage.domain_of("w-1-", HOST).await];
    assert_ne!(hosts[0], hosts[1], "no host has room for both replicas");
}

// shows: V3-209, V3-69, V3-70, G244-70
pub async fn e2e_top_09_multi_level_hierarchy_constraints(stage: &mut impl Stage) {
    stage.launch(&levels(&["rack", "block", "host"])).await;
    let valid = with_gpus(set("w", (1, 1), three_scopes(["rack", "host", "host"])), 4);
    stage.try_create(&valid).await.unwrap();
    running(stage, 4).await;
    let members = ["w-0-g-0-", "w-0-g-1-"];
    let hosts = [
        stage.domain_of(members[0], HOST).await,
        stage.domain_of(members[1], HOST).await,
    ];
    assert_ne!(hosts[0], hosts[1], "each replica of the group fills a host");
    stage.domain_of("w-0-", RACK).await;
    let base = stage.gang("w-0").await.unwrap();
    assert_eq!(keys_of(base.spec.topology_constraint.as_ref()), keys(RACK, HOST));
    let group = &base.spec.topology_constraint_group_configs[0];
    assert_eq!(group.name, "w-0-g-0");
    assert_eq!(group.pod_group_names, ["w-0-g-0-a"]);
    assert_eq!(keys_of(group.topology_constraint.as_ref()), keys(HOST, HOST));
    let pod_group = &base.spec.pod_groups[0];
    assert_eq!(keys_of(pod_group.topology_constraint.as_ref()), keys(HOST, HOST));
    let scaled = stage.gang("w-0-g-0").await.unwrap();
    assert_eq!(keys_of(scaled.spec.topology_constraint.as_ref()), keys(HOST, HOST));
    assert_eq!(scaled.spec.topology_constraint_group_configs, []);
    assert_eq!(scaled.annotations()["grove.io/replica-pack-required"], RACK);

    let invalid = set("x", (1, 1), three_scopes(["rack", "block", "block"]));
    let said = refusal(stage.try_create(&invalid).await);
    let expected = "child topology constraint 'block' must be equal to or stricter than parent constraint 'rack'";
    assert!(said.contains(expected), "{said}");
}

// shows: V3-210, V3-45
pub async fn e2e_top_10_workload_rejected_when_topology_disabled(stage: &mut impl Stage) {
    stage.launch(OFF).await;
    let said = refusal(stage.try_create(&set("w", (1, 1), packed("rack"))).await);
    let expected = "topology support is not enabled in the operator";
    assert!(said.contains(expected), "{said}");
    stage.try_create(&set("plain", (1, 1), json!({}))).await.unwrap();
}

// shows: V3-211
pub async fn e2e_top_11_workload_rejected_with_non_existent_level(stage: &mut impl Stage) {
    stage.launch(&levels(&RACK_AND_HOST)).await;
    let said = refusal(stage.try_create(&set("w", (1, 1), packed("block"))).await);
    let expected = "topology level 'block' not defined in ClusterTopology 'grove-topology'";
    assert!(said.contains(expected), "{said}");
}

/// Under both values of `scaleOut`: where there is room, pods beyond the first ones join them.
// shows: V3-212
pub async fn e2e_top_12_pod_packing_within_single_rack(stage: &mut impl Stage) {
    for policy in ["SameDomain", "SpillOver"] {
        let configuration = with_policies(&RACK_AND_HOST, &format!(", scaleOut: {policy}"));
        stage.launch(&configuration).await;
        let workload = with_gpus(set("w", (1, 4), packed("rack")), 2);
        stage.try_create(&workload).await.unwrap();
        all_demand(&running(stage, 4).await, 1, (RACK, HOST));
        let rack = stage.domain_of("w-0-", RACK).await;
        scale_clique(stage, "w-0-a", 8).await;
        all_demand(&running(stage, 8).await, 1, (RACK, HOST));
        assert_eq!(stage.domain_of("w-0-", RACK).await, rack);
        stage
            .eventually("the gang lists all eight", async |stage| {
                let gang = stage.gang("w-0").await;
                gang.is_some_and(|gang| gang.spec.pod_groups[0].pod_references.len() == 8)
            })
            .await;
        stage.remove_set("w").await;
        stage.await_running(0).await;
    }
}

// shows: V3-213
pub async fn e2e_top_13_pod_packing_within_single_host(stage: &mut impl Stage) {
    stage.launch(&levels(&RACK_AND_HOST)).await;
    let workload = with_gpus(set("w", (1, 3), packed("host")), 2);
    stage.try_create(&workload).await.unwrap();
    all_demand(&running(stage, 3).await, 1, (HOST, HOST));
    stage.domain_of("w-0-", HOST).await;
}

// shows: V3-214, V3-55
pub async fn e2e_top_14_multiple_replicas_across_topology_domains(stage: &mut impl Stage) {
    stage.launch(&levels(&RACK_AND_HOST)).await;
    // Three quarters of a host for each pod: one replica leaves no room for another in its rack.
    let workload = with_gpus(set("w", (2, 2), packed("rack")), 6);
    stage.try_create(&workload).await.unwrap();
    let gangs = running(stage, 4).await;
    all_demand(&gangs, 2, (RACK, HOST));
    let replicas = gangs
        .iter()
        .map(|gang| &gang.labels()["grove.io/podcliqueset-replica-index"]);
    assert_eq!(replicas.collect::<Vec<_>>(), ["0", "1"]);
    let racks = [stage.domain_of("w-0-", RACK).await, stage.domain_of("w-1-", RACK).await];
    assert_ne!(racks[0], racks[1]);
}

// shows: V3-215
pub async fn e2e_top_15_preferred_constraint_optimization_with_fallback(stage: &mut impl Stage) {
    stage.launch(&levels(&RACK_AND_HOST)).await;
    // A host holds four of them, and a rack all six.
    let workload = with_gpus(set("w", (1, 6), packed("rack")), 2);
    stage.try_create(&workload).await.unwrap();
    all_demand(&running(stage, 6).await, 1, (RACK, HOST));
    stage.domain_of("w-0-", RACK).await;
    assert_eq!(
        stage.domains_of("w-0-", HOST).await.len(),
        2,
        "no more hosts than needed"
    );
}

// shows: V3-216, V3-81, V3-82, V2-35
pub async fn e2e_top_16_update_topology_constraint_rack_to_host(stage: &mut impl Stage) {
    let configuration = with_policies(&RACK_AND_HOST, ", constraintUpdates: UnscheduledOnly");
    stage.launch(&configuration).await;
    // Others leave two GPUs on each host, so the three pods of the rack are on two hosts.
    let others = with_gpus(set("others", (4, 1), json!({})), 6);
    stage.try_create(&others).await.unwrap();
    stage.await_running(4).await;
    let workload = with_gpus(set("w", (1, 3), packed("rack")), 1);
    stage.try_create(&workload).await.unwrap();
    stage.await_running(7).await;
    stage.await_gang_keys("w-0", keys(RACK, HOST)).await;
    stage.domain_of("w-0-", RACK).await;
    assert_eq!(stage.domains_of("w-0-", HOST).await.len(), 2);
    stage.remove_set("others").await;
    stage.await_running(3).await;
    let before = stage.placement().await;

    let patch = json!({"spec": {"template": packed("host")}});
    stage.patch_set("w", patch).await.unwrap();
    stage.await_gang_keys("w-0", keys(HOST, HOST)).await;
    scale_clique(stage, "w-0-a", 6).await;
    all_demand(&running(stage, 6).await, 1, (HOST, HOST));
    let (after, new): (BTreeMap<_, _>, BTreeMap<_, _>) = stage
        .placement()
        .await
        .into_iter()
        .partition(|(name, _)| before.contains_key(name));
    assert_eq!(after, before, "pods that run are not rescheduled");
    let hosts: BTreeSet<_> = new.into_values().map(|(_, node)| node).collect();
    assert_eq!(hosts.len(), 1, "the new pods share a host");
}

// shows: V3-218, V3-78
pub async fn e2e_top_18_strictest_level_changes(stage: &mut impl Stage) {
    let always = |words: &[&str]| with_policies(words, ", preferredPacking: Always");
    stage.launch(&always(&RACK_AND_HOST)).await;
    let workload = with_gpus(set("w", (1, 2), json!({})), 4);
    stage.try_create(&workload).await.unwrap();
    stage.await_gang_keys("w-0", keys("", HOST)).await;
    running(stage, 2).await;
    stage.domain_of("w-0-", HOST).await;
    let before = stage.placement().await;

    stage.launch(&always(&["rack", "host", "numa"])).await;
    stage.await_gang_keys("w-0", keys("", NUMA)).await;
    assert_eq!(stage.placement().await, before);
    stage.patch_set("w", json!({"spec": {"replicas": 2}})).await.unwrap();
    running(stage, 4).await;
    stage.await_gang_keys("w-1", keys("", NUMA)).await;
    stage.domain_of("w-1-", HOST).await;
}

// shows: V3-219
pub async fn e2e_top_19_scaling_with_topology_constraints(stage: &mut impl Stage) {
    stage.launch(&levels(&RACK_AND_HOST)).await;
    // A replica fits on a host, and no second one beside it.
    let workload = with_gpus(set("w", (1, 2), packed("rack")), 3);
    stage.try_create(&workload).await.unwrap();
    running(stage, 2).await;
    let rack = stage.domain_of("w-0-", RACK).await;
    stage.patch_set("w", json!({"spec": {"replicas": 3}})).await.unwrap();
    all_demand(&running(stage, 6).await, 3, (RACK, HOST));
    for replica in ["w-0-", "w-1-", "w-2-"] {
        stage.domain_of(replica, RACK).await;
    }
    stage.patch_set("w", json!({"spec": {"replicas": 1}})).await.unwrap();
    stage
        .eventually("one gang is left", async |stage| {
            stage.found::<PodGang>().await.len() == 1
        })
        .await;
    all_demand(&running(stage, 2).await, 1, (RACK, HOST));
    assert_eq!(stage.domain_of("w-0-", RACK).await, rack);
}
