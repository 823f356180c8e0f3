//! Which webhooks the API server calls: the webhook configurations as a pure function of ours, and their upkeep.
//!
//! They fail closed and are asked of our own kinds only; the operator's own writes, save the sets that it makes, are not
//! asked about, so that it can write before its webhooks serve.

mod conversion;
mod upkeep;

use std::collections::BTreeMap;

use grove_api::dynamo;
use grove_api::labels::{MANAGED_BY, MANAGED_BY_OPERATOR};
use grove_api::{ComputeDomain, GROUP, SCHEDULER_GROUP, TOPOLOGY_DOMAIN_GROUP, VERSION};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource as _;
use kube::api::ObjectMeta;

use crate::webhooks::{Policy, Webhook};

pub use conversion::withdraw_conversion;
pub use upkeep::{Turn, Upkeep};

/// Seconds that the API server waits for an answer.
const TIMEOUT_SECONDS: i32 = 10;

/// How the API server reaches the webhook server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Inside the cluster.
    Service { namespace: String, name: String, port: u16 },
    /// From outside: `https://host:port`.
    Url(String),
}

impl Endpoint {
    fn client_config(&self, path: &str, authorities: Option<&str>) -> WebhookClientConfig {
        let ca_bundle = authorities.map(|pem| ByteString(pem.as_bytes().to_vec()));
        match self {
            Self::Service { namespace, name, port } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(path.to_owned()),
                    port: Some(i32::from(*port)),
                }),
                url: None,
            },
            Self::Url(base) => WebhookClientConfig {
                ca_bundle,
                service: None,
                url: Some(format!("{base}{path}")),
            },
        }
    }
}

/// Every webhook configuration that the operator keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registration {
    pub mutating: Vec<MutatingWebhookConfiguration>,
    pub validating: Vec<ValidatingWebhookConfiguration>,
    /// Names of validating ones that must not exist: switched off.
    pub retired: Vec<&'static str>,
}

/// What is to be registered; `authorities` (PEM) is left out where somebody else fills it in.
pub fn registration(policy: &Policy, endpoint: &Endpoint, authorities: Option<&str>) -> Registration {
    let mut registration = Registration::default();
    for webhook in Webhook::ALL {
        let name = configuration_name(webhook);
        if !webhook.is_on(policy) {
            registration.retired.push(name);
        } else if webhook == Webhook::DefaultSet {
            let configuration = MutatingWebhookConfiguration {
                metadata: metadata(name),
                webhooks: Some(vec![mutating(webhook, policy, endpoint, authorities)]),
            };
            registration.mutating.push(configuration);
        } else {
            let configuration = ValidatingWebhookConfiguration {
                metadata: metadata(name),
                webhooks: Some(vec![validating(webhook, policy, endpoint, authorities)]),
            };
            registration.validating.push(configuration);
        }
    }
    registration
}

fn mutating(webhook: Webhook, policy: &Policy, endpoint: &Endpoint, authorities: Option<&str>) -> MutatingWebhook {
    MutatingWebhook {
        name: webhook_name(webhook).to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: endpoint.client_config(webhook.path(), authorities),
        failure_policy: Some("Fail".to_owned()),
        match_conditions: Some(vec![not_the_operator(webhook, policy)]),
        match_policy: Some("Exact".to_owned()),
        rules: Some(rules(webhook)),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        ..MutatingWebhook::default()
    }
}

fn validating(webhook: Webhook, policy: &Policy, endpoint: &Endpoint, authorities: Option<&str>) -> ValidatingWebhook {
    ValidatingWebhook {
        name: webhook_name(webhook).to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: endpoint.client_config(webhook.path(), authorities),
        failure_policy: Some("Fail".to_owned()),
        match_conditions: Some(vec![not_the_operator(webhook, policy)]),
        match_policy: Some(match_policy(webhook).to_owned()),
        object_selector: (webhook == Webhook::Authorizer).then(managed),
        rules: Some(rules(webhook)),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        ..ValidatingWebhook::default()
    }
}

