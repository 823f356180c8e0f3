//! What a pod of a clique is.
//!
//! The user's pod as it was written, plus: who it is (labels, host name, environment), the gate that holds it until its
//! gang is complete, the claims that it shares, and, where an order of start is asked for, an init container that
//! waits. Everything else in the spec is the user's and stays.

mod claims;
mod environment;
mod wait;

pub use claims::compute_domain_of;

use grove_api::{PodClique, labels};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use kube::ResourceExt;
use kube::core::ObjectMeta;

use crate::expand::{Expansion, TEMPLATE_REPLICAS};
use crate::meta::owner_reference;
use crate::names::{self, Place};
use crate::pods::NewPod;

/// The pod to create; none if the clique has no place in the set (any more). `wait_image` holds `grove`.
pub fn pod(expansion: &Expansion<'_>, clique: &PodClique, new: &NewPod, wait_image: &str) -> Option<Pod> {
    let set = expansion.set;
    let place = Place::of(set, clique)?;
    let mut spec = clique.spec.pod_spec.clone();
    spec.hostname = Some(names::hostname(&clique.name_any(), new.index));
    spec.subdomain = Some(names::service(&set.name_any(), place.replica));
    spec.scheduler_name = Some(expansion.scheduler.to_owned());
    let gates = spec.scheduling_gates.get_or_insert_default();
    if gates.iter().all(|gate| gate.name != labels::SCHEDULING_GATE) {
        gates.push(PodSchedulingGate {
            name: labels::SCHEDULING_GATE.to_owned(),
        });
    }
    environment::add(&mut spec, set, &place, &clique.name_any());
    claims::add(&mut spec, set, &place, (&clique.name_any(), new.index));
    let mut parents = expansion.parents(&place);
    // While it waits, the pod goes by what its clique says: what is not said there yet is waited for by the next.
    parents.retain(|parent| clique.spec.starts_after.contains(&parent.name));
    if !parents.is_empty() {
        wait::add(&mut spec, (&clique.name_any(), &parents), wait_image);
    }
    Some(Pod {
        metadata: metadata(clique, new),
        spec: Some(spec),
        status: None,
    })
}

fn metadata(clique: &PodClique, new: &NewPod) -> ObjectMeta {
    let mut all = clique.labels().clone();
    all.insert(labels::PODCLIQUE.to_owned(), clique.name_any());
    all.insert(labels::POD_INDEX.to_owned(), new.index.to_string());
    let mut annotations = clique.annotations().clone();
    annotations.remove(TEMPLATE_REPLICAS);
    annotations.remove(labels::annotation::TOPOLOGY_NAME);
    annotations.remove(labels::annotation::TAKEN_OVER);
    ObjectMeta {
        name: Some(new.name.clone()),
        namespace: clique.metadata.namespace.clone(),
        labels: Some(all),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![owner_reference(clique)]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests;
