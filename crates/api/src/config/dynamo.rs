//! Graphs of Dynamo: whether they are served, and what their components are told of their surroundings.

use serde::Serialize;
use serde_json::Value;

use super::section::{Section, Setting};
use super::words::words;

words! {
    /// Where Dynamo's processes find each other.
    #[derive(Default)]
    pub enum DiscoveryBackend { #[default] Kubernetes = "kubernetes", Etcd = "etcd" }
}

/// DynamoGraphDeployments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dynamo {
    /// Serve DynamoGraphDeployments.
    pub enabled: bool,
    pub discovery_backend: DiscoveryBackend,
    #[serde(flatten)]
    pub services: DynamoServices,
}

/// Services that components use, as they are told of them; one that a graph names itself wins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamoServices {
    /// Becomes `NATS_SERVER`.
    pub nats_address: Option<String>,
    /// Becomes `ETCD_ENDPOINTS`.
    pub etcd_address: Option<String>,
    /// Becomes `MODEL_EXPRESS_URL`.
    #[serde(rename = "modelExpressURL")]
    pub model_express_url: Option<String>,
    /// Becomes `PROMETHEUS_ENDPOINT`.
    pub prometheus_endpoint: Option<String>,
}

/// Where a service is reached. Its form is its clients' matter, but no address is empty or of several words.
struct Address(String);

impl Setting for Address {
    fn expected() -> String {
        "an address of one word, such as http://service.namespace:8000".into()
    }

    fn from_value(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        let is_one_word = !text.is_empty() && !text.contains(char::is_whitespace);
        is_one_word.then(|| Self(text.to_owned()))
    }
}

impl Dynamo {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let mut address = |key| section.optional::<Address>(key).map(|address| address.0);
        let services = DynamoServices {
            nats_address: address("natsAddress"),
            etcd_address: address("etcdAddress"),
            model_express_url: address("modelExpressURL"),
            prometheus_endpoint: address("prometheusEndpoint"),
        };
        let dynamo = Self {
            enabled: section.or("enabled", false),
            discovery_backend: section.or("discoveryBackend", DiscoveryBackend::default()),
            services,
        };
        if dynamo.discovery_backend == DiscoveryBackend::Etcd && !section.has("etcdAddress") {
            let message = "missing; with discoveryBackend: etcd it must be an address such as http://etcd.dynamo:2379";
            section.problem("etcdAddress", message.into());
        }
        dynamo
    }
}
