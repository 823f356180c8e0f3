//! An operator that ends at any moment, and another that goes on: nothing is done twice, nothing is undone.

use std::collections::BTreeMap;

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, labels};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use serde_json::json;

use crate::support::World;
use crate::support::workloads::{Minimum, running};

/// A restart at rest reads, and writes nothing.
#[tokio::test(start_paused = true)]
async fn a_restart_at_rest_writes_nothing() {
    let mut world = running(Minimum::One, 10).await;
    let before = world.uids_of("w").await;
    for _ in 0..3 {
        let begin = world.revision();
        world.stop_operator().await;
        world.start_operator();
        world.pass(60).await;
        assert_eq!(world.operator_writes(begin).count(), 0);
    }
    assert_eq!(world.uids_of("w").await, before);
}

/// grove #808, #809, dynamo #14278: scaled to zero under one operator, back under the next.
#[tokio::test(start_paused = true)]
async fn pain_grove_808_scale_from_zero_works_under_the_next_operator() {
    let mut world = running(Minimum::All, 10).await;
    world.scale::<PodCliqueSet>("w", 0).await;
    world.settle().await;
    world.stop_operator().await;
    world.scale::<PodCliqueSet>("w", 1).await;
    world.start_operator();
    world.settle().await;
    assert_eq!(world.ready().await, 10);
}

/// lws #225: an operator that starts in the middle of an update goes on with it, one unit at a time.
#[tokio::test(start_paused = true)]
async fn pain_lws_225_a_restart_during_an_update_does_not_hurry_it() {
    let mut world = running(Minimum::All, 20).await;
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    let begin = world.revision();
    world.set_image(&["pc-a", "pc-b"], "two").await;
    for _ in 0..8 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        world.stop_operator().await;
        world.start_operator();
    }
    world.settle().await;
    world.replay(begin, |scene| {
        let whole = (0..2).filter(|replica| scene.ready(&format!("w-{replica}-")) == 10);
        assert!(whole.count() >= 1, "one replica works at every moment");
    });
    world.all_run("w-0-pc-a", "two").await;
    world.all_run("w-1-sg-x-1-pc-b", "two").await;
    assert_eq!(world.ready().await, 20);
}

/// What a status says may be older than the pods: a group whose replicas all serve is not recreated as a broken one.
#[tokio::test(start_paused = true)]
async fn a_replica_that_serves_is_no_broken_one_whatever_its_status_says() {
    let mut world = running(Minimum::One, 10).await;
    world.stop_operator().await;
    for clique in world.list::<PodClique>().await.into_keys() {
        world
            .merge_status::<PodClique>(&clique, json!({"readyReplicas": 0, "updatedReplicas": 0}))
            .await;
    }
    let unavailable = json!({"availableReplicas": 0});
    world
        .merge_status::<PodCliqueScalingGroup>("w-0-sg-x", unavailable)
        .await;
    world.set_image(&["pc-b"], "two").await;
    let begin = world.revision();
    world.start_operator();
    world.settle().await;
    world.replay(begin, |scene| {
        let serving = (0..2).filter(|replica| scene.ready(&format!("w-0-sg-x-{replica}-")) == 4);
        assert!(serving.count() >= 1, "no replica of the group served");
    });
    world.all_run("w-0-sg-x-0-pc-b", "two").await;
    world.all_run("w-0-sg-x-1-pc-b", "two").await;
}

/// lws #1016: an upgrade of the controller rolled all pods. Here the next operator finds hashes that another release, with
/// another way to compute them, has recorded; it keeps them, and the first change of the template rolls only what changed.
#[tokio::test(start_paused = true)]
async fn pain_lws_1016_an_operator_that_hashes_otherwise_replaces_no_pod() {
    let mut world = running(Minimum::All, 20).await;
    let before = world.uids_of("w").await;
    world.stop_operator().await;
    rename_hashes(&world).await;
    world.start_operator();
    world.pass(600).await;
    assert_eq!(world.uids_of("w").await, before);
    let status = world.set_status("w").await;
    assert!(status.update_progress.is_none(), "{:?}", status.update_progress);

    let kept = world.uids_of("w-0-sg-x").await;
    world.set_image(&["pc-a"], "two").await;
    world.settle().await;
    world.all_run("w-0-pc-a", "two").await;
    assert_eq!(
        world.uids_of("w-0-sg-x").await,
        kept,
        "what did not change keeps the old hash"
    );
}

