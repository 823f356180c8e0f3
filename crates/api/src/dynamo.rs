//! DynamoGraphDeployment (`nvidia.com`): an inference graph of Dynamo that runs as gangs.
//!
//! `v1beta1` is what is stored and what the types here are of. `v1alpha1` is served only while somebody converts it: its
//! schema takes anything, because services may be a list or a map there, and admission judges what became of it.
//!
//! A field that is not known is kept ([`Component::other`]), so that admission can refuse it by name: pruned, it would be
//! ignored without a word. Pod templates are kept as they were written for the same reason, and because their schema would
//! be larger than all the rest.

mod adapter;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kubernetes;
use crate::topology::DomainWord;

pub(crate) use adapter::definition as adapter_definition;
pub use adapter::{
    ComponentReference, DynamoGraphDeploymentScalingAdapter, DynamoGraphDeploymentScalingAdapterSpec,
    DynamoGraphDeploymentScalingAdapterStatus, PLURAL as ADAPTERS,
};

/// Group of DynamoGraphDeployment.
pub const GROUP: &str = "nvidia.com";
/// The version that is stored.
pub const VERSION: &str = "v1beta1";
/// The version that is served while somebody converts it.
pub const OLD_VERSION: &str = "v1alpha1";
/// The most components of a graph.
pub const COMPONENTS_MAX: usize = 25;
/// Replicas of a component that does not say how many.
pub const DEFAULT_REPLICAS: i32 = 1;
/// Nodes of a component on several nodes that does not say how many.
pub const DEFAULT_NODES: i32 = 2;

/// What a graph asks for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "nvidia.com",
    version = "v1beta1",
    kind = "DynamoGraphDeployment",
    plural = "dynamographdeployments",
    shortname = "dgd",
    namespaced,
    status = "DynamoGraphDeploymentStatus",
    derive = "PartialEq",
    doc = "A DynamoGraphDeployment describes the services of an inference graph. Each runs as part of a gang, close to \
           the others where a topology constraint says so.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Topology",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"TopologyConstraintsEnforced\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentSpec {
    /// Annotations of everything that the graph is made of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// Labels of everything that the graph is made of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Priority of the gangs and their pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// The engine that workers run; must agree with what their commands start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_framework: Option<BackendFramework>,

    /// Environment of every component, as in core/v1 EnvVar; a component's own wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "env_vars")]
    pub env: Vec<Value>,

    /// How close the whole graph must sit. Components without a constraint of their own inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<GraphTopologyConstraint>,

    /// Starts all pods of the graph anew whenever `id` changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,

    /// The components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = COMPONENTS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub components: Vec<Component>,

    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The engine that workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendFramework {
    Sglang,
    Vllm,
    Trtllm,
}

impl BackendFramework {
    pub const ALL: [Self; 3] = [Self::Sglang, Self::Vllm, Self::Trtllm];

    /// As in `python3 -m dynamo.<word>`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
            Self::Trtllm => "trtllm",
        }
    }
}

/// How close the whole graph must sit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GraphTopologyConstraint {
    /// The topology whose words the constraints use. Without it, the cluster's default topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_topology_name: Option<String>,

    /// All pods of the graph are placed inside one domain of this level. May be left out when components have
    /// constraints of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "domain_word")]
    pub pack_domain: Option<String>,

    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// How close the pods of one component must sit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentTopologyConstraint {
    /// Equal to or narrower than the graph's.
    #[schemars(schema_with = "domain_word")]
    pub pack_domain: String,

    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// A wish to start all pods anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// Any text; another text is another restart.
    pub id: String,

    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// One service of the graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Name, unique within the graph whatever the case; part of the names of its pods.
    pub name: String,

    /// What it is to the graph; decides its ports, probes and environment.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<ComponentType>,

    /// How many there are; of a component on several nodes, how many groups of nodes.
    #[serde(default = "default_replicas")]
    pub replicas: i32,

    /// How many must be placed together, and stay ready, for the graph to be of use. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,

    /// Runs each replica on several nodes: a leader and workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multinode: Option<Multinode>,

    /// How close the pods of each replica must sit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<ComponentTopologyConstraint>,

    /// Lets autoscalers scale the component, by a DynamoGraphDeploymentScalingAdapter of its own. While it is there,
    /// `replicas` follows the adapter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "scaling_adapter")]
    pub scaling_adapter: Option<ScalingAdapter>,

    /// Size of the memory that containers share; 8Gi without it, "0" for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory_size: Option<String>,

    /// Whether it talks to components of other graphs too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_dynamo_namespace: Option<bool>,

    /// The pod, as in core/v1 PodTemplateSpec. The container `main` runs the component; others run beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_template")]
    pub pod_template: Option<Value>,

    /// What may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Experimental>,

    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What a component is to its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ComponentType {
    Frontend,
    Worker,
    Prefill,
    Decode,
    Planner,
    Epp,
}

