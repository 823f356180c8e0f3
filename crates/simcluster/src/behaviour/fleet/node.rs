//! Fake nodes: what they look like, and how they are seen to fail.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::seconds;
use crate::registry::{Registry, Resource};
use crate::rules::kinds::{self, condition, set_condition};
use crate::rules::metadata;
use crate::rules::quantity::Quantity;
use crate::status::FieldError;
use crate::store::ResourceName;

/// Taint of a node that does not answer.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taint of a node that says it cannot run pods, or has not said anything yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What runs the containers of a node of ours, as its status says.
const RUNTIME: &str = "fake://1";

/// A node to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Name, which is also its `kubernetes.io/hostname`.
    pub name: String,
    /// Labels besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Capacity: `cpu`, `memory`, `pods`, `nvidia.com/gpu`, …
    pub capacity: BTreeMap<String, String>,
    /// How much of a resource pods may take, where that is not all of it.
    pub allocatable: BTreeMap<String, String>,
    /// Taints that somebody put on it.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
}

/// What keeps pods off a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, or empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl NodeSpec {
    /// A node with 64 CPUs, 512 GiB of memory and room for 110 pods.
    pub fn new(name: &str) -> Self {
        let node = Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            capacity: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            taints: Vec::new(),
            unschedulable: false,
        };
        node.capacity("cpu", "64")
            .capacity("memory", "512Gi")
            .capacity("pods", "110")
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

    /// What the API server would say against this node, one text for each field.
    pub fn problems(&self) -> Vec<String> {
        static NODES: LazyLock<Option<Arc<Resource>>> =
            LazyLock::new(|| Registry::builtin().get(&ResourceName::new("", "nodes")).cloned());
        let Some(nodes) = NODES.as_deref() else {
            return Vec::new();
        };
        let object = self.object(Timestamp::UNIX_EPOCH);
        let mut errors = metadata::validate(nodes, &object);
        errors.extend(kinds::validate(nodes, &object));
        let amounts = [("allocatable", &self.allocatable), ("capacity", &self.capacity)];
        let amounts = amounts.into_iter().flat_map(|(field, amounts)| {
            let wrong = amounts.iter().filter(|(_, amount)| Quantity::parse(amount).is_none());
            wrong.map(move |(resource, amount)| {
                let field = format!("status.{field}[{resource}]");
                FieldError::invalid(field, amount, "must be a quantity such as \"8\", \"500m\" or \"512Gi\"")
            })
        });
        errors.extend(amounts);
        errors.iter().map(ToString::to_string).collect()
    }

    /// The object, ready to run pods.
    pub(super) fn object(&self, now: Timestamp) -> Value {
        let mut labels = json!({
            "kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        });
        for (key, value) in &self.labels {
            labels[key] = json!(value);
        }
        let mut allocatable = self.capacity.clone();
        allocatable.extend(self.allocatable.clone());
        let mut node = json!({
            "metadata": {"name": self.name, "labels": labels},
            "spec": {},
            "status": {
                "capacity": self.capacity, "allocatable": allocatable,
                "addresses": [{"type": "Hostname", "address": self.name}],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "", "containerRuntimeVersion": RUNTIME, "kernelVersion": "6",
                    "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "", "operatingSystem": "linux",
                    "osImage": "fake", "systemUUID": "",
                },
            },
        });
        if !self.annotations.is_empty() {
            node["metadata"]["annotations"] = json!(self.annotations);
        }
        if !self.taints.is_empty() {
            node["spec"]["taints"] = self.taints.iter().map(Taint::object).collect();
        }
        if self.unschedulable {
            node["spec"]["unschedulable"] = json!(true);
        }
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

impl Taint {
    fn object(&self) -> Value {
        let mut taint = json!({"key": self.key, "effect": self.effect});
        if !self.value.is_empty() {
            taint["value"] = json!(self.value);
        }
        taint
    }
}

fn heartbeat(node: &mut Value, mut condition: Value, now: Timestamp) {
    condition["lastHeartbeatTime"] = json!(seconds(now));
    set_condition(&mut node["status"]["conditions"], condition);
}

/// Whether a fleet made this node.
pub(super) fn is_ours(node: &Value) -> bool {
    node["status"]["nodeInfo"]["containerRuntimeVersion"] == RUNTIME
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
    fn a_node_is_what_it_was_described_as_or_told_what_is_wrong() {
        let mut spec = NodeSpec::new("n").capacity("nvidia.com/gpu", "8");
        spec.annotations.insert("a".into(), "b".into());
        spec.allocatable.insert("cpu".into(), "60".into());
        spec.taints.push(Taint {
            key: "gpu".into(),
            value: "only".into(),
            effect: "NoSchedule".into(),
        });
        spec.unschedulable = true;
        assert_eq!(spec.problems(), [""; 0]);
        let node = spec.object(Timestamp::UNIX_EPOCH);
        assert_eq!(
            (
                &node["status"]["allocatable"]["cpu"],
                &node["status"]["capacity"]["cpu"]
            ),
            (&json!("60"), &json!("64"))
        );
        assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "8");
        assert_eq!(
            node["spec"],
            json!({"taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}], "unschedulable": true})
        );
        spec.name = "Not_a_name".into();
        spec.labels.insert("-".into(), "x".into());
        spec.taints[0].effect = "Never".into();
        spec.allocatable.insert("cpu".into(), "many".into());
        let problems = spec.problems().join("\n");
        for field in [
            "metadata.name",
            "metadata.labels",
            "taints[0].effect",
            "status.allocatable[cpu]",
        ] {
            assert!(problems.contains(field), "{field}: {problems}");
        }
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
