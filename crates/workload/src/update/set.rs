//! The replicas of a set in an update.

use grove_api::conditions::podclique::SCHEDULED;
use grove_api::podcliqueset::{PodCliqueSetUpdateProgress, ReplicaUpdateProgress, UpdateStrategyType};
use grove_api::{PodClique, PodCliqueScalingGroup};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{is_converged, is_stale};
use crate::availability::{groups_of, is_group_available, is_replica_available, minimum, standalone_of};
use crate::conditions;
use crate::expand::Expansion;
use crate::names::Place;

/// How long a replica that is updated may look for a place before the others stop waiting for it.
const PLACE_PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// Where the update of a set stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SetUpdate {
    /// The hash of the templates that the set follows, to be stored in its status.
    pub generation_hash: String,
    pub progress: Option<PodCliqueSetUpdateProgress>,
    /// Replicas of which all parts work and follow the newest templates.
    pub converged: Vec<i32>,
    /// When a replica that finds no place will have looked for one for so long that the others go on without it.
    pub look_again_at: Option<Timestamp>,
}

/// Where the update of a set stands, and which replica has its turn.
pub fn set_update(expansion: &Expansion<'_>, now: Timestamp) -> SetUpdate {
    let replicas = expansion.replicas();
    let converged: Vec<i32> = replicas
        .clone()
        .filter(|replica| is_replica_converged(expansion, *replica))
        .collect();
    let mut look_again_at = None;
    let mut progress = begun(expansion, now).map(|progress| counted(progress, expansion));
    if let Some(progress) = progress.as_mut().filter(|progress| progress.update_ended_at.is_none()) {
        let waits = |index: i32| replicas.contains(&index) && !converged.contains(&index);
        progress.currently_updating.retain(|entry| waits(entry.replica_index));
        if converged.len() == replicas.len() && expansion.live.cliques().all(has_all_ready) {
            progress.update_ended_at = Some(Time(now));
        } else if progress.currently_updating.is_empty() {
            let waiting = replicas.clone().filter(|index| waits(*index));
            let (next, again) = next_replica(expansion, waiting, now);
            look_again_at = again;
            progress
                .currently_updating
                .extend(next.map(|replica_index| ReplicaUpdateProgress {
                    replica_index,
                    update_started_at: Time(now),
                    update_ended_at: None,
                }));
        }
    }
    SetUpdate {
        generation_hash: expansion.hashes.generation.clone(),
        progress,
        converged,
        look_again_at,
    }
}

/// Whether the clique has not just its minimum of ready pods, but all of them: whoever is told that an update has ended
/// counts on what was there before it.
fn has_all_ready(clique: &PodClique) -> bool {
    let ready = clique.status.as_ref().map_or(0, |status| status.ready_replicas);
    ready >= clique.spec.replicas
}

fn has_some_ready(clique: &PodClique) -> bool {
    clique.status.as_ref().is_some_and(|status| status.ready_replicas > 0)
}

/// The replica that has its turn next: one that does not work if something of it is ready and old, then those that work.
/// While another one is being repaired none of these has: two would be missing. One that has found no place to run for a
/// while is not waited for, and comes last; until then, when to look again.
fn next_replica(
    expansion: &Expansion<'_>,
    waiting: impl Iterator<Item = i32>,
    now: Timestamp,
) -> (Option<i32>, Option<Timestamp>) {
    let (set, live) = (expansion.set, expansion.live);
    let (working, others): (Vec<i32>, Vec<i32>) = waiting.partition(|index| is_replica_available(set, *index, live));
    let cliques_of = |replica: i32| {
        let cliques = live.cliques();
        cliques.filter(move |clique| Place::of(set, clique).is_some_and(|place| place.replica == replica))
    };
    let others: Vec<(i32, Option<Timestamp>)> = others
        .into_iter()
        .map(|replica| (replica, cliques_of(replica).filter_map(given_up_at).min()))
        .collect();
    let is_repaired = others.iter().any(|(_, given_up)| given_up.is_none_or(|at| at > now));
    let look_again_at = others
        .iter()
        .filter_map(|(_, given_up)| *given_up)
        .filter(|at| *at > now)
        .min();
    let mut needing_turn = others.iter().filter(|(replica, given_up)| {
        let mut cliques = cliques_of(*replica);
        given_up.is_none() == is_repaired && cliques.any(|clique| is_stale(expansion, clique) && has_some_ready(clique))
    });
    let next_broken = needing_turn.next().map(|(replica, _)| *replica);
    let next = working.first().copied().filter(|_| !is_repaired).or(next_broken);
    (next, look_again_at)
}

