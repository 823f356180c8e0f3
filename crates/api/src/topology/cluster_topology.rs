//! ClusterTopology: the seven words and the node labels that they stand for in this cluster.

use std::fmt;
use std::str::FromStr;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LABEL_KEY_PATTERN, TopologyStatus};

/// The levels of a topology.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "grove.io",
    version = "v1alpha1",
    kind = "ClusterTopology",
    plural = "clustertopologies",
    shortname = "ct",
    status = "TopologyStatus",
    derive = "PartialEq",
    doc = "A ClusterTopology says which node labels the words region, zone, datacenter, block, rack, host and numa \
           stand for in this cluster, or in one part of it.",
    printcolumn(name = "Domains", type_ = "string", json_path = ".spec.levels[*].domain"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTopologySpec {
    /// The levels. Their order is that of their meaning, from region down to numa, however they are listed.
    #[schemars(length(min = 1, max = 7))]
    #[x_kube(validation = Rule::new("self.all(x, self.filter(y, y.domain == x.domain).size() == 1)")
        .message("domain must be unique across all levels"))]
    #[x_kube(validation = Rule::new("self.all(x, self.filter(y, y.key == x.key).size() == 1)")
        .message("key must be unique across all levels"))]
    pub levels: Vec<TopologyLevel>,
}

/// A word and the node label that it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// The word that workloads use.
    pub domain: DomainWord,

    /// Key of the node label whose value names the domain that a node is in, `topology.kubernetes.io/zone` for example.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_KEY_PATTERN))]
    pub key: String,
}

/// The words of a ClusterTopology, ordered from the broadest to the narrowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainWord {
    Region,
    Zone,
    Datacenter,
    Block,
    Rack,
    Host,
    Numa,
}

impl DomainWord {
    /// All words, broadest first.
    pub const ALL: [Self; 7] = [
        Self::Region,
        Self::Zone,
        Self::Datacenter,
        Self::Block,
        Self::Rack,
        Self::Host,
        Self::Numa,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Zone => "zone",
            Self::Datacenter => "datacenter",
            Self::Block => "block",
            Self::Rack => "rack",
            Self::Host => "host",
            Self::Numa => "numa",
        }
    }
}

impl fmt::Display for DomainWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the seven words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownDomainWord;

impl FromStr for DomainWord {
    type Err = UnknownDomainWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|word| word.as_str() == text)
            .ok_or(UnknownDomainWord)
    }
}
