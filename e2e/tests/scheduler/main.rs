//! Gangs on a real control plane, placed by each of Grove's profiles: `grove-scheduler` binds them itself, with
//! `default-scheduler` the operator pins their pods and the stock kube-scheduler binds.
//!
//! Each profile has a control plane, an operator and whoever places beside it, shared by the tests that run at the same
//! time; each test has a namespace and nodes of its own. `plancheck` judges what happened on the whole control plane.

mod claims;
mod failover;
mod gangs;
mod kills;
#[path = "../common/kinds.rs"]
mod kinds;
mod place;
#[path = "../common/record.rs"]
mod record;
#[path = "../common/replica.rs"]
mod replica;
#[path = "../common/space.rs"]
mod space;
mod volumes;