/// When a clique will have looked for a place long enough. None unless a place is all that its minimum lacks: its pods
/// exist, and nothing of ours holds them. A pod that was made a moment ago only seems to lack one.
fn given_up_at(clique: &PodClique) -> Option<Timestamp> {
    let min = minimum(clique);
    let status = clique.status.as_ref()?;
    let lacks_place = status.replicas >= min && status.schedule_gated_replicas == 0 && status.scheduled_replicas < min;
    let scheduled = conditions::find(&status.conditions, SCHEDULED).filter(|_| lacks_place)?;
    conditions::since(scheduled).checked_add(PLACE_PATIENCE).ok()
}

/// The progress of the update that the set is in: the stored one, a new one, or none if there never was an update.
fn begun(expansion: &Expansion<'_>, now: Timestamp) -> Option<PodCliqueSetUpdateProgress> {
    let status = expansion.set.status.as_ref();
    let stored = status.and_then(|status| status.update_progress.clone());
    let followed = status.and_then(|status| status.current_generation_hash.as_ref());
    let is_new = followed.is_some_and(|hash| *hash != expansion.hashes.generation);
    match expansion.strategy() {
        UpdateStrategyType::OnDelete => {
            let progress = if is_new { Some(starting(now)) } else { stored };
            progress.map(|mut progress| {
                progress.update_ended_at.get_or_insert(Time(now));
                progress.currently_updating.clear();
                progress
            })
        }
        UpdateStrategyType::RollingRecreate => {
            let is_over = stored
                .as_ref()
                .is_none_or(|progress| progress.update_ended_at.is_some());
            // Old pods that were left to their user are replaced once the strategy says so.
            let is_left_over = followed.is_some() && is_over && has_stale(expansion);
            if is_new || is_left_over {
                Some(starting(now))
            } else {
                stored
            }
        }
    }
}

fn starting(now: Timestamp) -> PodCliqueSetUpdateProgress {
    PodCliqueSetUpdateProgress {
        update_started_at: Time(now),
        update_ended_at: None,
        updated_pod_cliques_count: 0,
        total_pod_cliques_count: 0,
        updated_pod_clique_scaling_groups_count: 0,
        total_pod_clique_scaling_groups_count: 0,
        currently_updating: vec![],
    }
}

fn has_stale(expansion: &Expansion<'_>) -> bool {
    let replicas = expansion.set.spec.replicas;
    expansion.live.cliques().any(|clique| {
        let place = Place::of(expansion.set, clique);
        place.is_some_and(|place| place.replica < replicas) && is_stale(expansion, clique)
    })
}

fn is_replica_converged(expansion: &Expansion<'_>, replica: i32) -> bool {
    let (set, live) = (expansion.set, expansion.live);
    let mut cliques = standalone_of(set, replica, live);
    let mut groups = groups_of(set, replica, live);
    cliques.all(|clique| clique.is_some_and(|clique| is_converged(expansion, clique)))
        && groups.all(|group| group.is_some_and(|group| is_group_converged(expansion, group)))
}

fn is_group_converged(expansion: &Expansion<'_>, group: &PodCliqueScalingGroup) -> bool {
    let status = group.status.as_ref();
    let known = status.and_then(|status| status.current_pod_clique_set_generation_hash.as_ref());
    known == Some(&expansion.hashes.generation) && is_group_available(group)
}

/// The counts are of what is converged now, whatever happened before.
fn counted(mut progress: PodCliqueSetUpdateProgress, expansion: &Expansion<'_>) -> PodCliqueSetUpdateProgress {
    let (set, live) = (expansion.set, expansion.live);
    let (mut cliques, mut groups) = ((0, 0), (0, 0));
    for replica in expansion.replicas() {
        for clique in standalone_of(set, replica, live) {
            cliques.0 += i32::from(clique.is_some_and(|clique| is_converged(expansion, clique)));
            cliques.1 += 1;
        }
        for group in groups_of(set, replica, live) {
            groups.0 += i32::from(group.is_some_and(|group| is_group_converged(expansion, group)));
            groups.1 += 1;
        }
    }
    (progress.updated_pod_cliques_count, progress.total_pod_cliques_count) = cliques;
    (
        progress.updated_pod_clique_scaling_groups_count,
        progress.total_pod_clique_scaling_groups_count,
    ) = groups;
    progress
}
