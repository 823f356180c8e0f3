//! PodCliqueScalingGroup: cliques that scale as one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kubernetes;
use crate::podclique::REPLICAS_MAX;
use crate::status::LastError;

/// Cliques that scale as one: each replica has its own copy of every member clique.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "grove.io",
    version = "v1alpha1",
    kind = "PodCliqueScalingGroup",
    plural = "podcliquescalinggroups",
    shortname = "pcsg",
    namespaced,
    status = "PodCliqueScalingGroupStatus",
    derive = "PartialEq",
    doc = "A PodCliqueScalingGroup scales several PodCliques as one. It is made by the operator from a PodCliqueSet.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "MinAvail", type_ = "integer", json_path = ".spec.minAvailable"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Scheduled", type_ = "integer", json_path = ".status.scheduledReplicas"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(
        name = "PCLQs-Updated",
        type_ = "integer",
        json_path = ".status.updateProgress.updatedPodCliquesCount"
    ),
    printcolumn(
        name = "PCLQs-Total",
        type_ = "integer",
        json_path = ".status.updateProgress.totalPodCliquesCount"
    ),
    printcolumn(
        name = "MinBreached",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"MinAvailableBreached\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PodCliqueScalingGroupSpec {
    /// How many replicas of the group there are.
    #[schemars(range(max = REPLICAS_MAX))]
    #[serde(default = "one")]
    pub replicas: i32,

    /// How many replicas belong to the base gang and must be available; each replica above is a gang of its own.
    #[serde(default = "some_one", skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,

    /// Names of the cliques of the PodCliqueSet's template that make up one replica.
    pub clique_names: Vec<String>,
}

pub(crate) fn one() -> i32 {
    1
}

pub(crate) fn some_one() -> Option<i32> {
    Some(1)
}

/// How many replicas the group has, and how they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCliqueScalingGroupStatus {
    /// Replicas of the group that the spec asks for.
    #[serde(default)]
    pub replicas: i32,
    /// Replicas whose cliques all have their minimum of pods on nodes.
    #[serde(default)]
    pub scheduled_replicas: i32,
    /// Replicas whose cliques all have their minimum of ready pods.
    #[serde(default)]
    pub available_replicas: i32,
    /// Replicas that follow the newest templates.
    #[serde(default)]
    pub updated_replicas: i32,

    /// Selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// What went wrong last; empty after a clean pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_errors: Vec<LastError>,

    /// `MinAvailableBreached` and `GangTerminationInProgress`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,

    /// Hash of the PodCliqueSet's templates that the replicas are known to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_pod_clique_set_generation_hash: Option<String>,

    /// How far the running update has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_progress: Option<ScalingGroupUpdateProgress>,
}

/// How far the update of one scaling group has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingGroupUpdateProgress {
    /// When the update began.
    pub update_started_at: Time,
    /// When the update was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_ended_at: Option<Time>,
    /// Hash of the PodCliqueSet's templates that the update leads to.
    pub pod_clique_set_generation_hash: String,
    /// Member cliques that follow the newest templates.
    #[serde(default)]
    pub updated_pod_cliques_count: i32,
    /// All member cliques.
    #[serde(default)]
    pub total_pod_cliques_count: i32,
    /// Available replicas that were chosen to be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replica_indices_selected_to_update: Option<SelectedReplicas>,
}

/// Replicas chosen to be replaced, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectedReplicas {
    /// The replica that is being replaced now.
    pub current: i32,
    /// The replicas that were replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub completed: Vec<i32>,
}
