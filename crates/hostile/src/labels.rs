//! Nodes: whoever may label one may write what they like.

use std::collections::BTreeMap;

use grove_api::ClusterTopology;
use grove_api::topology::DEFAULT_TOPOLOGY_NAME;
use grove_kubeplace::Mirror;
use grove_topology::survey::{NodeLabels, check_nodes, discover, tree, unlabelled};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde::Deserialize;

/// What an input holds; whatever cannot be read is not there, as in a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Seen {
    topology: Option<ClusterTopology>,
    nodes: Vec<Node>,
}

/// A topology over nodes: what people are told of it, and what the placement engine makes of it.
pub(crate) fn nodes(input: &[u8]) {
    let Ok(seen) = serde_json::from_slice::<Seen>(input) else {
        return;
    };
    let labels: Vec<NodeLabels> = seen.nodes.iter().map(labels_of).collect();
    discover(&labels);
    let Some(topology) = &seen.topology else {
        return;
    };
    let topology = grove_topology::Topology::from(topology);
    let domains = tree(&topology, &labels);
    assert!(domains.len() <= labels.len(), "a domain without a node");
    unlabelled(&topology, &labels);
    check_nodes(&topology, &labels);
    placed(&topology, &seen.nodes);
}

fn labels_of(node: &Node) -> NodeLabels {
    let labels: BTreeMap<String, String> = node.labels().clone();
    NodeLabels {
        name: node.name_any(),
        labels,
    }
}

/// Seen in any order and taken back, nodes leave nothing behind.
fn placed(topology: &grove_topology::Topology, nodes: &[Node]) {
    let mut mirror = Mirror::new(DEFAULT_TOPOLOGY_NAME);
    let (first, rest) = nodes.split_at(nodes.len() / 2);
    first.iter().for_each(|node| mirror.set_node(node));
    mirror.set_topology(topology);
    rest.iter().chain(first).for_each(|node| mirror.set_node(node));
    mirror.rooms().count();
    nodes.iter().for_each(|node| mirror.remove_node(&node.name_any()));
    mirror.remove_topology(topology.name());
    assert_eq!(mirror.rooms().count(), [], "what is gone is counted");
}
