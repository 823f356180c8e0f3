//! Topologies from the operator's start to the constraints of gangs.
//!
//! Tests that bear the name of a test or scenario of the designs (`e2e_top_…`, `scenario_…`) follow its steps. KAI itself
//! is not run: where a step looks at what KAI is told, its API is there and nothing behind it. Pods are bound to the first
//! node that fits; where a step looks at placement, the gang that demands it is looked at instead.

mod backends;
mod domains;
mod hooks;
mod kai;
mod kit;
mod lifecycle;
mod many;
mod races;
mod scenarios;
mod start;
mod status;
mod workloads;
