//! Validation of a PodCliqueSet: the workload's rules and the topology's, all violations together.

use grove_api::PodCliqueSet;
use grove_api::config::ProfileName;
use grove_topology::backend::{missing_kai_topology, relies_on};
use grove_topology::cells::{asks_for_cells, why_host};
use grove_topology::resolve::{self, Found, Resolution};
use grove_topology::validate::{SetReview, changes_topology, review_set};
use grove_workload::expand::gangs::named_scheduler;
use grove_workload::validate::{create, update};

use super::Policy;
use crate::lookup::Lookup;
use crate::review::{Answer, Cause, Request};

pub(super) async fn answer(request: &Request, policy: &Policy, lookup: &Lookup) -> Result<Answer, kube::Error> {
    if request.is_deleting() {
        return Ok(Answer::admitted());
    }
    let new: PodCliqueSet = match request.new_object() {
        Ok(new) => new,
        Err(cause) => return Ok(Answer::judged(vec![cause])),
    };
    let old: Option<PodCliqueSet> = request.stored_object();
    let tas = &policy.topology;
    let topologies = lookup.topologies(&new, tas).await?;
    let moves = old.as_ref().is_some_and(|old| changes_topology(old, &new, &tas.source));
    let scheduled_pods = match moves {
        true => lookup.scheduled_pods(&request.namespaced_name()).await?,
        false => 0,
    };
    let resolution = resolution(&new, &topologies.found(), policy);
    let placer = policy.scheduler.profile(named_scheduler(&new));
    let unenforceable = unenforceable(&resolution, (policy, placer), lookup).await?;
    let cells_are_published = match resolution.topology() {
        Some(topology) if asks_for_cells(&new, topology) => lookup.cells_are_published().await?,
        _ => false,
    };
    let of_workload = match &old {
        None => create(&new, &policy.rules),
        Some(old) => update(old, &new),
    };
    let of_topology = review_set(&SetReview {
        old: old.as_ref(),
        new: &new,
        tas,
        found: topologies.found(),
        scheduled_pods,
        unenforceable: unenforceable.as_deref(),
        why_host: why_host(placer, cells_are_published),
    });
    let causes: Vec<Cause> = of_workload
        .into_iter()
        .map(Cause::from)
        .chain(of_topology.violations.into_iter().map(Cause::from))
        .collect();
    Ok(Answer::judged(causes).with_warnings(of_topology.warnings))
}

fn resolution(new: &PodCliqueSet, found: &Found<'_>, policy: &Policy) -> Resolution {
    let reference = resolve::reference(new, &policy.topology.source);
    resolve::resolve(reference, &policy.topology, found)
}

/// Why the scheduler cannot keep what the set demands, if it cannot.
async fn unenforceable(
    resolution: &Resolution,
    (policy, placer): (&Policy, ProfileName),
    lookup: &Lookup,
) -> Result<Option<String>, kube::Error> {
    let relied_on = resolution
        .topology()
        .and_then(|topology| relies_on(&policy.scheduler, placer, topology));
    Ok(match relied_on {
        Some(name) if !lookup.kai_topology_exists(name).await? => Some(missing_kai_topology(name)),
        _ => None,
    })
}
