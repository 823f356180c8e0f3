//! Constraints of workloads: E2E-TOP-7 to 19.

use grove_api::PodGang;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::hooks::refusal;
use super::kit::{
    BLOCK, DEFAULT, HOST, NUMA, OFF, RACK, clique, keys, keys_of, levels, packed, set, with_policies, world,
};
use crate::support::World;

const RACK_AND_HOST: [&str; 2] = ["rack", "host"];

/// Waits until that many pods run, and returns all gangs.
async fn running(world: &World, pods: usize) -> Vec<PodGang> {
    world
        .eventually(&format!("{pods} pods run"), async |world| world.ready().await == pods)
        .await;
    world.list::<PodGang>().await.into_values().collect()
}

/// Every gang demands and prefers these keys, by itself: replicas are independent of each other.
fn all_demand(gangs: &[PodGang], (required, preferred): (&str, &str)) {
    for gang in gangs {
        let found = keys_of(gang.spec.topology_constraint.as_ref());
        assert_eq!(found, keys(required, preferred), "{}", gang.name_any());
        assert_eq!(gang.annotations()["grove.io/topology-name"], DEFAULT);
        assert_eq!(gang.spec.topology_ref.as_deref(), Some(DEFAULT));
    }
}

// shows: V3-207, V3-214, V3-55, V3-93
#[tokio::test(start_paused = true)]
async fn e2e_top_7_and_14_each_replica_demands_one_rack() {
    let world = world(&levels(&RACK_AND_HOST)).await;
    world.try_create(&set("w", (2, 2), packed("rack"))).await.unwrap();
    let gangs = running(&world, 4).await;
    assert_eq!(gangs.len(), 2);
    all_demand(&gangs, (RACK, HOST));
    let required = &gangs[0].annotations()["grove.io/replica-pack-required"];
    assert_eq!(required, RACK);
}

// shows: V3-208, V3-213
#[tokio::test(start_paused = true)]
async fn e2e_top_8_and_13_each_replica_demands_one_host() {
    let world = world(&levels(&RACK_AND_HOST)).await;
    world.try_create(&set("w", (2, 3), packed("host"))).await.unwrap();
    let gangs = running(&world, 6).await;
    assert_eq!(gangs.len(), 2);
    all_demand(&gangs, (HOST, HOST));
}

/// A set whose clique is a member of a scaling group, with a constraint at each scope.
fn three_scopes([replica, group, member]: [&str; 3]) -> Value {
    let mut member_clique = clique("a", 1);
    member_clique["topologyConstraint"] = json!({"packDomain": member});
    json!({
        "topologyConstraint": {"packDomain": replica},
        "cliques": [member_clique],
        "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["a"], "replicas": 2, "minAvailable": 1,
                                    "topologyConstraint": {"packDomain": group}}],
    })
}

// shows: V3-209, V3-69, V3-70
#[tokio::test(start_paused = true)]
async fn e2e_top_9_multi_level_hierarchy_constraints() {
    let configuration = levels(&["rack", "block", "host"]);
    let world = world(&configuration).await;
    world.serve_webhooks(&configuration).await;
    let valid = set("w", (1, 1), three_scopes(["rack", "host", "host"]));
    world.try_create(&valid).await.unwrap();
    running(&world, 2).await;
    let base = world.gang("w-0").await.unwrap();
    assert_eq!(keys_of(base.spec.topology_constraint.as_ref()), keys(RACK, HOST));
    let group = &base.spec.topology_constraint_group_configs[0];
    assert_eq!(
        (group.name.as_str(), group.pod_group_names[0].as_str()),
        ("w-0-g-0", "w-0-g-0-a")
    );
    assert_eq!(keys_of(group.topology_constraint.as_ref()), keys(HOST, HOST));
    assert_eq!(
        keys_of(base.spec.pod_groups[0].topology_constraint.as_ref()),
        keys(HOST, HOST)
    );
    let scaled = world.gang("w-0-g-0").await.unwrap();
    assert_eq!(keys_of(scaled.spec.topology_constraint.as_ref()), keys(HOST, HOST));
    assert_eq!(scaled.spec.topology_constraint_group_configs, []);
    assert_eq!(scaled.annotations()["grove.io/replica-pack-required"], RACK);

    let invalid = set("x", (1, 1), three_scopes(["rack", "block", "block"]));
    let said = refusal(world.try_create(&invalid).await);
    let expected = "child topology constraint 'block' must be equal to or stricter than parent constraint 'rack'";
    assert!(said.contains(expected), "{said}");
}