/// A kind of several versions is asked about in one of them, whichever somebody writes.
const fn match_policy(webhook: Webhook) -> &'static str {
    match webhook {
        Webhook::ValidateGraph => "Equivalent",
        _ => "Exact",
    }
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(BTreeMap::from([(
            MANAGED_BY.to_owned(),
            MANAGED_BY_OPERATOR.to_owned(),
        )])),
        ..ObjectMeta::default()
    }
}

fn managed() -> LabelSelector {
    LabelSelector {
        match_labels: metadata("").labels,
        match_expressions: None,
    }
}

/// What the operator writes needs nobody's answer. A set that it makes, from a graph, is judged as everybody's is: it must not
/// come to run without a topology that it demands.
fn not_the_operator(webhook: Webhook, policy: &Policy) -> MatchCondition {
    // CEL takes the escapes of JSON.
    let user = serde_json::Value::from(policy.operator.as_str());
    let is_other = format!("request.userInfo.username != {user}");
    let expression = match webhook {
        Webhook::ValidateSet => format!("request.operation == \"CREATE\" || {is_other}"),
        _ => is_other,
    };
    MatchCondition {
        name: "not-the-operator".to_owned(),
        expression,
    }
}

const fn configuration_name(webhook: Webhook) -> &'static str {
    match webhook {
        Webhook::DefaultSet => "podcliqueset-defaulting-webhook",
        Webhook::ValidateSet => "podcliqueset-validating-webhook",
        Webhook::ValidateReplicas => "replicas-validating-webhook",
        Webhook::ValidateTopology => "clustertopology-validating-webhook",
        Webhook::ValidateTopologyDomain => "topologydomain-validating-webhook",
        Webhook::ValidateGraph => "dynamographdeployment-validating-webhook",
        Webhook::Authorizer => "authorizer-webhook",
    }
}

/// People read this one: the API server puts it into its message.
const fn webhook_name(webhook: Webhook) -> &'static str {
    match webhook {
        Webhook::DefaultSet => "pcs.defaulting.webhooks.grove.io",
        Webhook::ValidateSet => "podcliqueset.grove.io",
        Webhook::ValidateReplicas => "replicas.validating.webhooks.grove.io",
        Webhook::ValidateTopology => "clustertopology.validating.webhooks.grove.io",
        Webhook::ValidateTopologyDomain => "topologydomain.validating.webhooks.grove.io",
        Webhook::ValidateGraph => "dynamographdeployment.nvidia.com",
        Webhook::Authorizer => "authorizer.webhooks.grove.io",
    }
}

const CREATE: &str = "CREATE";
const UPDATE: &str = "UPDATE";
const DELETE: &str = "DELETE";

fn rules(webhook: Webhook) -> Vec<RuleWithOperations> {
    match webhook {
        Webhook::DefaultSet | Webhook::ValidateSet => {
            vec![rule(&[CREATE, UPDATE], GROUP, VERSION, &["podcliquesets"])]
        }
        Webhook::ValidateReplicas => {
            let scaled = [
                "podcliques",
                "podcliques/scale",
                "podcliquescalinggroups",
                "podcliquescalinggroups/scale",
            ];
            vec![rule(&[UPDATE], GROUP, VERSION, &scaled)]
        }
        Webhook::ValidateTopology => vec![rule(&[CREATE, UPDATE, DELETE], GROUP, VERSION, &["clustertopologies"])],
        Webhook::ValidateTopologyDomain => {
            vec![rule(
                &[CREATE, UPDATE],
                TOPOLOGY_DOMAIN_GROUP,
                VERSION,
                &["topologydomains"],
            )]
        }
        Webhook::ValidateGraph => {
            let written = [CREATE, UPDATE];
            // In whichever version somebody scales, the numbers are the same.
            let adapters = [dynamo::ADAPTERS, "dynamographdeploymentscalingadapters/scale"];
            vec![
                rule(&written, dynamo::GROUP, dynamo::VERSION, &["dynamographdeployments"]),
                rule(&written, dynamo::GROUP, "*", &adapters),
            ]
        }
        Webhook::Authorizer => authorizer_rules(),
    }
}

