//! Who uses which topology, and hence which may go.
//!
//! Owns the finalizers' rules. Counts every set that exists, also one that is being deleted: its pods may still run.

use std::collections::BTreeMap;

use grove_api::config::{TopologyAwareScheduling, TopologySource};
use grove_api::labels::finalizer;
use grove_api::podgang::NamespacedName;
use grove_api::topology::DEFAULT_TOPOLOGY_NAME;
use grove_api::{ClusterTopology, PodCliqueSet, TopologyDomain};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::levels::TopologyKind;
use crate::resolve;

/// A set that uses a topology.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyUser {
    pub set: NamespacedName,
    /// The set names no topology, so the default applies.
    pub is_default: bool,
}

/// The sets that use each topology, by kind and name; both in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    users: BTreeMap<(TopologyKind, String), Vec<TopologyUser>>,
}

impl Usage {
    pub fn of<'a>(sets: impl IntoIterator<Item = &'a PodCliqueSet>, source: &TopologySource) -> Self {
        let mut users: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for set in sets {
            let Some(reference) = resolve::reference(set, source) else {
                continue;
            };
            let user = TopologyUser {
                set: name_of(&set.metadata),
                is_default: reference.is_default,
            };
            users
                .entry((reference.kind, reference.name.to_owned()))
                .or_default()
                .push(user);
        }
        for users in users.values_mut() {
            users.sort();
        }
        Self { users }
    }

    pub fn users_of(&self, kind: TopologyKind, name: &str) -> &[TopologyUser] {
        self.users.get(&(kind, name.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Every topology that is used, existing or not.
    pub fn iter(&self) -> impl Iterator<Item = (TopologyKind, &str, &[TopologyUser])> {
        self.users
            .iter()
            .map(|((kind, name), users)| (*kind, name.as_str(), users.as_slice()))
    }
}

/// What to do about the finalizer of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalizerStep {
    Add,
    Leave,
    Lift,
}

/// Every ClusterTopology is held while a set uses it. `grove-topology` is let go at once where the operator itself
/// removes it: with topology-aware scheduling disabled, or with a TopologyDomain as the source.
pub fn cluster_topology_finalizer(
    object: &ClusterTopology,
    usage: &Usage,
    tas: &TopologyAwareScheduling,
) -> FinalizerStep {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let is_default = name == DEFAULT_TOPOLOGY_NAME;
    let has_default = tas.enabled && matches!(tas.source, TopologySource::ClusterTopology { .. });
    let is_guarded = !is_default || has_default;
    let is_used = !usage.users_of(TopologyKind::ClusterTopology, name).is_empty();
    let is_held = is_guarded && is_used;
    step(&object.metadata, finalizer::CLUSTER_TOPOLOGY, is_guarded, is_held)
}

/// The selected TopologyDomain is held while any set exists; one that is not selected any more is let go.
pub fn topology_domain_finalizer(object: &TopologyDomain, sets_exist: bool, source: &TopologySource) -> FinalizerStep {
    let is_selected = match source {
        TopologySource::ClusterTopology { .. } => false,
        TopologySource::TopologyDomain {
            topology_domain_name, ..
        } => object.metadata.name.as_ref() == Some(topology_domain_name),
    };
    let is_held = is_selected && sets_exist;
    step(&object.metadata, finalizer::TOPOLOGY_DOMAIN, is_selected, is_held)
}

/// `is_guarded`: the object carries the finalizer while it lives. `is_held`: it may not go now.
fn step(metadata: &ObjectMeta, finalizer: &str, is_guarded: bool, is_held: bool) -> FinalizerStep {
    let has_finalizer = metadata.finalizers.iter().flatten().any(|name| name == finalizer);
    let is_terminating = metadata.deletion_timestamp.is_some();
    match (has_finalizer, is_terminating) {
        (true, true) if !is_held => FinalizerStep::Lift,
        (true, false) if !is_guarded => FinalizerStep::Lift,
        // A finalizer cannot be added to an object that is being deleted.
        (false, false) if is_guarded => FinalizerStep::Add,
        _ => FinalizerStep::Leave,
    }
}

pub(crate) fn name_of(metadata: &ObjectMeta) -> NamespacedName {
    NamespacedName {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
