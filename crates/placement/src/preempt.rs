//! Which running gangs would have to go so that one of higher priority can be placed.
//!
//! Domain first, not victim first: the domains of the level that the gang requires are ranked by what it would cost to
//! free one, and victims are chosen inside the best few, so a gang that needs one rack empties one rack. Evicting a pod
//! of a gang's minimum costs the whole gang; replicas above the minimum are the cheapest victims. Gangs of equal or
//! higher priority are never touched, and no more pods of a disruption budget than it allows. The answer is a plan: the
//! cluster is left as it was found.

use crate::cluster::{Cluster, NodeId};
use crate::eligibility::Verdict;
use crate::gang::{Gang, PodGroup, Replica};
use crate::plan::{Assignment, Plan};
use crate::report::place_name;
use crate::solve::{Budget, Outcome, Solver};
use crate::topology::{Place, ROOT, Tree};

/// A gang that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub name: String,
    pub priority: i32,
    pub assignments: Vec<Assignment>,
    /// By pod-group: pods without which the gang is worth nothing.
    pub minimum: Vec<u32>,
    /// By pod-group: the disruption budget that its pods count against, as an index. Empty if there are none.
    pub budgets: Vec<Option<usize>>,
}

/// What of a running gang has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Index of the running gang.
    pub running: usize,
    /// All of it, or only replicas above its minimum.
    pub whole: bool,
    pub assignments: Vec<Assignment>,
}

/// Victims, and the placement that their going makes possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The domain that is freed; `cluster` when the gang requires no level.
    pub domain: String,
    pub victims: Vec<Victim>,
    pub plan: Plan,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct PreemptionRequest<'a> {
    pub gang: &'a Gang,
    pub priority: i32,
    pub running: &'a [Running],
    /// Pods that each disruption budget still allows to go.
    pub budgets: &'a [u32],
}

/// Domains in which victims are chosen one by one, of those whose estimate is best.
pub(crate) const DOMAINS_MAX: usize = 8;

/// Less is better: the highest priority among the victims, whole gangs, pods.
pub(crate) type Cost = (i32, usize, u32);

/// A domain with those who could go.
pub(crate) struct Prospect {
    place: Place,
    estimate: Cost,
    /// Running gangs with pods there.
    gangs: Vec<usize>,
}

/// Finds the cheapest victims: nobody if the gang fits as it is; none at all if even all of them would not be enough.
pub fn preempt(solver: &mut Solver, cluster: &mut Cluster, request: PreemptionRequest) -> Option<Preemption> {
    let tree = cluster.trees.get(request.gang.topology.0 as usize)?;
    let depth = required_depth(tree, request.gang);
    let whole_cluster = tree.word(0).to_owned();
    if let Outcome::Placed(plan) = solver.solve(cluster, request.gang, Budget::default()) {
        return Some(Preemption {
            domain: whole_cluster,
            victims: Vec::new(),
            plan: plan.clone(),
        });
    }
    let prospects = rank_domains(cluster, request, depth);
    let mut best: Option<(Cost, Preemption)> = None;
    for prospect in prospects.iter().take(DOMAINS_MAX) {
        if best.as_ref().is_some_and(|(cost, _)| *cost <= prospect.estimate) {
            break;
        }
        let found = free_domain(solver, cluster, request, prospect);
        if let Some((cost, preemption)) = found
            && best.as_ref().is_none_or(|(known, _)| cost < *known)
        {
            best = Some((cost, preemption));
        }
    }
    best.map(|(_, preemption)| preemption)
}

pub(crate) fn required_depth(tree: &Tree, gang: &Gang) -> u8 {
    let replica = gang.replica.as_ref().map(|replica| replica.required.as_str());
    let word = gang.pack.required.as_deref().or(replica);
    word.and_then(|word| tree.depth_of(word)).unwrap_or(0)
}

/// What of lower priority runs on one node.
struct Load {
    node: u32,
    place: Place,
    /// Running gangs and what they hold here.
    held: Vec<(usize, Assignment)>,
}

