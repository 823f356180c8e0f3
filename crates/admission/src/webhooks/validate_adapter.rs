//! Validation of a DynamoGraphDeploymentScalingAdapter: a number of replicas that the component can have. Asked for a plain
//! update and for the `scale` subresource, by which autoscalers and `kubectl scale` come.

use grove_api::dynamo::ADAPTERS;
use grove_dynamo::validate::{create_adapter, scale};

use super::validate_replicas::number;
use crate::lookup::Lookup;
use crate::review::{Answer, Operation, Request};

pub(super) fn is_meant(request: &Request) -> bool {
    request.resource.resource == ADAPTERS
}

pub(super) async fn answer(request: &Request, lookup: &Lookup) -> Result<Answer, kube::Error> {
    if request.operation == Operation::Create {
        return Ok(Answer::judged(vec![create_adapter().into()]));
    }
    let replicas = number(&request.object, "replicas");
    let (Some(replicas), false) = (replicas, request.is_deleting()) else {
        return Ok(Answer::admitted());
    };
    if number(&request.old_object, "replicas") == Some(replicas) {
        return Ok(Answer::admitted());
    }
    let component = lookup.scaled_component(&request.namespaced_name()).await?;
    let violation = component.and_then(|component| scale(&component, replicas));
    Ok(Answer::judged(violation.into_iter().map(Into::into).collect()))
}
