//! What status says about topologies.
//!
//! Owns the words of the topology conditions of PodCliqueSets and of the `Ready` condition of topologies, and when a
//! status is worth a write: only when something in it differs. Events are the caller's, on each transition.

mod set;
mod topology;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub use set::{set_conditions, updated_set_conditions};
pub use topology::{BackendFailure, BackendReport, FailedStep, updated_topology_status};

/// What a condition says, without the times at which it came to say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    pub type_: &'static str,
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// `existing` with `state` in it. An equal condition is kept as it is; the transition time moves only with the status.
fn with_condition(existing: &[Condition], state: &ConditionState, generation: i64, now: &Time) -> Vec<Condition> {
    let old = existing.iter().find(|condition| condition.type_ == state.type_);
    let status = state.status.as_str();
    let since = old
        .filter(|old| old.status == status)
        .map_or(now, |old| &old.last_transition_time);
    let new = Condition {
        type_: state.type_.to_owned(),
        status: status.to_owned(),
        reason: state.reason.to_owned(),
        message: state.message.clone(),
        observed_generation: Some(generation),
        last_transition_time: since.clone(),
    };
    let mut conditions = existing.to_vec();
    match conditions.iter_mut().find(|condition| condition.type_ == state.type_) {
        Some(place) => *place = new,
        None => conditions.push(new),
    }
    conditions
}
