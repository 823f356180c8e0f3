//! Topologies: which node labels the closeness words stand for.
//!
//! [`ClusterTopology`] governs. [`TopologyDomain`] is the alternative source (`source: TopologyDomain`), and
//! [`ClusterTopologyBinding`] is another system's name for the same thing, read where it is found.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::kubernetes;
use crate::status::LastError;

mod cluster_topology;
mod cluster_topology_binding;
mod topology_domain;

pub use cluster_topology::{ClusterTopology, ClusterTopologySpec, DomainWord, TopologyLevel};
pub use cluster_topology_binding::{
    BoundLevel, ClusterTopologyBinding, ClusterTopologyBindingSpec, ClusterTopologyBindingStatus,
    SchedulerTopologyBinding, SchedulerTopologyStatus,
};
pub use topology_domain::{NamedLevel, TopologyDomain, TopologyDomainSpec};

/// The ClusterTopology that the operator makes from its configuration, and the default of every PodCliqueSet.
pub const DEFAULT_TOPOLOGY_NAME: &str = "grove-topology";

/// The label that every kubelet sets on its node: the key of the `host` level, always.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// What a ClusterTopology takes as a node label key.
pub(crate) const LABEL_KEY_PATTERN: &str =
    "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";

/// What became of a topology that the operator serves, of either kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,

    /// What went wrong last; empty after a clean pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_errors: Vec<LastError>,
}
