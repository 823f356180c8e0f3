//! Scenarios that drive all decisions together, in a small world of maps and a clock that tests move.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing fails")]

mod chaos;
mod gang_scheduling;
mod gang_termination;
mod start_order;
mod updates;
mod workloads;
mod world;
