//! What people are told: the gang's status, the pods' conditions, one Event for each outcome.
//!
//! Said when it is news, and not more often than a reader can follow: a pending gang's reason is looked for at most once
//! in ten seconds. One write of a status is under way at a time; what changes meanwhile is said after it.

use std::sync::Arc;
use std::time::Duration;

use grove_api::podgang::{PendingExplanation, Waiting};
use grove_api::{PodGang, labels};
use grove_kubeplace::GangRequest;
use grove_placement::score;
use grove_runtime::Notice;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

use crate::attempt::was_whole;
use crate::core::{Core, Decided, Standing};
use crate::quality::Quality;
use crate::queue::{Hope, Rank, Unit};
use crate::scheduler::wait;
use crate::statement::{Statement, because, proven, reason};
use crate::write::Action;

/// Between two explanations of one unit.
const EXPLAIN_EVERY: Duration = Duration::from_secs(10);
/// And for each other that waits for one, so that explaining takes a small part of the time however many wait.
const EXPLAIN_EACH: Duration = Duration::from_millis(50);
/// Changes under which a gang would fit; the schema takes no more.
const CHANGES_MAX: usize = 3;
/// What Events say was being done.
const ACTION: &str = "Placing";
/// How long nobody has made a pod before it is worth saying that a gang is incomplete: until then its pods are on their
/// way, and what is said of it would be wrong a moment later.
const FORMING: Duration = Duration::from_secs(5);
/// However many pods are made, of a gang in which nothing happens for so long something is said.
const FORMING_MAX: Duration = Duration::from_secs(60);

/// What a gang lacks, and since when it is just that.
#[derive(Debug)]
pub(crate) struct Unformed {
    message: String,
    since: Timestamp,
}

impl Core {
    /// The gang has its minimum on nodes.
    pub(crate) fn say_placed(&mut self, unit: &Unit, gang: &Arc<PodGang>, now: Timestamp) -> Decided {
        self.unexplained.retain(|(_, _, other)| other != unit);
        self.records.entry(unit.clone()).or_default().unformed = None;
        let Ok(request) = self.state.request(gang) else {
            // Some of its pods went meanwhile; that is seen next.
            return Decided::default();
        };
        let scopes = request.report(self.state.mirror.cluster(), &[]);
        let record = self.records.entry(unit.clone()).or_default();
        record.was_whole = Some(true);
        let is_first = !std::mem::replace(&mut record.is_counted, true) && !was_whole(gang);
        record.quality = Quality::of(&scopes);
        let regret = record.regret.clone();
        let mut statement = Statement::placed(&scopes, score(&scopes), regret.as_deref());
        if let Some(stored) = Statement::stored(gang).filter(|_| regret.is_none()) {
            statement.keep_regret(stored);
        }
        let made = gang.metadata.creation_timestamp.as_ref();
        let made = made.filter(|_| is_first && matches!(unit, Unit::Gang(_)));
        Decided {
            waited: made.map(|made| wait(made.0, now)),
            ..self.say(unit, gang, statement, now)
        }
    }

    pub(crate) fn say_pending(
        &mut self,
        unit: &Unit,
        (gang, standing): (&Arc<PodGang>, &Standing),
        pending: PendingExplanation,
        now: Timestamp,
    ) -> Decided {
        if pending.reason != reason::NOT_FORMED {
            self.records.entry(unit.clone()).or_default().unformed = None;
        } else if self.is_forming(unit, &pending.message, now) {
            return Decided::default();
        }
        let statement = Statement::pending(pending);
        let statement = match standing.bound > 0 && self.was_whole(unit, gang) {
            true => {
                let request = self.state.request(gang).ok();
                let scopes = request.map(|request| request.report(self.state.mirror.cluster(), &[]));
                statement.members_missing(&scopes.unwrap_or_default())
            }
            false => statement,
        };
        self.say(unit, gang, statement, now)
    }

    /// Whether what a unit lacks may be on its way. It is looked at again when that can no longer be hoped for.
    fn is_forming(&mut self, unit: &Unit, message: &str, now: Timestamp) -> bool {
        let record = self.records.entry(unit.clone()).or_default();
        let unformed = record.unformed.take().filter(|known| known.message == message);
        let since = unformed.map_or(now, |known| known.since);
        let message = message.to_owned();
        record.unformed = Some(Unformed { message, since });
        let born_at = self.born_at.map_or(since, |born_at| born_at.max(since));
        let worth_saying_at = (born_at + FORMING).min(since + FORMING_MAX);
        if now < worth_saying_at {
            self.look_at(unit, worth_saying_at);
        }
        now < worth_saying_at
    }

    /// The pods of a unit name a gang that does not exist. It may be about to: that is waited for.
    pub(crate) fn say_orphaned(&mut self, unit: &Unit, now: Timestamp) -> Decided {
        let mut decided = Decided::default();
        let (Unit::Gang(key), Some(_)) = (unit, self.state.orphaned_since(unit)) else {
            return decided;
        };
        let label = labels::PODGANG;
        let message = format!(
            "PodGang {} does not exist; create it, or make the pod without the label {label}",
            key.name
        );
        if self.is_forming(unit, &message, now) {
            return decided;
        }
        for pod in self.state.waiting(unit) {
            if pod.complaint() == Some(&message) {
                continue;
            }
            decided.notices.push(failed(pod.reference(), &message, now));
            let message = message.clone();
            decided.actions.push(Action::Mark { pod, message });
        }
        decided
    }

