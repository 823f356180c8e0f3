//! A topology of its own for a graph, and what an admin does to it.

use grove_api::{ClusterTopology, DynamoGraphDeployment};
use grove_scenarios::{HOST, RACK, ZONE};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::world::World;
use crate::graphs::with_worker;

pub(super) const ENFORCED: &str = "TopologyConstraintsEnforced";
/// What is said of constraints that are kept.
pub(super) const ALL: (&str, &str) = ("True", "AllTopologyLevelsAvailable");
/// What is said when the topology is gone.
pub(super) const GONE: (&str, &str) = ("False", "TopologyDefinitionNotFound");

const NAME: &str = "h100";
/// The topology's levels, as words and keys.
pub(super) const LEVELS: [(&str, &str); 3] = [("zone", ZONE), ("rack", RACK), ("host", HOST)];

fn spec(levels: &[(&str, &str)]) -> Value {
    let levels = levels.iter().map(|(domain, key)| json!({"domain": domain, "key": key}));
    json!({"levels": levels.collect::<Vec<_>>()})
}

fn topologies(world: &World) -> Api<ClusterTopology> {
    Api::all(world.client.clone())
}

pub(super) async fn create_topology(world: &World) {
    let object = json!({"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": NAME},
        "spec": spec(&LEVELS)});
    let object = serde_json::from_value(object).expect("a topology");
    let made = topologies(world).create(&PostParams::default(), &object).await;
    made.expect("a topology that is taken");
}

pub(super) async fn change_topology(world: &World, levels: &[(&str, &str)]) {
    let patch = Patch::Merge(json!({"spec": spec(levels)}));
    let changed = topologies(world).patch(NAME, &PatchParams::default(), &patch).await;
    changed.expect("a topology");
}

/// Deletes it, by an admin who insists and takes the finalizer off.
pub(super) async fn lose_topology(world: &World) {
    let deleted = topologies(world).delete(NAME, &DeleteParams::default()).await;
    deleted.expect("a topology");
    let lifted = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // It is gone already if nobody holds it.
    let _ = topologies(world).patch(NAME, &PatchParams::default(), &lifted).await;
}

/// A graph whose constraints are of that topology.
pub(super) fn on_topology() -> DynamoGraphDeployment {
    let mut wanted = with_worker(json!({"topologyConstraint": {"packDomain": "rack"}}));
    let constraint = json!({"clusterTopologyName": NAME, "packDomain": "zone"});
    wanted.spec.topology_constraint = Some(serde_json::from_value(constraint).expect("a constraint"));
    wanted
}

/// Topology and graph, up and running.
pub(super) async fn constrained(world: &World) {
    create_topology(world).await;
    world.create(&on_topology()).await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.says("g", ENFORCED, ALL).await;
}
