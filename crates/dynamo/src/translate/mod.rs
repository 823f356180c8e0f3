//! What a graph becomes: one PodCliqueSet, and what its pods need around them.
//!
//! The same graph gives the same bytes, always: nothing here looks at a clock, a cluster or a hash map. Of a set that exists
//! three things are kept: replicas ([`keep_replicas`]), which are scaled by themselves, never through the template; the
//! order of its parts ([`keep_order`]), which in a graph means nothing; and the last restart ([`keep_restart`]).

mod access;
mod cliques;
mod launch;
pub(crate) mod names;
pub(crate) mod pod;
mod scaling;
mod template;

use std::collections::BTreeMap;

use grove_api::config::{DiscoveryBackend, DynamoServices, OperatorConfiguration, ProfileName};
use grove_api::duration::DurationString;
use grove_api::dynamo::words;
use grove_api::podcliqueset::{
    CliqueStartupType, HeadlessServiceConfig, PodCliqueSetTemplate, UpdateStrategy, UpdateStrategyType,
};
use grove_api::{
    DynamoGraphDeployment, DynamoGraphDeploymentScalingAdapter, PodCliqueSet, PodCliqueSetSpec, TopologyConstraint,
};
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use thiserror::Error;

pub use names::{CliqueNames, adapter_name, hash, lowered, set_name};
pub use scaling::{Wish, keep_numbers, wishes, with_wishes};
pub use template::read as read_template;

/// How long a gang may stay below its minimum before it is started anew.
const TERMINATION_DELAY: &str = "15m";

/// Why a graph cannot become a set. Admission tells the same before it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: {message}")]
pub struct Untranslatable {
    pub path: String,
    pub message: String,
}

impl Untranslatable {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// What the surroundings decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// KAI places gangs, and wants a queue.
    pub kai: bool,
    /// Where Dynamo's processes find each other.
    pub discovery: DiscoveryBackend,
    /// What else they are told of.
    pub services: DynamoServices,
}

impl Surroundings {
    pub fn new(configuration: &OperatorConfiguration) -> Self {
        Self {
            kai: configuration.scheduler.default_profile == ProfileName::KaiScheduler,
            discovery: configuration.dynamo.discovery_backend,
            services: configuration.dynamo.services.clone(),
        }
    }

    /// Whether components find each other through the API server, by Services and with rights of their own.
    fn has_discovery(&self) -> bool {
        self.discovery == DiscoveryBackend::Kubernetes
    }
}

/// Everything that a graph becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    pub set: PodCliqueSet,
    pub services: Vec<Service>,
    pub accounts: Vec<ServiceAccount>,
    pub roles: Vec<Role>,
    pub role_bindings: Vec<RoleBinding>,
    pub adapters: Vec<DynamoGraphDeploymentScalingAdapter>,
}

/// What `graph` becomes.
pub fn translate(graph: &DynamoGraphDeployment, around: &Surroundings) -> Result<Translation, Untranslatable> {
    let access = access::of(graph, around);
    Ok(Translation {
        set: set(graph, around)?,
        services: access::services(graph, around),
        accounts: access.accounts,
        roles: access.roles,
        role_bindings: access.role_bindings,
        adapters: scaling::adapters(graph),
    })
}

fn set(graph: &DynamoGraphDeployment, around: &Surroundings) -> Result<PodCliqueSet, Untranslatable> {
    let spec = &graph.spec;
    let mut template = PodCliqueSetTemplate {
        clique_startup_type: CliqueStartupType::AnyOrder,
        priority_class_name: spec.priority_class_name.clone(),
        headless_service_config: Some(HeadlessServiceConfig::default()),
        cluster_topology_name: spec
            .topology_name()
            .filter(|_| spec.has_constraint())
            .map(str::to_owned),
        topology_constraint: spec.pack_domain().map(constraint),
        termination_delay: Some(DurationString(TERMINATION_DELAY.to_owned())),
        ..PodCliqueSetTemplate::default()
    };
    for index in 0..spec.components.len() {
        let made = cliques::of(graph, index, around)?;
        template.cliques.extend(made.cliques);
        template.scaling_groups.extend(made.group);
    }
    // One order holds for the whole set.
    if template
        .cliques
        .iter()
        .any(|clique| !clique.spec.starts_after.is_empty())
    {
        template.clique_startup_type = CliqueStartupType::Explicit;
    }
    let mut labels = spec.labels.clone();
    labels.insert(words::GRAPH.to_owned(), graph.name_any());
    let metadata = ObjectMeta {
        annotations: Some(spec.annotations.clone()).filter(|annotations| !annotations.is_empty()),
        ..owned(graph, set_name(graph), labels)
    };
    let spec = PodCliqueSetSpec {
        replicas: 1,
        update_strategy: update_strategy(graph)?,
        template,
        ..PodCliqueSetSpec::default()
    };
    let mut set = PodCliqueSet {
        metadata,
        spec,
        status: None,
    };
    // What admission would fill in for a user; our own writes do not pass by it.
    grove_workload::default::fill(&mut set);
    Ok(set)
}

