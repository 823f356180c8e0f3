//! What every status has in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The last thing that went wrong while an object was reconciled. A clean pass removes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// Stable code of the failed step, `ERR_CREATE_POD` for example.
    pub code: String,
    /// What happened, to which object, and what to do about it.
    pub description: String,
    /// When it was seen.
    pub observed_at: Time,
}
