//! The `default-scheduler` profile: gangs are placed by the same engine, pinned, and bound by the cluster's own scheduler.

use grove_api::{PodCliqueScalingGroup, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::{Policies, World, nodes, set};

const PINS: Policies = Policies {
    spills: false,
    pins: true,
};

#[tokio::test(start_paused = true)]
async fn a_gang_is_pinned_whole_and_the_clusters_own_scheduler_binds_it() {
    let world = World::with(nodes(1, 3, 4), PINS).await;
    // First fit would begin in rack b1r1, where a gang of four no longer has room.
    world.create::<PodCliqueSet>(&set("one", 1, 8, "rack")).await;
    world.await_scheduled("one-0", ("True", "Placed")).await;
    world.create::<PodCliqueSet>(&set("four", 4, 8, "rack")).await;
    world.await_scheduled("four-0", ("True", "Placed")).await;
    assert_eq!(world.racks_of("four").await.len(), 1);
    let status = world.gang("four-0").await.status.expect("a status");
    assert_eq!(status.placement_score, Some(1.0));
    world.settle().await;
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_does_not_fit_keeps_its_gates() {
    let world = World::with(nodes(1, 2, 2), PINS).await;
    world.create::<PodCliqueSet>(&set("giant", 3, 8, "rack")).await;
    world.await_scheduled("giant-0", ("False", "TooLarge")).await;
    world.settle().await;
    for (name, pod) in world.list::<Pod>().await {
        assert!(pod.spec.is_some_and(|spec| spec.scheduling_gates.is_some()), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scaled_gang_follows_its_base_into_the_rack() {
    let world = World::with(nodes(1, 2, 5), PINS).await;
    world.create::<PodCliqueSet>(&crate::replica::elastic("rack")).await;
    world.await_scheduled("s-0", ("True", "Placed")).await;
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let groups = world.all::<PodCliqueScalingGroup>();
    groups
        .patch("s-0-g", &PatchParams::default(), &patch)
        .await
        .expect("a scaling group");
    world.await_scheduled("s-0-g-0", ("True", "Placed")).await;
    assert_eq!(world.racks_of("s-0").await.len(), 1);
    world.settle().await;
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn pinned_pods_that_nobody_binds_are_placed_again() {
    let world = World::with_binder(nodes(1, 1, 2), PINS, false).await;
    world.create::<PodCliqueSet>(&set("w", 2, 8, "rack")).await;
    let uids = async |world: &World| -> Vec<String> {
        world
            .list::<Pod>()
            .await
            .values()
            .filter_map(ResourceExt::uid)
            .collect()
    };
    let are_pinned = async |world: &World| {
        let pods = world.list::<Pod>().await;
        pods.len() == 2
            && pods
                .values()
                .all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_none()))
    };
    world.eventually("both are pinned", are_pinned).await;
    let before = uids(&world).await;
    world
        .eventually("both are made anew and pinned again", async |world| {
            let now = uids(world).await;
            are_pinned(world).await && before.iter().all(|uid| !now.contains(uid))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pinned_pod_above_the_minimum_that_nobody_binds_is_placed_again() {
    let world = World::with_binder(nodes(1, 1, 3), PINS, false).await;
    let elastic = set("w", 3, 8, "rack").replace("minAvailable: 3", "minAvailable: 2");
    world.create::<PodCliqueSet>(&elastic).await;
    let are_pinned = async |world: &World| {
        let pods = world.list::<Pod>().await;
        pods.len() == 3 && pods.values().all(|pod| pinned_to(pod).is_some())
    };
    world.eventually("all are pinned", are_pinned).await;
    // Whoever binds here binds two of them.
    let pods: Vec<Pod> = world.list::<Pod>().await.into_values().collect();
    for pod in &pods[..2] {
        let node = pinned_to(pod).expect("a pinned pod");
        world.bind(&pod.name_any(), &node).await;
    }
    world.await_scheduled("w-0", ("True", "Placed")).await;
    world
        .eventually("the third is made anew and pinned again", async |world| {
            let now = world.list::<Pod>().await;
            let there = |pod: &Pod| now.get(&pod.name_any()).is_some_and(|now| now.uid() == pod.uid());
            are_pinned(world).await && there(&pods[0]) && there(&pods[1]) && !there(&pods[2])
        })
        .await;
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_waits_in_vain_in_one_rack_is_pinned_in_the_next() {
    let world = World::with_binder(nodes(1, 2, 4), PINS, false).await;
    world.create::<PodCliqueSet>(&set("w", 2, 8, "rack")).await;
    let pinned = async |world: &World| -> Vec<(Pod, String)> {
        let pods = world.list::<Pod>().await.into_values();
        let pinned = pods.filter_map(|pod| pinned_to(&pod).map(|node| (pod, node)));
        pinned.collect()
    };
    world
        .eventually("both are pinned", async |world| pinned(world).await.len() == 2)
        .await;
    let first = pinned(&world).await[0].1.clone();
    let (rack, _) = first.split_once('h').expect("a rack");
    // Whoever binds here cannot bind them in that rack: a volume cannot be made there, say.
    world
        .eventually("both are pinned in the other rack", async |world| {
            let pinned = pinned(world).await;
            pinned.len() == 2 && pinned.iter().all(|(_, node)| !node.starts_with(rack))
        })
        .await;
    for (pod, node) in pinned(&world).await {
        world.bind(&pod.name_any(), &node).await;
    }
    world.await_scheduled("w-0", ("True", "Placed")).await;
    world.settle().await;
    world.audit();
}

/// The node that a pod is pinned to.
fn pinned_to(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let field = required.node_selector_terms[0].match_fields.as_ref()?.first()?;
    field.values.as_ref()?.first().cloned()
}

#[tokio::test(start_paused = true)]
async fn a_set_that_names_another_scheduler_is_left_to_that_one() {
    let world = World::with(nodes(1, 1, 4), PINS).await;
    let theirs = set("theirs", 2, 8, "rack").replace(
        "        podSpec:\n",
        "        podSpec:\n          schedulerName: grove-scheduler\n",
    );
    world.create::<PodCliqueSet>(&theirs).await;
    world.create::<PodCliqueSet>(&set("ours", 2, 8, "rack")).await;
    world.await_scheduled("ours-0", ("True", "Placed")).await;
    world
        .eventually("the operator lets their pods go", async |world| {
            let pods = world.list::<Pod>().await.into_iter();
            let theirs = pods.filter(|(name, _)| name.starts_with("theirs-"));
            let mut specs = theirs.filter_map(|(_, pod)| pod.spec);
            specs.all(|spec| {
                spec.scheduling_gates.is_none()
                    && spec.scheduler_name.as_deref() == Some("grove-scheduler")
                    && spec.affinity.is_none()
            })
        })
        .await;
    world.settle().await;
    assert_eq!(
        world.nodes_of("theirs-").await,
        [None, None],
        "that scheduler does not run here"
    );
    let label = world.gang("theirs-0").await.labels()["grove.io/scheduler-name"].clone();
    assert_eq!(label, "grove-scheduler");
    world.audit();
}
