//! The nodes that a pod's volumes can be used on.
//!
//! A claim that is bound names a volume, and the volume may say which nodes reach it. A claim that is not bound yet, or
//! not known here, restricts nothing: its volume is made where the pod goes. That is the work of whoever binds the pod,
//! so somebody who cannot do it asks for [`Volumes::unready`] first.

use std::collections::BTreeMap;

use grove_placement::Requirement;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};

use crate::eligibility::terms;
use crate::view::PodView;

/// Claims and volumes as far as they bind pods to nodes.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// Name of the volume, by namespace and name of the claim.
    claims: BTreeMap<(String, String), String>,
    /// By name of the volume; any one of the terms must hold, if it has any.
    reach: BTreeMap<String, Option<Vec<Vec<Requirement>>>>,
}

/// Why a claim does not say yet which nodes it can be used on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unready {
    Unbound { claim: String },
    NoVolume { claim: String, volume: String },
}

impl Volumes {
    pub(crate) fn set_claim(&mut self, claim: &PersistentVolumeClaim) {
        let key = key(&claim.metadata.namespace, &claim.metadata.name);
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        match volume.filter(|name| !name.is_empty()) {
            Some(volume) => self.claims.insert(key, volume),
            None => self.claims.remove(&key),
        };
    }

    pub(crate) fn remove_claim(&mut self, namespace: &str, name: &str) {
        self.claims.remove(&(namespace.to_owned(), name.to_owned()));
    }

    pub(crate) fn set_volume(&mut self, volume: &PersistentVolume) {
        let name = volume.metadata.name.clone().unwrap_or_default();
        let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        let terms = required.map(|required| terms(&required.node_selector_terms));
        self.reach.insert(name, terms);
    }

    pub(crate) fn remove_volume(&mut self, name: &str) {
        self.reach.remove(name);
    }

    /// Namespace and name of the claims that are bound to a volume.
    pub(crate) fn claims_on(&self, volume: &str) -> impl Iterator<Item = &(String, String)> {
        let bound = self.claims.iter().filter(move |(_, bound)| *bound == volume);
        bound.map(|(claim, _)| claim)
    }

    /// What the volumes of a pod ask of its node, one list of terms for each volume that asks for something.
    pub(crate) fn of_pod(&self, pod: &PodView) -> Vec<&Vec<Vec<Requirement>>> {
        let claims = pod.claims().iter();
        claims
            .filter_map(|claim| self.reach.get(self.volume_of(pod, claim)?)?.as_ref())
            .collect()
    }

    /// A claim of a pod that no volume is bound to, or one that is not there.
    pub(crate) fn unready(&self, pod: &PodView) -> Option<Unready> {
        pod.claims().iter().find_map(|claim| match self.volume_of(pod, claim) {
            None => Some(Unready::Unbound { claim: claim.clone() }),
            Some(volume) if self.reach.contains_key(volume) => None,
            Some(volume) => Some(Unready::NoVolume {
                claim: claim.clone(),
                volume: volume.clone(),
            }),
        })
    }

    fn volume_of(&self, pod: &PodView, claim: &str) -> Option<&String> {
        self.claims.get(&(pod.key.namespace.clone(), claim.to_owned()))
    }
}

/// Names of the claims that a pod uses.
pub(crate) fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten();
    volumes.filter_map(|volume| {
        let named = volume
            .persistent_volume_claim
            .as_ref()
            .map(|claim| claim.claim_name.clone());
        // A claim that is made for the pod is named after both.
        let own = || {
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            volume.ephemeral.as_ref().map(|_| format!("{pod}-{}", volume.name))
        };
        named.or_else(own)
    })
}

fn key(namespace: &Option<String>, name: &Option<String>) -> (String, String) {
    (namespace.clone().unwrap_or_default(), name.clone().unwrap_or_default())
}
