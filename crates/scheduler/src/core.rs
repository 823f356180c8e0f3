//! The scheduler without its watches and requests: it is told what was seen and what became of its actions, and asked
//! for the next step. Time is an argument.
//!
//! One step is one decision, in order of urgency: try the next unit of the queue; if nobody is to be tried, find out why
//! one that does not fit does not. So explaining, which is dear, never holds up a unit that could be placed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grove_api::PodGang;
use grove_api::config::{OperatorConfiguration, ScaleOut};
use grove_api::topology::DEFAULT_TOPOLOGY_NAME;
use grove_kubeplace::PodKey;
use grove_kubeplace::rooms::TopologyRoom;
use grove_placement::{Budget, Gang, NodeId, Policy as Packing, Solver};
use grove_runtime::{Backoff, Notice};
use grove_topology::resolve::default_reference;
use jiff::Timestamp;
use kube::ResourceExt;

use crate::attempt::ANSWER_MAX;
use crate::hand::Hand;
use crate::pod::KeptPod;
use crate::preempt::{Futile, Hold};
use crate::quality::Quality;
use crate::queue::{Hope, Queue, Rank, Unit};
use crate::seen::Seen;
use crate::state::State;
use crate::statement::Statement;
use crate::tell::Unformed;
use crate::write::{Action, Done};

/// What is decided by whoever runs the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Pods that name this scheduler are placed.
    pub name: String,
    pub hand: Hand,
    /// Where a replica grows when its domain is full.
    pub scale_out: ScaleOut,
    /// The topology of gangs that name none.
    pub default_topology: String,
    /// How long a gang that never was whole keeps pods below its minimum, and how long a pinned pod may wait to be bound.
    pub grace: Duration,
    /// Which hosts are taken among equally few domains.
    pub packing: Packing,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            name: "grove-scheduler".to_owned(),
            hand: Hand::Binds,
            scale_out: ScaleOut::SameDomain,
            default_topology: DEFAULT_TOPOLOGY_NAME.to_owned(),
            grace: Duration::from_secs(30),
            packing: Packing::default(),
        }
    }
}

impl Policy {
    /// As the operator is configured: both go by the same topologies.
    pub fn new(configuration: &OperatorConfiguration) -> Self {
        let topology = &configuration.topology_aware_scheduling;
        Self {
            scale_out: topology.scale_out,
            packing: grove_kubeplace::packing(configuration.scheduler.packing),
            default_topology: default_reference(&topology.source).name.to_owned(),
            ..Self::default()
        }
    }

    /// The same for pods that the cluster's own scheduler binds.
    pub fn pinning(configuration: &OperatorConfiguration) -> Self {
        Self {
            name: "default-scheduler".to_owned(),
            hand: Hand::Pins,
            ..Self::new(configuration)
        }
    }
}

/// What to do now.
#[derive(Debug, Default)]
pub struct Decided {
    pub actions: Vec<Action>,
    pub notices: Vec<Notice>,
    /// How long a gang had waited that is placed for the first time.
    pub waited: Option<Duration>,
}

/// Who there is, for people who watch from afar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    pub ready: usize,
    pub parked: usize,
    pub backing_off: usize,
    /// Gangs by state and reason.
    pub gangs: BTreeMap<(&'static str, String), usize>,
    /// Since when the oldest gang waits that is not placed, by reason.
    pub pending_since: BTreeMap<String, Timestamp>,
    /// Scopes of placed gangs that prefer a level, and how many of them have it, by level.
    pub preferred: BTreeMap<String, (usize, usize)>,
    /// Scopes of placed gangs that require a level and do not lie in one domain of it, by level.
    pub violated: BTreeMap<String, usize>,
    pub rooms: Vec<TopologyRoom>,
}

