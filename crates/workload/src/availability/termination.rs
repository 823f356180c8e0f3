//! Gang termination: what stays below its minimum for too long is torn down and started again.
//!
//! A scaling group recycles its own replicas while enough others are well; else the whole replica of the set is recycled.
//! Only what was scheduled once is torn down: recycling what never had a place would not find it one. After the
//! teardown all cliques are new and were never scheduled, so the same breach does not fire twice.

use std::borrow::Borrow;

use grove_api::conditions::podclique::MIN_AVAILABLE_BREACHED;
use grove_api::conditions::scaling_group;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::clique::was_scheduled;
use super::group::{has, replicas};
use super::{group_minimum, groups_of, standalone_of};
use crate::conditions::{self, Finding, Status};
use crate::expand::Live;

const DEFAULT_DELAY: SignedDuration = SignedDuration::from_hours(4);

/// What to tear down now, and when to look again. The one who carries it out reads the cliques and their pods anew
/// before: they may have recovered in the meantime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Termination {
    /// Indices of replicas of which all cliques are to be deleted.
    pub replicas: Vec<i32>,
    /// When the next breach will have lasted for too long, if nothing changes until then.
    pub look_again_at: Option<Timestamp>,
}

impl Termination {
    fn consider(&mut self, replica: i32, due: Option<Timestamp>, now: Timestamp) {
        match due {
            Some(due) if due <= now => self.replicas.push(replica),
            Some(due) => self.look_again_at = Some(self.look_again_at.map_or(due, |earlier| earlier.min(due))),
            None => {}
        }
    }
}

/// How long a breach may last.
pub fn termination_delay(set: &PodCliqueSet) -> SignedDuration {
    let written = set.spec.template.termination_delay.as_ref();
    let parsed = written
        .and_then(|delay| delay.nanoseconds().ok())
        .filter(|delay| delay.0 > 0);
    parsed.map_or(DEFAULT_DELAY, |delay| SignedDuration::from_nanos(delay.0))
}

/// When a clique will have been below its minimum for too long. None while it is not, or if it never was above.
fn due(clique: &PodClique, delay: SignedDuration) -> Option<Timestamp> {
    let conditions = &clique.status.as_ref()?.conditions;
    let breach = conditions::find(conditions, MIN_AVAILABLE_BREACHED).filter(|breach| breach.status == "True")?;
    was_scheduled(clique).then(|| conditions::since(breach).checked_add(delay).ok())?
}

/// The replicas of a scaling group that it recycles by itself, as long as enough others are well.
pub fn of_group(
    group: &PodCliqueScalingGroup,
    cliques: &[impl Borrow<PodClique>],
    delay: SignedDuration,
    now: Timestamp,
) -> Termination {
    let replicas = replicas(group, cliques);
    let breached = replicas
        .values()
        .filter(|members| members.iter().any(|clique| has(clique, MIN_AVAILABLE_BREACHED)));
    let well = group.spec.replicas - i32::try_from(breached.count()).unwrap_or(i32::MAX);
    let mut termination = Termination::default();
    if well < group_minimum(group) {
        return termination;
    }
    for (index, members) in &replicas {
        let first = members.iter().filter_map(|clique| due(clique, delay)).min();
        termination.consider(*index, first, now);
    }
    termination
}

/// When a replica of a set is recycled whole.
pub fn of_replica(
    set: &PodCliqueSet,
    replica: i32,
    (live, cliques): (&Live<'_>, &[impl Borrow<PodClique>]),
    now: Timestamp,
) -> Termination {
    let delay = termination_delay(set);
    let mut termination = Termination::default();
    let standalone: Option<Vec<&PodClique>> = standalone_of(set, replica, live).collect();
    // A missing clique is on its way: a teardown is not over yet.
    let Some(standalone) = standalone else {
        return termination;
    };
    let of_cliques = standalone.into_iter().filter_map(|clique| due(clique, delay));
    let groups = groups_of(set, replica, live).flatten();
    let of_groups = groups.filter_map(|group| group_due(group, cliques, delay));
    termination.consider(replica, of_cliques.chain(of_groups).min(), now);
    termination
}

/// When a scaling group will have been below its minimum for too long, with a clique that was scheduled once.
fn group_due(
    group: &PodCliqueScalingGroup,
    cliques: &[impl Borrow<PodClique>],
    delay: SignedDuration,
) -> Option<Timestamp> {
    let conditions = &group.status.as_ref()?.conditions;
    let type_ = scaling_group::MIN_AVAILABLE_BREACHED;
    let breach = conditions::find(conditions, type_).filter(|breach| breach.status == "True")?;
    let replicas = replicas(group, cliques);
    let members = replicas.values().flatten().filter_map(|clique| due(clique, delay));
    let own = conditions::since(breach).checked_add(delay).ok()?;
    members.min().map(|first| first.max(own))
}

/// The conditions of a scaling group whose replica of the set is torn down.
pub fn mark_terminated(group: &PodCliqueScalingGroup, now: Timestamp) -> Vec<Condition> {
    let mut all = group
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    let finding = Finding {
        type_: scaling_group::GANG_TERMINATION_IN_PROGRESS,
        status: Status::True,
        reason: scaling_group::GANG_TERMINATION_ACTIVE,
        message: "All cliques of the PodCliqueSet replica are recreated".to_owned(),
    };
    conditions::put(&mut all, finding, group.metadata.generation, now);
    all
}
