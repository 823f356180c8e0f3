//! A node whose kubelet falls silent, and what Kubernetes itself makes of that: the node is tainted, its pods are to be
//! deleted, and nobody is there to end them. It has a control plane of its own, which loses patience soon.

use anyhow::{Context as _, Result};
use grove_api::PodClique;
use grove_e2e::{ControlPlane, DEAD_KUBELET};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::support::{Place, WORKLOAD, install_kinds, is_ready, start, uids};

const NAMESPACE: &str = "dead-node";
/// Longer than a busy machine makes kwok silent.
const SILENCE_SECS: u32 = 20;
/// Any two nodes have room for all pods, and none alone.
const ROOM: &str = "8";

fn node_of(pod: &Pod) -> &str {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.unwrap_or_default()
}

async fn set_dead(place: &Place, node: &str, is_dead: bool) -> Result<()> {
    let label = is_dead.then_some("true");
    let patch = Patch::Merge(json!({"metadata": {"labels": {DEAD_KUBELET: label}}}));
    let nodes = Api::<Node>::all(place.client.clone());
    nodes.patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// grove #401: the pods of a dead node are made again elsewhere, whole gangs included, while the old ones never end; those
/// neither block nor count. When the node comes back they go, and nothing else changes.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_the_pods_of_a_dead_node() -> Result<()> {
    let capacity = [("cpu", "8"), ("memory", "8Gi"), ("pods", ROOM)];
    let nodes = ["n0", "n1", "n2"].map(|name| grove_e2e::node(name, &[], &capacity));
    let builder = ControlPlane::builder().node_objects(nodes).node_silence(SILENCE_SECS);
    let plane = builder.start().await?;
    install_kinds(&plane).await?;
    start(&plane).await?;
    plane.create_namespace(NAMESPACE).await?;
    let place = Place::on(&plane, NAMESPACE).await?;
    place.create(WORKLOAD).await?;
    let pods = place.ready(10).await?;
    let dead = node_of(pods.first().context("a pod")?).to_owned();
    let (lost, kept): (Vec<Pod>, Vec<Pod>) = pods.into_iter().partition(|pod| node_of(pod) == dead);
    set_dead(&place, &dead, true).await?;
    place
        .until("ten pods to be ready elsewhere", async |place| {
            let pods = place.list::<Pod>().await?;
            let elsewhere = pods.iter().filter(|pod| node_of(pod) != dead && is_ready(pod));
            Ok(elsewhere.count() == 10)
        })
        .await?;
    let pods = place.list::<Pod>().await?;
    let (ending, serving): (Vec<Pod>, Vec<Pod>) = pods
        .into_iter()
        .partition(|pod| pod.metadata.deletion_timestamp.is_some());
    assert_eq!(uids(&ending), uids(&lost), "nobody has ended them");
    assert!(uids(&serving).is_superset(&uids(&kept)), "others were not touched");
    place
        .until("the cliques to count what serves", async |place| {
            let cliques = place.list::<PodClique>().await?;
            let status = |clique: &PodClique| clique.status.clone().unwrap_or_default();
            Ok(cliques.iter().map(|clique| status(clique).ready_replicas).sum::<i32>() == 10)
        })
        .await?;
    set_dead(&place, &dead, false).await?;
    assert_eq!(uids(&place.ready(10).await?), uids(&serving));
    Ok(())
}
