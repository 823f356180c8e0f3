//! The operator on the embedded cluster: a real API server, fake nodes, virtual time.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected must fail")]

mod support;

mod author;
mod back_and_forth;
mod busy;
mod creation;
mod deletion;
mod drift;
mod gang_scheduling;
mod gang_termination;
mod gangs;
mod guard;
mod killed;
mod nodes;
mod nvlink;
mod on_delete;
mod pains;
mod resource_sharing;
mod rest;
mod restart;
mod rights;
mod rolling_updates;
mod scale;
mod scaling;
mod start_order;
mod topology;
mod words;
