//! One try to place a unit, and what follows from its outcome.

use std::sync::Arc;
use std::time::Duration;

use grove_api::config::ScaleOut;
use grove_api::podgang::{PendingExplanation, Waiting};
use grove_api::{PodGang, labels};
use grove_kubeplace::{GangRequest, NotPlaceable};
use grove_placement::{Budget, Gang, Outcome, Plan, ShapeId, Standing as Preference};
use grove_runtime::ObjectKey;
use jiff::Timestamp;
use kube::ResourceExt;

use crate::core::{Core, Decided, Standing};
use crate::hand::Hand;
use crate::queue::{Hope, Rank, Unit};
use crate::statement::{Statement, because, reason};
use crate::write::Action;

/// Requests that did not fit and are remembered; more are simply tried.
const REFUSED_MAX: usize = 64;

/// How long an answer to a bind may take and still be expected: an API server gives up on a request after a minute.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(60);

/// What the engine says.
pub(crate) enum Answer {
    Placed(Plan),
    Infeasible,
    Undecided,
}

impl Core {
    pub(crate) fn attempt(&mut self, unit: &Unit, rank: Rank, now: Timestamp) -> Decided {
        let Some(gang) = self.state.gang_of(unit) else {
            return self.say_orphaned(unit, now);
        };
        let standing = self.standing(&gang);
        if self.records.entry(unit.clone()).or_default().binding > 0 {
            // The last of the answers brings it back. Should it never come, what is bound does not wait for it.
            let grace = self.policy.grace + ANSWER_MAX;
            let released = self.release(unit, &gang, (standing.is_bound, grace), now);
            return released.unwrap_or_default();
        }
        self.end_old_hold(unit, now);
        if standing.bound == 0 {
            // What its status says is of pods that are gone.
            self.records.entry(unit.clone()).or_default().was_whole = Some(false);
        }
        if let Some(decided) = self.release(unit, &gang, (standing.is_whole, self.policy.grace), now) {
            return decided;
        }
        if let Some(decided) = self.unpin(unit, &gang, &standing, now) {
            return decided;
        }
        let request = match self.request(&gang, &standing) {
            Ok(request) => request,
            Err(pending) => return self.cannot(unit, rank, (&gang, &standing), *pending, now),
        };
        if !request.is_waiting() {
            return self.settle(unit, &gang, &standing, now);
        }
        if !self.holds.is_empty() {
            // Who is refused depends on who may use what is kept.
            self.refused.clear();
        }
        match self.without_holds(unit, rank, |core| core.solve_elsewhere(unit, &request, now)) {
            Answer::Placed(plan) if plan.assignments.is_empty() => {
                // It has its minimum, and there is no room for more.
                self.queue.park(unit.clone(), rank, Hope::Room(shapes(&request.gang)));
                self.settle(unit, &gang, &standing, now)
            }
            Answer::Placed(plan) => {
                self.end_hold(unit);
                self.bind(unit, &gang, (&request, &plan), now)
            }
            Answer::Infeasible => {
                self.queue.park(unit.clone(), rank, Hope::Room(shapes(&request.gang)));
                self.explain_later(unit, rank, now);
                self.make_room(unit, rank, &request, now).unwrap_or_default()
            }
            Answer::Undecided => {
                self.queue.park(unit.clone(), rank, Hope::Room(shapes(&request.gang)));
                if !self.is_thorough {
                    self.undecided.retain(|(_, other)| other != unit);
                    self.undecided.insert((rank, unit.clone()));
                    return Decided::default();
                }
                let message = "no placement was found within the search budget; tried again when something changes";
                let pending = because(reason::QUEUED, message.to_owned(), Waiting::Wait);
                self.say_pending(unit, (&gang, &standing), pending, now)
            }
        }
    }

    /// What is asked of the engine, or why nothing can be asked yet.
    fn request(&mut self, gang: &PodGang, standing: &Standing) -> Result<GangRequest, Box<PendingExplanation>> {
        let not_formed = |message| Err(Box::new(because(reason::NOT_FORMED, message, Waiting::Wait)));
        if let Some(held_back) = &standing.held_back {
            let gate = labels::SCHEDULING_GATE;
            return not_formed(format!("pod {} still has the scheduling gate {gate}", held_back.name));
        }
        if let Some(base) = self.unplaced_base(gang) {
            return not_formed(format!("its base gang {base} is not placed yet"));
        }
        let request = match self.state.request(gang) {
            Ok(request) => request,
            Err(not_placeable) => return Err(Box::new(self.why_not(gang, &not_placeable))),
        };
        // More of a gang that runs is worth more than a preference that nobody stated.
        Ok(match standing.is_whole {
            true => request.without_policy(),
            false => request,
        })
    }

