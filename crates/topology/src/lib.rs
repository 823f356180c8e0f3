//! The rules of topologies, and nothing else: what a closeness word means in this cluster, which workloads may use it,
//! and what schedulers are told about it.
//!
//! ```text
//! ClusterTopology ─┐
//! TopologyDomain  ─┼─▶ levels::Topology ─▶ resolve::Resolution
//! …Binding        ─┘                              ▲
//! PodCliqueSet ──▶ scopes ──▶ resolve::reference ─┴─▶ usage: who holds a topology in place
//! ```
//!
//! Everything here is a function of what somebody else observed: no client, no clock, no waiting.

pub mod backend;
pub mod levels;
pub mod resolve;
pub mod scopes;
pub mod translate;
pub mod usage;
pub mod validate;

pub use levels::{Level, Topology, TopologyKind};
pub use resolve::{Found, Resolution, TopologyReference};
