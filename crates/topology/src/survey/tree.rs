//! The domains of a topology, each with those inside it.

use serde::Serialize;

use super::NodeLabels;
use crate::levels::Topology;

/// A domain and what is inside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Domain {
    /// The word of its level.
    pub level: String,
    pub name: String,
    /// How many nodes are in it.
    pub nodes: usize,
    /// The next narrower domains, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Domain>,
}

/// The broadest domains, by name, down to the level above the host: a host is a node. Nodes without all labels are in
/// none.
pub fn tree(topology: &Topology, nodes: &[NodeLabels]) -> Vec<Domain> {
    let keys = topology.node_keys();
    let paths: Vec<Vec<&str>> = nodes.iter().filter_map(|node| node.path(&keys)).collect();
    let is_host = |key: &&str| *key == grove_api::topology::HOSTNAME_LABEL;
    let depth = if keys.last().is_some_and(is_host) {
        keys.len() - 1
    } else {
        keys.len()
    };
    let words: Vec<&str> = topology
        .levels()
        .iter()
        .map(|level| level.word.as_str())
        .take(depth)
        .collect();
    domains(&words, paths.iter().map(|path| &path[..depth]).collect())
}

fn domains(words: &[&str], paths: Vec<&[&str]>) -> Vec<Domain> {
    let Some((word, narrower)) = words.split_first() else {
        return Vec::new();
    };
    let mut groups: std::collections::BTreeMap<&str, Vec<&[&str]>> = std::collections::BTreeMap::new();
    for path in paths {
        if let Some((name, rest)) = path.split_first() {
            groups.entry(name).or_default().push(rest);
        }
    }
    let domain = |(name, paths): (&str, Vec<&[&str]>)| Domain {
        level: (*word).to_owned(),
        name: name.to_owned(),
        nodes: paths.len(),
        domains: domains(narrower, paths),
    };
    groups.into_iter().map(domain).collect()
}

/// The nodes that lack a label of the topology.
pub fn unlabelled<'a>(topology: &Topology, nodes: &'a [NodeLabels]) -> Vec<&'a str> {
    let keys = topology.node_keys();
    let lacks = nodes.iter().filter(|node| node.path(&keys).is_none());
    lacks.map(|node| node.name.as_str()).collect()
}
