//! Graphs of Dynamo on a real control plane: applied in the version that they are written in, judged by the webhooks,
//! converted by the API server, placed by our scheduler, and audited.
//!
//! One control plane, with everything in this process and with the rights of the operator's roles, is shared by the tests;
//! each has a namespace of its own.

mod changes;
mod examples;
#[path = "../common/kinds.rs"]
mod kinds;
#[path = "../common/record.rs"]
mod record;
#[path = "../common/recorded.rs"]
mod recorded;
#[path = "../common/recording.rs"]
mod recording;
mod rules;
mod scaling;
mod stage;
mod status;
mod topologies;
mod unreadable;
mod upgrade;
mod versions;
