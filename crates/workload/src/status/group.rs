//! The status of a PodCliqueScalingGroup.

use std::borrow::Borrow;

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueScalingGroupStatus, labels};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Failure, last_errors};
use crate::availability::{GroupCounts, group_conditions, group_replicas, is_whole};
use crate::expand::Expansion;
use crate::meta::{base_labels, selector};
use crate::update::{GroupUpdate, is_converged};

/// The status of `group`; `cliques` are those of its namespace.
pub fn group_status(
    expansion: &Expansion<'_>,
    group: &PodCliqueScalingGroup,
    (cliques, update): (&[impl Borrow<PodClique>], &GroupUpdate),
    failures: &[Failure],
    now: Timestamp,
) -> PodCliqueScalingGroupStatus {
    let stored = group.status.clone().unwrap_or_default();
    let counts = GroupCounts::of(group, cliques);
    let replicas = group_replicas(group, cliques);
    let whole = replicas.values().filter(|members| is_whole(group, members));
    let updated = whole
        .filter(|members| members.iter().all(|clique| is_converged(expansion, clique)))
        .count();
    let current = update.is_current.then(|| expansion.hashes.generation.clone());
    let mut pods = base_labels(&expansion.set.name_any());
    pods.insert(labels::SCALING_GROUP.to_owned(), group.name_any());
    PodCliqueScalingGroupStatus {
        replicas: group.spec.replicas,
        scheduled_replicas: counts.scheduled,
        available_replicas: counts.available,
        updated_replicas: i32::try_from(updated).unwrap_or(i32::MAX),
        selector: Some(selector(&pods)),
        observed_generation: group.metadata.generation,
        last_errors: last_errors(&stored.last_errors, failures, now),
        conditions: group_conditions(group, counts, update.is_active(), now),
        current_pod_clique_set_generation_hash: current.or(stored.current_pod_clique_set_generation_hash),
        update_progress: update.progress.clone(),
    }
}