/// What is remembered of a unit beside its objects; nothing of it is missed after a restart.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Of which object it is: another may take the name.
    uid: Option<String>,
    /// Binds that are under way.
    pub(crate) binding: usize,
    /// When it is looked at though they are not answered.
    bind_due: Option<Timestamp>,
    /// Some of them were refused.
    is_refused: bool,
    /// Attempts whose binds failed since the last one that went well.
    pub(crate) failures: u32,
    /// What its status says, or will once the write that is under way has ended.
    pub(crate) said: Option<Statement>,
    pub(crate) is_writing: bool,
    /// Writes of its status that failed since the last one that went well.
    unwritten: u32,
    /// Its status should say something else once the present write has ended.
    pub(crate) has_more_to_say: bool,
    /// The outcome that the last Event told of, whether or not the status could be written.
    pub(crate) told: Option<String>,
    /// How long it waited to be placed is counted.
    pub(crate) is_counted: bool,
    /// When it was last explained.
    pub(crate) explained_at: Option<Timestamp>,
    /// Whether it once had its minimum and has kept some of it since; none: its status tells.
    pub(crate) was_whole: Option<bool>,
    /// What it lacks, as long as it has not all the pods that it needs.
    pub(crate) unformed: Option<Unformed>,
    /// How well it lies, as long as it is placed.
    pub(crate) quality: Quality,
    /// What it prefers and could not have when it was placed.
    pub(crate) regret: Option<String>,
    /// What disruption budgets would have to allow for others to make room.
    pub(crate) guards: Vec<String>,
    /// Since when its pods, by UID, are seen to be pinned and not bound.
    pub(crate) pinned: BTreeMap<String, Timestamp>,
    /// Nodes to which its pods were pinned in vain, and until when it is tried elsewhere first.
    pub(crate) avoided: BTreeMap<NodeId, Timestamp>,
}

/// Decides.
#[derive(Debug)]
pub struct Core {
    pub(crate) policy: Policy,
    pub(crate) state: State,
    pub(crate) queue: Queue,
    pub(crate) solver: Solver,
    pub(crate) records: BTreeMap<Unit, Record>,
    /// Units that do not fit and whose reason is not known, by the time from which it may be looked for.
    pub(crate) unexplained: BTreeSet<(Timestamp, Rank, Unit)>,
    /// Units of which it is not known whether they fit: searched for longer once nobody else waits for a try.
    pub(crate) undecided: BTreeSet<(Rank, Unit)>,
    /// How long is searched for a place at first.
    pub(crate) budget: Budget,
    /// Searching for longer now.
    pub(crate) is_thorough: bool,
    /// Units that are to be looked at again at a time.
    timers: BTreeSet<(Timestamp, Unit)>,
    /// Places that are kept for units that wait.
    pub(crate) holds: BTreeMap<Unit, Hold>,
    /// Requests that do not fit, as long as nothing has made room.
    pub(crate) refused: Vec<Gang>,
    /// Requests for which no room can be made, as long as nobody has left or may be made to.
    pub(crate) futile: Vec<Futile>,
    /// When a pod last came that is to be placed, or was let go.
    pub(crate) born_at: Option<Timestamp>,
    /// Domains that the engine weighed in the last step, if it was asked.
    pub(crate) visited: Option<u64>,
    /// The unit that the last step was about.
    tried: Option<Unit>,
}

impl Core {
    pub fn new(policy: Policy) -> Self {
        Self {
            state: State::new(&policy),
            queue: Queue::default(),
            solver: Solver::with_policy(policy.packing),
            policy,
            records: BTreeMap::new(),
            unexplained: BTreeSet::new(),
            undecided: BTreeSet::new(),
            budget: Budget::default(),
            is_thorough: false,
            timers: BTreeSet::new(),
            holds: BTreeMap::new(),
            refused: Vec::new(),
            futile: Vec::new(),
            born_at: None,
            visited: None,
            tried: None,
        }
    }

    /// Takes an object as it was seen.
    pub fn see(&mut self, seen: Seen) {
        self.state.see(seen);
    }