fn authorizer_rules() -> Vec<RuleWithOperations> {
    let changed = [UPDATE, DELETE];
    let written = [CREATE, UPDATE, DELETE];
    // Whoever forges the status of a clique decides when gangs are terminated and gates come off.
    let workload = [
        "podcliques",
        "podcliques/status",
        "podcliquescalinggroups",
        "podcliquescalinggroups/status",
    ];
    vec![
        rule(&changed, "", "v1", &["secrets", "serviceaccounts", "services"]),
        rule(&[UPDATE], "", "v1", &["pods", "pods/resize"]),
        // The hashes by which pods are known to follow their template.
        rule(&written, "apps", "v1", &["controllerrevisions"]),
        rule(&changed, "resource.k8s.io", "*", &["resourceclaims"]),
        rule(&changed, &ComputeDomain::group(&()), "*", &["computedomains"]),
        rule(&changed, "rbac.authorization.k8s.io", "v1", &["roles", "rolebindings"]),
        rule(&changed, "autoscaling", "*", &["horizontalpodautoscalers"]),
        rule(&written, GROUP, VERSION, &workload),
        rule(&written, SCHEDULER_GROUP, VERSION, &["podgangs"]),
    ]
}

fn rule(operations: &[&str], group: &str, version: &str, resources: &[&str]) -> RuleWithOperations {
    let owned = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    RuleWithOperations {
        api_groups: owned(&[group]),
        api_versions: owned(&[version]),
        operations: owned(operations),
        resources: owned(resources),
        scope: None,
    }
}

#[cfg(test)]
mod tests {
    use grove_api::config::{self, Overrides};

    use super::*;

    fn registered(text: &str, endpoint: &Endpoint) -> Registration {
        let loaded = config::parse(text.as_bytes(), &Overrides::default()).unwrap();
        let policy = Policy::new(&loaded.configuration, "the \"operator\"");
        registration(&policy, endpoint, Some("PEM"))
    }

    #[test]
    fn every_configuration_is_one_that_the_operator_may_write() {
        let mut names = Webhook::ALL.map(configuration_name);
        names.sort_unstable();
        assert_eq!(names, grove_api::rights::WEBHOOK_CONFIGURATIONS);
    }

    #[test]
    fn what_is_switched_off_is_retired() {
        let endpoint = Endpoint::Url("https://127.0.0.1:1".to_owned());
        let off = registered("authorizer: {enabled: false}", &endpoint);
        assert_eq!(
            off.retired,
            ["dynamographdeployment-validating-webhook", "authorizer-webhook"]
        );
        let on = registered("authorizer: {enabled: true}\ndynamo: {enabled: true}", &endpoint);
        assert!(on.retired.is_empty());
        assert_eq!(on.validating.len(), off.validating.len() + 2);
        let authorizer = &on.validating.last().unwrap().webhooks.as_ref().unwrap()[0];
        assert_eq!(authorizer.object_selector, Some(managed()));
    }

    #[test]
    fn every_webhook_fails_closed_and_leaves_the_operator_alone() {
        let endpoint = Endpoint::Service {
            namespace: "ns".to_owned(),
            name: "svc".to_owned(),
            port: 2750,
        };
        let all = registered("authorizer: {enabled: true}\ndynamo: {enabled: true}", &endpoint);
        let webhooks: Vec<_> = all
            .validating
            .iter()
            .flat_map(|one| one.webhooks.iter().flatten())
            .collect();
        assert_eq!(webhooks.len() + all.mutating.len(), Webhook::ALL.len());
        for webhook in webhooks {
            assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
            assert_eq!(webhook.timeout_seconds, Some(10));
            let condition = &webhook.match_conditions.as_ref().unwrap()[0];
            let makes_a_set = webhook.name == webhook_name(Webhook::ValidateSet);
            let opening = if makes_a_set {
                r#"request.operation == "CREATE" || "#
            } else {
                ""
            };
            let expression = format!(r#"{opening}request.userInfo.username != "the \"operator\"""#);
            assert_eq!(condition.expression, expression);
            let service = webhook.client_config.service.as_ref().unwrap();
            assert!(service.path.as_ref().unwrap().starts_with("/webhooks/"));
            assert_eq!((service.namespace.as_str(), service.port), ("ns", Some(2750)));
            assert_eq!(webhook.client_config.ca_bundle, Some(ByteString(b"PEM".to_vec())));
        }
    }
}