/// Back and forth between releases: what a newer one recorded in a form that this one does not know is left where it is,
/// and no pod is replaced, neither now nor by the next start.
#[tokio::test(start_paused = true)]
async fn an_operator_that_cannot_read_a_newer_record_replaces_no_pod_and_keeps_it() {
    let mut world = running(Minimum::All, 20).await;
    let before = world.uids_of("w").await;
    world.stop_operator().await;
    rename_hashes(&world).await;
    let (name, record) = world.list::<ControllerRevision>().await.pop_first().expect("a record");
    let mut newer = record.clone();
    newer.data = Some(RawExtension(json!({"version": 2, "templates": "in another way"})));
    newer.metadata.resource_version = None;
    newer.metadata.uid = None;
    world.delete::<ControllerRevision>(&name).await;
    let newer = world.create(&newer).await;
    for _ in 0..2 {
        world.start_operator();
        world.pass(600).await;
        assert_eq!(world.uids_of("w").await, before);
        let status = world.set_status("w").await;
        assert!(status.update_progress.is_none(), "{:?}", status.update_progress);
        let kept = world.get::<ControllerRevision>(&name).await;
        assert_eq!((kept.uid(), kept.data), (newer.uid(), newer.data.clone()));
        world.stop_operator().await;
    }
    world.start_operator();
    world.set_image(&["pc-a"], "two").await;
    world.settle().await;
    world.all_run("w-0-pc-a", "two").await;
    let records = world.list::<ControllerRevision>().await;
    assert_eq!(records.len(), 2, "ours beside the other: {:?}", records.keys());
}

/// Makes every hash of the set another one, wherever it is written, as if another release had computed it.
async fn rename_hashes(world: &World) {
    const LABEL: &str = labels::POD_TEMPLATE_HASH;
    let renamed = |hash: &str| format!("old{hash}");
    let label = |labels: &BTreeMap<String, String>| labels.get(LABEL).map(|hash| renamed(hash));
    for (name, revision) in world.list::<ControllerRevision>().await {
        let mut made = revision.clone();
        let mut record = revision.data.expect("a record").0;
        record["generationHash"] = renamed(record["generationHash"].as_str().expect("a hash")).into();
        for clique in record["cliques"].as_array_mut().expect("cliques") {
            clique["hash"] = renamed(clique["hash"].as_str().expect("a hash")).into();
        }
        made.data = Some(RawExtension(record));
        made.metadata.resource_version = None;
        made.metadata.uid = None;
        world.delete::<ControllerRevision>(&name).await;
        world.create(&made).await;
    }
    for (name, pod) in world.list::<Pod>().await {
        let hash = label(pod.labels());
        world
            .merge::<Pod>(&name, json!({"metadata": {"labels": {LABEL: hash}}}))
            .await;
    }
    for (name, clique) in world.list::<PodClique>().await {
        let hash = label(clique.labels());
        world
            .merge::<PodClique>(&name, json!({"metadata": {"labels": {LABEL: hash}}}))
            .await;
        let status = clique.status.expect("a status");
        let current = status.current_pod_template_hash.map(|hash| renamed(&hash));
        let generation = status.current_pod_clique_set_generation_hash.map(|hash| renamed(&hash));
        let hashes = json!({"currentPodTemplateHash": current, "currentPodCliqueSetGenerationHash": generation});
        world.merge_status::<PodClique>(&name, hashes).await;
    }
    for (name, group) in world.list::<PodCliqueScalingGroup>().await {
        let current = group.status.expect("a status").current_pod_clique_set_generation_hash;
        let hash = json!({"currentPodCliqueSetGenerationHash": current.map(|hash| renamed(&hash))});
        world.merge_status::<PodCliqueScalingGroup>(&name, hash).await;
    }
    let current = world
        .get::<PodCliqueSet>("w")
        .await
        .status
        .expect("a status")
        .current_generation_hash;
    let hash = json!({"currentGenerationHash": current.map(|hash| renamed(&hash))});
    world.merge_status::<PodCliqueSet>("w", hash).await;
}
