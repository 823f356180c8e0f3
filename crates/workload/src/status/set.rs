//! The status of a PodCliqueSet.

use std::borrow::Borrow;

use grove_api::conditions::podcliqueset::{PROGRESSING, READY, progressing, ready};
use grove_api::conditions::podgang::{INITIALIZED, READY as GANG_READY, SCHEDULED};
use grove_api::labels::PCS_REPLICA_INDEX;
use grove_api::podcliqueset::PodGangSummary;
use grove_api::podgang::PodGangPhase;
use grove_api::{PodCliqueSet, PodCliqueSetStatus, PodGang};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::{Failure, last_errors};
use crate::availability::{group_minimum, groups_of, is_available, is_group_available, is_replica_available};
use crate::availability::{minimum, standalone_of};
use crate::conditions::{self, Finding, Status};
use crate::expand::Expansion;
use crate::gang::CREATE_POD_ERROR;
use crate::meta::{base_labels, selector, uid};
use crate::names::{index_label, is_owned_by};
use crate::update::SetUpdate;

/// The most gangs that a status lists. Each may say a page of why it is not placed, and an object that grows beyond a
/// megabyte is not stored any more.
pub const GANGS_SHOWN_MAX: usize = 200;

/// The status of the set; `gangs` are those of its namespace.
pub fn set_status(
    expansion: &Expansion<'_>,
    (gangs, update): (&[impl Borrow<PodGang>], &SetUpdate),
    failures: &[Failure],
    now: Timestamp,
) -> PodCliqueSetStatus {
    let (set, live) = (expansion.set, expansion.live);
    let stored = set.status.clone().unwrap_or_default();
    let replicas = set.spec.replicas.max(0);
    let available: Vec<i32> = expansion
        .replicas()
        .filter(|replica| is_replica_available(set, *replica, live))
        .collect();
    let count = |indices: &[i32]| i32::try_from(indices.len()).unwrap_or(i32::MAX);
    let mut status = PodCliqueSetStatus {
        observed_generation: set.metadata.generation,
        conditions: stored.conditions,
        last_errors: last_errors(&stored.last_errors, failures, now),
        replicas,
        updated_replicas: count(&update.converged),
        available_replicas: count(&available),
        hpa_pod_selector: Some(selector(&base_labels(&set.name_any()))),
        pod_gang_statuses: summaries(expansion, gangs),
        current_generation_hash: Some(update.generation_hash.clone()),
        update_progress: update.progress.clone(),
    };
    let why = |replica| {
        let why = why_without_pods(expansion, replica).or_else(|| why_unplaced(gangs, set, replica));
        why.unwrap_or_else(|| why_unavailable(expansion, replica))
    };
    put_conditions(&mut status.conditions, expansion, (&available, update), &why, now);
    status
}

/// The status of a set of which nothing more is known than what went wrong: everything else stays as it was.
pub fn failed_set_status(set: &PodCliqueSet, failures: &[Failure], now: Timestamp) -> PodCliqueSetStatus {
    let stored = set.status.clone().unwrap_or_default();
    PodCliqueSetStatus {
        last_errors: last_errors(&stored.last_errors, failures, now),
        ..stored
    }
}

fn put_conditions(
    conditions: &mut Vec<Condition>,
    expansion: &Expansion<'_>,
    (available, update): (&[i32], &SetUpdate),
    why_unavailable: &dyn Fn(i32) -> String,
    now: Timestamp,
) {
    let replicas = expansion.set.spec.replicas.max(0);
    let missing = expansion.replicas().find(|replica| !available.contains(replica));
    let (is_ready, reason, message) = match missing {
        None => (
            true,
            ready::AVAILABLE,
            format!("{replicas} of {replicas} replicas are available"),
        ),
        Some(replica) => {
            let why = why_unavailable(replica);
            let message = format!(
                "{} of {replicas} replicas are available; replica {replica}: {why}",
                available.len()
            );
            (false, ready::UNAVAILABLE, message)
        }
    };
    let generation = expansion.set.metadata.generation;
    let ready = Finding {
        type_: READY,
        status: Status::of(is_ready),
        reason,
        message,
    };
    conditions::put(conditions, ready, generation, now);

    let is_updating = update
        .progress
        .as_ref()
        .is_some_and(|progress| progress.update_ended_at.is_none());
    let (progresses, reason, message) = if is_updating {
        let message = format!(
            "{} of {replicas} replicas follow the newest templates",
            update.converged.len()
        );
        (true, progressing::UPDATE_IN_PROGRESS, message)
    } else if missing.is_some() {
        (true, progressing::STARTING, "Replicas are being started".to_owned())
    } else {
        (
            false,
            progressing::SETTLED,
            "Everything that was asked for is there".to_owned(),
        )
    };
    let progressing = Finding {
        type_: PROGRESSING,
        status: Status::of(progresses),
        reason,
        message,
    };
    conditions::put(conditions, progressing, generation, now);
}

