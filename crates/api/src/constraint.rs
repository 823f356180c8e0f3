//! The closeness words that a workload author writes, the same at every level of a PodCliqueSet.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How close the pods of each replica of this scope must sit, in words of the topology (`rack`, `host`, …).
///
/// The words hold for each replica by itself: two replicas may sit in two racks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.pack) || has(self.packDomain)")
    .message("topologyConstraint must specify pack or deprecated packDomain")
    .field_path(".pack").reason(Reason::FieldValueRequired))]
#[x_kube(validation = Rule::new("!(has(self.packDomain) && has(self.pack) && has(self.pack.required))")
    .message("must not set both pack.required and deprecated packDomain")
    .field_path(".pack.required"))]
pub struct TopologyConstraint {
    /// Name of the topology that the words belong to. Needed nowhere: without it, `clusterTopologyName` of the
    /// template or the cluster's default topology applies. All names in one PodCliqueSet must agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub topology_name: Option<String>,

    /// The required and the preferred level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<Pack>,

    /// The required level; the same as `pack.required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = DOMAIN_PATTERN))]
    pub pack_domain: Option<String>,
}

/// Required and preferred level of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.required) || has(self.preferred)")
    .message("pack must specify at least one of required or preferred").reason(Reason::FieldValueRequired))]
pub struct Pack {
    /// All pods of a replica are placed inside one domain of this level, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = DOMAIN_PATTERN))]
    pub required: Option<String>,

    /// The pods of a replica are packed inside one domain of this level where there is room; else level by level
    /// wider, up to `required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = DOMAIN_PATTERN))]
    pub preferred: Option<String>,
}

/// A level's word is a DNS label; which words exist is the topology's matter, so admission judges that.
pub(crate) const DOMAIN_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

impl TopologyConstraint {
    /// The topology that this constraint names. An empty name, as templating tools write it, names none.
    pub fn topology_name(&self) -> Option<&str> {
        self.topology_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The required word, in whichever of its two spellings it was written.
    pub fn required(&self) -> Option<&str> {
        let pack = self.pack.as_ref().and_then(|pack| pack.required.as_deref());
        pack.or(self.pack_domain.as_deref())
    }

    /// The preferred word.
    pub fn preferred(&self) -> Option<&str> {
        self.pack.as_ref().and_then(|pack| pack.preferred.as_deref())
    }
}
