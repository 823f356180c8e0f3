//! What a scheduler asks of a pod.

use grove_api::labels;
use grove_runtime::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

const DEFAULT_SCHEDULER: &str = "default-scheduler";

pub(crate) fn scheduler(pod: &Pod) -> &str {
    let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    name.unwrap_or(DEFAULT_SCHEDULER)
}

pub(crate) fn node(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

/// Has not ended and is not about to.
pub(crate) fn is_live(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// When a pod that is being deleted should be gone.
pub(crate) fn leaves_at(pod: &Pod) -> Option<Timestamp> {
    let deleted = pod.metadata.deletion_timestamp.as_ref();
    deleted.filter(|_| !has_ended(pod)).map(|time| time.0)
}

pub(crate) fn has_place(pod: &Pod) -> bool {
    node(pod).is_some()
}

pub(crate) fn gates(pod: &Pod) -> impl Iterator<Item = &str> {
    let gates = pod.spec.iter().flat_map(|spec| &spec.scheduling_gates).flatten();
    gates.map(|gate| gate.name.as_str())
}

/// Held by Grove's gate: whoever lifts it has not come to it yet.
pub(crate) fn is_gated_by_grove(pod: &Pod) -> bool {
    gates(pod).any(|gate| gate == labels::SCHEDULING_GATE)
}

/// Waits for room before others of lower priority, and takes it from nobody.
pub(crate) fn never_preempts(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
    policy == Some("Never")
}

/// Whether nothing changed that placement looks at; a kubelet reports much else.
pub(crate) fn is_same(old: &Pod, new: &Pod) -> bool {
    old.spec == new.spec
        && old.metadata.labels == new.metadata.labels
        && grove_kubeplace::requests::of_pod(old) == grove_kubeplace::requests::of_pod(new)
        && is_live(old) == is_live(new)
        && has_ended(old) == has_ended(new)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub(crate) fn uses_claim(pod: &Pod, claim: &ObjectKey) -> bool {
    pod.metadata.namespace.as_deref() == Some(&claim.namespace)
        && grove_kubeplace::claims(pod).any(|used| used == claim.name)
}

pub(crate) fn has_claims(pod: &Pod) -> bool {
    let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref());
    claims.is_some_and(|claims| !claims.is_empty())
}

fn scheduled(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions
        .into_iter()
        .find(|condition| condition.type_ == "PodScheduled")
}

/// Why the pod has no node, as it says itself.
pub(crate) fn complaint(pod: &Pod) -> Option<&str> {
    scheduled(pod)
        .filter(|condition| condition.status == "False")?
        .message
        .as_deref()
}

/// When the pod was bound.
pub(crate) fn bound_at(pod: &Pod) -> Option<Timestamp> {
    let condition = scheduled(pod).filter(|condition| condition.status == "True")?;
    condition.last_transition_time.as_ref().map(|time| time.0)
}
