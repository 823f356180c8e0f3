//! The rules of topologies, and nothing else: what a closeness word means in this cluster, which workloads may use it,
//! and what schedulers are told about it.
//!
//! ```text
//! ClusterTopology ─┐
//! TopologyDomain  ─┼─▶ levels::Topology ──▶ resolve::Resolution ─┬─▶ validate    may this be written?
//! …Binding        ─┘                               ▲             ├─▶ translate   words → label keys of a PodGang
//! PodCliqueSet ──▶ scopes ──▶ resolve::reference ──┤             ├─▶ conditions  what status says about it
//!                                                  ▼             └─▶ backend     what other schedulers receive
//!                                                usage: who holds a topology in place
//! Node labels ──▶ survey: the domains that they form, what is wrong with them, which topology they suggest
//! ```
//!
//! Everything here is a function of what somebody else observed: no client, no clock (`now` is an argument), no
//! waiting. Whoever calls reads the cluster first, then does what comes out.

pub mod backend;
pub mod cells;
pub mod conditions;
pub mod kai;
mod known;
pub mod levels;
pub mod resolve;
pub mod scopes;
pub mod survey;
pub mod translate;
pub mod usage;
pub mod validate;

pub use known::Topologies;
pub use levels::{Level, Topology, TopologyKind};
pub use resolve::{Found, Resolution, TopologyReference};
