//! What an autoscaler is told of a component: how many there are, and which pods to measure.

use std::collections::BTreeMap;

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::{DynamoGraphDeploymentScalingAdapterStatus, DynamoGraphDeploymentStatus, words};
use grove_workload::meta::selector;
use kube::ResourceExt;

/// The status of the adapter of a component, where the graph's is `status`.
pub fn adapter_status(
    graph: &DynamoGraphDeployment,
    component: &str,
    status: &DynamoGraphDeploymentStatus,
) -> DynamoGraphDeploymentScalingAdapterStatus {
    let pods = BTreeMap::from([
        (words::GRAPH.to_owned(), graph.name_any()),
        (words::COMPONENT.to_owned(), component.to_owned()),
    ]);
    let found = status.components.get(component);
    DynamoGraphDeploymentScalingAdapterStatus {
        replicas: found.map_or(0, |component| component.replicas),
        selector: Some(selector(&pods)),
    }
}
