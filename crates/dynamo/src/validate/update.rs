//! What cannot change once a graph exists.

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::Component;
use grove_workload::validate::{Reason, Violation};
use serde_json::Value;

use super::violation;

const TOPOLOGY: &str = "is immutable and cannot be added, removed, or changed after creation; delete and recreate the \
                        DynamoGraphDeployment to change topology constraints";
const SCALED: &str = "cannot be modified directly when scaling adapter is enabled; scale or update the related \
                      DynamoGraphDeploymentScalingAdapter instead";
const IMMUTABLE: &str = "is immutable and cannot be changed after creation";

pub(super) fn violations(old: &DynamoGraphDeployment, new: &DynamoGraphDeployment) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut forbid_if = |changed: bool, path: String, why: &str| {
        if changed {
            found.push(violation(path, Reason::Forbidden, why));
        }
    };
    forbid_if(
        old.spec.topology_constraint != new.spec.topology_constraint,
        "spec.topologyConstraint".to_owned(),
        TOPOLOGY,
    );
    forbid_if(
        old.spec.backend_framework != new.spec.backend_framework,
        "spec.backendFramework".to_owned(),
        IMMUTABLE,
    );
    for (index, component) in new.spec.components.iter().enumerate() {
        let Some(before) = find(old, &component.name) else {
            continue;
        };
        let path = format!("spec.components[{index}]");
        let is_scaled = before.scaling_adapter.is_some() || component.scaling_adapter.is_some();
        forbid_if(
            is_scaled && before.replicas != component.replicas,
            format!("{path}.replicas"),
            SCALED,
        );
        forbid_if(
            before.topology_constraint != component.topology_constraint,
            format!("{path}.topologyConstraint"),
            TOPOLOGY,
        );
        forbid_if(
            before.is_multinode() != component.is_multinode(),
            format!("{path}.multinode"),
            "cannot change node topology between single-node and multi-node after creation",
        );
        let has_nodes = before.is_multinode() && component.is_multinode();
        forbid_if(
            has_nodes && before.node_count() != component.node_count(),
            format!("{path}.multinode.nodeCount"),
            IMMUTABLE,
        );
        forbid_if(
            before.min_available() != component.min_available(),
            format!("{path}.minAvailable"),
            IMMUTABLE,
        );
        forbid_if(
            !component.is_multinode() && before.is_grouped() != component.is_grouped(),
            format!("{path}.experimental.grove.forceScalingGroup"),
            IMMUTABLE,
        );
    }
    found.extend(members(old, new));
    found
}

/// What somebody should know whose change is refused.
pub fn warnings(old: &DynamoGraphDeployment, new: &DynamoGraphDeployment) -> Vec<String> {
    let is_other = old.spec.backend_framework != new.spec.backend_framework;
    let warning =
        "spec.backendFramework: pods of another engine are another graph; delete this one and create it again";
    is_other.then(|| warning.to_owned()).into_iter().collect()
}

/// Constraints that are not as they were, in graphs as they are written.
pub(super) fn written_constraints(old: &Value, new: &Value) -> Vec<Violation> {
    let components = |graph: &Value| graph["spec"]["components"].as_array().cloned().unwrap_or_default();
    let before = components(old);
    let of_components = components(new)
        .into_iter()
        .enumerate()
        .filter_map(|(index, component)| {
            let before = before.iter().find(|before| before["name"] == component["name"])?;
            let is_same = before["topologyConstraint"] == component["topologyConstraint"];
            (!is_same).then(|| format!("spec.components[{index}].topologyConstraint"))
        });
    let is_same = old["spec"]["topologyConstraint"] == new["spec"]["topologyConstraint"];
    let of_graph = (!is_same).then(|| "spec.topologyConstraint".to_owned());
    let changed = of_graph.into_iter().chain(of_components);
    changed
        .map(|path| violation(path, Reason::Forbidden, TOPOLOGY))
        .collect()
}

fn find<'a>(graph: &'a DynamoGraphDeployment, name: &str) -> Option<&'a Component> {
    graph.spec.components.iter().find(|component| component.name == name)
}

/// Components come and go with their graph.
fn members(old: &DynamoGraphDeployment, new: &DynamoGraphDeployment) -> Vec<Violation> {
    let beyond = |of: &DynamoGraphDeployment, other: &DynamoGraphDeployment| -> Vec<String> {
        let names = of
            .spec
            .components
            .iter()
            .filter(|component| find(other, &component.name).is_none());
        names.map(|component| component.name.clone()).collect()
    };
    let sides = [("added", beyond(new, old)), ("removed", beyond(old, new))];
    let told = sides
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| {
            let detail = format!(
                "component topology is immutable and cannot be modified after creation: components {what}: [{}]",
                names.join(" ")
            );
            violation("spec.components", Reason::Forbidden, detail)
        });
    told.collect()
}
