//! The operator on the embedded cluster: a real API server, fake nodes, virtual time.

mod support;

mod creation;