    pub(crate) fn solve(&mut self, request: &GangRequest) -> Answer {
        let answer = self.solve_gang(&request.gang);
        let spills = self.policy.scale_out == ScaleOut::SpillOver;
        match (&answer, &request.gang.replica) {
            (Answer::Infeasible, Some(replica)) if spills && !replica.bound.is_empty() => {
                let mut free = request.gang.clone();
                if let Some(replica) = &mut free.replica {
                    replica.bound.clear();
                }
                self.solve_gang(&free)
            }
            _ => answer,
        }
    }

    fn solve_gang(&mut self, gang: &Gang) -> Answer {
        let nameless = nameless(gang);
        if self.refused.contains(&nameless) {
            return Answer::Infeasible;
        }
        let budget = if self.is_thorough { thorough() } else { self.budget };
        let outcome = self.solver.solve(self.state.mirror.cluster_mut(), gang, budget);
        let answer = match outcome {
            Outcome::Placed(plan) => Answer::Placed(plan.clone()),
            Outcome::Infeasible => {
                if self.refused.len() < REFUSED_MAX {
                    self.refused.push(nameless);
                }
                Answer::Infeasible
            }
            Outcome::Undecided => Answer::Undecided,
        };
        let visited = self.visited.get_or_insert(0);
        *visited = visited.saturating_add(self.solver.work().candidates);
        answer
    }

    /// Why a gang that is about to be placed does not get all that it prefers: the best place that there was. Known
    /// only now, while its own pods take no room yet.
    fn regret(&self, request: &GangRequest, plan: &Plan) -> Option<String> {
        let cluster = self.state.mirror.cluster();
        let scopes = request.report(cluster, &plan.assignments);
        let missed = scopes.iter().position(|scope| scope.standing == Preference::Missed)?;
        let mut wish = request.gang.clone();
        let groups = wish.groups.iter_mut().map(|group| &mut group.pack);
        let pod_groups = wish.pod_groups.iter_mut().map(|group| &mut group.pack);
        let pack = std::iter::once(&mut wish.pack)
            .chain(groups)
            .chain(pod_groups)
            .nth(missed)?;
        pack.required = pack.preferred.clone();
        let level = pack.preferred.clone()?;
        let proof = grove_placement::explain(cluster, &wish)?;
        Some(format!(
            "{} prefers one {level}: {}",
            scopes[missed].name, proof.sentence
        ))
    }

    fn bind(&mut self, unit: &Unit, gang: &PodGang, (request, plan): (&GangRequest, &Plan), now: Timestamp) -> Decided {
        let is_first = request.gang.pod_groups.iter().all(|group| group.bound.is_empty());
        let regret = is_first.then(|| self.regret(request, plan));
        let bindings = request.bindings(self.state.mirror.cluster(), plan);
        let mut actions = Vec::with_capacity(bindings.len());
        for binding in bindings {
            if let Some(pod) = self.state.assume(&binding.pod, &binding.node) {
                let node = binding.node;
                actions.push(match self.policy.hand {
                    Hand::Binds => Action::Bind { pod, node },
                    Hand::Pins => {
                        let bounds = self.state.bounds(gang, &pod, &node);
                        Action::Pin { pod, node, bounds }
                    }
                });
            }
        }
        tracing::debug!(%unit, pods = actions.len(), "placed");
        if let Some(regret) = regret {
            self.records.entry(unit.clone()).or_default().regret = regret;
        }
        self.bind_begins(unit, actions.len(), now);
        Decided {
            actions,
            ..Decided::default()
        }
    }

    /// Nothing waits that could be placed now.
    fn settle(&mut self, unit: &Unit, gang: &Arc<PodGang>, standing: &Standing, now: Timestamp) -> Decided {
        self.end_hold(unit);
        match standing.is_whole && standing.is_bound {
            true => self.say_placed(unit, gang, now),
            false => Decided::default(),
        }
    }

    /// The base gang of a scaled one, if that is not on nodes yet. Where gates are lifted by others, they see to it.
    fn unplaced_base(&self, gang: &PodGang) -> Option<String> {
        let name = gang
            .labels()
            .get(labels::BASE_PODGANG)
            .filter(|_| self.policy.hand == Hand::Pins)?;
        let key = ObjectKey::new(gang.namespace().unwrap_or_default(), name.as_str());
        let base = self.state.gangs.get(&key);
        let is_bound = base.is_some_and(|base| self.standing(base).is_bound);
        (!is_bound).then(|| name.clone())
    }

