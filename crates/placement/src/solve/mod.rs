//! Places one gang: all of its minimum inside the domains that it requires, or nothing.
//!
//! ```text
//! problem   the gang in the terms of its topology
//! search    a domain for every scope            ── uses ──▶ overlay (what is tried), held (in NUMA cells),
//!                                                           rank (the objective)
//! fill      pods into hosts, quickly            ── uses ──▶ rooms (how few domains or hosts it takes)
//! exact     pods into hosts, the best way there is
//! apart     the same for pods that must not share a domain
//! surplus   replicas above the minimum, inside the domains that were chosen
//! ```

mod apart;
mod exact;
mod fill;
mod held;
mod overlay;
mod problem;
mod rank;
mod rooms;
mod search;
mod surplus;

pub use rank::Policy;
pub use search::Budget;

use crate::cluster::{Cluster, NodeId};
use crate::gang::{Gang, PodGroup};
use crate::plan::{Assignment, Plan, Work};
use overlay::{Put, View};
use problem::Problem;
use search::{End, Scratch, Search};

/// Whether a gang can be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    Placed(&'a Plan),
    /// There is no way; `explain` says why.
    Infeasible,
    /// The budget was spent before a placement was found or excluded. Not a refusal: try again with a larger one.
    Undecided,
}

/// Places gangs, one after the other, in memory that it keeps.
#[derive(Debug, Default)]
pub struct Solver {
    problem: Problem,
    scratch: Scratch,
    plan: Plan,
    work: Work,
}

impl Solver {
    pub fn new() -> Self {
        Solver::default()
    }

    /// A solver with another objective than the default one.
    pub fn with_policy(policy: Policy) -> Self {
        let mut solver = Solver::default();
        solver.problem.policy = policy;
        solver
    }

    /// What the last call did.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Looks for the best placement of the pods of a gang that are not bound yet. Changes nothing but counts.
    pub fn solve(&mut self, cluster: &mut Cluster, gang: &Gang, budget: Budget) -> Outcome<'_> {
        self.work = Work::default();
        if gang.topology.0 as usize >= cluster.trees.len() {
            return Outcome::Infeasible;
        }
        cluster.refresh(gang.pod_groups.iter().map(|pod_group| pod_group.shape), gang.topology);
        let cluster = &*cluster;
        if gang.pod_groups.iter().any(|pod_group| pod_group.surplus() > 0) {
            // All that is wanted, if that costs no scope what it prefers; the surplus is then placed as well as the rest.
            let all = |pod_group: &PodGroup| pod_group.missing() + pod_group.surplus();
            let end = self.search(cluster, gang, all, budget);
            if let End::Found { rank, proven } = end
                && rank.shortfall() == [0; 3]
            {
                self.keep(gang, rank, proven);
                return Outcome::Placed(&self.plan);
            }
        }
        match self.search(cluster, gang, PodGroup::missing, budget) {
            End::Found { rank, proven } => {
                self.keep(gang, rank, proven);
                self.add_surplus(cluster, gang);
                Outcome::Placed(&self.plan)
            }
            End::Impossible => Outcome::Infeasible,
            End::GaveUp => Outcome::Undecided,
        }
    }

    fn search(&mut self, cluster: &Cluster, gang: &Gang, pods_of: impl Fn(&PodGroup) -> u32, budget: Budget) -> End {
        if self.problem.read(cluster, gang, pods_of).is_err() {
            return End::Impossible;
        }
        let view = View::new(cluster, self.problem.topology);
        Search::new((view, &self.problem), budget, &mut self.scratch, &mut self.work).run()
    }

    fn add_surplus(&mut self, cluster: &Cluster, gang: &Gang) {
        let wanted = gang.pod_groups.iter().any(|pod_group| pod_group.surplus() > 0);
        if wanted && self.problem.read(cluster, gang, PodGroup::surplus).is_ok() {
            let view = View::new(cluster, self.problem.topology);
            surplus::add(
                (view, gang, &self.problem),
                &mut self.scratch,
                &mut self.plan,
                &mut self.work,
            );
        }
    }

    /// Turns the best puts into the plan.
    fn keep(&mut self, gang: &Gang, rank: rank::Rank, proven: bool) {
        let assignment = |put: &Put| {
            let pod_group = self.problem.items[put.item].pod_group;
            let shape = gang.pod_groups[pod_group].shape;
            Assignment {
                pod_group,
                node: NodeId(put.node),
                cell: put.cell,
                shape,
                pods: put.pods,
            }
        };
        self.plan.assignments.clear();
        self.plan.assignments.extend(self.scratch.best.iter().map(assignment));
        self.plan.assignments.sort_unstable();
        self.scratch.overlay.layout.quality(&rank, &mut self.plan.quality);
        self.plan.optimal = proven;
    }
}
