//! The rules that objects obey: names, metadata, and what each kind adds.
//!
//! Rules are functions over decoded objects. They read nothing from the store and know nothing of requests.

pub(crate) mod amounts;
mod autoscaler;
mod check;
mod definition;
pub mod kinds;
pub(crate) mod limits;
pub mod metadata;
pub mod names;
pub mod pod;
pub mod quantity;
pub(crate) mod quota;
mod service;
pub(crate) mod smaller;
mod webhooks;
mod workloads;
