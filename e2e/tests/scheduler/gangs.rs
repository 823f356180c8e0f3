//! Gangs start whole, grow inside their rack, and return there: GS1–GS12, GT1–GT6 and the replica's domain.

use std::collections::BTreeSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use futures::future::join_all;
use grove_api::PodCliqueScalingGroup;
use grove_scenarios::{RACK, gangs};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::place::{GPU_HOST, Place, Stand, by_both_profiles, is_ready, node_of};

by_both_profiles! {
    gs_and_gt,
    a_lost_pod_above_the_minimum_returns_to_its_rack,
    a_replica_grows_inside_its_rack_and_waits_when_that_is_full,
}

/// All of GS1–GS12 and GT1–GT6, side by side: each has a namespace and nodes of its own, and mostly waits.
macro_rules! side_by_side {
    ($($name:ident,)*) => {
        async fn gs_and_gt(stand: &'static Stand) -> Result<()> {
            let scenarios: Vec<Pin<Box<dyn Future<Output = Option<&str>>>>> = vec![
                $(Box::pin(play(stand, stringify!($name), async |floor| gangs::$name(floor).await)),)*
            ];
            let failed: Vec<_> = join_all(scenarios).await.into_iter().flatten().collect();
            ensure!(failed.is_empty(), "{failed:?} failed; what they say is above");
            Ok(())
        }
    };
}
grove_scenarios::for_each_gang_scenario!(side_by_side);

/// Plays a scenario; its name, if it fails.
async fn play<'a>(stand: &'static Stand, name: &'a str, scenario: impl AsyncFnOnce(&Place)) -> Option<&'a str> {
    let namespace = name.split('_').next().unwrap_or(name);
    let played = async {
        let place = Place::new(stand, namespace).await.expect("a place");
        scenario(&place).await;
        place.audit().await.expect("a good record");
    };
    let begun = Instant::now();
    let is_played = AssertUnwindSafe(played).catch_unwind().await.is_ok();
    println!(
        "{name}: {} after {:.1?}",
        if is_played { "ok" } else { "FAILED" },
        begun.elapsed()
    );
    (!is_played).then_some(name)
}

/// Takes a pod away, and its place with it.
async fn lose(place: &Place, prefix: &str) -> Result<()> {
    let pods = place.pods().await?;
    let mut found = pods.iter().filter(|(name, _)| name.starts_with(prefix));
    let (name, pod) = found.next().context("a pod")?;
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(place.client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    let node = node_of(pod).context("a pod on a node")?;
    nodes.patch(node, &PatchParams::default(), &patch).await?;
    place.delete::<Pod>(name).await
}

async fn uids(place: &Place) -> Result<BTreeSet<String>> {
    Ok(place.pods().await?.values().filter_map(ResourceExt::uid).collect())
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

async fn a_lost_pod_above_the_minimum_returns_to_its_rack(stand: &'static Stand) -> Result<()> {
    let place = Place::new(stand, "returns").await?;
    place.add_nodes(2, 4, &GPU_HOST).await?;
    place.create(&elastic("returns")).await?;
    place.running(3, 3).await?;
    let (before, rack) = (uids(&place).await?, place.domains("w-0-", RACK).await?);
    lose(&place, "w-0-g-0-work-").await?;
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
