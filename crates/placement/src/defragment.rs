//! Which running gangs could move so that a blocked one finds room together. Only ever a proposal: each move restarts
//! pods, so a person or a policy decides.
//!
//! The same domains are weighed as for preemption, but here everyone who leaves must have another place, found and taken
//! on trial, with the blocked gang already in its own. The cluster is left as it was found.

use crate::cluster::Cluster;
use crate::gang::Gang;
use crate::plan::{Assignment, Plan};
use crate::preempt::{DOMAINS_MAX, PreemptionRequest, Running, free_domain, rank_domains, required_depth};
use crate::solve::{Budget, Outcome, Solver};

/// A running gang that may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movable {
    pub running: Running,
    /// The gang as it would be placed anew: no bound pods, as many as run now.
    pub gang: Gang,
}

/// One gang from where it runs to where it could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Index of the movable gang.
    pub movable: usize,
    pub from: Vec<Assignment>,
    pub to: Vec<Assignment>,
}

/// Moves that make room, and the placement that they make room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defragmentation {
    pub domain: String,
    pub moves: Vec<Move>,
    pub plan: Plan,
}

/// Proposes moves that make room for a blocked gang; none if no domain among the cheapest can be cleared this way.
pub fn defragment(
    solver: &mut Solver,
    cluster: &mut Cluster,
    gang: &Gang,
    movable: &[Movable],
    budgets: &[u32],
) -> Option<Defragmentation> {
    let tree = cluster.trees.get(gang.topology.0 as usize)?;
    let depth = required_depth(tree, gang);
    // Nobody loses anything by a move but the restart, so all weigh the same, and a gang moves whole.
    let running: Vec<Running> = movable.iter().map(|movable| whole(&movable.running)).collect();
    let request = PreemptionRequest {
        gang,
        priority: 1,
        running: &running,
        budgets,
    };
    let blocked = solver.solve(cluster, gang, Budget::default()) == Outcome::Infeasible;
    if !blocked {
        return None;
    }
    rank_domains(cluster, request, depth)
        .iter()
        .take(DOMAINS_MAX)
        .find_map(|prospect| {
            let (_, preemption) = free_domain(solver, cluster, request, prospect)?;
            let leaving: Vec<usize> = preemption.victims.iter().map(|victim| victim.running).collect();
            let moves = find_places(solver, cluster, (&preemption.plan, &leaving), movable)?;
            Some(Defragmentation {
                domain: preemption.domain,
                moves,
                plan: preemption.plan,
            })
        })
}

fn whole(running: &Running) -> Running {
    let groups = running
        .assignments
        .iter()
        .map(|assignment| assignment.pod_group + 1)
        .max()
        .unwrap_or(0);
    Running {
        priority: 0,
        minimum: vec![u32::MAX; groups],
        ..running.clone()
    }
}

/// Another place for everyone who leaves, largest first; none if one of them has no place.
fn find_places(
    solver: &mut Solver,
    cluster: &mut Cluster,
    (plan, leaving): (&Plan, &[usize]),
    movable: &[Movable],
) -> Option<Vec<Move>> {
    let assignments = |index: usize| &movable[index].running.assignments;
    leaving.iter().for_each(|index| cluster.release(assignments(*index)));
    cluster.retake(&plan.assignments);
    let mut order = leaving.to_vec();
    order.sort_by_key(|index| (std::cmp::Reverse(assignments(*index).len()), *index));
    let mut moves: Vec<Move> = Vec::new();
    for index in order {
        let Outcome::Placed(found) = solver.solve(cluster, &movable[index].gang, Budget::default()) else {
            break;
        };
        let to = found.assignments.clone();
        cluster.retake(&to);
        moves.push(Move {
            movable: index,
            from: assignments(index).clone(),
            to,
        });
    }
    moves.iter().for_each(|step| cluster.release(&step.to));
    cluster.release(&plan.assignments);
    leaving.iter().for_each(|index| cluster.retake(assignments(*index)));
    (moves.len() == leaving.len()).then_some(moves)
}