/// The domains that could hold the gang if all of lower priority left them, cheapest estimate first.
pub(crate) fn rank_domains(cluster: &Cluster, request: PreemptionRequest, depth: u8) -> Vec<Prospect> {
    let tree = &cluster.trees[request.gang.topology.0 as usize];
    let loads = loads(tree, request, depth);
    let mut prospects: Vec<Prospect> = Vec::new();
    for loads in loads.chunk_by(|one, other| one.place == other.place) {
        let place = loads[0].place;
        if depth > 0 && tree.is_outside(place) {
            continue;
        }
        let Some(estimate) = estimate(cluster, request, loads) else {
            continue;
        };
        let mut gangs: Vec<usize> = loads
            .iter()
            .flat_map(|load| load.held.iter().map(|(index, _)| *index))
            .collect();
        gangs.sort_unstable();
        gangs.dedup();
        prospects.push(Prospect { place, estimate, gangs });
    }
    prospects.sort_by_key(|prospect| (prospect.estimate, prospect.place));
    prospects
}

/// What may go, by node: one pass over everything that runs.
fn loads(tree: &Tree, request: PreemptionRequest, depth: u8) -> Vec<Load> {
    let lower = request
        .running
        .iter()
        .enumerate()
        .filter(|(_, running)| running.priority < request.priority);
    let held =
        lower.flat_map(|(index, running)| running.assignments.iter().map(move |assignment| (index, *assignment)));
    let mut held: Vec<(usize, Assignment)> = held
        .filter(|(_, assignment)| tree.is_linked(assignment.node.0))
        .collect();
    held.sort_unstable_by_key(|(index, assignment)| (tree.above(assignment.node.0, depth), assignment.node, *index));
    let on_one_node = held.chunk_by(|one, other| one.1.node == other.1.node);
    let load = |held: &[(usize, Assignment)]| {
        let node = held[0].1.node.0;
        Load {
            node,
            place: tree.above(node, depth),
            held: held.to_vec(),
        }
    };
    on_one_node.map(load).collect()
}

/// About what freeing a place costs; none if the gang would not fit even then.
fn estimate(cluster: &Cluster, request: PreemptionRequest, loads: &[Load]) -> Option<Cost> {
    let missing = request
        .gang
        .pod_groups
        .iter()
        .filter(|pod_group| pod_group.missing() > 0);
    let mut cost: Cost = (i32::MIN, 0, 0);
    for pod_group in missing {
        let gains: Vec<u32> = loads.iter().map(|load| gain(cluster, pod_group, load)).collect();
        let lacking = pod_group
            .missing()
            .saturating_sub(room(cluster, request.gang, pod_group, loads[0].place));
        if gains.iter().sum::<u32>() < lacking {
            return None;
        }
        cost = cost.max(cheapest(request, loads, &gains, lacking));
    }
    Some(cost)
}

/// Frees the nodes that give most for least until enough pods find room.
fn cheapest(request: PreemptionRequest, loads: &[Load], gains: &[u32], lacking: u32) -> Cost {
    let priority = |load: &Load| {
        load.held
            .iter()
            .map(|(index, _)| request.running[*index].priority)
            .max()
            .unwrap_or(i32::MIN)
    };
    let mut order: Vec<usize> = (0..loads.len()).filter(|at| gains[*at] > 0).collect();
    order.sort_by_key(|at| {
        (
            priority(&loads[*at]),
            loads[*at].held.len() * 1_000 / gains[*at] as usize,
            *at,
        )
    });
    let (mut cost, mut left): (Cost, u32) = ((i32::MIN, 0, 0), lacking);
    let mut gangs: Vec<usize> = Vec::new();
    for at in order {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(gains[at]);
        cost.0 = cost.0.max(priority(&loads[at]));
        cost.2 += loads[at]
            .held
            .iter()
            .map(|(_, assignment)| assignment.pods)
            .sum::<u32>();
        gangs.extend(loads[at].held.iter().map(|(index, _)| *index));
    }
    gangs.sort_unstable();
    gangs.dedup();
    cost.1 = gangs.len();
    cost
}

