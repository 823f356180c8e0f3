//! Validation of a DynamoGraphDeployment. The topology is read when a graph with constraints is created, and then only.

use grove_api::DynamoGraphDeployment;
use grove_dynamo::framework::Framework as _;
use grove_dynamo::validate::{Conditions, create, needs_topology, unreadable, update};

use super::Policy;
use crate::lookup::Lookup;
use crate::review::{Answer, Cause, Request};

pub(super) async fn answer(request: &Request, policy: &Policy, lookup: &Lookup) -> Result<Answer, kube::Error> {
    if request.is_deleting() {
        return Ok(Answer::admitted());
    }
    let keeps_spec = !request.old_object.is_null() && request.object["spec"] == request.old_object["spec"];
    let new: DynamoGraphDeployment = match request.new_object() {
        Ok(new) => new,
        // Stored before our types were: whatever they make of the spec, its metadata can change.
        Err(_) if keeps_spec => return Ok(Answer::admitted()),
        Err(cause) => return Ok(Answer::judged(vec![cause])),
    };
    let conditions = Conditions {
        around: policy.around_graphs.clone(),
        rules: Some(&policy.rules),
    };
    let violations = match request.stored_object::<DynamoGraphDeployment>() {
        Some(old) => update(&old, &new, &conditions),
        None => {
            let mut reading = None;
            if needs_topology(&new) {
                let framework = lookup.framework(&policy.topology);
                reading = match framework.topology(new.spec.topology_name()).await {
                    Ok(reading) => Some(reading),
                    // However often it is asked, it will not be told.
                    Err(kube::Error::Api(status)) if status.code == 403 => {
                        return Ok(Answer::judged(vec![unreadable(&status.message).into()]));
                    }
                    Err(error) => return Err(error),
                };
            }
            create(&new, reading.as_ref(), &conditions)
        }
    };
    Ok(Answer::judged(violations.into_iter().map(Cause::from).collect()))
}
