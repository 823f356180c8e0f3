//! A pod as the scheduler keeps it, and what it asks of one. A cluster has a hundred thousand of them, so only what
//! decisions read is kept.

use std::borrow::Cow;

use grove_api::labels;
use grove_kubeplace::{Placeable, PodKey, PodView};
use grove_runtime::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, ObjectReference, Pod, PodStatus};

const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptPod {
    view: PodView,
    uid: Box<str>,
    /// Of the object that was read, for writes that are right for that one only.
    version: Box<str>,
    scheduler: Box<str>,
    gates: Box<[Box<str>]>,
    created_at: Option<Timestamp>,
    deleted_at: Option<Timestamp>,
    priority: Option<i32>,
    never_preempts: bool,
    /// Of a pod without a node: it says where it was led, and is changed by the patch that leads it.
    affinity: Option<Box<Affinity>>,
    scheduled: Scheduled,
}

/// What the pod itself says of its being scheduled.
#[derive(Clone, Debug, Default, PartialEq)]
enum Scheduled {
    #[default]
    Unsaid,
    No {
        why: Option<Box<str>>,
    },
    Yes {
        at: Option<Timestamp>,
    },
}

impl From<Pod> for KeptPod {
    fn from(pod: Pod) -> Self {
        let view = PodView::from(&pod);
        let spec = pod.spec.unwrap_or_default();
        let gates = spec.scheduling_gates.into_iter().flatten();
        Self {
            uid: pod.metadata.uid.unwrap_or_default().into(),
            version: pod.metadata.resource_version.unwrap_or_default().into(),
            scheduler: spec.scheduler_name.map_or_else(|| DEFAULT_SCHEDULER.into(), Box::from),
            gates: gates.map(|gate| gate.name.into()).collect(),
            created_at: pod.metadata.creation_timestamp.map(|time| time.0),
            deleted_at: pod.metadata.deletion_timestamp.map(|time| time.0),
            priority: spec.priority,
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            affinity: spec.affinity.filter(|_| view.node.is_none()).map(Box::new),
            scheduled: scheduled(pod.status),
            view,
        }
    }
}

fn scheduled(status: Option<PodStatus>) -> Scheduled {
    let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
    let mut found = conditions
        .into_iter()
        .filter(|condition| condition.type_ == "PodScheduled");
    match found.next() {
        Some(condition) if condition.status == "True" => Scheduled::Yes {
            at: condition.last_transition_time.map(|time| time.0),
        },
        Some(condition) if condition.status == "False" => Scheduled::No {
            why: condition.message.map(Box::from),
        },
        _ => Scheduled::Unsaid,
    }
}

impl Placeable for KeptPod {
    fn view(&self) -> Cow<'_, PodView> {
        Cow::Borrowed(&self.view)
    }
}

impl KeptPod {
    pub fn key(&self) -> &PodKey {
        &self.view.key
    }

    pub fn name(&self) -> &str {
        &self.view.key.name
    }

    pub fn namespace(&self) -> &str {
        &self.view.key.namespace
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn label(&self, key: &str) -> Option<&String> {
        self.view.labels.get(key)
    }

    pub(crate) fn labels(&self) -> &std::collections::BTreeMap<String, String> {
        &self.view.labels
    }

    pub(crate) fn scheduler(&self) -> &str {
        &self.scheduler
    }

    pub(crate) fn node(&self) -> Option<&str> {
        self.view.node.as_deref()
    }

    pub(crate) fn has_place(&self) -> bool {
        self.view.node.is_some()
    }

    /// Has not ended and is not about to.
    pub(crate) fn is_live(&self) -> bool {
        self.deleted_at.is_none() && !self.view.has_ended
    }

    pub(crate) fn created_at(&self) -> Option<Timestamp> {
        self.created_at
    }

    /// When a pod that is being deleted should be gone.
    pub(crate) fn leaves_at(&self) -> Option<Timestamp> {
        self.deleted_at.filter(|_| !self.view.has_ended)
    }

    pub(crate) fn gates(&self) -> impl Iterator<Item = &str> {
        self.gates.iter().map(|gate| &**gate)
    }

    /// Held by Grove's gate: whoever lifts it has not come to it yet.
    pub(crate) fn is_gated_by_grove(&self) -> bool {
        self.gates().any(|gate| gate == labels::SCHEDULING_GATE)
    }

    pub(crate) fn priority(&self) -> Option<i32> {
        self.priority
    }

    /// Waits for room before others of lower priority, and takes it from nobody.
    pub(crate) fn never_preempts(&self) -> bool {
        self.never_preempts
    }

    /// Whether nothing changed that placement looks at; a kubelet reports much else.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.view, &self.gates, &self.affinity) == (&other.view, &other.gates, &other.affinity)
            && (&self.scheduler, self.priority) == (&other.scheduler, other.priority)
            && self.deleted_at.is_some() == other.deleted_at.is_some()
    }

    pub(crate) fn uses_claim(&self, claim: &ObjectKey) -> bool {
        self.namespace() == claim.namespace && self.view.claims().contains(&claim.name)
    }

    pub(crate) fn has_claims(&self) -> bool {
        self.view.has_resource_claims()
    }

    pub(crate) fn affinity(&self) -> Option<&Affinity> {
        self.affinity.as_deref()
    }

    /// Why the pod has no node, as it says itself.
    pub(crate) fn complaint(&self) -> Option<&str> {
        match &self.scheduled {
            Scheduled::No { why } => why.as_deref(),
            Scheduled::Yes { .. } | Scheduled::Unsaid => None,
        }
    }

    /// When the pod was bound.
    pub(crate) fn bound_at(&self) -> Option<Timestamp> {
        match self.scheduled {
            Scheduled::Yes { at } => at,
            Scheduled::No { .. } | Scheduled::Unsaid => None,
        }
    }

    /// As Events refer to it.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(self.name().to_owned()),
            namespace: Some(self.namespace().to_owned()),
            uid: Some(self.uid.to_string()),
            ..ObjectReference::default()
        }
    }
}
