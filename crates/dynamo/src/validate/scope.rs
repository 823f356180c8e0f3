//! What Grove does not do for a graph. It is refused by name: ignored, somebody would wait for it.

use std::collections::BTreeMap;

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::{Component, ComponentType, words};
use grove_workload::validate::{Reason, Violation};
use kube::ResourceExt;
use serde_json::Value;

use super::violation;

/// Fields of a graph or component, and why they are not supported.
const OUT_OF_SCOPE: &[(&str, &str)] = &[
    (
        "pvcs",
        "volumes are not made here; create the claims and mount them in podTemplate",
    ),
    ("providerOverride", "write topology constraints in topologyConstraint"),
    ("eppConfig", "gateways and their endpoint pickers are not supported"),
    (
        "frontendSidecar",
        "gateways and their endpoint pickers are not supported",
    ),
    (
        "ingress",
        "ingresses are not made here; point yours at the frontend's Service",
    ),
    ("modelRef", "DynamoModels are not served"),
    (
        "compilationCache",
        "compilation caches are not supported; mount a volume in podTemplate",
    ),
    (
        "runtimeVersionOverride",
        "the launch flags do not depend on the runtime's version",
    ),
    (
        "autoscaling",
        "it has no effect; write a scalingAdapter, and let an autoscaler scale that",
    ),
    ("checkpoint", "checkpointing is not supported"),
    ("checkpoints", "checkpointing is not supported"),
    ("gpuMemoryService", "the GPU memory service is not supported"),
    ("failover", "failover by shadow engines is not supported"),
    ("kvTransferPolicy", "policies of KV transfer are not supported"),
    (
        "dynamoNamespace",
        "the namespace follows from the graph's name; see globalDynamoNamespace",
    ),
];

const OF_ADAPTER: &[(&str, &str)] = &[(
    "enabled",
    "an adapter is enabled by being there; remove scalingAdapter to switch it off",
)];
const OF_RESTART: &[(&str, &str)] = &[(
    "strategy",
    "pods are restarted in the order of updates; see the annotation nvidia.com/grove-update-strategy",
)];
const OF_MULTINODE: &[(&str, &str)] = &[
    ("leader", "leader and workers have the same podTemplate"),
    ("worker", "leader and workers have the same podTemplate"),
];

const UNKNOWN: &str = "unknown field; correct or remove it";

pub(super) fn violations(graph: &DynamoGraphDeployment) -> Vec<Violation> {
    let mut found: Vec<Violation> = pathway(graph).into_iter().collect();
    let spec = &graph.spec;
    found.extend(judged("spec", &spec.other, OUT_OF_SCOPE));
    if let Some(constraint) = &spec.topology_constraint {
        found.extend(judged("spec.topologyConstraint", &constraint.other, &[]));
    }
    if let Some(restart) = &spec.restart {
        found.extend(judged("spec.restart", &restart.other, OF_RESTART));
    }
    for (index, component) in spec.components.iter().enumerate() {
        found.extend(of_component(component, &format!("spec.components[{index}]")));
    }
    found
}

fn of_component(component: &Component, path: &str) -> Vec<Violation> {
    let mut found = judged(path, &component.other, OUT_OF_SCOPE);
    let mut inside = |field: &str, written: Option<&BTreeMap<String, Value>>, known: &[(&str, &str)]| {
        let written = written.map(|written| judged(&format!("{path}.{field}"), written, known));
        found.extend(written.unwrap_or_default());
    };
    let constraint = component.topology_constraint.as_ref();
    inside("topologyConstraint", constraint.map(|one| &one.other), &[]);
    let adapter = component.scaling_adapter.as_ref();
    inside("scalingAdapter", adapter.map(|one| &one.other), OF_ADAPTER);
    let multinode = component.multinode.as_ref();
    inside("multinode", multinode.map(|one| &one.other), OF_MULTINODE);
    let experimental = component.experimental.as_ref();
    inside("experimental", experimental.map(|one| &one.other), OUT_OF_SCOPE);
    let grove = experimental.and_then(|experimental| experimental.grove.as_ref());
    inside("experimental.grove", grove.map(|one| &one.other), &[]);
    if component.type_ == Some(ComponentType::Epp) {
        let why = "\"epp\": gateways and their endpoint pickers are not supported";
        found.push(violation(format!("{path}.type"), Reason::Forbidden, why));
    }
    found
}

/// Why each of these fields is refused: as `known` says, or because nobody knows it.
fn judged(path: &str, written: &BTreeMap<String, Value>, known: &[(&str, &str)]) -> Vec<Violation> {
    let written = written.iter().filter(|(_, value)| !value.is_null());
    let judged = written.map(|(name, _)| {
        let known = known.iter().find(|(field, _)| field == name);
        let why = known.map_or(UNKNOWN, |(_, why)| *why);
        violation(format!("{path}.{name}"), Reason::Forbidden, why)
    });
    judged.collect()
}

/// Graphs run as gangs of Grove here, in no other way.
pub(super) fn pathway(graph: &DynamoGraphDeployment) -> Option<Violation> {
    let says = |annotation: &str| graph.annotations().get(annotation).map(String::as_str);
    let (annotation, said) = match (says(words::ENABLE_GROVE), says(words::PROVIDER)) {
        (Some("false"), _) => (words::ENABLE_GROVE, "false"),
        (_, Some(provider)) if provider != "grove" => (words::PROVIDER, provider),
        _ => return None,
    };
    let path = format!("metadata.annotations[{annotation}]");
    let why = format!("this operator requires the Grove pathway, but the annotation says \"{said}\"; remove it");
    Some(violation(path, Reason::Forbidden, why))
}
