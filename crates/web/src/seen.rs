//! What the page keeps of nodes and pods: the few fields that it shows, so that a large cluster fits.

use std::collections::BTreeMap;

use grove_api::labels;
use grove_kubeplace::quantity::{Round, amount};
use grove_kubeplace::requests;
use grove_kubeplace::rooms::is_gpu;
use grove_runtime::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use serde::Serialize;

/// More cells than any host has; what a node claims beyond them is not drawn.
const GPUS_MAX: u64 = 1024;

/// A node as the page sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenNode {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub gpus: u32,
    pub is_cordoned: bool,
    pub is_ready: bool,
}

impl SeenNode {
    pub fn new(node: Node) -> Self {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let amounts = allocatable.into_iter().flatten();
        let gpus = amounts.filter(|(name, _)| is_gpu(name));
        let gpus = gpus.map(|(name, quantity)| amount(name, quantity, Round::Down));
        let conditions = status.iter().flat_map(|status| &status.conditions).flatten();
        let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
        Self {
            name: node.name_any(),
            gpus: cells(gpus.fold(0, u64::saturating_add)),
            is_cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true),
            is_ready: ready.next().is_some_and(|condition| condition.status == "True"),
            labels: node.metadata.labels.unwrap_or_default(),
        }
    }

    /// In one word.
    pub fn state(&self) -> HostState {
        match (self.is_ready, self.is_cordoned) {
            (false, _) => HostState::NotReady,
            (true, true) => HostState::Cordoned,
            (true, false) => HostState::Ready,
        }
    }
}

fn cells(amount: u64) -> u32 {
    u32::try_from(amount.min(GPUS_MAX)).unwrap_or(0)
}

/// Whether a host takes pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HostState {
    Ready,
    Cordoned,
    NotReady,
}

/// How far a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PodState {
    /// Its gang is not complete.
    Gated,
    /// It has no node.
    Waiting,
    Starting,
    Ready,
    Ending,
    /// It has ended and holds nothing.
    Ended,
}

/// A pod as the page sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPod {
    pub key: ObjectKey,
    pub gang: Option<ObjectKey>,
    pub clique: String,
    /// Empty until it has one.
    pub node: String,
    pub gpus: u32,
    pub state: PodState,
    pub created_at: Timestamp,
}

impl SeenPod {
    pub fn new(pod: Pod) -> Self {
        let requested = requests::of_pod(&pod);
        let gpus = requested.iter().filter(|(name, _)| is_gpu(name));
        let label = |name: &str| pod.labels().get(name).cloned();
        let key = ObjectKey::of(&pod.metadata);
        Self {
            gang: label(labels::PODGANG).map(|gang| ObjectKey::new(key.namespace.clone(), gang)),
            clique: label(labels::PODCLIQUE).unwrap_or_default(),
            node: pod
                .spec
                .as_ref()
                .and_then(|spec| spec.node_name.clone())
                .unwrap_or_default(),
            gpus: cells(gpus.map(|(_, amount)| *amount).fold(0, u64::saturating_add)),
            state: state(&pod),
            created_at: pod
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            key,
        }
    }

    /// Whether it takes room on its node.
    pub fn holds_room(&self) -> bool {
        !self.node.is_empty() && self.state != PodState::Ended
    }
}

fn state(pod: &Pod) -> PodState {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") {
        return PodState::Ended;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return PodState::Ending;
    }
    let spec = pod.spec.as_ref();
    let has_node = spec
        .and_then(|spec| spec.node_name.as_ref())
        .is_some_and(|node| !node.is_empty());
    if !has_node {
        let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
        return match gates.is_some_and(|gates| !gates.is_empty()) {
            true => PodState::Gated,
            false => PodState::Waiting,
        };
    }
    let conditions = status.iter().flat_map(|status| &status.conditions).flatten();
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    match ready.next().is_some_and(|condition| condition.status == "True") {
        true => PodState::Ready,
        false => PodState::Starting,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, status: Value) -> SeenPod {
        let metadata = json!({"name": "p", "namespace": "ns",
            "labels": {"grove.io/podgang": "g-0", "grove.io/podclique": "g-0-worker"}});
        SeenPod::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap())
    }

    #[test]
    fn a_pod_is_told_in_one_word() {
        let containers = json!([{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "2"}}}]);
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let on_node = json!({"containers": containers, "nodeName": "n1"});
        let gated = json!({"containers": containers, "schedulingGates": [{"name": "g"}]});
        let seen = pod(on_node.clone(), ready);
        assert_eq!((seen.state, seen.gpus, seen.holds_room()), (PodState::Ready, 4, true));
        assert_eq!(seen.gang, Some(ObjectKey::new("ns", "g-0")));
        assert_eq!(pod(gated, json!({})).state, PodState::Gated);
        assert_eq!(
            pod(json!({"containers": containers}), json!({})).state,
            PodState::Waiting
        );
        assert_eq!(
            pod(on_node.clone(), json!({"phase": "Pending"})).state,
            PodState::Starting
        );
        assert!(!pod(on_node, json!({"phase": "Failed"})).holds_room());
    }

    #[test]
    fn a_node_that_says_nothing_is_not_ready_and_has_no_cells() {
        let node = SeenNode::new(serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap());
        assert_eq!((node.gpus, node.state()), (0, HostState::NotReady));
        let status = json!({"allocatable": {"nvidia.com/gpu": "8", "cpu": "4", "amd.com/gpu": "1"},
            "conditions": [{"type": "Ready", "status": "True"}]});
        let object = json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": true}, "status": status});
        let node = SeenNode::new(serde_json::from_value(object).unwrap());
        assert_eq!((node.gpus, node.state()), (9, HostState::Cordoned));
    }
}
