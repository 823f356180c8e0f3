//! Several topologies in one cluster, beyond what the designs play through.

use grove_api::{ClusterTopology, ClusterTopologyBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::kit::{Look as _, RACK, delete, keys, levels, on, set, world};

const CONSTRAINTS: &str = "TopologyConstraints";

#[tokio::test(start_paused = true)]
async fn one_that_nobody_uses_goes_at_once() {
    let world = world(&levels(&["host"])).await;
    world.create_topology("mine", &[("rack", RACK)]).await;
    world.await_topology_ready("mine", ("True", "TopologyReady")).await;
    delete::<ClusterTopology>(&world, "mine").await;
    world
        .eventually("it is gone", async |world| world.topology("mine").await.is_none())
        .await;
}

/// dynamo #11399, nvcf #1269: a kind that was renamed took every workload that named a topology with it. Newer clusters keep
/// their topology under another kind; ours of the same name wins.
#[tokio::test(start_paused = true)]
async fn pain_dynamo_11399_a_topology_is_read_from_either_kind() {
    let world = world(&levels(&["host"])).await;
    let binding = json!({"metadata": {"name": "bound"}, "spec": {"levels": [{"domain": "row", "key": "their/row"}]}});
    let binding: ClusterTopologyBinding = serde_json::from_value(binding).unwrap();
    let bindings = Api::<ClusterTopologyBinding>::all(world.client.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    world.try_create(&set("w", (1, 1), on("bound", "row"))).await.unwrap();
    world.await_gang_keys("w-0", keys("their/row", "their/row")).await;

    world.create_topology("bound", &[("rack", RACK)]).await;
    world
        .await_condition("w", CONSTRAINTS, ("False", "TopologyLevelNotFound"))
        .await;
    world.await_told("bound", &["Hidden"]).await;
    delete::<ClusterTopology>(&world, "bound").await;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let _ = world.topologies().patch("bound", &PatchParams::default(), &patch).await;
    world.await_gang_keys("w-0", keys("their/row", "their/row")).await;
}
