//! The pods of a gang: when they are listed, when their gates come off, and where the gang stands.
//!
//! ```text
//! all pods exist ─▶ podReferences ─▶ gates off (scaled: once the base gang is scheduled) ─▶ placed ─▶ ready
//! ```
//!
//! References are written once for the whole gang, not pod by pod: a scheduler that saw half of them would place half a
//! gang. `Scheduled` is written by whoever places; `Initialized`, `Ready` and the phase are computed here from the pods.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::conditions::podgang as condition;
use grove_api::podgang::{NamespacedName, PodGangPhase, PodGroup};
use grove_api::{PodClique, PodGang, PodGangStatus, labels};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::conditions::{self, Finding, Status};
use crate::observed::ObservedPod;

/// Code in `lastErrors` of a PodClique whose pods the API server refuses.
pub const CREATE_POD_ERROR: &str = "ERR_CREATE_POD";

/// Reasons of `Scheduled` where it is read from the pods.
const PODS_SCHEDULED: &str = "PodsScheduled";
const PODS_NOT_SCHEDULED: &str = "PodsNotScheduled";

/// A clique of a gang and the pods that it owns.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    pub clique: &'a PodClique,
    pub pods: &'a [ObservedPod],
}

/// The cliques of a gang that exist and stay, by name.
pub type Members<'a> = BTreeMap<&'a str, Member<'a>>;

impl<'a> Member<'a> {
    /// The clique's live pods that belong to the gang.
    fn pods_in<'m>(&'m self, gang: &'m str) -> impl Iterator<Item = &'a ObservedPod> + 'm {
        self.pods.iter().filter(move |pod| pod.is_live() && pod.gang == gang)
    }

    fn count(&self, gang: &str, of: impl Fn(&ObservedPod) -> bool) -> i32 {
        i32::try_from(self.pods_in(gang).filter(|pod| of(pod)).count()).unwrap_or(i32::MAX)
    }

    fn has_stalled(&self) -> bool {
        let errors = self.clique.status.iter().flat_map(|status| &status.last_errors);
        errors.into_iter().any(|error| error.code == CREATE_POD_ERROR)
    }
}

/// Lists the pods in `desired`, which has none yet. While pods are still being made, what is `stored` stays.
pub fn fill_references(desired: &mut PodGang, stored: Option<&PodGang>, members: &Members<'_>) {
    let gang = desired.name_any();
    let namespace = desired.namespace().unwrap_or_default();
    let listed = can_be_listed(&desired.spec.pod_groups, &gang, members);
    for group in &mut desired.spec.pod_groups {
        let stored_groups = stored.iter().flat_map(|stored| &stored.spec.pod_groups);
        group.pod_references = if listed {
            let pods = members
                .get(group.name.as_str())
                .into_iter()
                .flat_map(|member| member.pods_in(&gang));
            let mut references: Vec<NamespacedName> = pods
                .map(|pod| NamespacedName {
                    namespace: namespace.clone(),
                    name: pod.name.clone(),
                })
                .collect();
            references.sort_unstable();
            references
        } else {
            let same = stored_groups.into_iter().find(|stored| stored.name == group.name);
            same.map(|stored| stored.pod_references.clone()).unwrap_or_default()
        };
    }
}

/// Whether all pods of the gang exist; or all that can be made, and at least the minimum.
fn can_be_listed(groups: &[PodGroup], gang: &str, members: &Members<'_>) -> bool {
    groups.iter().all(|group| {
        members.get(group.name.as_str()).is_some_and(|member| {
            let existing = member.count(gang, |_| true);
            existing >= member.clique.spec.replicas || (member.has_stalled() && existing >= group.min_replicas)
        })
    })
}

/// The pods of a clique whose gate comes off now. Only ever Grove's gate: others are others' matter.
pub fn ungated<'a>(member: Member<'a>, gang: &PodGang, base_is_scheduled: bool) -> Vec<&'a ObservedPod> {
    let clique = member.clique.name_any();
    let waits_for_base = member.clique.labels().contains_key(labels::BASE_PODGANG) && !base_is_scheduled;
    if waits_for_base || gang.metadata.deletion_timestamp.is_some() {
        return vec![];
    }
    let groups = gang.spec.pod_groups.iter().filter(|group| group.name == clique);
    let listed: BTreeSet<&str> = groups.flat_map(listed_in).collect();
    let gated = member
        .pods
        .iter()
        .filter(|pod| pod.is_gated && !pod.is_terminating && pod.gang == gang.name_any());
    gated.filter(|pod| listed.contains(pod.name.as_str())).collect()
}

fn listed_in(group: &PodGroup) -> impl Iterator<Item = &str> {
    group.pod_references.iter().map(|pod| pod.name.as_str())
}

/// Whether every clique of a base gang has its minimum of pods on nodes.
pub fn is_scheduled<'a>(base: &PodGang, clique: impl Fn(&str) -> Option<&'a PodClique>) -> bool {
    base.spec.pod_groups.iter().all(|group| {
        let status = clique(&group.name)
            .filter(|clique| clique.metadata.deletion_timestamp.is_none())
            .and_then(|clique| clique.status.as_ref());
        status.is_some_and(|status| status.scheduled_replicas >= group.min_replicas)
    })
}

