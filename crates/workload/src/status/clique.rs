//! The status of a PodClique.

use grove_api::{PodClique, PodCliqueStatus, PodGang, labels};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Failure, last_errors};
use crate::availability::{PodCounts, clique_conditions, minimum};
use crate::expand::Expansion;
use crate::meta::{base_labels, selector};
use crate::names::Place;
use crate::observed::ObservedPod;
use crate::pods::template_hash;
use crate::update::CliqueUpdate;

/// The status of `clique`, whose pods are `pods` and take part in `gang`.
pub fn clique_status(
    expansion: &Expansion<'_>,
    (clique, gang): (&PodClique, Option<&PodGang>),
    (pods, update): (&[ObservedPod], &CliqueUpdate),
    failures: &[Failure],
    now: Timestamp,
) -> PodCliqueStatus {
    let stored = clique.status.clone().unwrap_or_default();
    let counts = PodCounts::of(clique, pods);
    let (template, generation) = current_hashes(expansion, clique, counts);
    PodCliqueStatus {
        observed_generation: clique.metadata.generation,
        last_errors: last_errors(&stored.last_errors, failures, now),
        replicas: counts.live,
        ready_replicas: counts.ready,
        updated_replicas: counts.updated,
        schedule_gated_replicas: counts.gated,
        scheduled_replicas: counts.scheduled,
        hpa_pod_selector: pod_selector(clique),
        conditions: clique_conditions(clique, counts, (update.is_active(), gang), now),
        current_pod_template_hash: template.or(stored.current_pod_template_hash),
        current_pod_clique_set_generation_hash: generation.or(stored.current_pod_clique_set_generation_hash),
        update_progress: update.progress.clone(),
    }
}

/// The hashes that the pods are known to follow: those of the clique once no other pod is left and the minimum exists.
fn current_hashes(
    expansion: &Expansion<'_>,
    clique: &PodClique,
    counts: PodCounts,
) -> (Option<String>, Option<String>) {
    if counts.updated < counts.live || counts.live < minimum(clique) {
        return (None, None);
    }
    let hash = template_hash(clique).to_owned();
    let expected = Place::of(expansion.set, clique).map(|place| expansion.hashes.of(&place.template.name));
    let is_newest = expected == Some(hash.as_str());
    (Some(hash), is_newest.then(|| expansion.hashes.generation.clone()))
}

/// Only a clique that scales by itself is an autoscaler's target.
fn pod_selector(clique: &PodClique) -> Option<String> {
    let set = clique.labels().get(labels::PART_OF)?;
    let is_member = clique.labels().contains_key(labels::SCALING_GROUP);
    (!is_member).then(|| {
        let mut all = base_labels(set);
        all.insert(labels::PODCLIQUE.to_owned(), clique.name_any());
        selector(&all)
    })
}