impl ComponentType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Worker => "worker",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Planner => "planner",
            Self::Epp => "epp",
        }
    }

    /// Whether it runs a model.
    pub const fn is_worker(self) -> bool {
        matches!(self, Self::Worker | Self::Prefill | Self::Decode)
    }
}

/// Several nodes for each replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Multinode {
    /// How many nodes each replica runs on.
    #[serde(default = "default_nodes")]
    pub node_count: i32,

    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// An adapter for autoscalers. There is nothing to choose: it is there, or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScalingAdapter {
    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What may change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Experimental {
    /// What only Grove has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grove: Option<GroveOptions>,

    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What only Grove has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroveOptions {
    /// Makes each replica a gang that scales by itself, also on one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_scaling_group: Option<bool>,

    /// Fields that are not known here; admission refuses them.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

impl Component {
    /// Nodes of one replica.
    pub fn node_count(&self) -> i32 {
        self.multinode.as_ref().map_or(1, |multinode| multinode.node_count)
    }

    pub fn is_multinode(&self) -> bool {
        self.multinode.is_some()
    }

    /// Whether its replicas scale as groups of cliques, not pod by pod.
    pub fn is_grouped(&self) -> bool {
        let forced = self.experimental.as_ref().and_then(|options| options.grove.as_ref());
        self.is_multinode() || forced.is_some_and(|grove| grove.force_scaling_group == Some(true))
    }

    pub fn min_available(&self) -> i32 {
        self.min_available.unwrap_or(1)
    }
}

impl DynamoGraphDeploymentSpec {
    /// The graph's own word.
    pub fn pack_domain(&self) -> Option<&str> {
        self.topology_constraint.as_ref()?.pack_domain.as_deref()
    }

    /// The topology that the graph names. An empty name, as templating tools write it, names none.
    pub fn topology_name(&self) -> Option<&str> {
        let constraint = self.topology_constraint.as_ref()?;
        let name = constraint.cluster_topology_name.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// Whether any word is written anywhere.
    pub fn has_constraint(&self) -> bool {
        let of_component = |component: &Component| component.topology_constraint.is_some();
        self.pack_domain().is_some() || self.components.iter().any(of_component)
    }
}

/// How the graph is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// In one word: `initializing`, `pending`, `successful` or `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,

    /// `Ready`, and with a topology constraint `TopologyConstraintsEnforced` and `TopologyLevelsAvailable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,

    /// The components, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, ComponentStatus>,

    /// The last restart that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartStatus>,
}

/// How a component is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// Kind of the object that stands for it.
    pub component_kind: String,
    /// Names of those objects.
    pub component_names: Vec<String>,
    /// Replicas that there are.
    pub replicas: i32,
    /// Replicas made from the newest template.
    pub updated_replicas: i32,
    /// Replicas that have nodes.
    pub scheduled_replicas: i32,
    /// Replicas that are ready.
    pub ready_replicas: i32,
}

/// How far a restart has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartStatus {
    /// The restart that was asked for.
    #[serde(rename = "observedID")]
    pub observed_id: String,
    /// `Restarting` or `Completed`.
    pub phase: String,
}

/// Labels and annotations. Others select by them, and manifests carry them.
pub mod words {
    pub const GRAPH: &str = "nvidia.com/dynamo-graph-deployment-name";
    pub const SELECTOR: &str = "nvidia.com/selector";
    pub const COMPONENT: &str = "nvidia.com/dynamo-component";
    pub const COMPONENT_TYPE: &str = "nvidia.com/dynamo-component-type";
    pub const NAMESPACE: &str = "nvidia.com/dynamo-namespace";
    pub const WORKER_HASH: &str = "nvidia.com/dynamo-worker-hash";
    pub const METRICS: &str = "nvidia.com/metrics-enabled";
    pub const DISCOVERY_BACKEND: &str = "nvidia.com/dynamo-discovery-backend";
    pub const DISCOVERY: &str = "nvidia.com/dynamo-discovery-enabled";
    pub const KAI_QUEUE: &str = "kai.scheduler/queue";

