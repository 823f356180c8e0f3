//! What Grove does not do for a graph. It is refused by name: ignored, somebody would wait for it.

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

const UNKNOWN: &str = "unknown field; correct or remove it";

pub(super) fn violations(graph: &DynamoGraphDeployment) -> Vec<Violation> {
    let mut found: Vec<Violation> = pathway(graph).into_iter().collect();
    found.extend(fields("spec", graph.spec.other.iter()));
    for (index, component) in graph.spec.components.iter().enumerate() {
        let path = format!("spec.components[{index}]");
        found.extend(fields(&path, component.other.iter()));
        if let Some(experimental) = &component.experimental {
            found.extend(fields(&format!("{path}.experimental"), experimental.other.iter()));
        }
        if let Some(adapter) = &component.scaling_adapter {
            let path = format!("{path}.scalingAdapter");
            found.extend(judged(&path, adapter.other.iter(), OF_ADAPTER));
        }
        found.extend(of_component(component, &path));
    }
    found
}

fn fields<'a>(path: &str, written: impl Iterator<Item = (&'a String, &'a Value)>) -> Vec<Violation> {
    judged(path, written, OUT_OF_SCOPE)
}

/// Why each of these fields is refused, as `known` says.
fn judged<'a>(
    path: &str,
    written: impl Iterator<Item = (&'a String, &'a Value)>,
    known: &[(&str, &str)],
) -> Vec<Violation> {
    let judged = written.filter(|(_, value)| !value.is_null()).map(|(name, _)| {
        let known = known.iter().find(|(field, _)| field == name);
        let why = known.map_or(UNKNOWN, |(_, why)| *why);
        violation(format!("{path}.{name}"), Reason::Forbidden, why)
    });
    judged.collect()
}

fn of_component(component: &Component, path: &str) -> Option<Violation> {
    let why = "gateways and their endpoint pickers are not supported";
    (component.type_ == Some(ComponentType::Epp))
        .then(|| violation(format!("{path}.type"), Reason::Forbidden, format!("\"epp\": {why}")))
}

/// Graphs run as gangs of Grove here, in no other way.
fn pathway(graph: &DynamoGraphDeployment) -> Option<Violation> {
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