// shows: V3-210, V3-306, V3-45
#[tokio::test(start_paused = true)]
async fn e2e_top_10_and_scenario_6_workload_rejected_when_topology_disabled() {
    let world = world(OFF).await;
    world.serve_webhooks(OFF).await;
    let said = refusal(world.try_create(&set("w", (1, 1), packed("rack"))).await);
    assert!(
        said.contains("admission webhook \"podcliqueset.grove.io\" denied the request"),
        "{said}"
    );
    assert!(
        said.contains("topology support is not enabled in the operator"),
        "{said}"
    );
    world.try_create(&set("plain", (1, 1), json!({}))).await.unwrap();
}

// shows: V3-211, V3-305
#[tokio::test(start_paused = true)]
async fn e2e_top_11_and_scenario_5_workload_rejected_with_non_existent_level() {
    let configuration = levels(&RACK_AND_HOST);
    let world = world(&configuration).await;
    world.serve_webhooks(&configuration).await;
    let said = refusal(world.try_create(&set("w", (1, 1), packed("block"))).await);
    let expected = "topology level 'block' not defined in ClusterTopology 'grove-topology'";
    assert!(
        said.contains("admission webhook \"podcliqueset.grove.io\" denied the request"),
        "{said}"
    );
    assert!(said.contains(expected), "{said}");
}

// shows: V3-212
/// Under both values of `scaleOut`: who places decides where pods beyond the first ones go; the gang says the same.
#[tokio::test(start_paused = true)]
async fn e2e_top_12_pods_that_are_added_stay_under_the_demand() {
    for policy in ["SameDomain", "SpillOver"] {
        let world = world(&with_policies(&RACK_AND_HOST, &format!(", scaleOut: {policy}"))).await;
        world.try_create(&set("w", (1, 4), packed("rack"))).await.unwrap();
        all_demand(&running(&world, 4).await, (RACK, HOST));
        let scaled = json!({"spec": {"replicas": 8}});
        let cliques = world.all::<grove_api::PodClique>();
        let patch = kube::api::Patch::Merge(scaled);
        cliques.patch("w-0-a", &Default::default(), &patch).await.unwrap();
        let gangs = running(&world, 8).await;
        all_demand(&gangs, (RACK, HOST));
        world
            .eventually("the gang lists all eight", async |world| {
                let gang = world.gang("w-0").await;
                gang.is_some_and(|gang| gang.spec.pod_groups[0].pod_references.len() == 8)
            })
            .await;
    }
}

// shows: V3-215
#[tokio::test(start_paused = true)]
async fn e2e_top_15_preferred_is_the_strictest_level_below_the_required_one() {
    let world = world(&levels(&RACK_AND_HOST)).await;
    world.try_create(&set("w", (1, 6), packed("rack"))).await.unwrap();
    all_demand(&running(&world, 6).await, (RACK, HOST));
}

