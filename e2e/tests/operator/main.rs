//! The workload operator on a real control plane: kube-apiserver, garbage collection, kwok's kubelets, and our scheduler,
//! which places the gangs. What needs resource claims, and what an earlier release left, kube-scheduler places.
//!
//! kwok runs no init containers, so that start orders show in what the pods may ask, not in when they start.

#[path = "../common/before.rs"]
mod before;
mod dead_node;
mod failover;
mod film;
mod gangs;
#[path = "../common/kinds.rs"]
mod kinds;
mod lifecycle;
mod nvlink;
#[path = "../common/record.rs"]
mod record;
#[path = "../common/recorded.rs"]
mod recorded;
#[path = "../common/recording.rs"]
mod recording;
#[path = "../common/replica.rs"]
mod replica;
mod scaling;
mod sharing;
#[path = "../common/space.rs"]
mod space;
mod support;
mod trouble;
mod updates;
mod upgrade;
