//! A Kubernetes API server in one process, and the cluster around it.
//!
//! ```text
//! Cluster ─┬─ door       kube::Client in process · HTTPS on a socket
//!          ├─ fault      what goes wrong on the way     history  what happened
//!          ├─ server     requests: discovery, verbs, subresources, watches
//!          ├─ behaviour  definitions, garbage, namespaces, nodes: what a cluster does by itself
//!          ├─ authorization  who may do what
//!          ├─ registry   which kinds there are      rules  what objects must look like
//!          ├─ store      bytes, revisions, history
//!          └─ disk       a directory that keeps them, if asked for
//! ```
//!
//! Arrows point down. Time comes from tokio's clock, names from a seed: on a paused runtime a cluster is deterministic.
//! It is an API server for tests and demonstrations: nothing is written to disk unless somebody names a directory, and
//! everybody may do everything unless rights are asked for.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;

mod authorization;
pub mod behaviour;
pub mod clock;
pub mod cluster;
mod disk;
pub mod door;
mod facts;
pub mod fault;
pub mod history;
pub mod network;
pub mod patch;
pub mod protobuf;
pub mod registry;
pub mod rules;
pub mod schema;
pub mod selector;
pub mod server;
pub mod status;
pub mod store;
pub mod table;
pub mod user;
mod vitals;

pub use behaviour::{Fleet, FleetOptions, InitRunner, NodeSpec, Taint};
pub use cluster::{Builder, Cluster};
pub use disk::{DataDir, DataError};
pub use network::{Network, PipeListener};
pub use user::User;
pub use vitals::TaskEnded;
