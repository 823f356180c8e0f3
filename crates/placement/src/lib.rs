//! Where the pods of a gang go.
//!
//! A [`Cluster`] is told of nodes, topologies and what runs; a [`Solver`] places one [`Gang`] at a time: all of its
//! minimum inside the domains that it requires, as close together as it can be, or a proof that it cannot be. Placing
//! changes nothing; [`Cluster::commit`] binds a plan whole or not at all, and the next gang sees it.
//!
//! ```text
//! cluster ── nodes, what runs on them, topologies          (changed by the caller)
//!   ├ resources    amounts, what every node has left
//!   ├ cells        the same for NUMA cells, where nodes state them
//!   ├ eligibility  which nodes a pod may use at all
//!   ├ topology     the tree of domains
//!   ├ marks        pods that must not share a domain
//!   └ shapes       pods that are alike ── counts: how many fit, per node and domain
//! solve   ── one gang on one cluster: placed, infeasible, or undecided within the budget
//! preempt ── which running gangs would have to go for one of higher priority
//! defragment ── which could move, so that a blocked gang finds room
//! explain ── why a gang cannot be placed, and what would help
//! report  ── where the scopes of a gang lie, by name
//! ```
//!
//! Deliberately not here: Kubernetes types, clocks, names of pods, I/O, randomness. The same input gives the same plan.

pub mod bench;
mod cells;
mod cluster;
mod counts;
mod defragment;
mod eligibility;
mod explain;
mod gang;
mod marks;
mod plan;
mod preempt;
mod report;
mod resources;
mod shapes;
mod solve;
mod topology;

pub use cells::CELLS_MAX;
pub use cluster::{Cluster, NodeId, NodeSpec};
pub use defragment::{Defragmentation, Movable, Move, defragment};
pub use eligibility::{Attribute, Effect, Requirement, Rules, Taint, Test, Toleration, Traits, Verdict};
pub use explain::{Nearest, Obstacle, Proof, Reason, Waiting, explain};
pub use gang::{Gang, Group, Pack, PodGroup, Replica};
pub use marks::{Mark, Stance};
pub use plan::{Assignment, Plan, Quality, Stale, Work};
pub use preempt::{Preemption, PreemptionRequest, Running, Victim, preempt};
pub use report::{ScopeReport, Standing, domain_name, report, score};
pub use resources::{Amounts, Resource};
pub use shapes::{Shape, ShapeId};
pub use solve::{Budget, Outcome, Policy, Solver};
pub use topology::{LEVELS_MAX, Level, TopologyId, TopologySpec};