// shows: V3-216, V3-311, V3-81, V3-82, V2-35
#[tokio::test(start_paused = true)]
async fn e2e_top_16_and_scenario_11_update_topology_constraint() {
    let configuration = with_policies(&RACK_AND_HOST, ", constraintUpdates: UnscheduledOnly");
    let world = world(&configuration).await;
    world.serve_webhooks(&configuration).await;
    world.try_create(&set("w", (2, 3), packed("rack"))).await.unwrap();
    all_demand(&running(&world, 6).await, (RACK, HOST));
    let before = world.placement().await;

    let patch = json!({"spec": {"template": packed("host")}});
    world.patch_set("w", patch).await.unwrap();
    world.await_gang_keys("w-0", keys(HOST, HOST)).await;
    world.await_gang_keys("w-1", keys(HOST, HOST)).await;
    let cliques = world.all::<grove_api::PodClique>();
    let scale = kube::api::Patch::Merge(json!({"spec": {"replicas": 6}}));
    cliques.patch("w-0-a", &Default::default(), &scale).await.unwrap();
    running(&world, 9).await;
    let mut after = world.placement().await;
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before, "pods that run are not rescheduled");
}

// shows: V1-8, V1-26, G244-59
/// The default policy: a constraint stays as it was made.
#[tokio::test(start_paused = true)]
async fn constraints_are_immutable_unless_the_policy_says_otherwise() {
    let configuration = levels(&RACK_AND_HOST);
    let world = world(&configuration).await;
    world.serve_webhooks(&configuration).await;
    world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    let said = refusal(
        world
            .patch_set("w", json!({"spec": {"template": packed("host")}}))
            .await,
    );
    assert!(said.contains("topology constraints are immutable"), "{said}");
}

// shows: V3-218, V3-78
#[tokio::test(start_paused = true)]
async fn e2e_top_18_strictest_level_changes() {
    let always = |words: &[&str]| with_policies(words, ", preferredPacking: Always");
    let mut world = world(&always(&RACK_AND_HOST)).await;
    world.try_create(&set("w", (1, 2), json!({}))).await.unwrap();
    world.await_gang_keys("w-0", keys("", HOST)).await;
    running(&world, 2).await;
    let before = world.placement().await;

    world.launch(&always(&["rack", "host", "numa"])).await.unwrap();
    world.await_gang_keys("w-0", keys("", NUMA)).await;
    assert_eq!(world.placement().await, before);
    world.patch_set("w", json!({"spec": {"replicas": 2}})).await.unwrap();
    running(&world, 4).await;
    world.await_gang_keys("w-1", keys("", NUMA)).await;
}

// shows: V3-219
#[tokio::test(start_paused = true)]
async fn e2e_top_19_scaling_with_topology_constraints() {
    let world = world(&levels(&RACK_AND_HOST)).await;
    world.try_create(&set("w", (1, 2), packed("rack"))).await.unwrap();
    running(&world, 2).await;
    world.patch_set("w", json!({"spec": {"replicas": 3}})).await.unwrap();
    let gangs = running(&world, 6).await;
    assert_eq!(gangs.len(), 3);
    all_demand(&gangs, (RACK, HOST));
    world.patch_set("w", json!({"spec": {"replicas": 1}})).await.unwrap();
    world
        .eventually("one gang is left", async |world| {
            world.list::<PodGang>().await.len() == 1
        })
        .await;
    all_demand(&running(&world, 2).await, (RACK, HOST));
}

// shows: G244-69
/// A scaled gang takes its group's level, or that of the whole where the group says nothing.
#[tokio::test(start_paused = true)]
async fn scaled_gangs_inherit_where_their_group_says_nothing() {
    let world = world(&levels(&["block", "rack", "host"])).await;
    let mut template = three_scopes(["block", "rack", "host"]);
    world.try_create(&set("own", (1, 1), template.clone())).await.unwrap();
    world.await_gang_keys("own-0-g-0", keys(RACK, HOST)).await;
    template["podCliqueScalingGroups"][0]["topologyConstraint"] = Value::Null;
    world.try_create(&set("inherits", (1, 1), template)).await.unwrap();
    world.await_gang_keys("inherits-0-g-0", keys(BLOCK, HOST)).await;
}
