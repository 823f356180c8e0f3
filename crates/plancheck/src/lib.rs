//! The judge of placements: written from the rules alone, it shares no code and no data type with what places.
//!
//! [`check`] says whether a placement keeps every rule, and how good it is; [`best`] finds by trying everything how good
//! the best one is, or that there is none; [`least_domains`] counts it for pods that are alike. The first two read an
//! [`Instance`], plain numbers that a test fills in. Speed is no concern here, plainness is.

mod alike;
mod bound;
mod brute;
mod judge;

pub use alike::{Alike, Near};
pub use bound::{Demand, Room, least_domains, most_served};
pub use brute::best;
pub use judge::{Fault, check, key};

/// Hosts and a gang to place on them.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Number of levels above the host. Depth 1 is the broadest, `levels` the narrowest, `levels + 1` the host,
    /// `levels + 2` a cell of a host.
    pub levels: usize,
    pub hosts: Vec<Host>,
    /// What the whole cluster has of each resource, used or not.
    pub totals: Vec<u64>,
    /// Parents before children; the first one holds the whole gang.
    pub scopes: Vec<Scope>,
    pub groups: Vec<PodGroup>,
    pub aparts: Vec<Apart>,
}

/// Pods that must not share a domain: none that avoids beside another that is avoided.
#[derive(Clone, Debug)]
pub struct Apart {
    /// `levels + 1` is the host. A host that lacks labels shares nothing with others above itself.
    pub depth: usize,
    /// Per group: its pods avoid, and its pods are avoided.
    pub groups: Vec<(bool, bool)>,
    /// The same of pods that run, with their hosts.
    pub running: Vec<(usize, bool, bool)>,
}

#[derive(Clone, Debug)]
pub struct Host {
    /// Per resource; may be negative.
    pub free: Vec<i64>,
    /// Value per level, broad to narrow; none when the host lacks a label.
    pub path: Option<Vec<u32>>,
    /// What each of its cells has free, by resource (none: only the host counts it); a host without cells is one.
    pub cells: Vec<Vec<Option<i64>>>,
}

/// A part of the gang that may have to sit together.
#[derive(Clone, Debug)]
pub struct Scope {
    pub parent: Option<usize>,
    /// 0 gang, 1 group, 2 pod-group: where its preference counts.
    pub tier: usize,
    /// Depth that must be one domain, and depth that should be; 0 is none.
    pub required: usize,
    pub preferred: usize,
    /// Hosts of running pods that belong to the scope but to none of the gang's pod-groups.
    pub others: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct PodGroup {
    pub scope: usize,
    /// Per resource.
    pub request: Vec<u64>,
    /// Per host.
    pub eligible: Vec<bool>,
    /// Per host: what a pod misses of the hosts that it prefers.
    pub dislikes: Vec<u64>,
    /// Pods that must be placed now, and pods that may.
    pub minimum: u32,
    pub desired: u32,
    /// Hosts of pods that run already.
    pub bound: Vec<usize>,
}

/// Pods of a group on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    pub group: usize,
    pub host: usize,
    /// The cell of the host that they are held in.
    pub cell: Option<usize>,
    pub pods: u32,
}

impl Instance {
    /// Whether two hosts lie in one domain of a depth. Hosts without labels share domains that no level is met in.
    pub(crate) fn is_together(&self, one: usize, other: usize, depth: usize) -> bool {
        if depth > self.levels {
            return one == other;
        }
        match (&self.hosts[one].path, &self.hosts[other].path) {
            (Some(one), Some(other)) => one[..depth] == other[..depth],
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether some scope asks for closeness at all.
    pub fn states_level(&self) -> bool {
        self.scopes
            .iter()
            .any(|scope| scope.required > 0 || scope.preferred > 0)
    }

    /// Whether the pods on these hosts lie in one labelled domain of a depth; cells are looked at elsewhere.
    pub(crate) fn is_one_domain(&self, hosts: &[usize], depth: usize) -> bool {
        let Some(first) = hosts.first() else { return true };
        let labelled = self.hosts[*first].path.is_some();
        depth == 0 || labelled && hosts.iter().all(|host| self.is_together(*first, *host, depth))
    }

    /// Whether a depth lies below the host.
    pub(crate) fn is_cell(&self, depth: usize) -> bool {
        depth > self.levels + 1
    }

    /// Whether the new pods of a scope are held in one cell, or on one host that is a cell itself.
    pub(crate) fn is_one_cell(&self, puts: &[Put], scope: usize) -> bool {
        let mut members = puts.iter().filter(|put| self.is_member(put.group, scope));
        let Some(first) = members.next() else { return true };
        let is_cell = first.cell.is_some() || self.hosts[first.host].cells.is_empty();
        is_cell && members.all(|put| (put.host, put.cell) == (first.host, first.cell))
    }

    /// Whether a group belongs to a scope, directly or through nested ones.
    pub(crate) fn is_member(&self, group: usize, scope: usize) -> bool {
        let mut around = Some(self.groups[group].scope);
        while let Some(index) = around {
            if index == scope {
                return true;
            }
            around = self.scopes[index].parent;
        }
        false
    }

    /// Hosts of a scope's running pods, unless those break the scope's required level themselves.
    pub(crate) fn anchors(&self, scope: usize) -> Vec<usize> {
        let members = (0..self.groups.len()).filter(|group| self.is_member(*group, scope));
        let mut hosts: Vec<usize> = members.flat_map(|group| self.groups[group].bound.clone()).collect();
        hosts.extend(&self.scopes[scope].others);
        if self.is_one_domain(&hosts, self.scopes[scope].required) {
            hosts
        } else {
            Vec::new()
        }
    }

    /// The resource that the gang's minimum asks the greatest share of.
    pub(crate) fn scarcest(&self) -> Option<usize> {
        let demand = |resource: usize| -> u128 {
            let of = |group: &PodGroup| u128::from(group.request[resource]) * u128::from(group.minimum);
            self.groups.iter().map(of).sum()
        };
        let asked =
            (0..self.totals.len()).filter(|resource| self.groups.iter().any(|group| group.request[*resource] > 0));
        let mut best: Option<usize> = None;
        for resource in asked {
            let more = best.is_none_or(|best| {
                demand(resource) * u128::from(self.totals[best].max(1))
                    > demand(best) * u128::from(self.totals[resource].max(1))
            });
            if more {
                best = Some(resource);
            }
        }
        best
    }
}
