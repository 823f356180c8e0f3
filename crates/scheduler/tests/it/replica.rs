//! The gangs of one PodCliqueSet replica share its domain: at first, when it grows, and when pods are replaced.

use grove_api::{PodCliqueScalingGroup, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::support::{Policies, World, clique, nodes, set};

const SPILLS: Policies = Policies {
    spills: true,
    pins: false,
};

/// One leader, and a scaling group of workers that begins with one replica of two pods.
pub(crate) fn elastic(level: &str) -> String {
    format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: s}}\nspec:\n  replicas: 1\n  template:\n    \
         topologyConstraint: {{packDomain: {level}}}\n    cliques:\n{}{}    podCliqueScalingGroups:\n    \
         - {{name: g, cliqueNames: [work], replicas: 1, minAvailable: 1}}\n",
        clique("lead", 1, 1, 8),
        clique("work", 2, 2, 8)
    )
}

async fn scale(world: &World, replicas: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let groups = world.all::<PodCliqueScalingGroup>();
    groups
        .patch("s-0-g", &PatchParams::default(), &patch)
        .await
        .expect("a scaling group");
}

#[tokio::test(start_paused = true)]
async fn a_replica_grows_inside_its_rack_and_waits_when_that_is_full() {
    let world = World::new(nodes(1, 2, 5)).await;
    world.create::<PodCliqueSet>(&elastic("rack")).await;
    world.await_scheduled("s-0", ("True", "Placed")).await;
    scale(&world, 2).await;
    world.await_scheduled("s-0-g-0", ("True", "Placed")).await;
    assert_eq!(world.racks_of("s-0").await.len(), 1);
    scale(&world, 3).await;
    world.await_scheduled("s-0-g-1", ("False", "ReplicaPinned")).await;
    let said = world.scheduled("s-0-g-1").await.expect("a condition");
    assert!(said.2.contains("has room"), "{}", said.2);
    assert_eq!(world.audit().binds, 5);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_may_spill_over_grows_elsewhere() {
    let world = World::with(nodes(1, 2, 4), SPILLS).await;
    world.create::<PodCliqueSet>(&elastic("rack")).await;
    world.await_scheduled("s-0", ("True", "Placed")).await;
    scale(&world, 2).await;
    world.await_scheduled("s-0-g-0", ("True", "Placed")).await;
    assert_eq!(world.racks_of("s-0").await.len(), 2);
    assert_eq!(
        world.racks_of("s-0-g-1-work").await.len(),
        1,
        "the scaled gang itself is whole"
    );
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_replaced_pod_returns_to_the_rack_of_its_gang() {
    let world = World::new(nodes(1, 4, 4)).await;
    world.create::<PodCliqueSet>(&set("w", 3, 8, "rack")).await;
    world.await_scheduled("w-0", ("True", "Placed")).await;
    let rack = world.racks_of("w").await;
    let pod = world.list::<Pod>().await.into_keys().next().expect("a pod");
    world
        .all::<Pod>()
        .delete(&pod, &DeleteParams::default())
        .await
        .expect("a deletion");
    world.settle().await;
    assert_eq!((world.racks_of("w").await, world.unbound().await), (rack, 0));
    world.await_scheduled("w-0", ("True", "Placed")).await;
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_missing_member_comes_before_new_gangs() {
    let mut world = World::new(nodes(1, 1, 3)).await;
    world.create::<PodCliqueSet>(&set("w", 3, 8, "rack")).await;
    world.await_scheduled("w-0", ("True", "Placed")).await;
    world.crash_scheduler().await;
    world.create::<PodCliqueSet>(&set("a", 1, 8, "rack")).await;
    let pod = world
        .list::<Pod>()
        .await
        .into_keys()
        .find(|name| name.starts_with("w-"))
        .expect("a pod");
    world
        .all::<Pod>()
        .delete(&pod, &DeleteParams::default())
        .await
        .expect("a deletion");
    world.settle().await;
    world.start_scheduler();
    world.settle().await;
    assert_eq!(world.nodes_of("w-").await.iter().flatten().count(), 3);
    assert_eq!(world.nodes_of("a-").await, [None]);
    world.audit();
}