    /// Takes what became of an action.
    pub fn done(&mut self, done: Done, now: Timestamp) {
        match done {
            Done::Bound { pod } => self.bind_ended(&pod, Ok(()), now),
            Done::Found { pod } => {
                self.state.find(&pod);
                self.bind_ended(&pod, Ok(()), now);
            }
            Done::Refused { pod, why } => {
                self.state.forget(pod.key(), pod.uid());
                self.bind_ended(&pod, Err(why), now);
            }
            Done::Said { gang, uid, is_written } => {
                let unit = Unit::Gang(gang);
                let record = self.records.get_mut(&unit);
                let Some(record) = record.filter(|record| record.uid.as_ref() == Some(&uid)) else {
                    return;
                };
                record.is_writing = false;
                if is_written {
                    record.unwritten = 0;
                    if record.has_more_to_say {
                        self.state.stir.units.insert(unit);
                    }
                } else {
                    // Others wait for it: scaled gangs for their base gang.
                    record.said = None;
                    record.unwritten += 1;
                    let wait = Backoff::OBJECT.after(record.unwritten);
                    self.timers.insert((now + wait, unit));
                }
            }
            Done::Kept { pod } => {
                // Whether it must still go is decided anew: the gang may be whole by then.
                if let Some(unit) = self.state.unit_of(&pod) {
                    let record = self.records.entry(unit.clone()).or_default();
                    record.failures += 1;
                    let wait = Backoff::OBJECT.after(record.failures);
                    self.look_at(&unit, now + wait);
                }
            }
            Done::Stays { pod, room_for } => self.evict_later(&room_for, pod, now),
            Done::Other => {}
        }
    }

    fn bind_ended(&mut self, pod: &KeptPod, result: Result<(), String>, now: Timestamp) {
        let Some(unit) = self.state.unit_of(pod) else { return };
        let record = self.records.entry(unit.clone()).or_default();
        record.binding = record.binding.saturating_sub(1);
        if let Err(why) = result {
            tracing::warn!(%unit, pod = pod.name(), why, "a bind was refused; placing it again");
            record.is_refused = true;
        }
        if record.binding > 0 {
            return;
        }
        if let Some(due) = record.bind_due.take() {
            self.timers.remove(&(due, unit.clone()));
        }
        // However many of the gang were refused, it is one attempt that failed.
        if std::mem::take(&mut record.is_refused) {
            record.failures += 1;
            let wait = Backoff::OBJECT.after(record.failures);
            if let Some(rank) = self.rank(&unit) {
                self.queue.wait(unit.clone(), rank, now + wait);
            }
        } else {
            record.failures = 0;
        }
        self.state.stir.units.insert(unit);
    }

    /// So many binds of a unit are about to be sent.
    pub(crate) fn bind_begins(&mut self, unit: &Unit, binds: usize, now: Timestamp) {
        let due = now + self.policy.grace + ANSWER_MAX;
        let record = self.records.entry(unit.clone()).or_default();
        record.binding += binds;
        record.bind_due = Some(due);
        self.look_at(unit, due);
    }

    /// The next decision; none if there is nothing to decide before something changes, or [`Core::next_at`].
    pub fn step(&mut self, now: Timestamp) -> Option<Decided> {
        (self.visited, self.tried) = (None, None);
        while let Some((at, unit)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.state.stir.units.insert(unit);
        }
        // What is absorbed may end a hold, which is one more thing that helps others.
        while !self.state.stir.is_empty() {
            self.absorb(now);
        }
        if let Some((unit, rank)) = self.queue.take(now) {
            let decided = self.attempt(&unit, rank, now);
            self.tried = Some(unit);
            return Some(decided);
        }
        if let Some((_, unit)) = self.undecided.pop_first() {
            return Some(self.attempt_thoroughly(unit, now));
        }
        let (at, _, unit) = self.unexplained.first().cloned()?;
        if at > now {
            return None;
        }
        self.unexplained.pop_first();
        Some(self.explain(&unit, now))
    }

