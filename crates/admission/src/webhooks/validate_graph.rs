//! Validation of a DynamoGraphDeployment. The topology is read when a graph with constraints is created, and then only.

use grove_api::DynamoGraphDeployment;
use grove_dynamo::validate::{Conditions, review, update};

use super::Policy;
use crate::lookup::Lookup;
use crate::review::{Answer, Cause, Request};

pub(super) async fn answer(request: &Request, policy: &Policy, lookup: &Lookup) -> Answer {
    if request.is_deleting() {
        return Answer::admitted();
    }
    let keeps_spec = !request.old_object.is_null() && request.object["spec"] == request.old_object["spec"];
    let new: DynamoGraphDeployment = match request.new_object() {
        Ok(new) => new,
        // Stored before our types were: whatever they make of the spec, its metadata can change.
        Err(_) if keeps_spec => return Answer::admitted(),
        Err(cause) => return Answer::judged(vec![cause]),
    };
    let conditions = Conditions {
        around: policy.around_graphs.clone(),
        rules: Some(&policy.rules),
    };
    let violations = match request.stored_object::<DynamoGraphDeployment>() {
        Some(old) => update(&old, &new, &conditions),
        None => review(&new, &lookup.framework(&policy.topology), &conditions).await,
    };
    Answer::judged(violations.into_iter().map(Cause::from).collect())
}
