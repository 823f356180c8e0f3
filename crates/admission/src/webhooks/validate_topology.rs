//! Validation of a ClusterTopology: who may write `grove-topology`, and when levels may change.

use grove_api::ClusterTopology;
use grove_topology::validate::{self, ClusterTopologyReview, changes_levels, review_cluster_topology};

use super::Policy;
use crate::lookup::Lookup;
use crate::review::{Answer, Cause, Operation, Request};

pub(super) async fn answer(request: &Request, policy: &Policy, lookup: &Lookup) -> Result<Answer, kube::Error> {
    let old: Option<ClusterTopology> = request.stored_object();
    let new: Result<ClusterTopology, Cause> = request.new_object();
    let asked = match (request.operation, &new, &old) {
        (Operation::Delete, _, Some(old)) => validate::Request::Delete { old },
        // Something that cannot be read may at least go.
        (Operation::Delete | Operation::Connect, _, _) => return Ok(Answer::admitted()),
        (_, Err(_), _) if request.is_deleting() => return Ok(Answer::admitted()),
        (_, Err(cause), _) => return Ok(Answer::judged(vec![cause.clone()])),
        (_, Ok(new), Some(old)) => validate::Request::Update { old, new },
        (_, Ok(new), None) => validate::Request::Create { new },
    };
    let tas = &policy.topology;
    let is_operator = request.user_info.username == policy.operator;
    let scheduled_users = match asked {
        validate::Request::Update { old, new }
            if changes_levels(old, new) && !request.is_deleting() && !is_operator =>
        {
            lookup.scheduled_users(&request.name, &tas.source).await?
        }
        _ => Vec::new(),
    };
    let verdict = review_cluster_topology(&ClusterTopologyReview {
        request: asked,
        is_operator,
        tas,
        scheduled_users: &scheduled_users,
    });
    let causes = verdict.violations.into_iter().map(Cause::from).collect();
    Ok(Answer::judged(causes).with_warnings(verdict.warnings))
}