    /// Notes that a unit does not fit and that nobody has said why.
    pub(crate) fn explain_later(&mut self, unit: &Unit, rank: Rank, now: Timestamp) {
        self.unexplained.retain(|(_, _, other)| other != unit);
        let last = self.records.get(unit).and_then(|record| record.explained_at);
        let others = u32::try_from(self.unexplained.len()).unwrap_or(u32::MAX);
        let every = EXPLAIN_EVERY.max(EXPLAIN_EACH.saturating_mul(others));
        let at = last.map_or(now, |last| now.max(last + every));
        self.unexplained.insert((at, rank, unit.clone()));
    }

    /// Finds out why a unit does not fit, and says it.
    pub(crate) fn explain(&mut self, unit: &Unit, now: Timestamp) -> Decided {
        let (Some(gang), Some(rank)) = (self.state.gang_of(unit), self.rank(unit)) else {
            return Decided::default();
        };
        self.records.entry(unit.clone()).or_default().explained_at = Some(now);
        let Ok(request) = self.state.request(&gang) else {
            return Decided::default();
        };
        let mut pending = self.why(unit, &request);
        let guards = self.records.get(unit).map(|record| record.guards.clone());
        let changes = guards.unwrap_or_default().into_iter().chain(pending.would_fit_if);
        pending.would_fit_if = changes.take(CHANGES_MAX).collect();
        // What a cell could hold is not known while its node has not spoken since pods left it.
        let is_final = pending.waiting == Waiting::Never && !request.asks_for_cells;
        if is_final && self.queue.hope(unit).is_some() {
            self.queue.park(unit.clone(), rank, Hope::Nodes);
        }
        let standing = self.standing(&gang);
        self.say_pending(unit, (&gang, &standing), pending, now)
    }

    /// Why a unit that does not fit has no place.
    fn why(&mut self, unit: &Unit, request: &GangRequest) -> PendingExplanation {
        if let Some(hold) = self.holds.get(unit) {
            return hold.says.clone();
        }
        let queued = |message| because(reason::QUEUED, message, Waiting::Wait);
        let others = self.kept_for_others(&request.gang);
        if !others.is_empty() {
            return queued(format!("the room that it could use is kept for {}", others.join(", ")));
        }
        match grove_placement::explain(self.state.mirror.cluster(), &request.gang) {
            Some(proof) => proven(&proof, self.state.blockers(&request.gang, &proof)),
            None => queued("its turn comes when those before it are placed".to_owned()),
        }
    }

    /// Says it, if it is news: on the gang, on the pods that wait, and in an Event.
    fn say(&mut self, unit: &Unit, gang: &Arc<PodGang>, statement: Statement, now: Timestamp) -> Decided {
        let mut decided = Decided::default();
        if !statement.is_scheduled {
            let waiting = self.state.waiting(unit).into_iter();
            let unmarked = waiting.filter(|pod| pod.complaint() != Some(&statement.message));
            decided.actions.extend(unmarked.map(|pod| Action::Mark {
                pod,
                message: statement.message.clone(),
            }));
        }
        let record = self.records.entry(unit.clone()).or_default();
        let stored = || match unit {
            Unit::Gang(_) => Statement::stored(gang),
            Unit::Pod(_) => None,
        };
        let said = record.said.clone().or_else(stored);
        record.has_more_to_say = false;
        if said.as_ref().is_some_and(|said| said.says_the_same(&statement)) {
            record.said = said;
            return decided;
        }
        if record.is_writing {
            record.has_more_to_say = true;
            return decided;
        }
        // A write that failed is tried again; what came of the gang is the same.
        let told = record.told.take().or_else(|| said.map(|said| said.reason));
        let is_other_outcome = told.as_ref() != Some(&statement.reason);
        record.told = Some(statement.reason.clone());
        record.said = Some(statement.clone());
        if is_other_outcome {
            decided.notices.extend(self.notice(unit, gang, &statement, now));
        }
        if let Unit::Gang(_) = unit {
            self.records.entry(unit.clone()).or_default().is_writing = true;
            let gang = gang.clone();
            let statement = Box::new(statement);
            decided.actions.push(Action::Say { gang, statement });
        }
        decided
    }

    fn notice(&self, unit: &Unit, gang: &PodGang, statement: &Statement, now: Timestamp) -> Option<Notice> {
        let about = match unit {
            Unit::Gang(_) => gang.object_ref(&()),
            Unit::Pod(_) => {
                let pods = gang.spec.pod_groups.iter().flat_map(|group| self.state.listed(group));
                pods.map(|pod| pod.reference()).next()?
            }
        };
        if !statement.is_scheduled {
            return Some(failed(about, &statement.message, now));
        }
        Some(Notice {
            about,
            is_warning: false,
            reason: "Scheduled".to_owned(),
            action: ACTION,
            note: placed_where(statement),
            occasion: Some(now),
        })
    }
}

fn failed(about: ObjectReference, message: &str, now: Timestamp) -> Notice {
    Notice {
        about,
        is_warning: true,
        reason: "FailedScheduling".to_owned(),
        action: ACTION,
        note: message.to_owned(),
        occasion: Some(now),
    }
}

/// "Placed in rack r7"; the narrowest level at which the gang is whole.
fn placed_where(statement: &Statement) -> String {
    let gang = statement.placement.first().map(|place| place.scope.clone());
    let mut of_gang = statement
        .placement
        .iter()
        .filter(|place| Some(&place.scope) == gang.as_ref());
    match of_gang.rfind(|place| place.domains.len() == 1) {
        Some(place) => format!("Placed in {} {}", place.level, place.domains[0]),
        None => "Placed".to_owned(),
    }
}
