//! `TopologyLevelsUnavailable` and `TopologyConstraints` of a PodCliqueSet: one matter seen by two designs.
//!
//! The first speaks of every level that the set names, the second only of what it requires: a preferred level that is
//! gone is replaced by the narrowest one left, which breaks no promise, but is not done without a word.

use std::collections::BTreeSet;

use grove_api::conditions::podcliqueset::{
    TOPOLOGY_CONSTRAINTS, TOPOLOGY_LEVELS_UNAVAILABLE, constraints as constraints_reason,
    levels_unavailable as levels_reason,
};
use grove_api::topology::DomainWord;
use grove_api::{PodCliqueSet, TopologyConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::ConditionStatus::{self, False, True, Unknown};
use super::{ConditionState, with_condition};
use crate::levels::{Topology, TopologyKind, meaning};
use crate::resolve::Resolution;
use crate::scopes;

/// Both conditions, or none for a set without a constraint. `resolution` is that of [`crate::resolve::reference()`].
pub fn set_conditions(set: &PodCliqueSet, resolution: &Resolution) -> Vec<ConditionState> {
    if !scopes::has_constraint(&set.spec.template) {
        return Vec::new();
    }
    match resolution {
        Resolution::Unused => Vec::new(),
        Resolution::Disabled => disabled(),
        Resolution::Missing { kind, name } => missing(*kind, name),
        Resolution::InForce { topology, .. } => vec![
            levels_unavailable(&words_gone(set, topology, named)),
            constraints(&words_gone(set, topology, required), topology),
        ],
    }
}

/// `existing` with the two conditions of the set in it, or `None` when that changes nothing. Conditions of other types are
/// left alone; the two are removed from a set that has no constraint any more.
pub fn updated_set_conditions(
    set: &PodCliqueSet,
    existing: &[Condition],
    resolution: &Resolution,
    now: &Time,
) -> Option<Vec<Condition>> {
    let generation = set.metadata.generation.unwrap_or_default();
    let states = set_conditions(set, resolution);
    let mut conditions = existing.to_vec();
    if states.is_empty() {
        let ours = [TOPOLOGY_LEVELS_UNAVAILABLE, TOPOLOGY_CONSTRAINTS];
        conditions.retain(|condition| !ours.contains(&condition.type_.as_str()));
    }
    for state in &states {
        conditions = with_condition(&conditions, state, generation, now);
    }
    (conditions != existing).then_some(conditions)
}

fn disabled() -> Vec<ConditionState> {
    let message = "Topology support disabled in operator configuration. Required constraints removed.";
    vec![
        state(TOPOLOGY_LEVELS_UNAVAILABLE, Unknown, levels_reason::DISABLED, message),
        state(TOPOLOGY_CONSTRAINTS, False, constraints_reason::DISABLED, message),
    ]
}

fn missing(kind: TopologyKind, name: &str) -> Vec<ConditionState> {
    let message = format!("{kind} '{name}' not found. Required constraints removed.");
    let (levels, all) = (
        levels_reason::TOPOLOGY_NOT_FOUND,
        constraints_reason::TOPOLOGY_NOT_FOUND,
    );
    vec![
        state(TOPOLOGY_LEVELS_UNAVAILABLE, Unknown, levels, &message),
        state(TOPOLOGY_CONSTRAINTS, Unknown, all, &message),
    ]
}

fn levels_unavailable(gone: &[&str]) -> ConditionState {
    if gone.is_empty() {
        let message = "All topology levels are available";
        return state(
            TOPOLOGY_LEVELS_UNAVAILABLE,
            False,
            levels_reason::ALL_AVAILABLE,
            message,
        );
    }
    let message = format!("Unavailable topology domains: [{}]", gone.join(", "));
    state(TOPOLOGY_LEVELS_UNAVAILABLE, True, levels_reason::UNAVAILABLE, &message)
}

fn constraints(gone: &[&str], topology: &Topology) -> ConditionState {
    let (kind, name) = (topology.kind(), topology.name());
    match gone {
        [] => {
            let message = "All topology constraints satisfied";
            state(TOPOLOGY_CONSTRAINTS, True, constraints_reason::AVAILABLE, message)
        }
        [word] => {
            let message =
                format!("Topology level '{word}' not found in {kind} '{name}'. Remove packDomain or update {kind}.");
            state(
                TOPOLOGY_CONSTRAINTS,
                False,
                constraints_reason::LEVEL_NOT_FOUND,
                &message,
            )
        }
        several => {
            let words = several.join(", ");
            let message = format!("Topology levels removed from {kind}: [{words}]. Update packDomain constraints.");
            state(
                TOPOLOGY_CONSTRAINTS,
                False,
                constraints_reason::LEVELS_REMOVED,
                &message,
            )
        }
    }
}

fn state(type_: &'static str, status: ConditionStatus, reason: &'static str, message: &str) -> ConditionState {
    ConditionState {
        type_,
        status,
        reason,
        message: message.to_owned(),
    }
}

fn required(constraint: &TopologyConstraint) -> Vec<&str> {
    constraint.required().into_iter().collect()
}

fn named(constraint: &TopologyConstraint) -> Vec<&str> {
    constraint
        .required()
        .into_iter()
        .chain(constraint.preferred())
        .collect()
}

/// The words of the set that are no level of the topology, from broad to narrow; words without a meaning come last.
fn words_gone<'a>(
    set: &'a PodCliqueSet,
    topology: &Topology,
    words: impl Fn(&'a TopologyConstraint) -> Vec<&'a str>,
) -> Vec<&'a str> {
    let by_scope = scopes::constraints(&set.spec.template);
    let gone: BTreeSet<(Option<DomainWord>, &str)> = by_scope
        .iter()
        .flat_map(|scoped| words(scoped.constraint))
        .filter(|word| topology.key(word).is_none())
        .map(|word| (meaning(word), word))
        .collect();
    let (free, known): (Vec<_>, Vec<_>) = gone.into_iter().partition(|(meaning, _)| meaning.is_none());
    known.into_iter().chain(free).map(|(_, word)| word).collect()
}
