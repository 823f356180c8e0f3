//! Validation of a DynamoGraphDeployment. The topology is read when a graph with constraints is created, and then only.

use grove_api::DynamoGraphDeployment;
use grove_dynamo::validate::{Conditions, review, update, update_unreadable, warnings};

use super::Policy;
use crate::lookup::Lookup;
use crate::review::{Answer, Cause, Operation, Request};

pub(super) async fn answer(request: &Request, policy: &Policy, lookup: &Lookup) -> Answer {
    if request.is_deleting() {
        return Answer::admitted();
    }
    let is_update = request.operation == Operation::Update;
    let keeps_spec = is_update && request.object["spec"] == request.old_object["spec"];
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
    let mut told = Vec::new();
    let violations = match (is_update, request.stored_object::<DynamoGraphDeployment>()) {
        (false, _) => review(&new, &lookup.framework(&policy.topology), &conditions).await,
        (true, Some(old)) => {
            told = warnings(&old, &new);
            update(&old, &new, &conditions)
        }
        (true, None) => update_unreadable(&request.old_object, &new, &request.object, &conditions),
    };
    Answer::judged(violations.into_iter().map(Cause::from).collect()).with_warnings(told)
}
