//! TopologyDomain: an admin's own words, in list order, selected by `--topology-domain-name`.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TopologyStatus;
use crate::constraint::DOMAIN_PATTERN;

/// The levels of a topology, in the admin's own words.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "grove.run.ai",
    version = "v1alpha1",
    kind = "TopologyDomain",
    plural = "topologydomains",
    shortname = "td",
    status = "TopologyStatus",
    derive = "PartialEq",
    doc = "A TopologyDomain says which node labels the admin's own level names stand for. The operator uses the one \
           that its configuration names.",
    printcolumn(name = "Levels", type_ = "string", json_path = ".spec.levels[*].name"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TopologyDomainSpec {
    /// The levels, from the broadest to the narrowest. Immutable: workloads were placed by them.
    #[schemars(length(min = 1, max = 10))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("levels list is immutable"))]
    #[x_kube(validation = Rule::new("self.all(x, self.filter(y, y.name == x.name).size() == 1)")
        .message("name must be unique across all levels"))]
    #[x_kube(validation = Rule::new("self.all(x, self.filter(y, y.topologyKey == x.topologyKey).size() == 1)")
        .message("topologyKey must be unique across all levels"))]
    pub levels: Vec<NamedLevel>,
}

/// A level in the admin's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedLevel {
    /// The word that workloads use.
    #[schemars(length(min = 1, max = 63), regex(pattern = DOMAIN_PATTERN))]
    pub name: String,

    /// Key of the node label whose value names the domain that a node is in, `topology.kubernetes.io/zone` for example.
    #[schemars(length(min = 1, max = 316), regex(pattern = TOPOLOGY_KEY_PATTERN))]
    pub topology_key: String,

    /// What the level is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
}

const TOPOLOGY_KEY_PATTERN: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
