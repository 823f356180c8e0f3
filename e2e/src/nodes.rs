//! Fake nodes. kwok gives them a heartbeat; this module only makes and posts the objects.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};

/// Enough to hide the round trip; more only queues in the API server.
const POSTS_IN_FLIGHT: usize = 16;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A machine as AI clusters have them, for tests that only need "a node".
const USUAL_CAPACITY: [(&str, &str); 4] = [
    ("cpu", "64"),
    ("memory", "512Gi"),
    ("pods", "110"),
    ("nvidia.com/gpu", "8"),
];

/// A node with the labels that a kubelet sets, plus `labels`, and with `capacity` (all of it allocatable).
pub fn node(name: &str, labels: &[(&str, &str)], capacity: &[(&str, &str)]) -> Node {
    let own = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ];
    let labels = own
        .iter()
        .chain(labels)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let capacity: BTreeMap<String, Quantity> = capacity
        .iter()
        .map(|(resource, amount)| ((*resource).to_owned(), Quantity((*amount).to_owned())))
        .collect();
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.collect()),
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(NodeStatus {
            allocatable: Some(capacity.clone()),
            capacity: Some(capacity),
            ..NodeStatus::default()
        }),
    }
}

/// `count` nodes `node-0`, `node-1`, … that differ in name only.
pub(crate) fn alike(count: usize) -> impl Iterator<Item = Node> {
    (0..count).map(|index| node(&format!("node-{index}"), &[], &USUAL_CAPACITY))
}

pub(crate) async fn post_all(client: &Client, nodes: &[Node]) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    stream::iter(nodes)
        .map(|node| {
            let api = &api;
            async move { api.create(&PostParams::default(), node).await.map(drop) }
        })
        .buffer_unordered(POSTS_IN_FLIGHT)
        .try_collect()
        .await
}

/// Succeeds when `wanted` nodes can take pods, and else says how many can.
pub(crate) async fn all_ready(client: &Client, wanted: usize) -> Result<(), String> {
    let api: Api<Node> = Api::all(client.clone());
    let nodes = api
        .list(&ListParams::default())
        .await
        .map_err(|error| error.to_string())?;
    let ready = nodes.iter().filter(|node| is_ready(node)).count();
    if ready >= wanted {
        return Ok(());
    }
    let waiting: Vec<String> = nodes
        .iter()
        .filter(|node| !is_ready(node))
        .take(3)
        .map(ResourceExt::name_any)
        .collect();
    Err(format!(
        "{ready} of {wanted} nodes are ready; not ready: {}",
        waiting.join(", ")
    ))
}

/// Ready, and without the taint that every node is born with: the controller manager lifts it a moment later.
fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        && taints.iter().all(|taint| taint.key != NOT_READY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_carries_its_own_labels_and_the_given_ones() {
        let node = node("n1", &[("example.com/rack", "r1")], &[("cpu", "4")]);
        assert_eq!(node.labels()["kubernetes.io/hostname"], "n1");
        assert_eq!(node.labels()["example.com/rack"], "r1");
        let status = node.status.unwrap();
        assert_eq!(status.allocatable.unwrap()["cpu"].0, "4");
        assert_eq!(status.capacity.unwrap()["cpu"].0, "4");
    }
}
