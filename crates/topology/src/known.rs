//! The topologies that somebody looks at from outside, wherever they were read, and which of them applies to a set.

use grove_api::config::{
    ConstraintUpdates, OnBackendTopologyFailure, OnTopologyMissing, OnTopologyMissingAtStart, PreferredPacking,
    ScaleOut, TopologyAwareScheduling, TopologySource,
};
use grove_api::{ClusterTopology, ClusterTopologyBinding, PodCliqueSet, TopologyDomain};
use kube::{Resource, ResourceExt};

use crate::Resolution;
use crate::resolve::{self, Found};

/// Objects that hold topologies, and the settings under which they are used.
#[derive(Debug)]
pub struct Topologies {
    pub cluster_topologies: Vec<ClusterTopology>,
    pub bindings: Vec<ClusterTopologyBinding>,
    pub topology_domains: Vec<TopologyDomain>,
    pub tas: TopologyAwareScheduling,
}

impl Topologies {
    /// None yet; sets use the TopologyDomain of this name, or ClusterTopologies.
    pub fn new(topology_domain_name: Option<String>) -> Self {
        Self {
            cluster_topologies: vec![],
            bindings: vec![],
            topology_domains: vec![],
            tas: assumed(topology_domain_name),
        }
    }

    /// What exists under a name.
    pub fn found(&self, name: &str) -> Found<'_> {
        fn named<'a, K: Resource>(objects: &'a [K], name: &str) -> Option<&'a K> {
            objects.iter().find(|object| object.name_any() == name)
        }
        Found {
            cluster_topology: named(&self.cluster_topologies, name),
            binding: named(&self.bindings, name),
            topology_domain: named(&self.topology_domains, name),
        }
    }

    /// The topology that a set uses.
    pub fn resolve(&self, set: &PodCliqueSet) -> Resolution {
        let Some(reference) = resolve::reference(set, &self.tas.source) else {
            return Resolution::Unused;
        };
        resolve::resolve(Some(reference), &self.tas, &self.found(reference.name))
    }

    pub fn is_empty(&self) -> bool {
        self.cluster_topologies.is_empty() && self.bindings.is_empty() && self.topology_domains.is_empty()
    }
}

/// The operator's configuration is a file that commands do not have; what matters of it here is the source.
fn assumed(topology_domain_name: Option<String>) -> TopologyAwareScheduling {
    let source = match topology_domain_name {
        Some(topology_domain_name) => TopologySource::TopologyDomain {
            topology_domain_name,
            on_topology_missing_at_start: OnTopologyMissingAtStart::Fail,
            on_topology_missing: OnTopologyMissing::RejectConstrained,
        },
        None => TopologySource::ClusterTopology { levels: vec![] },
    };
    TopologyAwareScheduling {
        enabled: true,
        source,
        preferred_packing: PreferredPacking::Constrained,
        constraint_updates: ConstraintUpdates::Immutable,
        scale_out: ScaleOut::SameDomain,
        default_pack_domain: None,
        protect_default_topology: true,
        on_backend_topology_failure: OnBackendTopologyFailure::Retry,
    }
}
