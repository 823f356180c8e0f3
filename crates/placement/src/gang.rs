//! What is to be placed: a gang with its scopes.
//!
//! ```text
//! replica      the PodCliqueSet replica that the gang belongs to (only ever pins a domain)
//! └ gang       all or nothing
//!   ├ group    pod-groups that a constraint joins
//!   │ └ pod-group
//!   └ pod-group
//! ```
//! Each scope may state a required level (all its pods in one domain, or nothing is placed) and a preferred one
//! (narrower, best effort).

use crate::cluster::NodeId;
use crate::shapes::ShapeId;
use crate::topology::TopologyId;

/// The levels of a scope, as words of the gang's topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    pub required: Option<String>,
    pub preferred: Option<String>,
}

/// The gangs of one PodCliqueSet replica share its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    pub required: String,
    /// Where the pods of the replica's other gangs run.
    pub bound: Vec<NodeId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub pack: Pack,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    pub name: String,
    /// Index in `Gang::groups`.
    pub group: Option<usize>,
    pub pack: Pack,
    pub shape: ShapeId,
    /// Pods without which nothing is placed, those already bound included.
    pub minimum: u32,
    /// Pods that are wanted, those already bound included. More than the minimum is placed where there is room
    /// inside the domains that the minimum settles in.
    pub desired: u32,
    /// Where pods of this group run already.
    pub bound: Vec<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    pub name: String,
    pub topology: TopologyId,
    pub replica: Option<Replica>,
    pub pack: Pack,
    pub groups: Vec<Group>,
    pub pod_groups: Vec<PodGroup>,
}

impl PodGroup {
    /// Pods of the minimum that are not bound yet.
    pub fn missing(&self) -> u32 {
        self.minimum.saturating_sub(self.bound.len() as u32)
    }

    /// Pods beyond the minimum that are wanted and not bound yet.
    pub fn surplus(&self) -> u32 {
        let placed = self.minimum.max(self.bound.len() as u32);
        self.desired.saturating_sub(placed)
    }
}
