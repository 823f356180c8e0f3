//! The workload operator on a real control plane: kube-apiserver, garbage collection, kube-scheduler, kwok's kubelets.
//!
//! Pods are placed one by one by kube-scheduler here: the gangs' own placement is tested where a scheduler of gangs runs.
//! kwok runs no init containers, so that start orders show in what the pods may ask, not in when they start.

#[path = "../common/before.rs"]
mod before;
mod failover;
mod film;
mod gangs;
#[path = "../common/kinds.rs"]
mod kinds;
mod lifecycle;
mod nvlink;
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
