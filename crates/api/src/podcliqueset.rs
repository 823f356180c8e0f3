//! PodCliqueSet: what a workload author writes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::constraint::TopologyConstraint;
use crate::duration::DurationString;
use crate::kubernetes;
use crate::podclique::{AutoScalingConfig, PodCliqueSpec, REPLICAS_MAX};
use crate::podgang::PodGangPhase;
use crate::scaling_group::{one, some_one};
use crate::sharing::{CliqueSharing, ResourceClaimTemplateConfig, ScalingGroupSharing, SetSharing};
use crate::status::LastError;

/// What a PodCliqueSet asks for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "grove.io",
    version = "v1alpha1",
    kind = "PodCliqueSet",
    plural = "podcliquesets",
    shortname = "pcs",
    namespaced,
    status = "PodCliqueSetStatus",
    derive = "PartialEq",
    doc = "A PodCliqueSet describes the roles of a multi-node workload, how they scale together, and how close they \
           must sit. Each replica is started as gangs, all or nothing.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.hpaPodSelector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
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
        name = "PCSGs-Updated",
        type_ = "integer",
        json_path = ".status.updateProgress.updatedPodCliqueScalingGroupsCount"
    ),
    printcolumn(
        name = "PCSGs-Total",
        type_ = "integer",
        json_path = ".status.updateProgress.totalPodCliqueScalingGroupsCount"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.topologyConstraint)")
    .message("topologyConstraint is not allowed here; write it in spec.template.topologyConstraint")
    .field_path(".topologyConstraint").reason(Reason::FieldValueForbidden))]
pub struct PodCliqueSetSpec {
    /// How many replicas of the whole template there are.
    #[schemars(range(max = REPLICAS_MAX))]
    #[serde(default)]
    pub replicas: i32,

    /// How pods are replaced when the template changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,

    /// The roles and how they belong together.
    pub template: PodCliqueSetTemplate,

    /// Refused: the constraint of a whole replica belongs in `template.topologyConstraint`. The field exists so that
    /// a manifest with the old place is told so, instead of losing its constraint without a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<MisplacedTopologyConstraint>,
}

/// A constraint in a place where none is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MisplacedTopologyConstraint {
    /// The word that was meant for `template.topologyConstraint.packDomain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack_domain: Option<String>,
}

/// How pods are replaced when the template changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// `RollingRecreate` replaces pods replica by replica; `OnDelete` leaves it to whoever deletes a pod.
    #[serde(default, rename = "type")]
    pub type_: UpdateStrategyType,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    #[default]
    RollingRecreate,
    OnDelete,
}

/// The roles of one replica and how they belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCliqueSetTemplate {
    /// The roles. Each becomes a PodClique.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub cliques: Vec<PodCliqueTemplate>,

    /// The order in which the cliques of a replica start.
    #[serde(default)]
    pub clique_startup_type: CliqueStartupType,

    /// Priority of the gangs and their pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// The headless Service that gives every pod of a replica a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headless_service_config: Option<HeadlessServiceConfig>,

    /// Name of the ClusterTopology whose words the constraints use. Without it, the cluster's default topology.
    /// May change as long as no pod has a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub cluster_topology_name: Option<String>,

    /// How close all pods of one replica must sit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,

    /// How long a gang may stay below its minimum before it is torn down and started again. Defaults to 4h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_delay: Option<DurationString>,

    /// Claim templates for `resourceSharing`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_claim_templates: Vec<ResourceClaimTemplateConfig>,

    /// Claims that the pods of the set, or of one replica, share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_sharing: Vec<SetSharing>,

    /// Cliques that scale as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "podCliqueScalingGroups")]
    pub scaling_groups: Vec<ScalingGroupTemplate>,
}

impl PodCliqueSetTemplate {
    /// The topology that the author chose. An empty name, as templating tools write it, chooses none.
    pub fn cluster_topology_name(&self) -> Option<&str> {
        self.cluster_topology_name.as_deref().filter(|name| !name.is_empty())
    }
}