    fn attempt_thoroughly(&mut self, unit: Unit, now: Timestamp) -> Decided {
        let Some(rank) = self.rank(&unit) else {
            return Decided::default();
        };
        self.queue.forget(&unit);
        self.is_thorough = true;
        let decided = self.attempt(&unit, rank, now);
        self.is_thorough = false;
        self.tried = Some(unit);
        decided
    }

    /// Domains that the engine weighed for the last step; none if it was not asked.
    pub fn visited(&self) -> Option<u64> {
        self.visited
    }

    /// The gang that the last step tried to place.
    pub fn tried(&self) -> Option<Arc<PodGang>> {
        let unit = self.tried.as_ref().filter(|_| self.visited.is_some())?;
        self.state.gang_of(unit)
    }

    /// Whether there is more or less room than a census last said, whoever is placed.
    pub fn has_moved(&mut self) -> bool {
        self.state.mirror.rooms().is_stale()
    }

    /// Counts everybody; only for those who show it, as it looks at all gangs.
    pub fn census(&mut self) -> Census {
        let (ready, backing_off) = self.queue.depths();
        let mut census = Census {
            ready,
            backing_off,
            parked: self.queue.len() - ready - backing_off,
            rooms: self.state.mirror.rooms().count(),
            ..Census::default()
        };
        for (unit, record) in &self.records {
            let (Unit::Gang(key), Some(said)) = (unit, &record.said) else {
                continue;
            };
            let state = if said.is_scheduled { "placed" } else { "pending" };
            *census.gangs.entry((state, said.reason.clone())).or_default() += 1;
            if said.is_scheduled {
                record.quality.add_to(&mut census);
                continue;
            }
            let made = self.state.gangs.get(key).and_then(|gang| gang.creation_timestamp());
            if let Some(made) = made {
                let since = census.pending_since.entry(said.reason.clone()).or_insert(made.0);
                *since = made.0.min(*since);
            }
        }
        census
    }

    /// When there will be something to decide though nothing changed.
    pub fn next_at(&self) -> Option<Timestamp> {
        let unexplained = self.unexplained.first().map(|(at, ..)| *at);
        let timer = self.timers.first().map(|(at, _)| *at);
        [self.queue.next_at(), unexplained, timer].into_iter().flatten().min()
    }

    /// Turns what has changed into units to try.
    fn absorb(&mut self, now: Timestamp) {
        let mut stir = std::mem::take(&mut self.state.stir);
        let is_changed = |hold: &Hold| stir.changed.iter().any(|node| hold.is_on(*node));
        let held = self.holds.iter().filter(|(_, hold)| is_changed(hold));
        for unit in held.map(|(unit, _)| unit.clone()).collect::<Vec<_>>() {
            self.end_hold(&unit);
            stir.units.insert(unit);
        }
        if stir.is_unkept {
            for (rank, unit) in self.next_to_keep(now) {
                self.queue.add(unit, rank);
            }
        }
        if stir.is_birth {
            self.born_at = Some(now);
        }
        if stir.nodes || !stir.room.is_empty() || !stir.marks.is_empty() {
            self.refused.clear();
            self.futile.clear();
            let cluster = self.state.mirror.cluster();
            let fits = |shape| {
                let requests = cluster.requests(shape);
                let mut nodes = stir.room.iter();
                nodes.any(|node| {
                    requests.iter().all(|(resource, amount)| {
                        cluster.free(*node, resource) >= i64::try_from(amount).unwrap_or(i64::MAX)
                    })
                })
            };
            let was_kept_away = |shape| {
                let mut stances = cluster.stances(shape).iter();
                stances.any(|(mark, _)| stir.marks.contains(mark))
            };
            self.queue.wake(|hope| match hope {
                Hope::Room(shapes) => shapes.iter().any(|shape| fits(*shape) || was_kept_away(*shape)),
                Hope::Nodes => stir.nodes,
                Hope::Own => false,
            });
        }
        if stir.victims || stir.is_leaving {
            self.futile.clear();
        }
        if stir.victims {
            // Whoever may evict nobody gains nothing from it.
            let lowest = self.state.lowest_priority();
            let parked = self.queue.parked().into_iter();
            for (rank, unit) in parked.filter(|(rank, _)| rank.priority.0 > lowest) {
                self.queue.add(unit, rank);
            }
        }
        let kept_there = |hold: &Hold| stir.room.iter().any(|node| hold.is_on(*node));
        let holders = self
            .holds
            .iter()
            .filter(|(_, hold)| kept_there(hold))
            .map(|(unit, _)| unit.clone());
        for unit in stir.units.into_iter().chain(holders.collect::<Vec<_>>()) {
            match self.rank(&unit) {
                Some(rank) => {
                    self.remember(&unit);
                    self.queue.add(unit, rank);
                }
                None => self.drop_unit(&unit),
            }
        }
    }

