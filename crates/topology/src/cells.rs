//! Levels below the host: what nodes publish of their NUMA cells, and what a set is told that asks for such a level.
//!
//! Owns the name of the kind and the words. What a cell has left is counted elsewhere.

use grove_api::PodCliqueSet;
use grove_api::config::ProfileName;

use crate::levels::Topology;
use crate::scopes::{self, ScopedConstraint};

/// The kind in which nodes publish what each of their NUMA nodes has left; an object has the name of its node.
pub const GROUP: &str = "topology.node.k8s.io";
pub const VERSION: &str = "v1alpha2";
pub const API_VERSION: &str = "topology.node.k8s.io/v1alpha2";
pub const KIND: &str = "NodeResourceTopology";
pub const PLURAL: &str = "noderesourcetopologies";

/// Whether a scope of `set` names a level below the host.
pub fn asks_for_cells(set: &PodCliqueSet, topology: &Topology) -> bool {
    let constraints = scopes::constraints(&set.spec.template);
    let mut words = constraints.iter().flat_map(ScopedConstraint::words);
    words.any(|(_, word)| topology.is_below_host(word))
}

/// Why levels below the host come down to the host for gangs that `placer` places; none where they are kept.
pub fn why_host(placer: ProfileName, cells_are_published: bool) -> Option<&'static str> {
    match placer {
        ProfileName::KaiScheduler => Some("kai-scheduler takes no level below it"),
        _ if !cells_are_published => Some("no node publishes its NUMA cells (NodeResourceTopology)"),
        _ => None,
    }
}

/// What is told of every level below the host that comes down to the host.
pub(crate) fn warnings<'a>(
    constraints: &'a [ScopedConstraint<'a>],
    topology: &'a Topology,
    why: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let words = constraints.iter().flat_map(ScopedConstraint::words);
    let below = words.filter(|(_, word)| topology.is_below_host(word));
    below.map(move |(field, word)| format!("{field}: '{word}' is enforced as 'host': {why}"))
}
