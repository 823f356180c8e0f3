//! What the author of a pod is told, though it is taken.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::rules::check::text;
use crate::rules::kinds::items;

/// Labels of nodes that have another name by now.
const OLD_LABELS: [(&str, &str); 8] = [
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
];

/// Warnings about a new pod.
pub(crate) fn warnings(pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let mut found = Vec::new();
    for (label, why) in OLD_LABELS {
        if spec["nodeSelector"].get(label).is_some() {
            found.push(format!("spec.nodeSelector[{label}]: {why}"));
        }
    }
    for (at, container) in containers(spec) {
        hidden_variables(container, &at, &mut found);
    }
    let mut ports: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (at, container) in containers(spec) {
        for (i, port) in items(container, "ports").enumerate() {
            let at = format!("{at}.ports[{i}]");
            let key = format!(
                "{}/{}/{}/{}",
                port["containerPort"],
                text(&port["protocol"]),
                text(&port["hostIP"]),
                port["hostPort"]
            );
            let others = ports.entry(key).or_default();
            found.extend(
                others
                    .iter()
                    .map(|other| format!("{at}: duplicate port definition with {other}")),
            );
            others.push(at);
        }
    }
    found
}

fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["initContainers", "containers"].into_iter().flat_map(|list| {
        let all = items(spec, list).enumerate();
        all.map(move |(i, container)| (format!("spec.{list}[{i}]"), container))
    })
}

/// A variable may be told anew, if the new value is made of the old one.
fn hidden_variables(container: &Value, at: &str, found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (i, variable) in items(container, "env").enumerate() {
        let name = text(&variable["name"]);
        let is_extended = text(&variable["value"]).contains(&format!("$({name})"));
        if !seen.insert(name) && !is_extended {
            found.push(format!(
                "{at}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}
