//! Whether constraints are kept: the set's condition in Dynamo's words.
//!
//! What is unknown to the framework stays unknown, with one exception: a topology that is gone is known to keep nothing.

use grove_api::conditions::podcliqueset::{TOPOLOGY_LEVELS_UNAVAILABLE, levels_unavailable};
use grove_api::dynamo::conditions::topology as reason;
use grove_api::{DynamoGraphDeployment, PodCliqueSet};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::Statement;

/// What both conditions say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    pub status: &'static str,
    pub reason: String,
    pub message: String,
}

impl Projection {
    fn new(status: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    pub(super) fn statement(&self, type_: &'static str) -> Statement {
        Statement {
            type_,
            status: self.status,
            reason: self.reason.clone(),
            message: self.message.clone(),
        }
    }
}

/// What the framework says.
fn of_framework(set: &PodCliqueSet) -> Option<&Condition> {
    let mut conditions = set.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|condition| condition.type_ == TOPOLOGY_LEVELS_UNAVAILABLE)
}

/// Since when the framework says what it says.
pub(super) fn since(set: &PodCliqueSet) -> Option<Timestamp> {
    of_framework(set).map(|condition| condition.last_transition_time.0)
}

/// What is said of a graph's constraints; nothing where it has none.
pub(super) fn project(graph: &DynamoGraphDeployment, set: Option<&PodCliqueSet>) -> Option<Projection> {
    if !graph.spec.has_constraint() {
        return None;
    }
    let Some(condition) = set.and_then(of_framework) else {
        let message = "Waiting for topology condition from the scheduling framework";
        return Some(Projection::new("Unknown", reason::PENDING, message));
    };
    let message = condition.message.as_str();
    Some(match (condition.status.as_str(), condition.reason.as_str()) {
        (_, levels_unavailable::TOPOLOGY_NOT_FOUND) => Projection::new("False", reason::NOT_FOUND, message),
        ("True", _) => Projection::new("False", reason::UNAVAILABLE, levels_gone(message)),
        ("False", _) => Projection::new(
            "True",
            reason::ALL_AVAILABLE,
            "All required topology levels are available",
        ),
        (_, unknown) => Projection::new("Unknown", unknown, message),
    })
}

/// `Unavailable topology domains: [rack, host]` as a sentence about the levels; another text as it is.
fn levels_gone(message: &str) -> String {
    let list = message.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let words: Vec<&str> = match list {
        Some((list, _)) => list.split(", ").filter(|word| !word.is_empty()).collect(),
        None => Vec::new(),
    };
    match words.as_slice() {
        [] => message.to_owned(),
        [word] => format!("Topology level '{word}' is no longer available in the cluster topology"),
        words => {
            let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            format!(
                "Topology levels {} are no longer available in the cluster topology",
                words.join(", ")
            )
        }
    }
}
