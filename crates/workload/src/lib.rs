//! The decisions of the workload operator: how a PodCliqueSet becomes running gangs, and stays that way.
//!
//! ```text
//! PodCliqueSet ─▶ revision ─▶ expand ─▶ diff ─▶ writes
//! PodClique + pods ─▶ pods, update ─▶ pods to create and delete ─▶ pod (what each is)
//! PodGang + pods ─▶ gang ─▶ references, status, gates that come off
//! what is seen ─▶ availability, status ─▶ conditions, gang termination
//! what a user sends ─▶ default, validate ─▶ what is stored, or why not
//! ```
//!
//! Every function here is pure: what was observed and the present time go in, what to write and when to look again
//! comes out. Nothing here waits, calls, reads a clock or remembers: whatever a decision needs to know about the past
//! is in the objects. Shells do the reading and writing; topology constraints are translated elsewhere.

pub mod availability;
pub mod conditions;
pub mod default;
pub mod diff;
pub mod expand;
pub mod gang;
pub mod hash;
pub mod meta;
pub mod names;
pub mod observed;
pub mod pod;
pub mod pods;
pub mod revision;
pub mod status;
pub mod update;
pub mod validate;

#[cfg(test)]
mod fixtures;
