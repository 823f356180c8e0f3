//! Which topology a PodCliqueSet uses, and what became of it.
//!
//! Two steps, with a read in between that is the caller's: [`reference()`] says which name to look up, [`resolve`] turns
//! what was found under it into one of four answers. Admission passes what it read live, controllers what they cached.
//! Neither step looks at the words of the constraints.

use grove_api::config::{PreferredPacking, TopologyAwareScheduling, TopologySource};
use grove_api::podcliqueset::PodCliqueSetTemplate;
use grove_api::topology::DEFAULT_TOPOLOGY_NAME;
use grove_api::{ClusterTopology, ClusterTopologyBinding, PodCliqueSet, TopologyDomain};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::levels::{Topology, TopologyKind};
use crate::scopes;

/// The topology that a set names, or that applies because it names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyReference<'a> {
    /// Never `ClusterTopologyBinding`: a binding is what may be found where a ClusterTopology is looked for.
    pub kind: TopologyKind,
    pub name: &'a str,
    /// The set names no topology.
    pub is_default: bool,
}

/// The topology that `set` uses: `None` exactly when it has no constraint.
pub fn reference<'a>(set: &'a PodCliqueSet, source: &'a TopologySource) -> Option<TopologyReference<'a>> {
    let template = &set.spec.template;
    scopes::has_constraint(template).then(|| named_or_default(template, source))
}

/// The topology whose levels the gangs of `set` are packed by. Wider than [`reference()`]: with `preferredPacking: Always`
/// also a set without constraints is packed, though it uses no topology and holds none in place.
pub fn packing_reference<'a>(set: &'a PodCliqueSet, tas: &'a TopologyAwareScheduling) -> Option<TopologyReference<'a>> {
    let is_packed = tas.preferred_packing == PreferredPacking::Always;
    reference(set, &tas.source).or_else(|| is_packed.then(|| default_reference(&tas.source)))
}

/// The topology that `template` would use if it had a constraint.
pub fn named_or_default<'a>(template: &'a PodCliqueSetTemplate, source: &'a TopologySource) -> TopologyReference<'a> {
    let of_constraints = || {
        let constraints = scopes::constraints(template);
        constraints.iter().find_map(|scoped| scoped.constraint.topology_name())
    };
    let Some(name) = template.cluster_topology_name().or_else(of_constraints) else {
        return default_reference(source);
    };
    let default = default_reference(source);
    TopologyReference {
        kind: if name == default.name {
            default.kind
        } else {
            TopologyKind::ClusterTopology
        },
        name,
        is_default: false,
    }
}

/// The topology of sets that name none.
pub fn default_reference(source: &TopologySource) -> TopologyReference<'_> {
    let (kind, name) = match source {
        TopologySource::ClusterTopology { .. } => (TopologyKind::ClusterTopology, DEFAULT_TOPOLOGY_NAME),
        TopologySource::TopologyDomain {
            topology_domain_name, ..
        } => (TopologyKind::TopologyDomain, topology_domain_name.as_str()),
    };
    TopologyReference {
        kind,
        name,
        is_default: true,
    }
}

/// The objects that were found under the name of a reference. One of another name is not looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    pub cluster_topology: Option<&'a ClusterTopology>,
    pub binding: Option<&'a ClusterTopologyBinding>,
    pub topology_domain: Option<&'a TopologyDomain>,
}

impl Found<'_> {
    /// A ClusterTopology hides a binding of its name; somebody may wonder why the binding has no effect.
    pub fn hides_binding(&self) -> bool {
        self.cluster_topology.is_some() && self.binding.is_some()
    }
}

/// What became of the topology that a set uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// No topology applies.
    Unused,
    /// Topology-aware scheduling is off.
    Disabled,
    /// No such topology can be used.
    Missing { kind: TopologyKind, name: String },
    /// The topology is there. One that is being deleted still holds for the sets that use it, and is not to be had for
    /// new ones.
    InForce { topology: Topology, is_terminating: bool },
}

impl Resolution {
    pub fn topology(&self) -> Option<&Topology> {
        match self {
            Self::InForce { topology, .. } => Some(topology),
            Self::Unused | Self::Disabled | Self::Missing { .. } => None,
        }
    }

    /// As somebody sees it who does not use the topology yet.
    pub fn for_new_reference(self) -> Self {
        match self {
            Self::InForce {
                topology,
                is_terminating: true,
            } => Self::Missing {
                kind: topology.kind(),
                name: topology.name().to_owned(),
            },
            other => other,
        }
    }
}

/// The answer for `reference`, given what was found under its name.
pub fn resolve(
    reference: Option<TopologyReference<'_>>,
    tas: &TopologyAwareScheduling,
    found: &Found<'_>,
) -> Resolution {
    let Some(reference) = reference else {
        return Resolution::Unused;
    };
    if !tas.enabled {
        return Resolution::Disabled;
    }
    let in_force = match (reference.kind, &tas.source) {
        (TopologyKind::TopologyDomain, _) => found
            .topology_domain
            .filter(|object| is_named(&object.metadata, reference.name))
            .map(|object| (Topology::from(object), &object.metadata)),
        (_, TopologySource::ClusterTopology { .. }) => cluster_topology(reference.name, found),
        // ClusterTopologies are not looked at while a TopologyDomain is the source.
        (_, TopologySource::TopologyDomain { .. }) => None,
    };
    match in_force {
        Some((topology, metadata)) => Resolution::InForce {
            topology,
            is_terminating: metadata.deletion_timestamp.is_some(),
        },
        None => Resolution::Missing {
            kind: reference.kind,
            name: reference.name.to_owned(),
        },
    }
}

fn cluster_topology<'a>(name: &str, found: &Found<'a>) -> Option<(Topology, &'a ObjectMeta)> {
    let own = found
        .cluster_topology
        .filter(|object| is_named(&object.metadata, name))
        .map(|object| (Topology::from(object), &object.metadata));
    let bound = || {
        found
            .binding
            .filter(|object| is_named(&object.metadata, name))
            .map(|object| (Topology::from(object), &object.metadata))
    };
    own.or_else(bound)
}

fn is_named(metadata: &ObjectMeta, name: &str) -> bool {
    metadata.name.as_deref() == Some(name)
}
