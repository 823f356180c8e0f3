//! What the engine answers.

use crate::cluster::NodeId;
use crate::shapes::ShapeId;

/// Pods of one pod-group on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assignment {
    /// Index in `Gang::pod_groups`.
    pub pod_group: usize,
    pub node: NodeId,
    /// The NUMA cell of the node that they share, where their scope is put into one and the node states cells.
    pub cell: Option<u8>,
    pub shape: ShapeId,
    pub pods: u32,
}

/// A placement of a gang's missing pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By pod-group, then node.
    pub assignments: Vec<Assignment>,
    pub quality: Quality,
    /// No better placement of the minimum exists; otherwise the search was cut short by its budget.
    pub optimal: bool,
}

/// How good a placement of the minimum is. Less is better, and earlier fields count first; for a gang that states no
/// level the order is shortfall, penalty, opened, domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quality {
    /// By how many levels scopes stay behind what they prefer: the gang, all groups, all pod-groups.
    pub shortfall: [u32; 3],
    /// Domains that the gang touches at each level, broad to narrow; hosts last.
    pub domains: Vec<u32>,
    /// What pods miss of the nodes that they prefer, in all.
    pub penalty: u64,
    /// What those domains had free of the gang's scarcest resource; hosts first, then broader and broader.
    pub opened: Vec<u64>,
}

/// The cluster changed since the plan was made: this node no longer takes pods of this pod-group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    pub node: NodeId,
    pub pod_group: usize,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            out,
            "node {} no longer has room for pod-group {}; plan again",
            self.node.0, self.pod_group
        )
    }
}

impl std::error::Error for Stale {}

/// What the search did, to compare runs by work instead of by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Domains weighed for a scope.
    pub candidates: u64,
    /// Complete choices of domains that were packed.
    pub packings: u64,
    /// Hosts looked at while packing.
    pub hosts: u64,
    /// States of exact packing.
    pub states: u64,
}

impl Work {
    /// What a budget counts.
    pub fn total(&self) -> u64 {
        self.candidates + self.hosts + self.states
    }
}