    /// It cannot be tried as it is; only its own objects can change that.
    fn cannot(
        &mut self,
        unit: &Unit,
        rank: Rank,
        (gang, standing): (&Arc<PodGang>, &Standing),
        pending: PendingExplanation,
        now: Timestamp,
    ) -> Decided {
        self.queue.park(unit.clone(), rank, Hope::Own);
        self.end_patient_hold(unit);
        if standing.is_whole && standing.is_bound {
            return self.say_placed(unit, gang, now);
        }
        self.say_pending(unit, (gang, standing), pending, now)
    }

    /// A gang that never was whole does not keep the places of a few: after a grace they are given back.
    fn release(
        &mut self,
        unit: &Unit,
        gang: &PodGang,
        (is_enough, grace): (bool, Duration),
        now: Timestamp,
    ) -> Option<Decided> {
        if is_enough || self.was_whole(unit, gang) {
            return None;
        }
        let pods = gang.spec.pod_groups.iter().flat_map(|group| self.state.listed(group));
        let bound: Vec<_> = pods.filter(|pod| pod.has_place()).cloned().collect();
        let last = bound.iter().map(|pod| pod.bound_at().unwrap_or(now)).max()?;
        let until = last + grace;
        if now < until {
            self.look_at(unit, until);
            return None;
        }
        tracing::warn!(%unit, pods = bound.len(), "not whole after the grace; its pods are released");
        Some(Decided {
            actions: bound.into_iter().map(|pod| Action::Release { pod }).collect(),
            ..Decided::default()
        })
    }

    /// Whether the gang once had its minimum and has kept some of it since. Its status is late, and may not be written.
    pub(crate) fn was_whole(&self, unit: &Unit, gang: &PodGang) -> bool {
        let known = self.records.get(unit).and_then(|record| record.was_whole);
        known.unwrap_or_else(|| was_whole(gang))
    }

    fn why_not(&self, gang: &PodGang, not_placeable: &NotPlaceable) -> PendingExplanation {
        let (reason, waiting) = match not_placeable {
            NotPlaceable::Incomplete { .. } | NotPlaceable::UnboundClaim { .. } | NotPlaceable::NoVolume { .. } => {
                (reason::NOT_FORMED, Waiting::Wait)
            }
            NotPlaceable::NoTopology { .. } | NotPlaceable::NoLevel { .. } => {
                (reason::TOPOLOGY_UNAVAILABLE, Waiting::Act)
            }
            NotPlaceable::Unsupported { .. } | NotPlaceable::Unlike { .. } => (reason::UNSUPPORTED, Waiting::Act),
        };
        let message = match not_placeable {
            NotPlaceable::Incomplete { pod_group, .. } => match self.held_by_others(gang, pod_group) {
                Some(held) => format!("{not_placeable}: {held}"),
                None => not_placeable.to_string(),
            },
            _ => not_placeable.to_string(),
        };
        because(reason, message, waiting)
    }

    /// Whose gate, and not Grove's, holds pods of a pod-group back: "pod w-0-a-1 has the scheduling gate example.com/quota".
    fn held_by_others(&self, gang: &PodGang, pod_group: &str) -> Option<String> {
        let group = gang.spec.pod_groups.iter().find(|group| group.name == pod_group)?;
        let mut held = self.state.listed(group).filter_map(|pod| {
            let mut gates = pod.gates();
            let gate = gates.find(|gate| *gate != labels::SCHEDULING_GATE)?;
            Some((pod.name(), gate))
        });
        let (pod, gate) = held.next()?;
        let others = match held.count() {
            0 => String::new(),
            others => format!(", and {others} more wait for others' gates"),
        };
        Some(format!("pod {pod} has the scheduling gate {gate}{others}"))
    }
}

/// Whether the gang once had its minimum, as its status says.
pub(crate) fn was_whole(gang: &PodGang) -> bool {
    let stored = gang.status.as_ref();
    stored.is_some_and(|status| status.is_degraded()) || Statement::stored(gang).is_some_and(|said| said.is_scheduled)
}

/// How long is searched for a place for which none was found in time, once nobody else waits for a try.
fn thorough() -> Budget {
    let usual = Budget::default();
    Budget {
        find: 8 * usual.find,
        ..usual
    }
}

/// A gang without what does not matter to whether it fits: many ask for the same.
pub(crate) fn nameless(gang: &Gang) -> Gang {
    let mut gang = gang.clone();
    gang.name.clear();
    gang.groups.iter_mut().for_each(|group| group.name.clear());
    gang.pod_groups.iter_mut().for_each(|group| group.name.clear());
    gang
}

/// The shapes of pods that wait.
fn shapes(gang: &Gang) -> Vec<ShapeId> {
    let waiting = gang
        .pod_groups
        .iter()
        .filter(|group| group.desired as usize > group.bound.len());
    waiting.map(|group| group.shape).collect()
}
