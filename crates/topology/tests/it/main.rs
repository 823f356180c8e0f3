//! One binary for all tests of the crate, which link once.

mod fixtures;
mod levels;
mod resolve;
mod usage;
mod validate_set;
mod validate_topology;
