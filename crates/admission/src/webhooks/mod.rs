//! The webhooks: one file each, from a request to an answer.
//!
//! A webhook reads what its rules need and passes on what they say. Which webhooks there are follows the configuration;
//! where they are served and for what the API server calls them is said here once, for the server and the registration.

mod authorizer;
mod default_set;
mod validate_adapter;
mod validate_graph;
mod validate_replicas;
mod validate_set;
mod validate_topology;
mod validate_topology_domain;

use std::sync::Arc;

use grove_api::config::{Authorizer, OperatorConfiguration, Scheduler, SchedulerProfile, TopologyAwareScheduling};
use grove_dynamo::translate::Surroundings;
use grove_workload::validate::Rules;

use crate::lookup::Lookup;
use crate::review::{Answer, Request};
use crate::steps::Telemetry;

/// A webhook by its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Webhook {
    DefaultSet,
    ValidateSet,
    ValidateReplicas,
    ValidateTopology,
    ValidateTopologyDomain,
    ValidateGraph,
    Authorizer,
}

impl Webhook {
    pub const ALL: [Self; 7] = [
        Self::DefaultSet,
        Self::ValidateSet,
        Self::ValidateReplicas,
        Self::ValidateTopology,
        Self::ValidateTopologyDomain,
        Self::ValidateGraph,
        Self::Authorizer,
    ];

    /// The path that it is served under.
    pub const fn path(self) -> &'static str {
        match self {
            Self::DefaultSet => "/webhooks/default-podcliqueset",
            Self::ValidateSet => "/webhooks/validate-podcliqueset",
            Self::ValidateReplicas => "/webhooks/validate-replicas",
            Self::ValidateTopology => "/webhooks/validate-clustertopology",
            Self::ValidateTopologyDomain => "/webhooks/validate-topologydomain",
            Self::ValidateGraph => "/webhooks/validate-dynamographdeployment",
            Self::Authorizer => "/webhooks/authorizer-webhook",
        }
    }

    /// Whether the configuration asks for it.
    pub fn is_on(self, policy: &Policy) -> bool {
        match self {
            Self::Authorizer => policy.authorizer.enabled,
            Self::ValidateGraph => policy.dynamo,
            _ => true,
        }
    }
}

/// What the operator's configuration says about admission, and who the operator is.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The operator's own user: it may do everything.
    pub operator: String,
    pub authorizer: Authorizer,
    pub topology: TopologyAwareScheduling,
    pub scheduler: Scheduler,
    pub rules: Rules,
    /// DynamoGraphDeployments are served.
    pub dynamo: bool,
    /// What decides, besides themselves, what they become.
    pub around_graphs: Surroundings,
}

impl Policy {
    pub fn new(configuration: &OperatorConfiguration, operator: impl Into<String>) -> Self {
        let profiles = configuration.scheduler.profiles.iter();
        let schedulers = profiles.filter(|profile| !matches!(profile, SchedulerProfile::Kueue));
        Self {
            operator: operator.into(),
            authorizer: configuration.authorizer.clone(),
            topology: configuration.topology_aware_scheduling.clone(),
            scheduler: configuration.scheduler.clone(),
            dynamo: configuration.dynamo.enabled,
            around_graphs: Surroundings::new(configuration),
            rules: Rules {
                schedulers: schedulers.map(|profile| profile.name().as_str().to_owned()).collect(),
                mnnvl_enabled: configuration.network.auto_mnnvl_enabled,
            },
        }
    }
}

/// All webhooks, ready to answer.
#[derive(Clone, Debug)]
pub struct Webhooks {
    policy: Arc<Policy>,
    lookup: Lookup,
    pub(crate) telemetry: Telemetry,
}

impl Webhooks {
    pub fn new(policy: Policy, lookup: Lookup) -> Self {
        Self {
            policy: Arc::new(policy),
            lookup,
            telemetry: Telemetry::default(),
        }
    }

    /// The same, telling of every answer.
    pub fn with_telemetry(self, telemetry: Telemetry) -> Self {
        Self { telemetry, ..self }
    }

    /// The answer of one webhook. What cannot be read from the API server is said, not guessed.
    pub async fn answer(&self, webhook: Webhook, request: &Request) -> Answer {
        let (policy, lookup) = (self.policy.as_ref(), &self.lookup);
        let answer = match webhook {
            Webhook::DefaultSet => Ok(default_set::answer(request, policy)),
            Webhook::ValidateSet => validate_set::answer(request, policy, lookup).await,
            Webhook::ValidateReplicas => validate_replicas::answer(request, lookup).await,
            Webhook::ValidateTopology => validate_topology::answer(request, policy, lookup).await,
            Webhook::ValidateTopologyDomain => Ok(validate_topology_domain::answer(request)),
            Webhook::ValidateGraph if validate_adapter::is_meant(request) => {
                validate_adapter::answer(request, lookup).await
            }
            Webhook::ValidateGraph => Ok(validate_graph::answer(request, policy, lookup).await),
            Webhook::Authorizer => authorizer::answer(request, policy, lookup).await,
        };
        answer.unwrap_or_else(|error| {
            tracing::warn!(webhook = ?webhook, object = request.subject(), %error, "cannot judge a write");
            Answer::unavailable(format!(
                "cannot judge {}: reading from the API server failed: {error}; try again",
                request.subject()
            ))
        })
    }
}
