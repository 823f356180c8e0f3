//! ComputeDomain: NVIDIA's kind for nodes that share one NVLink fabric.
//!
//! Grove writes it and does not define it: its definition comes with NVIDIA's DRA driver, so it is none of [`crate::crds`].

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Nodes that share one NVLink fabric.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "resource.nvidia.com",
    version = "v1beta1",
    kind = "ComputeDomain",
    plural = "computedomains",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct ComputeDomainSpec {
    /// As they are stored: the driver has fields and defaults that are no matter of ours, and none may get lost.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}
