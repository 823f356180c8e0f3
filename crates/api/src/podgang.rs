//! PodGang: the contract between the operator and whoever places pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::podgang::SCHEDULED;
use crate::conditions::podgang::scheduled::MEMBERS_MISSING;
use crate::kubernetes;

/// The pods of a gang, and how close they must sit.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "scheduler.grove.io",
    version = "v1alpha1",
    kind = "PodGang",
    plural = "podgangs",
    shortname = "pg",
    namespaced,
    status = "PodGangStatus",
    derive = "PartialEq",
    doc = "A PodGang is a set of pods that are placed together or not at all. It is made by the operator from a \
           PodCliqueSet and read by schedulers.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PodGangSpec {
    /// The groups of pods in the gang; pods of one group are alike.
    #[serde(rename = "podgroups")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pod_groups: Vec<PodGroup>,

    /// Name of the topology whose label keys the constraints use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_ref: Option<String>,

    /// How close all pods of the gang must sit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<GangTopologyConstraint>,

    /// Groups of pod-groups that must sit close to each other, inside the gang's own constraint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub topology_constraint_group_configs: Vec<TopologyConstraintGroupConfig>,

    /// Priority of the gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// A gang whose place this one may take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse_reservation_ref: Option<NamespacedName>,
}

/// Pods of a gang that share one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroup {
    /// Name of the PodClique that the pods belong to.
    pub name: String,

    /// The pods. A list that is replaced whole: as a map by name, 10,000 entries would exceed what the API server
    /// stores of one object.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pod_references: Vec<NamespacedName>,

    /// How many of the pods must be placed for the gang to be placed.
    pub min_replicas: i32,

    /// How close the pods of this group must sit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<GangTopologyConstraint>,
}

/// A namespace and a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Pod-groups that must sit close to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyConstraintGroupConfig {
    /// Name of the group: the scaling group's name and the index of its replica.
    pub name: String,

    /// Names of the pod-groups.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pod_group_names: Vec<String>,

    /// How close the pods of the group must sit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<GangTopologyConstraint>,
}

/// How close pods must sit, in node label keys of this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangTopologyConstraint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack_constraint: Option<PackConstraint>,
}

/// Required and preferred level, as node label keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackConstraint {
    /// Hard: the pods are placed on nodes with one value of this label, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,

    /// Best effort: as `required` where there is room; else level by level wider, up to `required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
}

/// How far a gang has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PodGangPhase {
    #[default]
    Pending,
    Starting,
    Running,
}

/// Where the gang is placed, or why it is not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGangStatus {
    /// `Pending` until placed, `Starting` until ready, then `Running`.
    #[serde(default)]
    pub phase: PodGangPhase,

    /// `Initialized`, `Scheduled`, `Ready`, and `Unhealthy` or `DisruptionTarget` where a scheduler sets them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,

    /// How well the gang is placed: 1 is as close as its constraints can ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_score: Option<f64>,

    /// Where each scope of the gang landed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub placement: Vec<ScopePlacement>,

    /// Why the gang is not placed yet; absent once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingExplanation>,
}

impl PodGangStatus {
    /// What a scheduler said last; none if nobody has looked at the gang.
    pub fn scheduled(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == SCHEDULED)
    }

    /// Whether the gang was placed whole and has lost members since: its other pods run.
    pub fn is_degraded(&self) -> bool {
        self.scheduled()
            .is_some_and(|condition| condition.status == "False" && condition.reason == MEMBERS_MISSING)
    }
}

/// Where one scope of a gang landed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScopePlacement {
    /// The gang, a group of pod-groups or a pod-group, by name.
    pub scope: String,
    /// The level that the domains are of.
    pub level: String,
    /// The domains that hold pods of the scope.
    pub domains: Vec<String>,
}

/// Why a gang is not placed, and what would help. Small enough (under 2 KB) to be part of the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingExplanation {
    /// The dominant reason, `Fragmented` for example.
    pub reason: String,

    /// The reason in one sentence.
    #[schemars(length(max = 512))]
    pub message: String,

    /// Whether waiting helps: `Wait`, `Act` (somebody must do something) or `Never`.
    pub waiting: Waiting,

    /// The level at which the gang does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,

    /// What the gang needs there, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub need: Option<String>,

    /// How many domains were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub considered: Option<i32>,

    /// How many of them were excluded, by cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub excluded: BTreeMap<String, i32>,

    /// The domains that come nearest, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 5))]
    pub nearest: Vec<NearestDomain>,

    /// Changes under which the gang would fit, smallest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 3))]
    pub would_fit_if: Vec<String>,

    /// When this was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Time>,
}

/// Whether waiting helps a pending gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Waiting {
    #[default]
    Wait,
    Act,
    Never,
}

/// A domain that almost holds the gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NearestDomain {
    /// Name of the domain.
    pub domain: String,
    /// What is free there, in words.
    pub free: String,
    /// What is missing there, in words.
    pub missing: String,
    /// Who holds what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 3))]
    pub blockers: Vec<String>,
}