/// One role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCliqueTemplate {
    /// Name of the clique, unique within the template; part of the names of its pods.
    pub name: String,

    /// Labels of the clique and its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the clique and its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// How close the pods of this clique must sit; equal to or stricter than the scopes around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,

    /// Claims that the pods of this clique share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_sharing: Vec<CliqueSharing>,

    /// The pods.
    pub spec: PodCliqueSpec,
}

/// The order in which the cliques of a replica start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CliqueStartupType {
    #[default]
    #[serde(rename = "CliqueStartupTypeAnyOrder")]
    AnyOrder,
    #[serde(rename = "CliqueStartupTypeInOrder")]
    InOrder,
    #[serde(rename = "CliqueStartupTypeExplicit")]
    Explicit,
}

/// The headless Service of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadlessServiceConfig {
    /// Whether pods get their DNS name before they are ready.
    #[serde(default = "yes")]
    pub publish_not_ready_addresses: bool,
}

fn yes() -> bool {
    true
}

impl Default for HeadlessServiceConfig {
    fn default() -> Self {
        Self {
            publish_not_ready_addresses: yes(),
        }
    }
}

/// Cliques that scale as one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingGroupTemplate {
    /// Name of the group, unique within the template; part of the names of its pods.
    pub name: String,

    /// Names of the cliques that make up one replica of the group. A clique is in one group at most.
    pub clique_names: Vec<String>,

    /// Annotations of the group; `grove.io/mnnvl-group` is read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// How many replicas of the group a PodCliqueSet replica has.
    #[schemars(range(max = REPLICAS_MAX))]
    #[serde(default = "some_one", skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// How many replicas belong to the base gang and must be available; each replica above is a gang of its own.
    #[serde(default = "some_one", skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,

    /// Scales the group by a HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_config: Option<AutoScalingConfig>,

    /// Claims that the members of the group share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_sharing: Vec<ScalingGroupSharing>,

    /// How close the pods of one replica of the group must sit; equal to or stricter than the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
}

impl ScalingGroupTemplate {
    /// Replicas, with the default that the API server fills in.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(one())
    }

    /// Minimum, with the default that the API server fills in.
    pub fn min_available(&self) -> i32 {
        self.min_available.unwrap_or(one())
    }
}

/// How many replicas the set has, and how they and their gangs are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCliqueSetStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`, `Progressing`, `TopologyLevelsUnavailable` and `TopologyConstraints`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,

    /// What went wrong last; empty after a clean pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_errors: Vec<LastError>,

    /// Replicas that the spec asks for.
    #[serde(default)]
    pub replicas: i32,
    /// Replicas that are available and follow the newest templates.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Replicas of which every clique and every scaling group has its minimum ready.
    #[serde(default)]
    pub available_replicas: i32,

    /// Selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpa_pod_selector: Option<String>,

    /// The gangs of this set and where each stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pod_gang_statuses: Vec<PodGangSummary>,

    /// Hash of the templates that the set follows or is being updated to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_generation_hash: Option<String>,

    /// How far the running update has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_progress: Option<PodCliqueSetUpdateProgress>,
}

/// Where one gang stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGangSummary {
    /// Name of the PodGang.
    pub name: String,
    /// How far the gang has come.
    pub phase: PodGangPhase,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,
}

/// How far the update of a PodCliqueSet has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCliqueSetUpdateProgress {
    /// When the update began.
    pub update_started_at: Time,
    /// When the update was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_ended_at: Option<Time>,
    /// Standalone cliques that follow the newest templates.
    #[serde(default)]
    pub updated_pod_cliques_count: i32,
    /// All standalone cliques.
    #[serde(default)]
    pub total_pod_cliques_count: i32,
    /// Scaling groups that follow the newest templates.
    #[serde(default)]
    pub updated_pod_clique_scaling_groups_count: i32,
    /// All scaling groups.
    #[serde(default)]
    pub total_pod_clique_scaling_groups_count: i32,
    /// The replicas whose pods are being replaced now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub currently_updating: Vec<ReplicaUpdateProgress>,
}

/// How far the update of one replica has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaUpdateProgress {
    /// Index of the replica.
    pub replica_index: i32,
    /// When the update began.
    pub update_started_at: Time,
    /// When the update was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_ended_at: Option<Time>,
}
