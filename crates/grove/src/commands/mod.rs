//! One module per sub-command: its arguments, and what it does with them.

pub(crate) mod bench;
pub(crate) mod cleanup;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod crds;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod man;
pub(crate) mod operator;
pub(crate) mod plan;
pub(crate) mod rbac;
pub(crate) mod reference;
pub(crate) mod scheduler;
pub(crate) mod status;
pub(crate) mod topology;
pub(crate) mod wait_for;
