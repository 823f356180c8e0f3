//! The replicas of one scaling group in an update: each is recreated whole.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use grove_api::scaling_group::{ScalingGroupUpdateProgress, SelectedReplicas};
use grove_api::{PodClique, PodCliqueScalingGroup};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Turn, is_converged, is_stale, may_take_one};
use crate::availability::{group_minimum, group_replicas, is_available, is_whole};
use crate::expand::Expansion;

/// What an update does to a scaling group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupUpdate {
    pub progress: Option<ScalingGroupUpdateProgress>,
    /// Indices of replicas of which all cliques are to be deleted, after the progress is written.
    pub delete: Vec<i32>,
    /// Whether every replica exists and follows the set's templates.
    pub is_current: bool,
}

impl GroupUpdate {
    pub fn is_active(&self) -> bool {
        self.progress
            .as_ref()
            .is_some_and(|progress| progress.update_ended_at.is_none())
    }
}

/// One replica of the group as an update sees it.
#[derive(Clone, Copy)]
struct Replica {
    is_stale: bool,
    is_available: bool,
}

/// What to do about replicas of old templates.
pub fn group_update(
    expansion: &Expansion<'_>,
    group: &PodCliqueScalingGroup,
    cliques: &[impl Borrow<PodClique>],
    turn: Turn,
    now: Timestamp,
) -> GroupUpdate {
    let members = group_replicas(group, cliques);
    let view = |members: &Vec<&PodClique>| Replica {
        is_stale: members.iter().any(|clique| is_stale(expansion, clique)),
        is_available: is_whole(group, members) && members.iter().all(|clique| is_available(clique)),
    };
    let replicas: BTreeMap<i32, Replica> = members.iter().map(|(index, members)| (*index, view(members))).collect();
    let has_stale = replicas.values().any(|replica| replica.is_stale);
    let all_exist =
        members.values().filter(|members| is_whole(group, members)).count() as i64 >= i64::from(group.spec.replicas);
    let is_current = !has_stale && all_exist;

    let stored = group.status.as_ref().and_then(|status| status.update_progress.clone());
    let is_running = |progress: &ScalingGroupUpdateProgress| progress.update_ended_at.is_none();
    if turn == Turn::Nothing || (!has_stale && !stored.as_ref().is_some_and(is_running)) {
        let progress = stored.map(|progress| counted(ended(progress, now), expansion, &members));
        return GroupUpdate {
            progress,
            delete: vec![],
            is_current,
        };
    }
    let target = &expansion.hashes.generation;
    let same = stored.filter(|progress| is_running(progress) && progress.pod_clique_set_generation_hash == *target);
    let mut progress = same.unwrap_or_else(|| ScalingGroupUpdateProgress {
        update_started_at: Time(now),
        update_ended_at: None,
        pod_clique_set_generation_hash: target.clone(),
        updated_pod_cliques_count: 0,
        total_pod_cliques_count: 0,
        ready_replica_indices_selected_to_update: None,
    });
    let unavailable = replicas
        .iter()
        .filter(|(_, replica)| replica.is_stale && !replica.is_available);
    let mut delete: Vec<i32> = unavailable.map(|(index, _)| *index).collect();
    if turn == Turn::Everything {
        let selected = progress.ready_replica_indices_selected_to_update.take();
        let (selected, victim) = select(group, &replicas, selected);
        progress.ready_replica_indices_selected_to_update = selected;
        delete.extend(victim);
    }
    let available = replicas.values().filter(|replica| replica.is_available).count() as i64;
    if is_current && available >= i64::from(group_minimum(group)) {
        progress = ended(progress, now);
    }
    GroupUpdate {
        progress: Some(counted(progress, expansion, &members)),
        delete,
        is_current,
    }
}

fn ended(mut progress: ScalingGroupUpdateProgress, now: Timestamp) -> ScalingGroupUpdateProgress {
    progress.update_ended_at.get_or_insert(Time(now));
    progress
}

fn counted(
    mut progress: ScalingGroupUpdateProgress,
    expansion: &Expansion<'_>,
    members: &BTreeMap<i32, Vec<&PodClique>>,
) -> ScalingGroupUpdateProgress {
    let all = || members.values().flatten();
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    progress.updated_pod_cliques_count = count(all().filter(|clique| is_converged(expansion, clique)).count());
    progress.total_pod_cliques_count = count(all().count());
    progress
}

/// The one available replica that is recreated now: the selected one until it works again, then the lowest of the
/// others.
fn select(
    group: &PodCliqueScalingGroup,
    replicas: &BTreeMap<i32, Replica>,
    selected: Option<SelectedReplicas>,
) -> (Option<SelectedReplicas>, Option<i32>) {
    let mut completed = Vec::new();
    // A replica that was scaled away meanwhile is not waited for.
    if let Some(selected) = selected.filter(|selected| selected.current < group.spec.replicas) {
        match replicas.get(&selected.current) {
            Some(replica) if replica.is_stale => {
                let victim = selected.current;
                return (Some(selected), Some(victim));
            }
            Some(replica) if replica.is_available => {
                completed = selected.completed;
                completed.push(selected.current);
            }
            _ => return (Some(selected), None),
        }
    }
    let available = replicas.values().filter(|replica| replica.is_available).count();
    let available = i32::try_from(available).unwrap_or(i32::MAX);
    let mut stale = replicas
        .iter()
        .filter(|(_, replica)| replica.is_stale && replica.is_available);
    let next = stale.next().map(|(index, _)| *index);
    match next.filter(|_| may_take_one(available, group_minimum(group), group.spec.replicas)) {
        Some(index) => (
            Some(SelectedReplicas {
                current: index,
                completed,
            }),
            Some(index),
        ),
        None => {
            // What was completed stays readable: the last one is the present selection.
            let last = completed.pop();
            (last.map(|current| SelectedReplicas { current, completed }), None)
        }
    }
}
