//! The binary from the outside: exit codes, messages, and the life of an operator process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where it stopped")]

mod bench;
mod cli;
mod cluster;
mod data;
mod embedded;
mod explain;
mod operator;
mod plan;
mod screens;
mod stage;
mod topology;