    /// Begins to remember a unit. What is remembered of one is not true of another that took its name.
    fn remember(&mut self, unit: &Unit) {
        let uid = self.state.uid_of(unit);
        if self.records.get(unit).is_some_and(|record| record.uid != uid) {
            self.drop_unit(unit);
        }
        self.records.entry(unit.clone()).or_default().uid = uid;
    }

    /// Nothing of the unit is left, or it is not ours.
    fn drop_unit(&mut self, unit: &Unit) {
        self.queue.forget(unit);
        self.end_hold(unit);
        self.records.remove(unit);
        self.unexplained.retain(|(_, _, other)| other != unit);
        self.undecided.retain(|(_, other)| other != unit);
        self.timers.retain(|(_, other)| other != unit);
    }

    /// Where a unit stands in the queue; none if there is nothing to place.
    pub(crate) fn rank(&self, unit: &Unit) -> Option<Rank> {
        let Some(gang) = self.state.gang_of(unit) else {
            // Its pods are told that nobody will place them.
            return self.state.orphaned_since(unit).map(|since| Rank {
                is_new: true,
                priority: Reverse(0),
                is_surplus: false,
                since,
            });
        };
        if gang.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let standing = self.standing(&gang);
        Some(Rank {
            is_new: standing.bound == 0 || standing.is_whole,
            priority: Reverse(self.state.priority(&gang)),
            is_surplus: standing.is_whole,
            since: gang
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        })
    }

    pub(crate) fn standing(&self, gang: &PodGang) -> Standing {
        let mut standing = Standing {
            bound: 0,
            is_whole: !gang.spec.pod_groups.is_empty(),
            is_bound: true,
            held_back: None,
        };
        for group in &gang.spec.pod_groups {
            let placed = self.state.listed(group).filter(|pod| self.state.is_placed(pod)).count();
            standing.bound += placed;
            let minimum = usize::try_from(group.min_replicas).unwrap_or(0);
            standing.is_whole &= placed >= minimum;
            standing.is_bound &= self.state.listed(group).filter(|pod| pod.has_place()).count() >= minimum;
            let gated = || self.state.listed(group).find(|pod| self.policy.hand.is_held_back(pod));
            standing.held_back = standing.held_back.or_else(|| gated().map(|pod| pod.key().clone()));
        }
        standing
    }

    /// Looks at a unit again at a time, whatever happens until then.
    pub(crate) fn look_at(&mut self, unit: &Unit, at: Timestamp) {
        self.timers.insert((at, unit.clone()));
    }
}

/// How much of a gang has a node.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) bound: usize,
    /// Every pod-group has its minimum.
    pub(crate) is_whole: bool,
    /// And not only on the way there: the API says so.
    pub(crate) is_bound: bool,
    /// A pod that is listed and still has Grove's gate: the gang is about to be whole.
    pub(crate) held_back: Option<PodKey>,
}

#[cfg(test)]
mod tests;