/// Pods of a pod-group that a place has room for now.
fn room(cluster: &Cluster, gang: &Gang, pod_group: &PodGroup, place: Place) -> u32 {
    let shape = &cluster.shapes[pod_group.shape.0 as usize];
    let topology = gang.topology.0 as usize;
    if place.depth == cluster.trees[topology].host_depth() {
        return u32::from(shape.rooms[place.id as usize]);
    }
    shape.counts(topology).pods[place.id as usize]
}

/// Pods of a pod-group that a node would have room for beyond now, if all that may go left it.
fn gain(cluster: &Cluster, pod_group: &PodGroup, load: &Load) -> u32 {
    let shape = &cluster.shapes[pod_group.shape.0 as usize];
    if cluster.rule_sets[shape.rule_set].verdicts[load.node as usize] != Verdict::Eligible {
        return 0;
    }
    let held = |resource| -> i64 {
        let amount = |(_, assignment): &(usize, Assignment)| {
            cluster.requests(assignment.shape).get(resource) as i64 * i64::from(assignment.pods)
        };
        load.held.iter().map(amount).sum()
    };
    let freed = shape.room_on(load.node, &cluster.ledger, |resource| -held(resource));
    u32::from(freed.saturating_sub(shape.rooms[load.node as usize]))
}

/// What of a running gang could go from a place: its surplus there, and then all of it.
fn push_units(tree: &Tree, request: PreemptionRequest, place: Place, index: usize, units: &mut Vec<Victim>) {
    let running = &request.running[index];
    let spare_of = |(group, minimum): (usize, &u32)| {
        let of_group = running
            .assignments
            .iter()
            .filter(|assignment| assignment.pod_group == group);
        of_group
            .map(|assignment| assignment.pods)
            .sum::<u32>()
            .saturating_sub(*minimum)
    };
    let mut spare: Vec<u32> = running.minimum.iter().enumerate().map(spare_of).collect();
    let mut surplus = Vec::new();
    let mut rest = Vec::new();
    for assignment in &running.assignments {
        let inside = tree.is_linked(assignment.node.0) && tree.holds(place, assignment.node.0);
        let left = spare.get_mut(assignment.pod_group);
        let going = left
            .as_ref()
            .map_or(0, |left| if inside { assignment.pods.min(**left) } else { 0 });
        if let Some(left) = left {
            *left -= going;
        }
        surplus.extend((going > 0).then_some(Assignment {
            pods: going,
            ..*assignment
        }));
        rest.extend((assignment.pods > going).then_some(Assignment {
            pods: assignment.pods - going,
            ..*assignment
        }));
    }
    if !surplus.is_empty() {
        units.push(Victim {
            running: index,
            whole: false,
            assignments: surplus,
        });
    }
    units.push(Victim {
        running: index,
        whole: true,
        assignments: rest,
    });
}

fn pods(unit: &Victim) -> u32 {
    unit.assignments.iter().map(|assignment| assignment.pods).sum()
}

