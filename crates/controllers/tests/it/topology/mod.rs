//! Topologies from the operator's start to the constraints of gangs.
//!
//! The tests and scenarios of the designs are `grove_scenarios`'; what is tested here besides them needs the embedded
//! cluster: faults, races, virtual time.

mod backends;
mod domains;
pub(crate) mod hooks;
mod kai;
pub(crate) mod kit;
mod many;
mod races;
mod scenarios;
mod start;
mod status;
mod workloads;
