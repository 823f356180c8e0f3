//! Which pods of a clique to create and to delete, and which index each new pod takes.
//!
//! Computed anew from what exists each time: a pod that is on its way out counts as absent and frees its index, so a
//! replacement never waits for a dead node. Which outdated pods are replaced by an update is [`crate::update`]'s.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use grove_api::{PodClique, labels};
use kube::ResourceExt;

use crate::meta::uid;
use crate::names::{self, GANG_PODS_MAX, PodKey};
use crate::observed::{ObservedPod, Readiness};

/// A pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPod {
    pub index: i32,
    pub name: String,
}

/// A pod to delete. The UID is a precondition: the name may be another pod's by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub name: String,
    pub uid: String,
    pub reason: VictimReason,
    /// It goes because it serves nobody: only as it was seen, for it may do so by now.
    pub as_seen: bool,
}

/// Why a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimReason {
    /// It ended and is replaced.
    Finished,
    /// Another pod has its index, or it has none.
    NoIndex,
    /// There are more pods than asked for.
    Excess,
    /// An update replaces it.
    Outdated,
}

impl Victim {
    pub(crate) fn new(pod: &ObservedPod, reason: VictimReason) -> Self {
        Self {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            reason,
            as_seen: false,
        }
    }

    /// One that goes because it is not ready.
    pub(crate) fn broken(pod: &ObservedPod, reason: VictimReason) -> Self {
        Self {
            as_seen: true,
            ..Self::new(pod, reason)
        }
    }
}

/// What to do about the pods of a clique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPlan {
    pub create: Vec<NewPod>,
    pub delete: Vec<Victim>,
}

/// The hash of the template that new pods of a clique follow.
pub fn template_hash(clique: &PodClique) -> &str {
    clique
        .labels()
        .get(labels::POD_TEMPLATE_HASH)
        .map_or("", String::as_str)
}

/// What to do so that the clique has the pods that it asks for. `pods` are all that it owns.
pub fn plan(clique: &PodClique, pods: &[ObservedPod]) -> PodPlan {
    if clique.metadata.deletion_timestamp.is_some() {
        return PodPlan::default();
    }
    let wanted = clique.spec.replicas.clamp(0, GANG_PODS_MAX) as usize;
    let finished = pods.iter().filter(|pod| pod.is_finished() && !pod.is_terminating);
    let mut delete: Vec<Victim> = finished.map(|pod| Victim::new(pod, VictimReason::Finished)).collect();

    let (mut kept, without_index) = by_index(clique, pods);
    delete.extend(
        without_index
            .into_iter()
            .map(|pod| Victim::new(pod, VictimReason::NoIndex)),
    );

    let mut candidates: Vec<&ObservedPod> = kept.values().copied().collect();
    candidates.sort_by_key(|pod| victim_order(pod, template_hash(clique)));
    for pod in candidates.iter().take(kept.len().saturating_sub(wanted)) {
        kept.retain(|_, other| other.uid != pod.uid);
        delete.push(Victim::new(pod, VictimReason::Excess));
    }
    let create = new_pods(clique, pods, &kept, wanted - kept.len());
    PodPlan { create, delete }
}

/// The live pods by index, one for each, and those that have none of their own. Of two pods with one index the one
/// stays that would be the last to go.
fn by_index<'a>(clique: &PodClique, pods: &'a [ObservedPod]) -> (BTreeMap<i32, &'a ObservedPod>, Vec<&'a ObservedPod>) {
    let mut live: Vec<&ObservedPod> = pods.iter().filter(|pod| pod.is_live()).collect();
    live.sort_by_key(|pod| Reverse(victim_order(pod, template_hash(clique))));
    let mut kept = BTreeMap::new();
    let mut rest = Vec::new();
    for pod in live {
        match pod.index {
            Some(index) if !kept.contains_key(&index) => drop(kept.insert(index, pod)),
            _ => rest.push(pod),
        }
    }
    (kept, rest)
}

/// Who goes first: those without a node, then pending before unknown before running, unready, outdated, newest.
fn victim_order(pod: &ObservedPod, hash: &str) -> impl Ord {
    (
        !pod.node.is_empty(),
        pod.phase,
        pod.readiness == Readiness::Ready,
        pod.template_hash == hash,
        Reverse(pod.created_at),
        Reverse(pod.index),
        pod.name.clone(),
    )
}

/// New pods take the lowest free indices.
fn new_pods(clique: &PodClique, pods: &[ObservedPod], kept: &BTreeMap<i32, &ObservedPod>, count: usize) -> Vec<NewPod> {
    let mut taken: BTreeSet<String> = pods.iter().map(|pod| pod.name.clone()).collect();
    let mut predecessors: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_live()) {
        if let Some(index) = pod.index {
            predecessors.entry(index).or_default().push(&pod.uid);
        }
    }
    let free = (0..).filter(|index| !kept.contains_key(index)).take(count);
    free.map(|index| {
        let key = PodKey {
            clique: &clique.name_any(),
            clique_uid: uid(clique),
            index,
            template_hash: template_hash(clique),
            predecessors: predecessors.get(&index).map_or(&[], Vec::as_slice),
        };
        let name = names::pod(&key, &taken);
        taken.insert(name.clone());
        NewPod { index, name }
    })
    .collect()
}

#[cfg(test)]
mod tests;
