//! Whether cliques, scaling groups and replicas have the minimum that makes them work, and what is torn down when they
//! stay below it.
//!
//! Three things are deliberately not a breach: a pod that is still starting, a pod on its way out (it does not count at
//! all), and an update in progress. What must be known about the past is in the conditions: a clique's
//! `PodCliqueScheduled` keeps the clique's birth as its transition time until it is scheduled for the first time (a
//! second less, if it had no pods meanwhile), so "was scheduled once" survives a restart of the operator; how long a
//! breach lasts is its own transition time.

mod clique;
mod group;
mod termination;

use grove_api::podcliqueset::PodCliqueTemplate;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet};

pub use clique::{PodCounts, as_its_pods_say, clique_conditions, placed_at, was_scheduled, was_scheduled_by};
pub use group::{GroupCounts, group_conditions};
pub(crate) use group::{is_whole, replicas as group_replicas};
pub use termination::{Termination, mark_terminated, of_group, of_replica, termination_delay};

use crate::expand::Live;
use crate::names;

/// The pods that a clique needs: its minimum, or none when it is scaled to zero.
pub fn minimum(clique: &PodClique) -> i32 {
    let replicas = clique.spec.replicas.max(0);
    clique.spec.min_available.unwrap_or(replicas).clamp(0, replicas)
}

/// The replicas that a scaling group needs: its minimum, or none when it is scaled to zero.
pub fn group_minimum(group: &PodCliqueScalingGroup) -> i32 {
    let replicas = group.spec.replicas.max(0);
    group.spec.min_available.unwrap_or(1).clamp(0, replicas)
}

/// Whether a clique has its minimum of ready pods.
pub fn is_available(clique: &PodClique) -> bool {
    let ready = clique.status.as_ref().map(|status| status.ready_replicas);
    clique.metadata.deletion_timestamp.is_none() && ready.is_some_and(|ready| ready >= minimum(clique))
}

/// Whether a scaling group has its minimum of available replicas.
pub fn is_group_available(group: &PodCliqueScalingGroup) -> bool {
    let available = group.status.as_ref().map(|status| status.available_replicas);
    group.metadata.deletion_timestamp.is_none() && available.is_some_and(|found| found >= group_minimum(group))
}

/// Whether every clique and every scaling group of a replica has its minimum.
pub fn is_replica_available(set: &PodCliqueSet, replica: i32, live: &Live<'_>) -> bool {
    let (mut cliques, mut groups) = (standalone_of(set, replica, live), groups_of(set, replica, live));
    cliques.all(|clique| clique.is_some_and(is_available)) && groups.all(|group| group.is_some_and(is_group_available))
}

/// The standalone cliques of a replica; none in the place of one that does not exist.
pub(crate) fn standalone_of<'a>(
    set: &'a PodCliqueSet,
    replica: i32,
    live: &'a Live<'a>,
) -> impl Iterator<Item = Option<&'a PodClique>> {
    standalone_templates(set, replica, live).map(|(_, clique)| clique)
}

pub(crate) fn standalone_templates<'a>(
    set: &'a PodCliqueSet,
    replica: i32,
    live: &'a Live<'a>,
) -> impl Iterator<Item = (&'a PodCliqueTemplate, Option<&'a PodClique>)> {
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    names::standalone(set).map(move |template| {
        (
            template,
            live.clique(&names::podclique(set_name, replica, &template.name)),
        )
    })
}

/// The scaling groups of a replica; none in the place of one that does not exist.
pub(crate) fn groups_of<'a>(
    set: &'a PodCliqueSet,
    replica: i32,
    live: &'a Live<'a>,
) -> impl Iterator<Item = Option<&'a PodCliqueScalingGroup>> {
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let templates = set.spec.template.scaling_groups.iter();
    templates.map(move |template| live.group(&names::scaling_group(set_name, replica, &template.name)))
}

#[cfg(test)]
mod tests;
