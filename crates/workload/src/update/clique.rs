//! The pods of one clique in an update.

use grove_api::PodClique;
use grove_api::podclique::{PodCliqueUpdateProgress, SelectedPods};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Turn, may_take_one};
use crate::availability::{PodCounts, minimum};
use crate::observed::ObservedPod;
use crate::pods::{Victim, VictimReason, template_hash};

/// What an update does to a clique.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CliqueUpdate {
    pub progress: Option<PodCliqueUpdateProgress>,
    /// Pods to replace. The progress that names them is written before they are deleted, so that a restart in between
    /// deletes the same pod.
    pub delete: Vec<Victim>,
}

impl CliqueUpdate {
    pub fn is_active(&self) -> bool {
        self.progress
            .as_ref()
            .is_some_and(|progress| progress.update_ended_at.is_none())
    }
}

/// What to do about pods of an old template. `generation_hash` is the set's.
pub fn clique_update(
    clique: &PodClique,
    pods: &[ObservedPod],
    generation_hash: &str,
    turn: Turn,
    now: Timestamp,
) -> CliqueUpdate {
    let target = template_hash(clique);
    let counts = PodCounts::of(clique, pods);
    let stored = clique.status.as_ref().and_then(|status| status.update_progress.clone());
    let is_running = |progress: &PodCliqueUpdateProgress| progress.update_ended_at.is_none();
    let has_outdated = counts.updated < counts.live;
    if turn == Turn::Nothing || (!has_outdated && !stored.as_ref().is_some_and(is_running)) {
        return CliqueUpdate {
            progress: stored.map(|progress| ended(progress, now)),
            delete: vec![],
        };
    }
    // Another template in the middle of an update begins a new one.
    let same = stored.filter(|progress| is_running(progress) && progress.pod_template_hash == target);
    let mut progress = same.unwrap_or_else(|| PodCliqueUpdateProgress {
        update_started_at: Time(now),
        update_ended_at: None,
        pod_clique_set_generation_hash: String::new(),
        pod_template_hash: target.to_owned(),
        ready_pods_selected_to_update: None,
    });
    progress.pod_clique_set_generation_hash = generation_hash.to_owned();
    if !has_outdated {
        let is_done = counts.updated_ready >= minimum(clique) && counts.live >= clique.spec.replicas;
        let progress = if is_done { ended(progress, now) } else { progress };
        return CliqueUpdate {
            progress: Some(progress),
            delete: vec![],
        };
    }
    let outdated: Vec<&ObservedPod> = pods
        .iter()
        .filter(|pod| pod.is_live() && pod.template_hash != target)
        .collect();
    let broken = outdated.iter().filter(|pod| !pod.is_ready());
    let mut delete: Vec<Victim> = broken.map(|pod| Victim::broken(pod, VictimReason::Outdated)).collect();
    if turn == Turn::Everything {
        let ready: Vec<&ObservedPod> = outdated.into_iter().filter(|pod| pod.is_ready()).collect();
        let selected = select(clique, &ready, counts, progress.ready_pods_selected_to_update.take());
        delete.extend(selected.victim.map(|pod| Victim::new(pod, VictimReason::Outdated)));
        progress.ready_pods_selected_to_update = selected.pods;
    }
    CliqueUpdate {
        progress: Some(progress),
        delete,
    }
}

fn ended(mut progress: PodCliqueUpdateProgress, now: Timestamp) -> PodCliqueUpdateProgress {
    progress.update_ended_at.get_or_insert(Time(now));
    progress
}

struct Selection<'a> {
    pods: Option<SelectedPods>,
    victim: Option<&'a ObservedPod>,
}

/// The one ready pod that is replaced now: the selected one until it is gone, then the oldest of the others.
fn select<'a>(
    clique: &PodClique,
    ready: &[&'a ObservedPod],
    counts: PodCounts,
    selected: Option<SelectedPods>,
) -> Selection<'a> {
    let mut selected = selected.unwrap_or_default();
    if let Some(pod) = ready.iter().find(|pod| pod.name == selected.current) {
        return Selection {
            victim: Some(*pod),
            pods: Some(selected),
        };
    }
    if !selected.current.is_empty() {
        let replaced = i32::try_from(selected.completed.len())
            .unwrap_or(i32::MAX)
            .saturating_add(1);
        // Scaling in may have taken pods that were replaced: no more can be ready than there should be.
        let possible = clique.spec.replicas - (counts.live - counts.updated);
        if counts.updated_ready < replaced.min(possible) {
            return Selection {
                victim: None,
                pods: Some(selected),
            };
        }
        selected.completed.push(std::mem::take(&mut selected.current));
    }
    let oldest = ready.iter().min_by_key(|pod| (pod.created_at, pod.index));
    let next = oldest.filter(|_| may_take_one(counts.ready, minimum(clique), clique.spec.replicas));
    if let Some(pod) = next {
        selected.current = pod.name.clone();
    }
    let is_used = !selected.current.is_empty() || !selected.completed.is_empty();
    Selection {
        victim: next.copied(),
        pods: is_used.then_some(selected),
    }
}
