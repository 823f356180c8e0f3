//! A pod as placement sees it: what it needs of the object, read once, so that whoever keeps many pods keeps only this.

use std::borrow::Cow;
use std::sync::Arc;

use grove_placement::Rules;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::apart::{self, Term};
use crate::mirror::PodKey;
use crate::ports::{self, PortClaim};
use crate::selector::Labels;
use crate::unsupported::Unsupported;
use crate::{eligibility, requests, volumes};

/// Something that can be placed, or has been.
pub trait Placeable {
    fn view(&self) -> Cow<'_, PodView>;
}

/// A pod as placement sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    pub key: PodKey,
    pub labels: Arc<Labels>,
    /// The node that it is bound to.
    pub node: Option<Box<str>>,
    /// It holds nothing any more.
    pub has_ended: bool,
    /// It holds its place until it is gone, and counts for nothing else.
    pub is_leaving: bool,
    pub(crate) holds: Holds,
    /// Only of a pod that has no node.
    pub(crate) wants: Option<Box<Wants>>,
}

/// What a pod takes of its node, wherever that is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Holds {
    pub(crate) amounts: Box<[(Box<str>, u64)]>,
    pub(crate) ports: Box<[PortClaim]>,
    pub(crate) terms: Box<[Term]>,
}

/// What a pod asks of the node that it is to get.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wants {
    pub(crate) rules: Rules,
    /// Names of its volume claims.
    pub(crate) claims: Vec<String>,
    pub(crate) has_resource_claims: bool,
    pub(crate) unsupported: Option<Unsupported>,
}

impl PodView {
    /// Names of the volume claims that a pod without a node uses.
    pub fn claims(&self) -> &[String] {
        self.wants
            .as_ref()
            .map(|wants| wants.claims.as_slice())
            .unwrap_or_default()
    }

    /// Whether a pod without a node has resource claims.
    pub fn has_resource_claims(&self) -> bool {
        self.wants.as_ref().is_some_and(|wants| wants.has_resource_claims)
    }
}

impl<P: Placeable> Placeable for &P {
    fn view(&self) -> Cow<'_, PodView> {
        (**self).view()
    }
}

impl Placeable for PodView {
    fn view(&self) -> Cow<'_, PodView> {
        Cow::Borrowed(self)
    }
}

impl Placeable for Pod {
    fn view(&self) -> Cow<'_, PodView> {
        Cow::Owned(PodView::from(self))
    }
}

impl From<&Pod> for PodView {
    fn from(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let node = spec.and_then(|spec| spec.node_name.as_deref());
        let node = node.filter(|node| !node.is_empty()).map(Box::from);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let amounts = requests::of_pod(pod).into_iter();
        let wants = match &node {
            Some(_) => None,
            None => spec.map(|spec| Box::new(wants(pod, spec))),
        };
        Self {
            key: PodKey {
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                name: pod.metadata.name.clone().unwrap_or_default(),
            },
            labels: Arc::new(pod.metadata.labels.clone().unwrap_or_default()),
            node,
            has_ended: matches!(phase, Some("Succeeded" | "Failed")),
            is_leaving: pod.metadata.deletion_timestamp.is_some(),
            holds: Holds {
                amounts: amounts.map(|(name, amount)| (name.into(), amount)).collect(),
                ports: spec.map(ports::claims).unwrap_or_default().into(),
                terms: apart::terms(pod).into(),
            },
            wants,
        }
    }
}

fn wants(pod: &Pod, spec: &PodSpec) -> Wants {
    let claims = spec.resource_claims.as_ref();
    Wants {
        rules: eligibility::rules(spec),
        claims: volumes::claims(pod).collect(),
        has_resource_claims: claims.is_some_and(|claims| !claims.is_empty()),
        unsupported: unsupported(spec),
    }
}

/// What the engine cannot take into account, resource claims aside: those may be somebody else's to match.
fn unsupported(spec: &PodSpec) -> Option<Unsupported> {
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.pod_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    if required.is_some_and(|terms| !terms.is_empty()) {
        return Some(Unsupported::PodAffinity);
    }
    if apart::asks_for_namespace_labels(spec) {
        return Some(Unsupported::NamespaceSelector);
    }
    let mut spread = spec.topology_spread_constraints.iter().flatten();
    let hard = spread.find(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")?;
    Some(Unsupported::TopologySpread {
        key: hard.topology_key.clone(),
    })
}
