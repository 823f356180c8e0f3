//! Fake nodes: what they look like, and how they are seen to fail.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::seconds;
use crate::rules::kinds::{condition, set_condition};

/// Taint of a node that does not answer.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taint of a node that says it cannot run pods, or has not said anything yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A node to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Name, which is also its `kubernetes.io/hostname`.
    pub name: String,
    /// Labels besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Capacity, all of it allocatable: `cpu`, `memory`, `pods`, `nvidia.com/gpu`, …
    pub capacity: BTreeMap<String, String>,
}

impl NodeSpec {
    /// A node with 64 CPUs, 512 GiB of memory and room for 110 pods.
    pub fn new(name: &str) -> Self {
        let capacity = [("cpu", "64"), ("memory", "512Gi"), ("pods", "110")];
        let capacity = capacity
            .into_iter()
            .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
            .collect();
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            capacity,
        }
    }

    /// The same node with a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The same node with so much of a resource.
    pub fn capacity(mut self, resource: &str, amount: &str) -> Self {
        self.capacity.insert(resource.to_owned(), amount.to_owned());
        self
    }

    /// The object, ready to run pods.
    pub(super) fn object(&self, now: Timestamp) -> Value {
        let mut labels = json!({
            "kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        });
        for (key, value) in &self.labels {
            labels[key] = json!(value);
        }
        let mut node = json!({
            "metadata": {"name": self.name, "labels": labels},
            "spec": {},
            "status": {
                "capacity": self.capacity, "allocatable": self.capacity,
                "addresses": [{"type": "Hostname", "address": self.name}],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "fake://1", "kernelVersion": "6",
                    "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "", "operatingSystem": "linux",
                    "osImage": "fake", "systemUUID": "",
                },
            },
        });
        for (pressure, reason) in [
            ("MemoryPressure", "KubeletHasSufficientMemory"),
            ("DiskPressure", "KubeletHasNoDiskPressure"),
            ("PIDPressure", "KubeletHasSufficientPID"),
        ] {
            heartbeat(&mut node, condition(pressure, false, reason, "", now), now);
        }
        set_ready(&mut node, now);
        node
    }
}

fn heartbeat(node: &mut Value, mut condition: Value, now: Timestamp) {
    condition["lastHeartbeatTime"] = json!(seconds(now));
    set_condition(&mut node["status"]["conditions"], condition);
}

/// The node answers.
pub(super) fn set_ready(node: &mut Value, now: Timestamp) {
    let ready = condition("Ready", true, "KubeletReady", "kubelet is posting ready status", now);
    heartbeat(node, ready, now);
    taint_by_condition(node, now);
}

/// The node has not answered for so long that the control plane gives it up.
pub(super) fn set_unknown(node: &mut Value, now: Timestamp) {
    let message = "Kubelet stopped posting node status.";
    let mut unknown = condition("Ready", false, "NodeStatusUnknown", message, now);
    unknown["status"] = json!("Unknown");
    set_condition(&mut node["status"]["conditions"], unknown);
    taint_by_condition(node, now);
}

/// Keeps the taints in line with the `Ready` condition; a node that never had one keeps what it was born with.
pub(super) fn taint_by_condition(node: &mut Value, now: Timestamp) {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    let wanted = match ready.and_then(|condition| condition["status"].as_str()) {
        Some("True") => "",
        Some("False") => NOT_READY,
        Some(_) => UNREACHABLE,
        None => return,
    };
    let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    let Some(list) = taints.as_array_mut() else { return };
    list.retain(|taint| {
        let key = taint["key"].as_str().unwrap_or_default();
        key == wanted || (key != NOT_READY && key != UNREACHABLE)
    });
    let effects = if wanted.is_empty() {
        [].as_slice()
    } else {
        ["NoSchedule", "NoExecute"].as_slice()
    };
    for effect in effects {
        if !list
            .iter()
            .any(|taint| taint["key"] == wanted && taint["effect"] == *effect)
        {
            list.push(json!({"key": wanted, "effect": effect, "timeAdded": seconds(now)}));
        }
    }
    if list.is_empty() {
        spec.remove("taints");
    }
}

/// How long a pod stays on an unreachable node: some seconds, or (`None`) for ever.
pub(super) fn tolerated_secs(pod: &Value) -> Option<u64> {
    let tolerations = pod["spec"]["tolerations"].as_array();
    let tolerations = tolerations.into_iter().flatten();
    let mut matching = tolerations
        .filter(|toleration| tolerates(toleration, UNREACHABLE, "", "NoExecute"))
        .peekable();
    if matching.peek().is_none() {
        return Some(0);
    }
    // Of several tolerations the shortest counts; one without a time says nothing about it.
    matching
        .filter_map(|toleration| toleration["tolerationSeconds"].as_i64())
        .map(|secs| secs.max(0).unsigned_abs())
        .min()
}

/// Whether a toleration covers a taint.
pub(in crate::behaviour) fn tolerates(toleration: &Value, key: &str, value: &str, effect: &str) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let key_fits = match text("key") {
        "" => text("operator") == "Exists",
        own => own == key,
    };
    let value_fits = text("operator") == "Exists" || text("value") == value;
    key_fits && value_fits && (text("effect").is_empty() || text("effect") == effect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_node_is_tainted_and_a_found_one_is_clean() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut node = NodeSpec::new("n").label("rack", "r1").object(now);
        let before = node.clone();
        set_unknown(&mut node, now);
        assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 2);
        set_ready(&mut node, now);
        assert_eq!(node, before);
    }

    #[test]
    fn the_shortest_toleration_counts() {
        let pod = |tolerations: Value| json!({"spec": {"tolerations": tolerations}});
        assert_eq!(tolerated_secs(&pod(json!([]))), Some(0));
        assert_eq!(tolerated_secs(&pod(json!([{"operator": "Exists"}]))), None);
        let one = json!({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        assert_eq!(tolerated_secs(&pod(json!([one, {"operator": "Exists"}]))), Some(300));
        assert_eq!(
            tolerated_secs(&pod(json!([{"key": "other", "operator": "Exists"}]))),
            Some(0)
        );
    }
}
