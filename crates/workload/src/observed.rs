//! A pod as decisions see it: the few fields that they read, so that a cache can hold many.

mod fields;

use grove_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use fields::{ContainerFields, StatusFields};
pub use fields::{PodFields, SpecFields};

use crate::names::index_label;

/// How far a pod's life has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

/// Whether a pod serves. Readiness is judged first: a pod that is ready is ready, however often it crashed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Not ready, and nothing speaks against it becoming so: it is being pulled, started or warmed up.
    #[default]
    Starting,
    /// Not ready after a container ended with an error.
    Crashed,
    /// Was ready since its containers started, and is so no more: a failing probe, or a node that does not answer.
    Lost,
}

/// A pod that a PodClique owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedPod {
    pub name: String,
    pub uid: String,
    /// Index in its clique; none if the label is missing or no index.
    pub index: Option<i32>,
    pub template_hash: String,
    /// The gang that it says it belongs to.
    pub gang: String,
    /// Empty until it is scheduled.
    pub node: String,
    pub phase: Phase,
    pub readiness: Readiness,
    /// Whether Grove's gate, not anybody else's, holds it.
    pub is_gated: bool,
    pub is_terminating: bool,
    /// Why its scheduler found no node for it, in the scheduler's words.
    pub unplaced_because: Option<Box<str>>,
    pub created_at: Timestamp,
}

impl ObservedPod {
    /// Whether the pod counts. One that is on its way out does not, however long that takes: on a dead node it takes
    /// for ever.
    pub fn is_live(&self) -> bool {
        !self.is_terminating && !self.is_finished()
    }

    /// Whether the pod has ended and will not run again.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub fn is_ready(&self) -> bool {
        self.is_live() && self.readiness == Readiness::Ready
    }

    pub fn is_scheduled(&self) -> bool {
        self.is_live() && !self.node.is_empty()
    }
}

impl From<&PodFields> for ObservedPod {
    fn from(pod: &PodFields) -> Self {
        let label = |key: &str| pod.labels().get(key).cloned().unwrap_or_default();
        let mut gates = pod.spec.scheduling_gates.iter();
        Self {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            index: index_label(&pod.metadata, labels::POD_INDEX),
            template_hash: label(labels::POD_TEMPLATE_HASH),
            gang: label(labels::PODGANG),
            node: pod.spec.node_name.clone().unwrap_or_default(),
            phase: phase(&pod.status),
            readiness: readiness(&pod.status),
            is_gated: gates.any(|gate| gate.name == labels::SCHEDULING_GATE),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            unplaced_because: unplaced_because(&pod.status),
            created_at: pod
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        }
    }
}

impl From<Pod> for ObservedPod {
    fn from(pod: Pod) -> Self {
        Self::from(&PodFields::from(pod))
    }
}

fn phase(status: &StatusFields) -> Phase {
    match status.phase.as_deref() {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Unknown") => Phase::Unknown,
        _ => Phase::Pending,
    }
}

/// Gates hold a pod without a scheduler having looked for a node: that is no reason of its own.
fn unplaced_because(status: &StatusFields) -> Option<Box<str>> {
    let mut conditions = status.conditions.iter();
    let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled")?;
    let is_refused = scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable");
    scheduled.message.as_deref().filter(|_| is_refused).map(Box::from)
}

fn readiness(status: &StatusFields) -> Readiness {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    if ready.is_some_and(|ready| ready.status == "True") {
        return Readiness::Ready;
    }
    let mut inits = status.init_container_statuses.iter().filter(|init| !is_past(init));
    if inits.any(ended_with_error) || status.container_statuses.iter().any(ended_with_error) {
        return Readiness::Crashed;
    }
    // A pod is not ready from the moment its node takes it, before its containers start. If it became unready after
    // they had, it was ready in between.
    let unready_since = ready.and_then(|ready| ready.last_transition_time);
    let containers = status.container_statuses.iter();
    let started_last = containers
        .filter_map(|container| container.state.running.as_ref()?.started_at)
        .max();
    match (unready_since, started_last) {
        (Some(unready), Some(started)) if unready > started => Readiness::Lost,
        _ => Readiness::Starting,
    }
}

/// Whether an init container has done its work, or does it for as long as the pod runs: how often it failed before that
/// does not count any more.
fn is_past(init: &ContainerFields) -> bool {
    let ended = init.state.terminated.as_ref();
    ended.is_some_and(|ended| ended.exit_code == 0) || (init.state.running.is_some() && init.started == Some(true))
}

