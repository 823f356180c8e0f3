//! Scaling adapters: which numbers they may ask for, and who makes them.

use grove_api::dynamo::Component;
use grove_workload::validate::{Reason, Violation};

use super::{invalid, violation};

/// Why a component may not have so many replicas.
pub fn scale(component: &Component, replicas: i32) -> Option<Violation> {
    let (name, least) = (&component.name, component.min_available());
    (replicas < 0 || (1..least).contains(&replicas)).then(|| {
        let detail = format!("component {name} must have 0 replicas, or at least its minAvailable of {least}");
        invalid("spec.replicas", replicas, detail)
    })
}

/// Why nobody but the operator makes an adapter: one that its graph does not ask for would scale nothing.
pub fn create() -> Violation {
    let why =
        "adapters are made by the operator; write scalingAdapter: {} into the component of the DynamoGraphDeployment";
    violation("metadata.name", Reason::Forbidden, why)
}
