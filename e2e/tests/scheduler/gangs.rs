//! Gangs start whole, grow inside their rack, and return there: GS1, GS5, GT1, GT6 and the replica's domain.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use grove_api::PodCliqueScalingGroup;
use grove_scenarios::RACK;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::place::{GPU_HOST, Place, Stand, by_both_profiles, is_ready, node_of};

by_both_profiles! {
    gs1_a_gang_that_does_not_fit_waits_whole,
    gs5_the_minimum_runs_first_then_the_rest,
    gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay,
    gt6_a_lost_pod_above_the_minimum_returns_to_its_rack,
    a_replica_grows_inside_its_rack_and_waits_when_that_is_full,
}

/// Ten pods: two of pc-a, and two replicas of sg-x with one pc-b and three pc-c each. `needed` says whether all of them
/// are, or one of each.
fn workload(namespace: &str, all_needed: bool) -> String {
    let minimum = |replicas: usize| if all_needed { replicas } else { 1 };
    let clique = |name: &str, replicas: usize| {
        format!(
            "    - name: {name}\n      spec:\n        roleName: {name}\n        replicas: {replicas}\n        \
             minAvailable: {}\n        podSpec: {{nodeSelector: {{test: {namespace}}}, containers: [{{name: main, \
             image: one}}]}}\n",
            minimum(replicas)
        )
    };
    format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: w}}\nspec:\n  replicas: 1\n  template:\n    \
         terminationDelay: 2s\n    cliques:\n{}{}{}    podCliqueScalingGroups:\n    \
         - {{name: sg-x, cliqueNames: [pc-b, pc-c], replicas: 2, minAvailable: {}}}\n",
        clique("pc-a", 2),
        clique("pc-b", 1),
        clique("pc-c", 3),
        minimum(2)
    )
}

async fn gs1_a_gang_that_does_not_fit_waits_whole(stand: &'static Stand) -> Result<()> {
    let place = Place::new(stand, "gs1").await?;
    place.add_places(9).await?;
    place.create(&workload("gs1", true)).await?;
    place.scheduled("w-0", "False").await?;
    let pods = place.pods().await?;
    assert!(pods.values().all(|pod| node_of(pod).is_none()), "all or none");
    place.add_places(1).await?;
    place.running(10, 10).await?;
    place.scheduled("w-0", "True").await?;
    place.audit().await
}

async fn gs5_the_minimum_runs_first_then_the_rest(stand: &'static Stand) -> Result<()> {
    let place = Place::new(stand, "gs5").await?;
    place.add_places(3).await?;
    place.create(&workload("gs5", false)).await?;
    let pods = place.running(3, 10).await?;
    for clique in ["w-0-pc-a-", "w-0-sg-x-0-pc-b-", "w-0-sg-x-0-pc-c-"] {
        let ready = pods
            .iter()
            .filter(|(name, pod)| name.starts_with(clique) && is_ready(pod));
        assert_eq!(ready.count(), 1, "{clique}");
    }
    place.add_places(7).await?;
    place.running(10, 10).await?;
    place.audit().await
}

async fn cordon(place: &Place, node: &str, on: bool) -> Result<()> {
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(place.client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes.patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Takes a pod away; the name of its node.
async fn lose(place: &Place, prefix: &str, with_its_place: bool) -> Result<String> {
    let pods = place.pods().await?;
    let (name, pod) = pods
        .iter()
        .find(|(name, _)| name.starts_with(prefix))
        .context("a pod")?;
    let node = node_of(pod).context("a pod on a node")?.to_owned();
    if with_its_place {
        cordon(place, &node, true).await?;
    }
    place.delete::<Pod>(name).await?;
    Ok(node)
}

async fn uids(place: &Place) -> Result<BTreeSet<String>> {
    Ok(place.pods().await?.values().filter_map(ResourceExt::uid).collect())
}

async fn gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay(stand: &'static Stand) -> Result<()> {
    let place = Place::new(stand, "gt1").await?;
    place.add_places(10).await?;
    place.create(&workload("gt1", true)).await?;
    place.running(10, 10).await?;
    let before = uids(&place).await?;
    let node = lose(&place, "w-0-pc-a-", true).await?;
    place
        .until("all pods to be new, and none of them on a node", async |place| {
            let pods = place.pods().await?;
            let is_new = |pod: &Pod| pod.uid().is_some_and(|uid| !before.contains(&uid));
            Ok(pods.len() == 10 && pods.values().all(|pod| is_new(pod) && node_of(pod).is_none()))
        })
        .await?;
    cordon(&place, &node, false).await?;
    place.running(10, 10).await?;
    place.audit().await
}

/// A set with a rack to itself: one leader, and a scaling group of workers that begins with one replica of two pods.
fn elastic(namespace: &str) -> String {
    let clique = |name: &str, pods: usize| {
        format!(
            "    - name: {name}\n      spec:\n        roleName: {name}\n        replicas: {pods}\n        minAvailable: 1\n        \
             podSpec: {{nodeSelector: {{test: {namespace}}}, containers: [{{name: main, image: one, resources: \
             {{requests: {{nvidia.com/gpu: 8}}, limits: {{nvidia.com/gpu: 8}}}}}}]}}\n"
        )
    };
    format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: w}}\nspec:\n  replicas: 1\n  template:\n    \
         topologyConstraint: {{packDomain: rack}}\n    cliques:\n{}{}    podCliqueScalingGroups:\n    \
         - {{name: g, cliqueNames: [work], replicas: 1, minAvailable: 1}}\n",
        clique("lead", 1),
        clique("work", 2)
    )
}

async fn gt6_a_lost_pod_above_the_minimum_returns_to_its_rack(stand: &'static Stand) -> Result<()> {
    let place = Place::new(stand, "gt6").await?;
    place.add_nodes(2, 4, &GPU_HOST).await?;
    place.create(&elastic("gt6")).await?;
    place.running(3, 3).await?;
    let (before, rack) = (uids(&place).await?, place.domains("w-0-", RACK).await?);
    lose(&place, "w-0-g-0-work-", true).await?;
    place
        .until("another pod to run in its stead", async |place| {
            let pods = place.pods().await?;
            let is_new = |pod: &Pod| pod.uid().is_some_and(|uid| !before.contains(&uid));
            Ok(pods.len() == 3 && pods.values().all(is_ready) && pods.values().filter(|pod| is_new(pod)).count() == 1)
        })
        .await?;
    assert_eq!(place.domains("w-0-", RACK).await?, rack);
    place.audit().await
}

async fn a_replica_grows_inside_its_rack_and_waits_when_that_is_full(stand: &'static Stand) -> Result<()> {
    let place = Place::new(stand, "grows").await?;
    place.add_nodes(2, 5, &GPU_HOST).await?;
    place.create(&elastic("grows")).await?;
    place.running(3, 3).await?;
    let rack = place.domains("w-0-", RACK).await?;
    assert_eq!(rack.len(), 1);
    let scale = async |replicas: usize| -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let groups = place.all::<PodCliqueScalingGroup>();
        groups.patch_scale("w-0-g", &PatchParams::default(), &patch).await?;
        Ok(())
    };
    scale(2).await?;
    place.running(5, 5).await?;
    assert_eq!(place.domains("w-0-", RACK).await?, rack);
    // The other rack is empty, but it is another one.
    scale(3).await?;
    place.scheduled("w-0-g-1", "False").await?;
    place.running(5, 7).await?;
    place.audit().await
}