/// Chooses victims in one domain: the fewest of the cheapest that suffice, and then without those that turn out needless.
pub(crate) fn free_domain(
    solver: &mut Solver,
    cluster: &mut Cluster,
    request: PreemptionRequest,
    prospect: &Prospect,
) -> Option<(Cost, Preemption)> {
    let gang = confined(cluster, request.gang, prospect.place);
    let mut all: Vec<Victim> = Vec::new();
    for running in &prospect.gangs {
        push_units(
            &cluster.trees[gang.topology.0 as usize],
            request,
            prospect.place,
            *running,
            &mut all,
        );
    }
    all.sort_by_key(|unit| {
        (
            request.running[unit.running].priority,
            unit.whole,
            pods(unit),
            unit.running,
        )
    });
    let units: Vec<&Victim> = all.iter().collect();
    let fits_without = |solver: &mut Solver, cluster: &mut Cluster, gone: &[&Victim]| -> bool {
        if !within_budgets(request, gone) {
            return false;
        }
        gone.iter().for_each(|unit| cluster.release(&unit.assignments));
        let fits = matches!(solver.solve(cluster, &gang, Budget::default()), Outcome::Placed(_));
        gone.iter().for_each(|unit| cluster.retake(&unit.assignments));
        fits
    };
    // Room only grows with every victim: the shortest beginning of the list that suffices is found by halving.
    let candidates = allowed(request, &units);
    let (mut too_few, mut enough) = (0, candidates.len());
    if !fits_without(solver, cluster, &candidates[..enough]) {
        return None;
    }
    while too_few + 1 < enough {
        let middle = usize::midpoint(too_few, enough);
        if fits_without(solver, cluster, &candidates[..middle]) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    let mut gone: Vec<&Victim> = candidates[..enough].to_vec();
    for at in (0..gone.len()).rev() {
        let unit = gone.remove(at);
        // What is left of a gang whose minimum goes, goes with it.
        let is_needed = !unit.whole && gone.iter().any(|other| other.whole && other.running == unit.running);
        if is_needed || !fits_without(solver, cluster, &gone) {
            gone.insert(at, unit);
        }
    }
    gone.iter().for_each(|unit| cluster.release(&unit.assignments));
    let plan = match solver.solve(cluster, &gang, Budget::default()) {
        Outcome::Placed(plan) => Some(plan.clone()),
        _ => None,
    };
    gone.iter().for_each(|unit| cluster.retake(&unit.assignments));
    let tree = &cluster.trees[request.gang.topology.0 as usize];
    let domain = if prospect.place == ROOT {
        tree.word(0).to_owned()
    } else {
        place_name(cluster, tree, prospect.place)
    };
    let cost = cost_of(request, &gone);
    Some((
        cost,
        Preemption {
            domain,
            victims: merge(&gone),
            plan: plan?,
        },
    ))
}

fn cost_of(request: PreemptionRequest, gone: &[&Victim]) -> Cost {
    let priority = gone
        .iter()
        .map(|unit| request.running[unit.running].priority)
        .max()
        .unwrap_or(i32::MIN);
    (
        priority,
        gone.iter().filter(|unit| unit.whole).count(),
        gone.iter().map(|unit| pods(unit)).sum(),
    )
}

/// The gang, held in a place.
fn confined(cluster: &Cluster, gang: &Gang, place: Place) -> Gang {
    let mut gang = gang.clone();
    let tree = &cluster.trees[gang.topology.0 as usize];
    let inside = cluster.nodes().find(|node| tree.holds(place, node.0));
    if gang.replica.is_none() && place != ROOT {
        let bound: Vec<NodeId> = inside.into_iter().collect();
        gang.replica = Some(Replica {
            required: tree.word(place.depth).to_owned(),
            bound,
        });
    }
    gang
}

/// Units in order, without those that would take a disruption budget beyond what it allows.
fn allowed<'a>(request: PreemptionRequest, units: &[&'a Victim]) -> Vec<&'a Victim> {
    let mut taken: Vec<&Victim> = Vec::new();
    for unit in units {
        // A gang goes with its surplus or not at all.
        let surplus = units.iter().find(|other| !other.whole && other.running == unit.running);
        let goes_whole = !unit.whole || surplus.is_none_or(|surplus| taken.contains(surplus));
        taken.push(*unit);
        if !goes_whole || !within_budgets(request, &taken) {
            taken.pop();
        }
    }
    taken
}

fn within_budgets(request: PreemptionRequest, gone: &[&Victim]) -> bool {
    let mut left = request.budgets.to_vec();
    let mut going = gone.iter().flat_map(|unit| {
        let budgets = &request.running[unit.running].budgets;
        let budget = |group: usize| budgets.get(group).copied().flatten();
        let assignments = unit.assignments.iter();
        assignments.filter_map(move |assignment| Some((budget(assignment.pod_group)?, assignment.pods)))
    });
    going.all(|(budget, pods)| {
        left.get_mut(budget).is_some_and(|left| {
            let enough = *left >= pods;
            *left = left.saturating_sub(pods);
            enough
        })
    })
}

/// One victim per running gang.
fn merge(gone: &[&Victim]) -> Vec<Victim> {
    let mut victims: Vec<Victim> = Vec::new();
    for unit in gone {
        match victims.iter_mut().find(|victim| victim.running == unit.running) {
            Some(victim) => {
                victim.whole |= unit.whole;
                victim.assignments.extend(&unit.assignments);
            }
            None => victims.push((*unit).clone()),
        }
    }
    victims
}