    /// Annotation: `"false"` leaves the metrics label out.
    pub const ENABLE_METRICS: &str = "nvidia.com/enable-metrics";
    /// Annotation: `"false"` asks for another pathway than Grove.
    pub const ENABLE_GROVE: &str = "nvidia.com/enable-grove";
    /// Annotation: the pathway.
    pub const PROVIDER: &str = "nvidia.com/workload-provider";
    /// Annotation: `mp` or `ray`.
    pub const VLLM_EXECUTOR: &str = "nvidia.com/vllm-distributed-executor-backend";
    /// Annotation: the update strategy of the PodCliqueSet.
    pub const UPDATE_STRATEGY: &str = "nvidia.com/grove-update-strategy";
    /// Annotation: the queue of KAI.
    pub const QUEUE: &str = "nvidia.com/kai-scheduler-queue";
    /// Annotation on pods: changes with every restart.
    pub const RESTART: &str = "nvidia.com/restartAt";
    /// Annotation on a PodCliqueSet: hash of what was last written.
    pub const APPLIED_HASH: &str = "nvidia.com/last-applied-hash";
}

/// Condition types and reasons.
pub mod conditions {
    pub const READY: &str = "Ready";
    pub const ENFORCED: &str = "TopologyConstraintsEnforced";
    pub const LEVELS_AVAILABLE: &str = "TopologyLevelsAvailable";

    /// Reasons of [`READY`].
    pub mod ready {
        pub const ALL: &str = "all_resources_are_ready";
        pub const SOME_NOT: &str = "some_resources_are_not_ready";
        pub const CAPACITY: &str = "insufficient_capacity";
        pub const PODS: &str = "pods_not_ready";
        pub const UPDATING: &str = "updating";
        pub const MIXED: &str = "mixed_not_ready_reasons";
    }

    /// Reasons of [`ENFORCED`] and [`LEVELS_AVAILABLE`].
    pub mod topology {
        pub const ALL_AVAILABLE: &str = "AllTopologyLevelsAvailable";
        pub const UNAVAILABLE: &str = "TopologyLevelsUnavailable";
        pub const NOT_FOUND: &str = "TopologyDefinitionNotFound";
        pub const PENDING: &str = "TopologyConditionPending";
    }
}

/// The definition with both versions. Nobody converts yet, so the older one is not served: whoever does serves it.
pub(crate) fn definition() -> CustomResourceDefinition {
    let mut definition = DynamoGraphDeployment::crd();
    definition.spec.versions.push(old_version());
    definition
}

fn old_version() -> CustomResourceDefinitionVersion {
    let opaque = |description: &str| JSONSchemaProps {
        type_: Some("object".to_owned()),
        description: Some(description.to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    let properties = BTreeMap::from([
        (
            "spec".to_owned(),
            opaque("The graph, with its services as a list or as a map."),
        ),
        ("status".to_owned(), opaque("How the graph is.")),
    ]);
    let schema = JSONSchemaProps {
        type_: Some("object".to_owned()),
        description: Some("The older form of a DynamoGraphDeployment; it is converted.".to_owned()),
        properties: Some(properties),
        required: Some(vec!["spec".to_owned()]),
        ..JSONSchemaProps::default()
    };
    CustomResourceDefinitionVersion {
        name: OLD_VERSION.to_owned(),
        served: false,
        storage: false,
        deprecated: Some(true),
        deprecation_warning: Some(format!(
            "{GROUP}/{OLD_VERSION} DynamoGraphDeployment is deprecated; use {GROUP}/{VERSION}"
        )),
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema),
        }),
        subresources: Some(CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(json!({}))),
            scale: None,
        }),
        ..CustomResourceDefinitionVersion::default()
    }
}

fn default_replicas() -> i32 {
    DEFAULT_REPLICAS
}

fn default_nodes() -> i32 {
    DEFAULT_NODES
}

fn domain_word(_: &mut SchemaGenerator) -> Schema {
    let words = DomainWord::ALL.map(DomainWord::as_str);
    from_json(json!({
        "description": "How close: one of the seven words for parts of a cluster.",
        "type": "string", "enum": words,
    }))
}

fn pod_template(_: &mut SchemaGenerator) -> Schema {
    from_json(json!({
        "description": "The pod, as in core/v1 PodTemplateSpec. The container `main` runs the component; others run \
                        beside it. Judged by admission.",
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }))
}

fn scaling_adapter(_: &mut SchemaGenerator) -> Schema {
    from_json(json!({
        "description": "Lets autoscalers scale the component.",
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }))
}

fn env_vars(_: &mut SchemaGenerator) -> Schema {
    from_json(json!({
        "description": "Environment of every component, as in core/v1 EnvVar; a component's own wins.",
        "type": "array", "x-kubernetes-list-type": "atomic",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }))
}

fn from_json(schema: Value) -> Schema {
    schema.try_into().expect("a JSON object is a schema")
}
