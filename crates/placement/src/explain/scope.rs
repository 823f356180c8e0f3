//! The scopes of a gang as an explanation sees them: which level confines each, and where pods that run hold it.

use super::survey::Members;
use crate::cluster::{Cluster, NodeId};
use crate::gang::{Gang, Pack, PodGroup};
use crate::topology::{Place, ROOT, Tree};

/// A scope of a gang: the gang itself, a group, or a pod-group.
pub(super) struct Scope<'a> {
    pub(super) name: &'a str,
    gang: &'a Gang,
    /// Itself and the scopes around it, the innermost first.
    chain: Vec<Link<'a>>,
}

/// What one scope requires, whose pods are its own, and where pods run that belong to it but not to the gang.
struct Link<'a> {
    required: Option<&'a str>,
    pod_groups: Vec<&'a PodGroup>,
    others: &'a [NodeId],
}

/// Where a scope is held by pods that run.
pub(super) struct Hold<'a> {
    /// The root, if nothing holds it.
    pub(super) place: Place,
    /// One of the nodes that hold it.
    pub(super) node: Option<NodeId>,
    /// The pod-groups that must all lie in that place.
    pub(super) pod_groups: Vec<&'a PodGroup>,
}

impl<'a> Link<'a> {
    fn new(pack: &'a Pack, pod_groups: Vec<&'a PodGroup>) -> Self {
        Link {
            required: pack.required.as_deref(),
            pod_groups,
            others: &[],
        }
    }

    /// The domain of the required level that its pods run in; none if they broke it themselves. Which cells they use is
    /// not known: they speak for their host.
    fn held_in(&self, cluster: &Cluster, tree: &Tree) -> Option<(Place, NodeId)> {
        let depth = cluster.depth_of(tree, self.required?)?.min(tree.host_depth());
        let own = self.pod_groups.iter().flat_map(|pod_group| &pod_group.bound);
        let mut nodes = own.chain(self.others).filter(|node| tree.is_linked(node.0));
        let first = *nodes.next()?;
        let place = tree.above(first.0, depth);
        let is_there = |node: &NodeId| tree.is_inside(node.0) && tree.above(node.0, depth) == place;
        (depth > 0 && is_there(&first) && nodes.all(is_there)).then_some((place, first))
    }
}

impl<'a> Scope<'a> {
    /// The gang itself.
    pub(super) fn whole(gang: &'a Gang) -> Self {
        Scope {
            name: &gang.name,
            gang,
            chain: around(gang, None),
        }
    }

    /// The scopes inside the gang, pod-groups first.
    pub(super) fn inner(gang: &'a Gang) -> Vec<Self> {
        let scope = |name: &'a str, group: Option<usize>, own: Link<'a>| Scope {
            name,
            gang,
            chain: std::iter::once(own).chain(around(gang, group)).collect(),
        };
        let pod_groups = gang.pod_groups.iter().map(|pod_group| {
            let own = Link::new(&pod_group.pack, vec![pod_group]);
            scope(&pod_group.name, pod_group.group, own)
        });
        let groups = gang.groups.iter().enumerate().map(|(index, group)| {
            let own = Link::new(&group.pack, of_group(gang, index));
            scope(&group.name, None, own)
        });
        pod_groups.chain(groups).collect()
    }

    /// Its pod-groups that still miss pods.
    pub(super) fn lacking(&self) -> Members<'a> {
        let own = self.chain.first().map_or(&[][..], |own| &own.pod_groups);
        own.iter()
            .copied()
            .filter(|pod_group| pod_group.missing() > 0)
            .collect()
    }

    /// The narrowest level that it must lie in one domain of: an outer scope that requires one confines the inner ones.
    pub(super) fn level(&self, cluster: &Cluster, tree: &Tree) -> Option<&'a str> {
        let stated = self.chain.iter().rev().filter_map(|link| link.required);
        stated.max_by_key(|word| cluster.depth_of(tree, word))
    }

    /// The narrowest place that its own pods, or those of the scopes around it, hold it in.
    pub(super) fn hold(&self, cluster: &Cluster, tree: &Tree) -> Hold<'a> {
        let held = self
            .chain
            .iter()
            .rev()
            .filter_map(|link| Some((link, link.held_in(cluster, tree)?)));
        match held.max_by_key(|(_, (place, _))| place.depth) {
            Some((link, (place, node))) => Hold {
                place,
                node: Some(node),
                pod_groups: link.pod_groups.clone(),
            },
            None => Hold {
                place: ROOT,
                node: None,
                pod_groups: self.gang.pod_groups.iter().collect(),
            },
        }
    }
}

/// The scopes around a pod-group of a group, or around one without: group, gang, replica.
fn around(gang: &Gang, group: Option<usize>) -> Vec<Link<'_>> {
    let all = || gang.pod_groups.iter().collect();
    let group = group.and_then(|index| Some((index, gang.groups.get(index)?)));
    let group = group.map(|(index, group)| Link::new(&group.pack, of_group(gang, index)));
    let replica = gang.replica.as_ref().map(|replica| Link {
        required: Some(&replica.required),
        pod_groups: all(),
        others: &replica.bound,
    });
    let own = Link::new(&gang.pack, all());
    group.into_iter().chain([own]).chain(replica).collect()
}

fn of_group(gang: &Gang, index: usize) -> Vec<&PodGroup> {
    let members = gang.pod_groups.iter();
    members.filter(|pod_group| pod_group.group == Some(index)).collect()
}
