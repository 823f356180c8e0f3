//! ClusterTopologyBinding: the name under which newer clusters keep their topology. Only ever read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LABEL_KEY_PATTERN;
use crate::constraint::DOMAIN_PATTERN;
use crate::kubernetes;

/// The levels of a topology, and the topologies of schedulers that mean the same.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
// The short name is not `ct`: that is ClusterTopology's, and a second one leaves the CRD not established.
#[kube(
    group = "grove.io",
    version = "v1alpha1",
    kind = "ClusterTopologyBinding",
    plural = "clustertopologybindings",
    shortname = "ctb",
    status = "ClusterTopologyBindingStatus",
    derive = "PartialEq",
    doc = "A ClusterTopologyBinding is read as a topology where no ClusterTopology of its name exists.",
    printcolumn(name = "Domains", type_ = "string", json_path = ".spec.levels[*].domain"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTopologyBindingSpec {
    /// The levels, from the broadest to the narrowest.
    #[schemars(length(min = 1))]
    pub levels: Vec<BoundLevel>,

    /// Topologies of schedulers that were made by others and must match the levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduler_topology_bindings: Vec<SchedulerTopologyBinding>,
}

/// A free word and the node label that it stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoundLevel {
    /// The word that workloads use.
    #[schemars(length(min = 1, max = 63), regex(pattern = DOMAIN_PATTERN))]
    pub domain: String,

    /// Key of the node label whose value names the domain that a node is in.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_KEY_PATTERN))]
    pub key: String,
}

/// A scheduler and its topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerTopologyBinding {
    /// Name of the scheduler.
    pub scheduler_name: String,
    /// Name of the scheduler's own topology object.
    pub topology_reference: String,
}

/// Whether the schedulers' own topologies match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTopologyBindingStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,

    /// Whether each scheduler's topology matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduler_topology_statuses: Vec<SchedulerTopologyStatus>,
}

/// Whether a scheduler's topology matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerTopologyStatus {
    /// Name of the scheduler.
    pub scheduler_name: String,
    /// Name of the scheduler's own topology object.
    pub topology_reference: String,
    /// Whether the two have the same levels.
    pub in_sync: bool,
    /// Generation of the scheduler's topology that was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_backend_topology_observed_generation: Option<i64>,
    /// What differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
