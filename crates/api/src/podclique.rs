//! PodClique: the pods of one role.

use k8s_openapi::api::autoscaling::v2::MetricSpec;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kubernetes;
use crate::status::LastError;

/// The most replicas that anything of ours may have. Whoever means more made a mistake, and an operator that believed it
/// would count to it.
pub const REPLICAS_MAX: i32 = 10_000;

/// The pods of one role: all alike, scaled together, with a minimum below which they are of no use.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "grove.io",
    version = "v1alpha1",
    kind = "PodClique",
    plural = "podcliques",
    shortname = "pclq",
    namespaced,
    status = "PodCliqueStatus",
    derive = "PartialEq",
    doc = "A PodClique is the pods of one role. It is made by the operator from a PodCliqueSet.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.hpaPodSelector"
    ),
    printcolumn(name = "MinAvail", type_ = "integer", json_path = ".spec.minAvailable"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Scheduled", type_ = "integer", json_path = ".status.scheduledReplicas"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(
        name = "Gated",
        type_ = "integer",
        json_path = ".status.scheduleGatedReplicas",
        priority = 1
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
pub struct PodCliqueSpec {
    /// Name of the role that these pods play, unique within a PodCliqueSet.
    pub role_name: String,

    /// The pod that every member is.
    #[serde(deserialize_with = "kubernetes::deserialize")]
    #[schemars(schema_with = "kubernetes::pod_spec")]
    pub pod_spec: PodSpec,

    /// How many pods there are.
    #[schemars(range(max = REPLICAS_MAX))]
    pub replicas: i32,

    /// How many pods must be placed together, and stay ready, for the role to be of use. Defaults to `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,

    /// Cliques that must be ready before the containers of this one start. In a PodCliqueSet these are names of
    /// cliques of the template, in a PodClique the names of PodClique objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts_after: Vec<String>,

    /// Scales the clique by a HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_scaling_config: Option<AutoScalingConfig>,
}

/// How a HorizontalPodAutoscaler scales the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoScalingConfig {
    /// The fewest replicas. Defaults to the `replicas` that were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,

    /// The most replicas.
    pub max_replicas: i32,

    /// What to scale by, as in autoscaling/v2 HorizontalPodAutoscaler.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "kubernetes::deserialize"
    )]
    #[schemars(schema_with = "kubernetes::metric_specs")]
    pub metrics: Vec<MetricSpec>,
}

/// How many pods the clique has, and how they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCliqueStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// What went wrong last; empty after a clean pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_errors: Vec<LastError>,

    /// Pods that exist and are not being deleted.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Pods made from the newest template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Pods that still wait behind Grove's scheduling gate.
    #[serde(default)]
    pub schedule_gated_replicas: i32,
    /// Pods that have a node.
    #[serde(default)]
    pub scheduled_replicas: i32,

    /// Selector of the pods, for the scale subresource; only on cliques that scale by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpa_pod_selector: Option<String>,

    /// `MinAvailableBreached` and `PodCliqueScheduled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,

    /// Hash of the PodCliqueSet's templates that the pods are known to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_pod_clique_set_generation_hash: Option<String>,

    /// Hash of the pod template that the pods are known to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_pod_template_hash: Option<String>,

    /// How far the running update has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_progress: Option<PodCliqueUpdateProgress>,
}

/// How far the update of one clique has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCliqueUpdateProgress {
    /// When the update began.
    pub update_started_at: Time,
    /// When the update was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_ended_at: Option<Time>,
    /// Hash of the PodCliqueSet's templates that the update leads to.
    pub pod_clique_set_generation_hash: String,
    /// Hash of the pod template that the update leads to.
    pub pod_template_hash: String,
    /// Ready pods that were chosen to be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_pods_selected_to_update: Option<SelectedPods>,
}

/// Pods chosen to be replaced, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectedPods {
    /// The pod that is being replaced now.
    pub current: String,
    /// The pods that were replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub completed: Vec<String>,
}
