//! The operator on the embedded cluster: a real API server, fake nodes, virtual time.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected must fail")]

mod support;

mod creation;
mod topology;
