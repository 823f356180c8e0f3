//! A Kubernetes API server in one process.

pub mod clock;
pub mod registry;
pub mod rules;
pub mod selector;
pub mod status;
pub mod store;
