//! Claims that the pod uses: those that it shares with other pods, and its channel in an NVLink group.

use grove_api::PodCliqueSet;
use k8s_openapi::api::core::v1::{Container, PodResourceClaim, PodSpec, ResourceClaim};
use kube::ResourceExt;

use crate::expand::{claims, compute_domains, mnnvl_group};
use crate::names::{self, Place};
use crate::observed::SpecFields;

/// Name, within a pod, of the claim for its NVLink group.
const MNNVL_CLAIM: &str = "mnnvl-claim";

/// The ComputeDomain whose channel a pod claims: its claim template has the same name.
pub fn compute_domain_of(pod: &SpecFields) -> Option<&str> {
    let mut claims = pod.resource_claims.iter();
    claims
        .find(|claim| claim.name == MNNVL_CLAIM)?
        .resource_claim_template_name
        .as_deref()
}

pub(super) fn add(spec: &mut PodSpec, set: &PodCliqueSet, place: &Place<'_>, (podclique, index): (&str, i32)) {
    for (number, claim) in claims::of_pod(set, place, podclique, index).into_iter().enumerate() {
        let name = format!("grove-shared-{number}");
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            use_claim(container, &name);
        }
        spec.resource_claims.get_or_insert_default().push(PodResourceClaim {
            name,
            resource_claim_name: Some(claim),
            ..PodResourceClaim::default()
        });
    }
    if let Some(group) = mnnvl_group(set, place.template) {
        let gpus = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        for container in gpus.filter(|container| compute_domains::asks_for_gpu(container)) {
            use_claim(container, MNNVL_CLAIM);
        }
        let template = names::compute_domain(&set.name_any(), place.replica, group);
        spec.resource_claims.get_or_insert_default().push(PodResourceClaim {
            name: MNNVL_CLAIM.to_owned(),
            resource_claim_template_name: Some(template),
            ..PodResourceClaim::default()
        });
    }
}

fn use_claim(container: &mut Container, name: &str) {
    let resources = container.resources.get_or_insert_default();
    let claim = ResourceClaim {
        name: name.to_owned(),
        request: None,
    };
    resources.claims.get_or_insert_default().push(claim);
}
