//! Graphs from what users write to what becomes of them: pure functions by tables and goldens, the controller on an
//! embedded cluster.

mod cluster;
mod conversion;
mod examples;
mod generate;
mod graphs;
mod launch;
mod scaling;
mod status;
mod surroundings;
mod topologies;
mod updates;
mod validation;