/// Where a stored gang stands. Conditions and fields of whoever places are kept as they are.
pub fn status(gang: &PodGang, members: &Members<'_>, now: Timestamp) -> PodGangStatus {
    let mut status = gang.status.clone().unwrap_or_default();
    let name = gang.name_any();
    let short_of = |of: &dyn Fn(&ObservedPod) -> bool| -> Option<(&PodGroup, i32)> {
        let found = |group: &PodGroup| {
            members
                .get(group.name.as_str())
                .map_or(0, |member| member.count(&name, of))
        };
        let mut groups = gang.spec.pod_groups.iter().map(|group| (group, found(group)));
        groups.find(|(group, found)| *found < group.min_replicas)
    };
    let is_empty = gang.spec.pod_groups.is_empty();
    let unready = short_of(&ObservedPod::is_ready);
    status.phase = match (short_of(&ObservedPod::is_scheduled), unready) {
        _ if is_empty => PodGangPhase::Pending,
        (Some(_), _) => PodGangPhase::Pending,
        (None, Some(_)) => PodGangPhase::Starting,
        (None, None) => PodGangPhase::Running,
    };
    let generation = gang.metadata.generation;
    let initialized = is_initialized(gang, members, &status);
    conditions::put(
        &mut status.conditions,
        initialized_finding(initialized),
        generation,
        now,
    );
    let ready = match unready {
        _ if is_empty => (
            Status::False,
            condition::ready::PODS_NOT_READY,
            "All cliques of the gang are scaled to zero".to_owned(),
        ),
        None => (
            Status::True,
            condition::ready::PODS_READY,
            "Every clique has its minimum of ready pods".to_owned(),
        ),
        Some((group, found)) => {
            let needed = group.min_replicas;
            let mut message = format!("PodClique {} has {found} of {needed} ready pods", group.name);
            if let Some(why) = why_unplaced(gang, members) {
                message = format!("{message}; {why}");
            }
            (Status::False, condition::ready::PODS_NOT_READY, message)
        }
    };
    let (holds, reason, message) = ready;
    let finding = Finding {
        type_: condition::READY,
        status: holds,
        reason,
        message,
    };
    conditions::put(&mut status.conditions, finding, generation, now);
    status
}

/// Why a pod of the gang has no node, if a scheduler has looked for one: the first of them stands for all.
pub fn why_unplaced(gang: &PodGang, members: &Members<'_>) -> Option<String> {
    let name = gang.name_any();
    let mut pods = members.values().flat_map(|member| member.pods_in(&name));
    pods.find_map(|pod| {
        let why = pod.unplaced_because.as_deref().filter(|_| !pod.is_scheduled())?;
        Some(format!("pod {} has no node: {why}", pod.name))
    })
}

/// `Scheduled` as the pods tell it, for a scheduler that does not write it: true while every clique has its minimum of
/// pods on nodes.
pub fn put_scheduled(status: &mut PodGangStatus, gang: &PodGang, members: &Members<'_>, now: Timestamp) {
    let name = gang.name_any();
    let short = gang.spec.pod_groups.iter().find_map(|group| {
        let member = members.get(group.name.as_str());
        let found = member.map_or(0, |member| member.count(&name, ObservedPod::is_scheduled));
        (found < group.min_replicas).then_some((group, found))
    });
    let (holds, reason, message) = match short {
        _ if gang.spec.pod_groups.is_empty() => (
            Status::False,
            PODS_NOT_SCHEDULED,
            "All cliques of the gang are scaled to zero".to_owned(),
        ),
        None => (
            Status::True,
            PODS_SCHEDULED,
            "Every clique has its minimum of pods on nodes".to_owned(),
        ),
        Some((group, found)) => (
            Status::False,
            PODS_NOT_SCHEDULED,
            format!(
                "PodClique {} has {found} of {} pods on nodes",
                group.name, group.min_replicas
            ),
        ),
    };
    let finding = Finding {
        type_: condition::SCHEDULED,
        status: holds,
        reason,
        message,
    };
    conditions::put(&mut status.conditions, finding, gang.metadata.generation, now);
}

/// Whether the pods have been listed. It stays so while pods are replaced one by one, and begins anew when the gang is
/// torn down and none of its pods is left.
fn is_initialized(gang: &PodGang, members: &Members<'_>, status: &PodGangStatus) -> bool {
    let name = gang.name_any();
    let mut live = members.values().flat_map(|member| member.pods_in(&name));
    if conditions::is_true(&status.conditions, condition::INITIALIZED) {
        return live.next().is_some();
    }
    !gang.spec.pod_groups.is_empty()
        && gang.spec.pod_groups.iter().all(|group| {
            let Some(member) = members.get(group.name.as_str()) else {
                return false;
            };
            let listed: BTreeSet<&str> = listed_in(group).collect();
            member.count(&name, |pod| listed.contains(pod.name.as_str())) >= group.min_replicas
        })
}

fn initialized_finding(initialized: bool) -> Finding {
    let (reason, message) = if initialized {
        (condition::initialized::PODS_CREATED, "PodGang is fully initialized")
    } else {
        (
            condition::initialized::PODS_PENDING,
            "Not all constituent pods have been created yet",
        )
    };
    let status = Status::of(initialized);
    Finding {
        type_: condition::INITIALIZED,
        status,
        reason,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
