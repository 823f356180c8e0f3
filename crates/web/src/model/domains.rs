//! The nested domains of a topology with the hosts in them.

use std::collections::BTreeMap;

use grove_api::topology::HOSTNAME_LABEL;
use grove_topology::Topology;
use serde::Serialize;

use crate::seen::SeenNode;

/// A topology and the domains that the nodes form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyView {
    pub name: String,
    pub kind: &'static str,
    /// The words of its levels, broadest first.
    pub levels: Vec<String>,
    /// The broadest domains.
    pub domains: Vec<Domain>,
    /// Hosts that lack one of its labels and therefore are in no domain.
    pub unlabelled: Vec<String>,
}

/// A domain: others inside it, or hosts where no level is narrower.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Domain>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl TopologyView {
    pub(super) fn new(topology: &Topology, nodes: &[&SeenNode]) -> Self {
        // A host is a node here, whatever its label says.
        let keys: Vec<&str> = topology
            .node_keys()
            .into_iter()
            .filter(|key| *key != HOSTNAME_LABEL)
            .collect();
        let mut roots = Branch::default();
        let mut unlabelled = Vec::new();
        for node in nodes {
            match path(node, &keys) {
                Some(path) => roots.add(&path, &node.name),
                None => unlabelled.push(node.name.clone()),
            }
        }
        Self {
            name: topology.name().to_owned(),
            kind: topology.kind().as_str(),
            levels: topology.levels().iter().map(|level| level.word.clone()).collect(),
            domains: roots.domains(),
            unlabelled,
        }
    }
}

/// The domains of a node, broadest first; none unless it has all of them. A label without a value names none.
fn path<'a>(node: &'a SeenNode, keys: &[&str]) -> Option<Vec<&'a str>> {
    let value = |key: &&str| node.labels.get(*key).map(String::as_str);
    let path: Option<Vec<&str>> = keys.iter().map(value).collect();
    path.filter(|path| path.iter().all(|value| !value.is_empty()))
}

/// Digits count as numbers in the order of names: r2 comes before r10.
type NaturalOrder<'a> = Vec<(&'a str, Option<u64>)>;

fn natural(name: &str) -> NaturalOrder<'_> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[text..]
            .find(|c: char| !c.is_ascii_digit())
            .map_or(rest.len(), |end| text + end);
        // More digits than fit are no number that anybody counts with.
        let number = (digits > text).then(|| rest[text..digits].parse().unwrap_or(u64::MAX));
        parts.push((&rest[..text], number));
        rest = &rest[digits..];
    }
    parts
}

#[derive(Default)]
struct Branch<'a> {
    below: BTreeMap<&'a str, Branch<'a>>,
    hosts: Vec<&'a str>,
}

impl<'a> Branch<'a> {
    fn add(&mut self, path: &[&'a str], host: &'a str) {
        match path.split_first() {
            Some((name, rest)) => self.below.entry(name).or_default().add(rest, host),
            None => self.hosts.push(host),
        }
    }

    fn domains(self) -> Vec<Domain> {
        let mut domains: Vec<(&str, Self)> = self.below.into_iter().collect();
        domains.sort_by_cached_key(|(name, _)| natural(name));
        let domain = |(name, mut branch): (&str, Self)| {
            branch.hosts.sort_by_cached_key(|host| natural(host));
            Domain {
                name: name.to_owned(),
                hosts: branch.hosts.iter().map(|host| (*host).to_owned()).collect(),
                domains: branch.domains(),
            }
        };
        domains.into_iter().map(domain).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_people_count() {
        let mut names = ["z10b1", "z2b1", "z2", "a", "z2b10", "z2b2", "7", "z"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["7", "a", "z", "z2", "z2b1", "z2b2", "z2b10", "z10b1"]);
    }
}
