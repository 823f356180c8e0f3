//! Updates: how pods of an old template give way to pods of the new one.
//!
//! `RollingRecreate` replaces replica by replica. What is ready is taken from one replica at a time, the one that the status
//! names (`currentlyUpdating`), until it works again with the new template. What is broken in a replica that does not work
//! is replaced at once, so that an update that repairs is never held up by what is broken; the next replica that works
//! waits until it is repaired. Within a replica, ready pods of a standalone clique go one at a time, and replicas of a
//! scaling group are recreated one at a time; what is not ready goes at once.
//!
//! `OnDelete` replaces nothing: whoever deletes a pod gets a new one.
//!
//! The minimum is never broken by an update, save where it equals the number of replicas: there is no surge, so one is
//! missing while it is replaced, and only when all others are well.
//!
//! Nothing is remembered outside of the API: progress is in the status, and everything else is computed from the pods.

mod clique;
mod group;
mod set;

use grove_api::PodClique;
use grove_api::podcliqueset::UpdateStrategyType;

pub use clique::{CliqueUpdate, clique_update};
pub use group::{GroupUpdate, group_update};
pub use set::{SetUpdate, set_update};

use crate::availability::{is_available, is_replica_available};
use crate::expand::Expansion;
use crate::names::Place;
use crate::pods::template_hash;

/// Whether the clique or one of its pods follows another template than the set's.
pub(crate) fn is_stale(expansion: &Expansion<'_>, clique: &PodClique) -> bool {
    let Some(place) = Place::of(expansion.set, clique) else {
        return false;
    };
    let outdated = clique
        .status
        .as_ref()
        .is_some_and(|status| status.updated_replicas < status.replicas);
    template_hash(clique) != expansion.hashes.of(&place.template.name) || outdated
}

/// Whether the clique's pods are known to follow the set's template, and its minimum of them is ready.
pub fn is_converged(expansion: &Expansion<'_>, clique: &PodClique) -> bool {
    let Some(place) = Place::of(expansion.set, clique) else {
        return false;
    };
    let hash = expansion.hashes.of(&place.template.name);
    let known = clique
        .status
        .as_ref()
        .and_then(|status| status.current_pod_template_hash.as_deref());
    !is_stale(expansion, clique) && known == Some(hash) && is_available(clique)
}

/// What of a replica an update may replace now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Nothing,
    /// Only what is not ready. That a replica does not work is known from the status of its parts, which may be older than
    /// its pods: nothing that serves may be taken for that.
    Broken,
    Everything,
}

/// What of this replica may be replaced now.
pub fn turn(expansion: &Expansion<'_>, replica: i32) -> Turn {
    let set = expansion.set;
    let is_now = |hash: &Option<String>| hash.as_ref() == Some(&expansion.hashes.generation);
    let status = set
        .status
        .as_ref()
        .filter(|status| is_now(&status.current_generation_hash));
    let progress = status.and_then(|status| status.update_progress.as_ref());
    let Some(progress) = progress.filter(|progress| progress.update_ended_at.is_none()) else {
        return Turn::Nothing;
    };
    let mut listed = progress.currently_updating.iter();
    match expansion.strategy() {
        UpdateStrategyType::OnDelete => Turn::Nothing,
        UpdateStrategyType::RollingRecreate if listed.any(|entry| entry.replica_index == replica) => Turn::Everything,
        UpdateStrategyType::RollingRecreate if is_replica_available(set, replica, expansion.live) => Turn::Nothing,
        UpdateStrategyType::RollingRecreate => Turn::Broken,
    }
}

/// How many of `ready` may be taken away for an update: none below the minimum, save one when all are needed.
pub(crate) fn may_take_one(ready: i32, minimum: i32, replicas: i32) -> bool {
    ready > minimum || (minimum == replicas && ready == replicas)
}

#[cfg(test)]
mod tests;
