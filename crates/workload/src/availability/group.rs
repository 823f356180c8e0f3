//! The replicas of a scaling group, counted, and what follows for its conditions.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use grove_api::conditions::podclique;
use grove_api::conditions::scaling_group::{GANG_TERMINATION_IN_PROGRESS, MIN_AVAILABLE_BREACHED, breach};
use grove_api::{PodClique, PodCliqueScalingGroup, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{group_minimum, is_available};
use crate::conditions::{self, Finding, Status};
use crate::meta::uid;
use crate::names::{index_label, is_owned_by};

/// How many replicas of a scaling group are in which state. Only whole replicas count: one with a missing clique, or
/// one that is being deleted, does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    pub scheduled: i32,
    pub available: i32,
    /// Without a clique in breach.
    pub unbreached: i32,
}

impl GroupCounts {
    pub fn of(group: &PodCliqueScalingGroup, cliques: &[impl Borrow<PodClique>]) -> Self {
        let mut counts = Self::default();
        for members in replicas(group, cliques)
            .values()
            .filter(|members| is_whole(group, members))
        {
            counts.scheduled += i32::from(members.iter().all(|clique| has(clique, podclique::SCHEDULED)));
            counts.available += i32::from(members.iter().all(|clique| is_available(clique)));
            let breached = members
                .iter()
                .any(|clique| has(clique, podclique::MIN_AVAILABLE_BREACHED));
            counts.unbreached += i32::from(!breached);
        }
        counts
    }
}

/// The cliques of a scaling group by index of its replicas, those in deletion and those above its number left out.
pub(crate) fn replicas<'a>(
    group: &PodCliqueScalingGroup,
    cliques: &'a [impl Borrow<PodClique>],
) -> BTreeMap<i32, Vec<&'a PodClique>> {
    let mut replicas: BTreeMap<i32, Vec<&PodClique>> = BTreeMap::new();
    let live = cliques
        .iter()
        .map(Borrow::borrow)
        .filter(|clique| clique.metadata.deletion_timestamp.is_none());
    for clique in live.filter(|clique| is_owned_by(&clique.metadata, uid(group))) {
        let index = index_label(&clique.metadata, labels::SCALING_GROUP_REPLICA_INDEX);
        if let Some(index) = index.filter(|index| *index < group.spec.replicas) {
            replicas.entry(index).or_default().push(clique);
        }
    }
    replicas
}

pub(crate) fn is_whole(group: &PodCliqueScalingGroup, members: &[&PodClique]) -> bool {
    members.len() == group.spec.clique_names.len()
}

pub(crate) fn has(clique: &PodClique, condition: &str) -> bool {
    clique
        .status
        .as_ref()
        .is_some_and(|status| conditions::is_true(&status.conditions, condition))
}

/// The conditions of a scaling group, from those that it has. When it is well again, a termination is over.
pub fn group_conditions(
    group: &PodCliqueScalingGroup,
    counts: GroupCounts,
    is_updating: bool,
    now: Timestamp,
) -> Vec<Condition> {
    let mut all = group
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    let finding = breach_finding(group, counts, is_updating);
    if finding.status == Status::False {
        all.retain(|condition| condition.type_ != GANG_TERMINATION_IN_PROGRESS);
    }
    conditions::put(&mut all, finding, group.metadata.generation, now);
    all
}

fn breach_finding(group: &PodCliqueScalingGroup, counts: GroupCounts, is_updating: bool) -> Finding {
    let (min, found) = (group_minimum(group), counts.unbreached);
    let (status, reason, message) = if is_updating {
        (
            Status::Unknown,
            breach::UPDATE_IN_PROGRESS,
            "Update is in progress".to_owned(),
        )
    } else if found < min {
        let message = format!("PCSG replicas not in breach ({found}) below MinAvailable ({min})");
        (Status::True, breach::INSUFFICIENT, message)
    } else {
        let message = format!("PCSG replicas not in breach ({found}) meets MinAvailable ({min})");
        (Status::False, breach::SUFFICIENT, message)
    };
    Finding {
        type_: MIN_AVAILABLE_BREACHED,
        status,
        reason,
        message,
    }
}
