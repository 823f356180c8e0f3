//! Topologies: which node labels the closeness words stand for.
//!
//! [`ClusterTopology`] governs. [`TopologyDomain`] is the alternative source (`source: TopologyDomain`), and
//! [`ClusterTopologyBinding`] is another system's name for the same thing, read where it is found.

mod cluster_topology;
mod cluster_topology_binding;
mod topology_domain;

pub use cluster_topology::{ClusterTopology, ClusterTopologySpec, ClusterTopologyStatus, DomainWord, TopologyLevel};
pub use cluster_topology_binding::{
    BoundLevel, ClusterTopologyBinding, ClusterTopologyBindingSpec, ClusterTopologyBindingStatus,
    SchedulerTopologyBinding, SchedulerTopologyStatus,
};
pub use topology_domain::{NamedLevel, TopologyDomain, TopologyDomainSpec, TopologyDomainStatus};

/// The ClusterTopology that the operator makes from its configuration, and the default of every PodCliqueSet.
pub const DEFAULT_TOPOLOGY_NAME: &str = "grove-topology";

/// The label that every kubelet sets on its node: the key of the `host` level, always.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// What a ClusterTopology takes as a node label key.
pub(crate) const LABEL_KEY_PATTERN: &str =
    "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
