//! Scaling of a clique or scaling group: a number of replicas that can be of use. Asked for a plain update and for the
//! `scale` subresource, by which autoscalers and `kubectl scale` come.

use grove_workload::validate::scale;
use serde_json::Value;

use crate::lookup::{Lookup, Scalable};
use crate::review::{Answer, Request};

pub(super) async fn answer(request: &Request, lookup: &Lookup) -> Result<Answer, kube::Error> {
    let replicas = number(&request.object, "replicas");
    let (Some(replicas), false) = (replicas, request.is_deleting()) else {
        return Ok(Answer::admitted());
    };
    if number(&request.old_object, "replicas") == Some(replicas) {
        return Ok(Answer::admitted());
    }
    let min_available = match (request.sub_resource.as_str(), scalable(request)) {
        ("scale", Some(kind)) => lookup.min_available(kind, &request.namespaced_name()).await?,
        _ => number(&request.object, "minAvailable"),
    };
    let violation = min_available.and_then(|min_available| scale(replicas, min_available));
    Ok(Answer::judged(violation.into_iter().map(Into::into).collect()))
}

/// A field of the spec; the schema has judged its type.
pub(super) fn number(object: &Value, field: &str) -> Option<i32> {
    object["spec"][field]
        .as_i64()
        .and_then(|number| i32::try_from(number).ok())
}

fn scalable(request: &Request) -> Option<Scalable> {
    match request.resource.resource.as_str() {
        "podcliques" => Some(Scalable::Clique),
        "podcliquescalinggroups" => Some(Scalable::ScalingGroup),
        _ => None,
    }
}
