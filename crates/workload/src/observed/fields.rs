//! The fields of a pod that decisions read, in the shape in which the API has them.
//!
//! A watch reads pods as this type: a whole `Pod` is 4.5 KB before its first string, and of most of them nobody looks at
//! more than a name, a node and a condition. Everything here is text, numbers and times that Kubernetes itself types; a
//! time that cannot be read counts as none.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// What is read of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodFields {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: SpecFields,
    #[serde(deserialize_with = "or_default")]
    pub status: StatusFields,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpecFields {
    pub node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub scheduling_gates: Vec<GateFields>,
    #[serde(deserialize_with = "or_default")]
    pub resource_claims: Vec<ClaimFields>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GateFields {
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimFields {
    pub name: String,
    pub resource_claim_template_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusFields {
    pub phase: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<ConditionFields>,
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerFields>,
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerFields>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConditionFields {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
    #[serde(deserialize_with = "time")]
    pub last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerFields {
    /// Only of those that run beside the others, for init containers.
    pub started: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub state: StateFields,
    #[serde(deserialize_with = "or_default")]
    pub last_state: StateFields,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StateFields {
    pub running: Option<RunningFields>,
    pub terminated: Option<TerminatedFields>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RunningFields {
    #[serde(deserialize_with = "time")]
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TerminatedFields {
    pub exit_code: i32,
}

/// What is null is not there.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<Cow<'de, str>>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Of the metadata, who it is and whose; who wrote which field is often half of the object.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Fields {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
        #[serde(deserialize_with = "time")]
        creation_timestamp: Option<Timestamp>,
        #[serde(deserialize_with = "time")]
        deletion_timestamp: Option<Timestamp>,
    }
    let fields = Fields::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: fields.name,
        namespace: fields.namespace,
        uid: fields.uid,
        resource_version: fields.resource_version,
        labels: fields.labels,
        owner_references: fields.owner_references,
        creation_timestamp: fields.creation_timestamp.map(Time),
        deletion_timestamp: fields.deletion_timestamp.map(Time),
        ..ObjectMeta::default()
    })
}

impl Resource for PodFields {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// From a whole pod, as the API server answers a write with it.
impl From<Pod> for PodFields {
    fn from(pod: Pod) -> Self {
        let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
        let gates = spec.scheduling_gates.into_iter().flatten();
        let claims = spec.resource_claims.into_iter().flatten().map(|claim| ClaimFields {
            name: claim.name,
            resource_claim_template_name: claim.resource_claim_template_name,
        });
        let conditions = status
            .conditions
            .into_iter()
            .flatten()
            .map(|condition| ConditionFields {
                type_: condition.type_,
                status: condition.status,
                reason: condition.reason,
                message: condition.message,
                last_transition_time: condition.last_transition_time.map(|time| time.0),
            });
        let containers = |statuses: Option<Vec<ContainerStatus>>| {
            let statuses = statuses.into_iter().flatten();
            statuses.map(ContainerFields::from).collect()
        };
        Self {
            metadata: ObjectMeta {
                managed_fields: None,
                annotations: None,
                ..pod.metadata
            },
            spec: SpecFields {
                node_name: spec.node_name,
                scheduling_gates: gates.map(|gate| GateFields { name: gate.name }).collect(),
                resource_claims: claims.collect(),
            },
            status: StatusFields {
                phase: status.phase,
                conditions: conditions.collect(),
                container_statuses: containers(status.container_statuses),
                init_container_statuses: containers(status.init_container_statuses),
            },
        }
    }
}

impl From<ContainerStatus> for ContainerFields {
    fn from(container: ContainerStatus) -> Self {
        let state = |state: Option<ContainerState>| {
            let state = state.unwrap_or_default();
            StateFields {
                running: state.running.map(|running| RunningFields {
                    started_at: running.started_at.map(|time| time.0),
                }),
                terminated: state.terminated.map(|ended| TerminatedFields {
                    exit_code: ended.exit_code,
                }),
            }
        };
        Self {
            started: container.started,
            state: state(container.state),
            last_state: state(container.last_state),
        }
    }
}
