//! One binary for all tests of the crate, which link once.

mod backend;
mod conditions;
mod examples;
mod fixtures;
mod gangs;
mod kai;
mod levels;
mod properties;
mod resolve;
mod survey;
mod translate;
mod usage;
mod validate_set;
mod validate_topology;