/// Why a clique of a replica lacks pods that it should have, in the words of the API server, which name the field.
fn why_without_pods(expansion: &Expansion<'_>, replica: i32) -> Option<String> {
    let cliques = expansion.live.cliques();
    let mut its = cliques.filter(|clique| index_label(&clique.metadata, PCS_REPLICA_INDEX) == Some(replica));
    its.find_map(|clique| {
        let mut errors = clique.status.iter().flat_map(|status| &status.last_errors);
        let refused = errors.find(|error| error.code == CREATE_POD_ERROR)?;
        let name = clique.name_any();
        Some(format!(
            "PodClique {name} cannot make its pods: {}",
            refused.description
        ))
    })
}

/// Why a gang of a replica that should be placed is not, in the words of whoever places or tells of its pods.
fn why_unplaced(gangs: &[impl Borrow<PodGang>], set: &PodCliqueSet, replica: i32) -> Option<String> {
    let its = gangs.iter().map(Borrow::borrow).filter(|gang| {
        is_owned_by(&gang.metadata, uid(set)) && index_label(&gang.metadata, PCS_REPLICA_INDEX) == Some(replica)
    });
    let mut words = its.filter_map(|gang| {
        let status = gang.status.as_ref()?;
        let is_waiting = status.phase == PodGangPhase::Pending && conditions::is_true(&status.conditions, INITIALIZED);
        let said = [SCHEDULED, GANG_READY].into_iter().filter_map(|type_| {
            let found = conditions::find(&status.conditions, type_)?;
            (found.status == "False").then_some(&found.message)
        });
        let message = said.into_iter().next().filter(|_| is_waiting)?;
        Some(format!("PodGang {} is not placed: {message}", gang.name_any()))
    });
    words.next()
}

/// The first part of a replica that lacks its minimum, in words.
fn why_unavailable(expansion: &Expansion<'_>, replica: i32) -> String {
    let (set, live) = (expansion.set, expansion.live);
    for clique in standalone_of(set, replica, live) {
        match clique {
            None => return "a PodClique does not exist yet".to_owned(),
            Some(clique) if !is_available(clique) => {
                let ready = clique.status.as_ref().map_or(0, |status| status.ready_replicas);
                return format!(
                    "PodClique {} has {ready} of {} ready pods",
                    clique.name_any(),
                    minimum(clique)
                );
            }
            Some(_) => {}
        }
    }
    let groups = groups_of(set, replica, live);
    match groups
        .into_iter()
        .find(|group| !group.is_some_and(is_group_available))
        .flatten()
    {
        None => "a PodCliqueScalingGroup does not exist yet".to_owned(),
        Some(group) => {
            let found = group.status.as_ref().map_or(0, |status| status.available_replicas);
            let min = group_minimum(group);
            format!(
                "PodCliqueScalingGroup {} has {found} of {min} available replicas",
                group.name_any()
            )
        }
    }
}

/// Where each gang stands, by name. If there are too many, those that run are left out first.
fn summaries(expansion: &Expansion<'_>, gangs: &[impl Borrow<PodGang>]) -> Vec<PodGangSummary> {
    let owned = gangs
        .iter()
        .map(Borrow::borrow)
        .filter(|gang| is_owned_by(&gang.metadata, uid(expansion.set)));
    let mut all: Vec<PodGangSummary> = owned
        .map(|gang| PodGangSummary {
            name: gang.name_any(),
            phase: gang.status.as_ref().map(|status| status.phase).unwrap_or_default(),
            conditions: gang
                .status
                .as_ref()
                .map(|status| status.conditions.clone())
                .unwrap_or_default(),
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    if all.len() > GANGS_SHOWN_MAX {
        all.sort_by_key(|gang| gang.phase == PodGangPhase::Running);
        all.truncate(GANGS_SHOWN_MAX);
        all.sort_by(|a, b| a.name.cmp(&b.name));
    }
    all
}
