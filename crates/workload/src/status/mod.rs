//! The status of cliques, scaling groups and sets, computed anew from what is seen.
//!
//! A status is written only if it differs from the stored one. Conditions that belong to others (the topology's, for
//! example) are carried over as they are.

mod clique;
mod group;
mod set;

use grove_api::status::LastError;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use clique::clique_status;
pub use group::group_status;
pub use set::{GANGS_SHOWN_MAX, failed_set_status, set_status};

/// Something that went wrong while an object was reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Stable code, [`crate::gang::CREATE_POD_ERROR`] for example.
    pub code: String,
    /// What happened, to which object, and what to do about it.
    pub description: String,
}

/// Errors of the last pass. One that was seen before keeps its time: seeing it again is no news.
fn last_errors(stored: &[LastError], failures: &[Failure], now: Timestamp) -> Vec<LastError> {
    let seen = |failure: &Failure| {
        let mut same = stored
            .iter()
            .filter(|error| error.code == failure.code && error.description == failure.description);
        same.next().map_or(Time(now), |error| error.observed_at.clone())
    };
    let error = |failure: &Failure| LastError {
        code: failure.code.clone(),
        description: failure.description.clone(),
        observed_at: seen(failure),
    };
    failures.iter().map(error).collect()
}

#[cfg(test)]
mod tests;
