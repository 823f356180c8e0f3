//! Room that is made, or kept, for a unit that does not fit.
//!
//! A unit of higher priority may evict others: the planner picks the domain that is cheapest to free, its victims are
//! asked to go, and what they leave is held for the unit. A unit that has waited long gets the same hold on the domain
//! that is nearest to free, but nobody is evicted for it: what runs there ends by itself, and meanwhile nobody smaller
//! slips in. A hold is taken out of the cluster like something that runs, so every other unit is placed around it; a unit
//! of higher priority is placed as if it were not there, and so is a member that a running gang misses, where nobody was
//! evicted: the hold lies over what runs there. What is held is planned anew when the unit asks for something else, when
//! one of the nodes changes, and after a while.
//!
//! Pods that are being deleted are as good as gone, whoever deletes them: a scheduler that comes after the evictions of
//! another one finds the room that is being made, and evicts nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grove_api::PodGang;
use grove_api::podgang::{PendingExplanation, Waiting};
use grove_kubeplace::{GangRequest, PodKey};
use grove_placement::{
    Amounts, Assignment, Budget, Cluster, Gang, NodeId, Outcome, Preemption, PreemptionRequest, Running, preempt,
};
use grove_runtime::Backoff;
use jiff::Timestamp;

use crate::attempt::nameless;
use crate::core::{Core, Decided};
use crate::pod::KeptPod;
use crate::queue::{Hope, Rank, Unit};
use crate::statement::{Statement, because, reason};
use crate::write::Action;

/// How long victims may take to go before the plan is made anew.
const HOLD_MAX: Duration = Duration::from_secs(120);
/// Requests for which no room can be made and that are remembered; for more it is simply tried.
const FUTILE_MAX: usize = 64;
/// How long after its grace a pod that is being deleted is still expected to go: its node may be dead.
const LATE_MAX: Duration = Duration::from_secs(30);
/// How long a gang waits before a domain is kept for it, and how long that is before another one may be nearer to free.
const AGED: Duration = Duration::from_secs(300);

/// Places that are kept for a unit.
#[derive(Debug)]
pub(crate) struct Hold {
    rank: Rank,
    /// What was asked for.
    gang: Gang,
    assignments: Vec<Assignment>,
    /// Nobody was evicted for it: what runs there ends by itself.
    is_patient: bool,
    /// By then the evictions are carried out, or others are nearer to free.
    until: Timestamp,
    evictions: Evictions,
    pub(crate) says: PendingExplanation,
}

/// What became of those who were asked to go.
#[derive(Debug, Default)]
struct Evictions {
    /// UIDs of all of them.
    victims: BTreeSet<String>,
    /// Those who could not be asked, or were not allowed to go, and when they are asked again.
    again: Vec<Arc<KeptPod>>,
    again_at: Option<Timestamp>,
    failures: u32,
}

impl Hold {
    pub(crate) fn is_on(&self, node: NodeId) -> bool {
        self.assignments.iter().any(|assignment| assignment.node == node)
    }

    fn take(&self, cluster: &mut Cluster) {
        self.each(cluster, Cluster::take);
    }

    fn give_back(&self, cluster: &mut Cluster) {
        self.each(cluster, Cluster::give_back);
    }

    fn each(&self, cluster: &mut Cluster, change: fn(&mut Cluster, NodeId, &Amounts)) {
        for assignment in &self.assignments {
            let amounts = cluster.requests(assignment.shape).clone();
            for _ in 0..assignment.pods {
                change(cluster, assignment.node, &amounts);
            }
        }
    }
}

/// A request for which no room can be made, as long as nothing has changed that: many ask for the same.
#[derive(Debug)]
pub(crate) struct Futile {
    ask: Ask,
    guards: Vec<String>,
}

/// What decides whether room can be made.
#[derive(Debug, PartialEq)]
struct Ask {
    gang: Gang,
    priority: i32,
    may_evict: bool,
    may_keep: bool,
}

