//! The pods of a clique, counted, and what follows for its conditions.

use std::cmp::Ordering;

use grove_api::conditions::podclique::{MIN_AVAILABLE_BREACHED, SCHEDULED, breach, scheduled};
use grove_api::conditions::podgang;
use grove_api::{PodClique, PodGang};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::ObjectMeta;

use super::minimum;
use crate::conditions::{self, Finding, Status};
use crate::observed::{ObservedPod, Readiness};
use crate::pods::template_hash;

/// How many live pods are in which state. Pods on their way out are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    pub live: i32,
    pub ready: i32,
    pub scheduled: i32,
    pub gated: i32,
    /// Made from the clique's present template.
    pub updated: i32,
    pub updated_ready: i32,
    /// Scheduled, and neither crashed nor lost: ready, or on the way to it.
    pub ready_or_starting: i32,
}

impl PodCounts {
    pub fn of(clique: &PodClique, pods: &[ObservedPod]) -> Self {
        let hash = template_hash(clique);
        let mut counts = Self::default();
        for pod in pods.iter().filter(|pod| pod.is_live()) {
            let updated = pod.template_hash == hash;
            let broken = matches!(pod.readiness, Readiness::Crashed | Readiness::Lost);
            counts.live += 1;
            counts.ready += i32::from(pod.is_ready());
            counts.scheduled += i32::from(pod.is_scheduled());
            counts.gated += i32::from(pod.is_gated);
            counts.updated += i32::from(updated);
            counts.updated_ready += i32::from(updated && pod.is_ready());
            counts.ready_or_starting += i32::from(pod.is_scheduled() && !broken);
        }
        counts
    }
}

/// The conditions of a clique, from those that it has. Of its past its gang may know more than they do.
pub fn clique_conditions(
    clique: &PodClique,
    counts: PodCounts,
    (is_updating, gang): (bool, Option<&PodGang>),
    now: Timestamp,
) -> Vec<Condition> {
    let mut all = clique
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    let generation = clique.metadata.generation;
    let before = past(&clique.metadata, &all);
    let was_scheduled_before =
        before == Past::Scheduled || (before == Past::Unknown && gang.is_some_and(|gang| was_placed(clique, gang)));
    conditions::put(&mut all, scheduled_finding(clique, counts), generation, now);
    let born = clique.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let is_empty = clique.spec.replicas <= 0;
    let is_scheduled = conditions::is_true(&all, SCHEDULED) && !is_empty;
    if let Some(condition) = all.iter_mut().find(|condition| condition.type_ == SCHEDULED) {
        let since = &mut condition.last_transition_time.0;
        // Once scheduled, the time differs from the birth for ever, even if all of it happens in one second. With no
        // pods to place everything begins anew: those that come next may find no room.
        *since = if is_empty || (before == Past::Empty && !is_scheduled) {
            seconds_from(born, -1)
        } else if is_scheduled || was_scheduled_before {
            seconds_from(born, 1).max(*since)
        } else {
            born
        };
    }
    if is_scheduled && !was_scheduled_before {
        // What was missing so far was a place to run. A breach from now on is another one, and its time begins now.
        all.retain(|condition| condition.type_ != MIN_AVAILABLE_BREACHED);
    }
    conditions::put(&mut all, breach_finding(clique, counts, is_updating), generation, now);
    all
}

/// The clique as its pods say that it is, whatever its status says: who tears something down asks the pods first.
pub fn as_its_pods_say(clique: &PodClique, pods: &[ObservedPod], now: Timestamp) -> PodClique {
    let counts = PodCounts::of(clique, pods);
    let conditions = clique_conditions(clique, counts, (false, None), now);
    let mut clique = clique.clone();
    if let Some(status) = &mut clique.status {
        (status.ready_replicas, status.scheduled_replicas) = (counts.ready, counts.scheduled);
        status.conditions = conditions;
    }
    clique
}

/// A moment that the API's times, which have no fractions, tell apart from the birth.
fn seconds_from(born: Timestamp, seconds: i64) -> Timestamp {
    let moment = born.checked_add(jiff::SignedDuration::from_secs(seconds));
    moment.unwrap_or(born)
}

