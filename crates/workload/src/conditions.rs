//! Conditions: written when they change, with the time at which their status did.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn of(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    fn text(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What was found about one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub type_: &'static str,
    pub status: Status,
    pub reason: &'static str,
    pub message: String,
}

pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Puts a finding among the conditions. The time of the last transition stays while the status does; conditions of
/// other types, which may be somebody else's, are not touched.
pub fn put(conditions: &mut Vec<Condition>, finding: Finding, generation: Option<i64>, now: Timestamp) {
    let status = finding.status.text();
    let same = find(conditions, finding.type_).filter(|condition| condition.status == status);
    let since = same.map_or(Time(now), |condition| condition.last_transition_time.clone());
    let condition = Condition {
        type_: finding.type_.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.to_owned(),
        message: finding.message,
        observed_generation: generation,
        last_transition_time: since,
    };
    match conditions.iter_mut().find(|found| found.type_ == condition.type_) {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

/// When a condition last changed to its present status.
pub fn since(condition: &Condition) -> Timestamp {
    condition.last_transition_time.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::after;

    fn finding(status: Status, message: &str) -> Finding {
        Finding {
            type_: "Ready",
            status,
            reason: "Because",
            message: message.to_owned(),
        }
    }

    #[test]
    fn the_time_is_that_of_the_last_change_of_status() {
        let mut conditions = vec![];
        put(&mut conditions, finding(Status::True, "a"), Some(1), after(1));
        put(&mut conditions, finding(Status::True, "b"), Some(2), after(2));
        assert_eq!(since(&conditions[0]), after(1));
        assert_eq!(
            (conditions[0].message.as_str(), conditions[0].observed_generation),
            ("b", Some(2))
        );
        put(&mut conditions, finding(Status::False, "b"), Some(2), after(3));
        assert_eq!(since(&conditions[0]), after(3));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn conditions_of_others_stay() {
        let mut conditions = vec![];
        put(
            &mut conditions,
            Finding {
                type_: "Theirs",
                ..finding(Status::True, "x")
            },
            None,
            after(0),
        );
        let theirs = conditions[0].clone();
        put(&mut conditions, finding(Status::Unknown, "a"), None, after(1));
        assert_eq!(conditions[0], theirs);
    }
}