fn ended_with_error(container: &ContainerFields) -> bool {
    let states = [&container.state, &container.last_state].into_iter();
    let mut ended = states.filter_map(|state| state.terminated.as_ref());
    ended.any(|ended| ended.exit_code != 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pod is the same to us whether a watch or the answer to a write brings it.
    fn observe(status: Value) -> ObservedPod {
        let object = json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "labels": {"grove.io/podclique-pod-index": "3"}, "annotations": {"a": "b"},
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:02:00Z",
                "ownerReferences": [{"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "c", "uid": "o",
                    "controller": true}],
            },
            "spec": {"containers": [], "nodeName": "n", "schedulingGates": [{"name": "example.com/other"}]},
            "status": status,
        });
        let whole: Pod = serde_json::from_value(object.clone()).unwrap();
        let fields: PodFields = serde_json::from_value(object).unwrap();
        assert_eq!(PodFields::from(whole), fields);
        ObservedPod {
            is_terminating: false,
            ..ObservedPod::from(&fields)
        }
    }

    #[test]
    fn what_is_null_or_no_time_counts_as_none() {
        let object = json!({"metadata": {"name": "p", "creationTimestamp": "yesterday", "labels": null},
            "spec": {"schedulingGates": null}, "status": null});
        let fields: PodFields = serde_json::from_value(object).unwrap();
        assert_eq!(ObservedPod::from(&fields).created_at, Timestamp::UNIX_EPOCH);
    }

    fn unready(since: &str, containers: Value) -> Readiness {
        let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": since}]);
        observe(json!({"phase": "Running", "conditions": ready, "containerStatuses": containers})).readiness
    }

    fn container(state: Value, last: Value) -> Value {
        json!([{"name": "m", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": state, "lastState": last}])
    }

    #[test]
    fn readiness_tells_starting_from_lost_and_crashed() {
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:10Z"}});
        let crashed = json!({"terminated": {"exitCode": 1}});
        // Warming up: not ready since before its container started.
        assert_eq!(
            unready("2026-01-01T00:00:05Z", container(running.clone(), json!({}))),
            Readiness::Starting
        );
        assert_eq!(
            unready("2026-01-01T00:00:10Z", container(running.clone(), json!({}))),
            Readiness::Starting
        );
        assert_eq!(
            unready("2026-01-01T00:01:00Z", container(running.clone(), json!({}))),
            Readiness::Lost
        );
        assert_eq!(
            unready("2026-01-01T00:00:05Z", container(running, crashed.clone())),
            Readiness::Crashed
        );
        assert_eq!(
            unready("2026-01-01T00:00:05Z", container(crashed, json!({}))),
            Readiness::Crashed
        );
        let pulling = json!({"waiting": {"reason": "ImagePullBackOff"}});
        assert_eq!(
            unready("2026-01-01T00:00:05Z", container(pulling, json!({}))),
            Readiness::Starting
        );
        assert_eq!(observe(json!({})).readiness, Readiness::Starting);
    }

    #[test]
    fn an_init_container_that_has_succeeded_is_no_crash() {
        let with = |state: Value, started: Value| {
            let init = json!([{"name": "i", "ready": false, "restartCount": 1, "image": "", "imageID": "",
                "state": state, "started": started, "lastState": {"terminated": {"exitCode": 1}}}]);
            observe(json!({"phase": "Pending", "initContainerStatuses": init})).readiness
        };
        let running = json!({"running": {}});
        assert_eq!(
            with(json!({"terminated": {"exitCode": 0}}), json!(null)),
            Readiness::Starting
        );
        assert_eq!(with(running.clone(), json!(true)), Readiness::Starting, "a sidecar");
        assert_eq!(with(running, json!(null)), Readiness::Crashed, "it tries again");
        assert_eq!(with(json!({"waiting": {}}), json!(null)), Readiness::Crashed);
        assert_eq!(
            with(json!({"terminated": {"exitCode": 2}}), json!(null)),
            Readiness::Crashed
        );
    }

    #[test]
    fn why_a_pod_has_no_node_is_kept_in_its_schedulers_words() {
        let because = |status: &str, reason: &str| {
            let scheduled = json!([{"type": "PodScheduled", "status": status, "reason": reason, "message": "no room"}]);
            observe(json!({"conditions": scheduled})).unplaced_because
        };
        assert_eq!(because("False", "Unschedulable").as_deref(), Some("no room"));
        assert_eq!(because("False", "SchedulingGated"), None);
        assert_eq!(because("True", ""), None);
    }

    #[test]
    fn a_ready_pod_with_an_old_crash_is_ready() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let crashed = container(json!({"running": {}}), json!({"terminated": {"exitCode": 137}}));
        let pod = observe(json!({"conditions": ready, "containerStatuses": crashed}));
        assert!(pod.is_ready());
    }

    #[test]
    fn other_gates_are_not_ours_and_finished_pods_do_not_count() {
        let pod = observe(json!({"phase": "Failed"}));
        assert!(!pod.is_gated && !pod.is_live() && pod.is_finished());
        assert_eq!(pod.index, Some(3));
    }
}