/// What is known of the time before now, by when `PodCliqueScheduled` changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Past {
    /// At its birth: so far as was seen, there never was room for the minimum.
    Unknown,
    /// Before its birth: it had no pods, and has not had room for the minimum since.
    Empty,
    /// After its birth: it had its minimum of pods on nodes.
    Scheduled,
}

fn past(meta: &ObjectMeta, all: &[Condition]) -> Past {
    let born = meta.creation_timestamp.as_ref().map(|time| time.0);
    let since = conditions::find(all, SCHEDULED).map(conditions::since);
    match (since, born) {
        (None, _) => Past::Unknown,
        (Some(_), None) => Past::Scheduled,
        (Some(since), Some(born)) => match since.cmp(&born) {
            Ordering::Less => Past::Empty,
            Ordering::Equal => Past::Unknown,
            Ordering::Greater => Past::Scheduled,
        },
    }
}

/// Whether the clique has had its minimum of pods on nodes since it had any.
pub fn was_scheduled(clique: &PodClique) -> bool {
    let status = clique.status.as_ref();
    status.is_some_and(|status| was_scheduled_by(&clique.metadata, &status.conditions))
}

/// The same of a clique with these conditions.
pub fn was_scheduled_by(meta: &ObjectMeta, conditions: &[Condition]) -> bool {
    past(meta, conditions) == Past::Scheduled
}

/// Whether whoever places gangs says that the clique had its minimum on nodes, which was lost before anybody counted
/// it. A gang outlives its cliques: what was said before this one was born is not about it.
fn was_placed(clique: &PodClique, gang: &PodGang) -> bool {
    let name = clique.metadata.name.as_deref().unwrap_or_default();
    let takes_part = gang.spec.pod_groups.iter().any(|group| group.name == name);
    let born = clique.metadata.creation_timestamp.as_ref();
    let said = placed_at(gang).zip(born);
    takes_part && said.is_some_and(|(said, born)| said >= born.0)
}

/// Since when whoever places the gang says that it is placed whole, or was until it lost pods.
pub fn placed_at(gang: &PodGang) -> Option<Timestamp> {
    let status = gang.status.as_ref()?;
    let said = conditions::find(&status.conditions, podgang::SCHEDULED)?;
    let is_placed = said.status == "True" || said.reason == podgang::scheduled::MEMBERS_MISSING;
    is_placed.then(|| conditions::since(said))
}

fn scheduled_finding(clique: &PodClique, counts: PodCounts) -> Finding {
    let (min, found) = (minimum(clique), counts.scheduled);
    let enough = found >= min;
    let (reason, opening) = if enough {
        (scheduled::SUFFICIENT, "Sufficient scheduled pods found.")
    } else {
        (scheduled::INSUFFICIENT, "Insufficient scheduled pods.")
    };
    let message = format!("{opening} expected at least: {min}, found: {found}");
    Finding {
        type_: SCHEDULED,
        status: Status::of(enough),
        reason,
        message,
    }
}

fn breach_finding(clique: &PodClique, counts: PodCounts, is_updating: bool) -> Finding {
    let min = minimum(clique);
    let found = counts.ready_or_starting;
    let (status, reason, message) = if is_updating {
        (
            Status::Unknown,
            breach::UPDATE_IN_PROGRESS,
            "Update is in progress".to_owned(),
        )
    } else if counts.scheduled < min {
        let message = format!("Scheduled replicas ({}) below MinAvailable ({min})", counts.scheduled);
        (Status::True, breach::SCHEDULED_BELOW_MINIMUM, message)
    } else if found < min {
        let message = format!("Insufficient ready or starting pods. expected at least: {min}, found: {found}");
        (Status::True, breach::INSUFFICIENT_READY, message)
    } else {
        let message =
            format!("Either sufficient ready or starting pods found. expected at least: {min}, found: {found}");
        (Status::False, breach::SUFFICIENT_READY, message)
    };
    Finding {
        type_: MIN_AVAILABLE_BREACHED,
        status,
        reason,
        message,
    }
}