/// Writes the live numbers into `set` wherever something scales by itself: cliques that stand alone, and groups. Numbers
/// change through the scale subresource, so that an edit of them replaces no pod and no autoscaler is overruled twice.
pub fn keep_replicas(set: &mut PodCliqueSet, live: &PodCliqueSet) {
    let (template, live) = (&mut set.spec.template, &live.spec.template);
    let grouped: Vec<String> = template
        .scaling_groups
        .iter()
        .flat_map(|group| group.clique_names.clone())
        .collect();
    for clique in template
        .cliques
        .iter_mut()
        .filter(|clique| !grouped.contains(&clique.name))
    {
        if let Some(live) = live.cliques.iter().find(|other| other.name == clique.name) {
            clique.spec.replicas = live.spec.replicas;
        }
    }
    for group in &mut template.scaling_groups {
        if let Some(live) = live.scaling_groups.iter().find(|other| other.name == group.name) {
            group.replicas = live.replicas;
        }
    }
}

/// Lets `set` remember the restart of `live` where its graph no longer asks for one: a wish that was fulfilled and is taken
/// back must not be a change of the template, which would restart everything again.
pub fn keep_restart(set: &mut PodCliqueSet, live: &PodCliqueSet) {
    for clique in &mut set.spec.template.cliques {
        let mut before = live.spec.template.cliques.iter();
        let last = before
            .find(|other| other.name == clique.name)
            .and_then(|other| other.annotations.get(words::RESTART));
        if let Some(last) = last {
            let place = clique.annotations.entry(words::RESTART.to_owned());
            place.or_insert_with(|| last.clone());
        }
    }
}

/// Puts cliques and groups of `set` into the order that they have in `live`. Components are told apart by name, and a set that
/// starts its cliques in order may not change it.
pub fn keep_order(set: &mut PodCliqueSet, live: &PodCliqueSet) {
    let (template, live) = (&mut set.spec.template, &live.spec.template);
    // What is not there yet comes last, in its own order.
    let last = usize::MAX;
    template.cliques.sort_by_key(|clique| {
        let mut before = live.cliques.iter();
        before.position(|other| other.name == clique.name).unwrap_or(last)
    });
    template.scaling_groups.sort_by_key(|group| {
        let mut before = live.scaling_groups.iter();
        before.position(|other| other.name == group.name).unwrap_or(last)
    });
}

/// Notes in `set` what it was written as, so that a field which is no longer wanted is seen to be one.
pub fn stamp(set: &mut PodCliqueSet) {
    let text = serde_json::to_string(&(&set.spec, &set.metadata.labels, &set.metadata.annotations)).unwrap_or_default();
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(words::APPLIED_HASH.to_owned(), hash(&text));
}

fn update_strategy(graph: &DynamoGraphDeployment) -> Result<Option<UpdateStrategy>, Untranslatable> {
    let Some(word) = graph.annotations().get(words::UPDATE_STRATEGY) else {
        return Ok(None);
    };
    let type_ = match word.as_str() {
        "RollingRecreate" => UpdateStrategyType::RollingRecreate,
        "OnDelete" => UpdateStrategyType::OnDelete,
        other => {
            return Err(Untranslatable::new(
                format!("metadata.annotations[{}]", words::UPDATE_STRATEGY),
                format!("Invalid value: \"{other}\": must be RollingRecreate or OnDelete"),
            ));
        }
    };
    Ok(Some(UpdateStrategy { type_ }))
}

fn constraint(word: &str) -> TopologyConstraint {
    TopologyConstraint {
        pack_domain: Some(word.to_owned()),
        ..TopologyConstraint::default()
    }
}

/// Metadata of something that the graph owns.
fn owned(graph: &DynamoGraphDeployment, name: String, labels: BTreeMap<String, String>) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: DynamoGraphDeployment::api_version(&()).into_owned(),
        kind: DynamoGraphDeployment::kind(&()).into_owned(),
        name: graph.name_any(),
        uid: graph.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ObjectMeta {
        name: Some(name),
        namespace: graph.namespace(),
        labels: Some(labels),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}
