//! Sharing of resource claims (DRA) between the pods of one scope.

use k8s_openapi::api::resource::v1::ResourceClaimTemplateSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kubernetes;

/// A claim template that lives in the PodCliqueSet itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimTemplateConfig {
    /// Name by which `resourceSharing` refers to it.
    pub name: String,
    /// The template, as in resource.k8s.io/v1 ResourceClaimTemplate.
    #[serde(deserialize_with = "kubernetes::deserialize")]
    #[schemars(schema_with = "kubernetes::resource_claim_template_spec")]
    pub template_spec: ResourceClaimTemplateSpec,
}

/// How many claims a sharing entry makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SharingScope {
    AllReplicas,
    PerReplica,
}

/// Claims that the pods of one clique share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CliqueSharing {
    /// Name of an entry of `resourceClaimTemplates`, or of a ResourceClaimTemplate object.
    pub name: String,
    /// Namespace of the ResourceClaimTemplate object; must be empty for an entry of `resourceClaimTemplates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `AllReplicas` makes one claim for all pods of the clique, `PerReplica` one for each pod index.
    pub scope: SharingScope,
}

/// Claims that the members of a scaling group share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingGroupSharing {
    /// Name of an entry of `resourceClaimTemplates`, or of a ResourceClaimTemplate object.
    pub name: String,
    /// Namespace of the ResourceClaimTemplate object; must be empty for an entry of `resourceClaimTemplates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `AllReplicas` makes one claim for the group, `PerReplica` one for each replica of the group.
    pub scope: SharingScope,
    /// Limits the claim to some members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<ScalingGroupSharingFilter>,
}

/// Claims that the members of a PodCliqueSet share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetSharing {
    /// Name of an entry of `resourceClaimTemplates`, or of a ResourceClaimTemplate object.
    pub name: String,
    /// Namespace of the ResourceClaimTemplate object; must be empty for an entry of `resourceClaimTemplates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `AllReplicas` makes one claim for the set, `PerReplica` one for each replica of the set.
    pub scope: SharingScope,
    /// Limits the claim to some members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<SetSharingFilter>,
}

/// The members of a scaling group that share a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingGroupSharingFilter {
    /// Names of cliques of the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_clique_names: Vec<String>,
}

/// The members of a PodCliqueSet that share a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetSharingFilter {
    /// Names of cliques of the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_clique_names: Vec<String>,
    /// Names of scaling groups of the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_scaling_group_names: Vec<String>,
}
