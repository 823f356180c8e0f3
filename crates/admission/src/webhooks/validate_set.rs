//! Validation of a PodCliqueSet: the workload's rules and the topology's, all violations together.

use grove_api::PodCliqueSet;
use grove_topology::validate::{SetReview, changes_topology, review_set};
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
    });
    let causes: Vec<Cause> = of_workload
        .into_iter()
        .map(Cause::from)
        .chain(of_topology.violations.into_iter().map(Cause::from))
        .collect();
    Ok(Answer::judged(causes).with_warnings(of_topology.warnings))
}