/// A unit that runs, as the planner sees it, and its pods by pod-group and node.
struct Candidate {
    unit: Unit,
    running: Running,
    pods: BTreeMap<(usize, NodeId), Vec<Arc<KeptPod>>>,
}

impl Core {
    /// Does something with the holds that a unit may use lifted; those that are not its own return afterwards.
    pub(crate) fn without_holds<T>(&mut self, unit: &Unit, rank: Rank, work: impl FnOnce(&mut Self) -> T) -> T {
        let may_use = |holder: &Unit, hold: &Hold| {
            let goes_first = rank.priority < hold.rank.priority || (hold.is_patient && !rank.is_new);
            holder == unit || goes_first
        };
        self.lifting(may_use, work)
    }

    fn lifting<T>(&mut self, is_lifted: impl Fn(&Unit, &Hold) -> bool, work: impl FnOnce(&mut Self) -> T) -> T {
        let holds = std::mem::take(&mut self.holds);
        let (lifted, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            holds.into_iter().partition(|(holder, hold)| is_lifted(holder, hold));
        lifted
            .values()
            .for_each(|hold| hold.give_back(self.state.mirror.cluster_mut()));
        self.holds = kept;
        let done = work(self);
        for (holder, hold) in lifted {
            hold.take(self.state.mirror.cluster_mut());
            self.holds.entry(holder).or_insert(hold);
        }
        done
    }

    /// Those for whom the room is kept without which a gang does not fit; nobody if it would not fit with it.
    pub(crate) fn kept_for_others(&mut self, gang: &Gang) -> Vec<String> {
        if self.holds.is_empty() {
            return Vec::new();
        }
        let nodes: Vec<NodeId> = self.lifting(
            |_, _| true,
            |core| match core
                .solver
                .solve(core.state.mirror.cluster_mut(), gang, Budget::default())
            {
                Outcome::Placed(plan) => plan.assignments.iter().map(|assignment| assignment.node).collect(),
                _ => Vec::new(),
            },
        );
        let is_in_the_way = |hold: &Hold| nodes.iter().any(|node| hold.is_on(*node));
        let holds = self.holds.iter().filter(|(_, hold)| is_in_the_way(hold));
        holds.map(|(holder, _)| holder.to_string()).collect()
    }

    /// Ends the hold of a unit that is placed, or gone, or to be planned anew.
    pub(crate) fn end_hold(&mut self, unit: &Unit) {
        if let Some(hold) = self.holds.remove(unit) {
            hold.give_back(self.state.mirror.cluster_mut());
            self.refused.clear();
            self.futile.clear();
            self.state.stir.is_unkept |= hold.is_patient;
            self.state
                .stir
                .room
                .extend(hold.assignments.iter().map(|assignment| assignment.node));
        }
    }

    /// Ends the hold of a unit if its time is over.
    pub(crate) fn end_old_hold(&mut self, unit: &Unit, now: Timestamp) {
        if self.holds.get(unit).is_some_and(|hold| now >= hold.until) {
            self.end_hold(unit);
        }
    }

    /// Ends the hold of a unit for which nothing can be planned as it is. Evictions are under way: they end by themselves.
    pub(crate) fn end_patient_hold(&mut self, unit: &Unit) {
        if self.holds.get(unit).is_some_and(|hold| hold.is_patient) {
            self.end_hold(unit);
        }
    }

    /// Those who have waited long enough that a domain is kept for them, unless one is kept for somebody else.
    pub(crate) fn next_to_keep(&self, now: Timestamp) -> Vec<(Rank, Unit)> {
        if self.holds.values().any(|hold| hold.is_patient) {
            return Vec::new();
        }
        let mut parked = self.queue.parked();
        parked.retain(|(rank, unit)| now >= rank.since + AGED && matches!(self.queue.hope(unit), Some(Hope::Room(_))));
        parked
    }

    /// Tries to make room for a unit that does not fit, or to keep some. What it says of that, if it does.
    pub(crate) fn make_room(
        &mut self,
        unit: &Unit,
        rank: Rank,
        request: &GangRequest,
        now: Timestamp,
    ) -> Option<Decided> {
        if let Some(hold) = self.holds.get(unit) {
            if hold.gang == request.gang {
                return Some(self.evict_again(unit, now));
            }
            self.end_hold(unit);
        }
        let is_aged = now >= rank.since + AGED;
        if !is_aged {
            self.look_at(unit, rank.since + AGED);
        }
        let record = self.records.entry(unit.clone()).or_default();
        record.guards.clear();
        if record.said.as_ref().is_some_and(is_hopeless) {
            return None;
        }
        let ask = Ask {
            gang: nameless(&request.gang),
            priority: rank.priority.0,
            may_evict: rank.priority.0 > self.state.lowest_priority()
                && !self.state.waiting(unit).iter().any(|pod| pod.never_preempts()),
            // One is kept at a time: it lies idle.
            may_keep: is_aged && self.holds.values().all(|hold| !hold.is_patient),
        };
        if !ask.may_evict && !ask.may_keep {
            return None;
        }
        if let Some(known) = self.futile.iter().find(|known| known.ask == ask) {
            self.records.entry(unit.clone()).or_default().guards = known.guards.clone();
            return None;
        }
        let made = self.plan_room(unit, (rank, &ask), request, now);
        if made.is_none() && !self.holds.contains_key(unit) && self.futile.len() < FUTILE_MAX {
            let guards = self.records.get(unit).map(|record| record.guards.clone());
            let guards = guards.unwrap_or_default();
            self.futile.push(Futile { ask, guards });
        }
        made
    }

    fn plan_room(
        &mut self,
        unit: &Unit,
        (rank, ask): (Rank, &Ask),
        request: &GangRequest,
        now: Timestamp,
    ) -> Option<Decided> {
        let candidates = self.candidates(unit);
        let mut running: Vec<Running> = candidates.iter().map(|candidate| candidate.running.clone()).collect();
        let priority = ask.priority;
        let leaving = self.leaving(now);
        let outranks_some = running.iter().any(|running| running.priority < priority);
        if ask.may_evict
            && (outranks_some || !leaving.is_empty())
            && let Some(preemption) = self.plan(request, priority, (&running, &leaving))
        {
            return Some(self.evict(unit, (rank, &request.gang), (&candidates, preemption), now));
        }
        running.iter_mut().for_each(|running| running.budgets.clear());
        if outranks_some {
            let guards = self.guards(request, priority, &candidates, (&running, &leaving));
            self.records.entry(unit.clone()).or_default().guards = guards;
        }
        if !ask.may_keep {
            return None;
        }
        // Nobody is evicted, so no budget is asked.
        let preemption = self.plan(request, i32::MAX, (&running, &leaving))?;
        let message = format!("{} is kept for it until there is room", preemption.domain);
        let says = because(reason::QUEUED, message, Waiting::Wait);
        let hold = Hold {
            rank,
            gang: request.gang.clone(),
            assignments: preemption.plan.assignments,
            is_patient: true,
            until: now + AGED,
            evictions: Evictions::default(),
            says,
        };
        self.hold(unit, hold);
        None
    }

    /// What pods that are being deleted still hold, and where.
    fn leaving(&mut self, now: Timestamp) -> Vec<(NodeId, Amounts)> {
        let pods = self.state.pods.values();
        let leaving = pods.filter(|pod| pod.leaves_at().is_some_and(|at| now < at + LATE_MAX));
        let leaving: Vec<PodKey> = leaving.map(|pod| pod.key().clone()).collect();
        let mirror = &mut self.state.mirror;
        let held = leaving.iter().filter_map(|pod| {
            let (node, shape) = mirror.footprint(pod)?;
            Some((node, mirror.cluster().requests(shape).clone()))
        });
        held.collect()
    }

    fn plan(
        &mut self,
        request: &GangRequest,
        priority: i32,
        (running, leaving): (&[Running], &[(NodeId, Amounts)]),
    ) -> Option<Preemption> {
        let cluster = self.state.mirror.cluster_mut();
        leaving.iter().for_each(|(node, held)| cluster.give_back(*node, held));
        let request = PreemptionRequest {
            gang: &request.gang,
            priority,
            running,
            budgets: &self.state.budgets.allowed(),
        };
        let found = preempt(&mut self.solver, cluster, request);
        leaving.iter().for_each(|(node, held)| cluster.take(*node, held));
        let visited = self.visited.get_or_insert(0);
        *visited = visited.saturating_add(self.solver.work().candidates);
        found
    }

    /// What disruption budgets would have to allow for room to be made; nothing if that would not help.
    fn guards(
        &mut self,
        request: &GangRequest,
        priority: i32,
        candidates: &[Candidate],
        unguarded: (&[Running], &[(NodeId, Amounts)]),
    ) -> Vec<String> {
        let is_guarded = |running: &Running| running.priority < priority && running.budgets.iter().any(Option::is_some);
        if !candidates.iter().any(|candidate| is_guarded(&candidate.running)) {
            return Vec::new();
        }
        let Some(preemption) = self.plan(request, priority, unguarded) else {
            return Vec::new();
        };
        let mut going = BTreeMap::new();
        for victim in &preemption.victims {
            let budgets = &candidates[victim.running].running.budgets;
            for assignment in &victim.assignments {
                if let Some(budget) = budgets.get(assignment.pod_group).copied().flatten() {
                    *going.entry(budget).or_insert(0) += assignment.pods;
                }
            }
        }
        self.state.budgets.relaxed(&going)
    }

    fn hold(&mut self, unit: &Unit, hold: Hold) {
        hold.take(self.state.mirror.cluster_mut());
        self.look_at(unit, hold.until);
        self.holds.insert(unit.clone(), hold);
    }

    fn evict(
        &mut self,
        unit: &Unit,
        (rank, gang): (Rank, &Gang),
        (candidates, preemption): (&[Candidate], Preemption),
        now: Timestamp,
    ) -> Decided {
        let (mut actions, mut names, mut victims) = (Vec::new(), Vec::new(), BTreeSet::new());
        for victim in &preemption.victims {
            let candidate = &candidates[victim.running];
            names.push(candidate.unit.to_string());
            for assignment in &victim.assignments {
                let pods = candidate
                    .pods
                    .get(&(assignment.pod_group, assignment.node))
                    .into_iter()
                    .flatten();
                let going = pods.take(assignment.pods as usize).cloned();
                for pod in going {
                    victims.insert(pod.uid().to_owned());
                    let room_for = unit.clone();
                    actions.push(Action::Evict { pod, room_for });
                }
            }
        }
        names.sort();
        names.dedup();
        tracing::info!(%unit, domain = preemption.domain, victims = ?names, "makes room");
        let message = match actions.len() {
            0 => "pods that are being deleted make room".to_owned(),
            pods => format!(
                "{pods} pods of {} are evicted from {} to make room",
                names.join(", "),
                preemption.domain
            ),
        };
        let says = because(reason::PREEMPTING, message, Waiting::Wait);
        let hold = Hold {
            rank,
            gang: gang.clone(),
            assignments: preemption.plan.assignments,
            is_patient: false,
            until: now + HOLD_MAX,
            evictions: Evictions {
                victims,
                ..Evictions::default()
            },
            says,
        };
        self.hold(unit, hold);
        Decided {
            actions,
            ..Decided::default()
        }
    }

    /// A pod could not be evicted: it is asked again after a while, as long as the room is wanted.
    pub(crate) fn evict_later(&mut self, unit: &Unit, pod: Arc<KeptPod>, now: Timestamp) {
        let evictions = self.holds.get_mut(unit).map(|hold| &mut hold.evictions);
        let Some(evictions) = evictions.filter(|evictions| evictions.victims.contains(pod.uid())) else {
            return;
        };
        evictions.again.push(pod);
        if evictions.again_at.is_none() {
            evictions.failures += 1;
            let at = now + Backoff::OBJECT.after(evictions.failures);
            evictions.again_at = Some(at);
            self.look_at(unit, at);
        }
    }

    fn evict_again(&mut self, unit: &Unit, now: Timestamp) -> Decided {
        let evictions = self.holds.get_mut(unit).map(|hold| &mut hold.evictions);
        let due = evictions.filter(|evictions| evictions.again_at.is_some_and(|at| now >= at));
        let Some(evictions) = due else {
            return Decided::default();
        };
        evictions.again_at = None;
        let again = std::mem::take(&mut evictions.again).into_iter();
        let pods = &self.state.pods;
        let stays = |pod: &Arc<KeptPod>| {
            let known = pods.get(pod.key());
            known.is_some_and(|known| known.uid() == pod.uid() && known.is_live())
        };
        let room_for = unit;
        let actions = again.filter(stays).map(|pod| Action::Evict {
            pod,
            room_for: room_for.clone(),
        });
        Decided {
            actions: actions.collect(),
            ..Decided::default()
        }
    }

    /// What runs and was placed by this scheduler, the unit itself left out. Pods that are on their way out make room
    /// already.
    fn candidates(&mut self, unit: &Unit) -> Vec<Candidate> {
        let gangs = self.state.gangs.keys().cloned().map(Unit::Gang);
        let pods = self.state.pods.values().filter(|pod| pod.has_place());
        let single = pods
            .filter_map(|pod| self.state.unit_of(pod))
            .filter(|unit| matches!(unit, Unit::Pod(_)));
        let units: Vec<Unit> = gangs.chain(single).filter(|other| other != unit).collect();
        units.into_iter().filter_map(|unit| self.candidate(unit)).collect()
    }

    fn candidate(&mut self, unit: Unit) -> Option<Candidate> {
        let gang = self.state.gang_of(&unit)?;
        let mut candidate = Candidate {
            running: Running {
                name: unit.to_string(),
                priority: self.state.priority(&gang),
                assignments: Vec::new(),
                minimum: minimum(&gang),
                budgets: Vec::new(),
            },
            unit,
            pods: BTreeMap::new(),
        };
        for (pod_group, group) in gang.spec.pod_groups.iter().enumerate() {
            let members: Vec<Arc<KeptPod>> = self
                .state
                .listed(group)
                .filter(|pod| pod.has_place())
                .cloned()
                .collect();
            let budget = self.state.budgets.of(members.iter().map(|pod| &**pod));
            candidate.running.budgets.push(budget);
            for pod in members {
                let Some((node, shape)) = self.state.mirror.footprint(pod.key()) else {
                    continue;
                };
                candidate.pods.entry((pod_group, node)).or_default().push(pod);
                let assignments = &mut candidate.running.assignments;
                let same = assignments
                    .iter_mut()
                    .find(|known| (known.pod_group, known.node, known.shape) == (pod_group, node, shape));
                match same {
                    Some(known) => known.pods += 1,
                    None => assignments.push(Assignment {
                        pod_group,
                        node,
                        cell: None,
                        shape,
                        pods: 1,
                    }),
                }
            }
        }
        (!candidate.running.assignments.is_empty()).then_some(candidate)
    }
}

/// Whether no eviction would help.
fn is_hopeless(said: &Statement) -> bool {
    said.pending
        .as_ref()
        .is_some_and(|pending| pending.waiting == Waiting::Never)
}

fn minimum(gang: &PodGang) -> Vec<u32> {
    let groups = gang.spec.pod_groups.iter();
    groups
        .map(|group| u32::try_from(group.min_replicas).unwrap_or(0))
        .collect()
}
