//! NVLink groups that span nodes (MNNVL): a ComputeDomain for each group of each replica.
//!
//! An annotation that was admitted stays in force: that the operator's configuration allows no new ones takes no fabric
//! from what runs.

use std::collections::BTreeSet;

use grove_api::podcliqueset::PodCliqueTemplate;
use grove_api::{ComputeDomain, ComputeDomainSpec, PodCliqueSet, labels};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::ResourceExt;
use serde_json::{Map, json};

use super::Expansion;
use crate::meta::child_meta;
use crate::names;

const GPU: &str = "nvidia.com/gpu";
/// The word that takes a clique out of the group that it would inherit.
pub(crate) const NO_GROUP: &str = "none";

impl Expansion<'_> {
    pub(super) fn compute_domains(&self, replica: i32) -> Vec<ComputeDomain> {
        let cliques = self.set.spec.template.cliques.iter();
        let groups: BTreeSet<&str> = cliques.filter_map(|clique| mnnvl_group(self.set, clique)).collect();
        groups
            .into_iter()
            .map(|group| self.compute_domain(replica, group))
            .collect()
    }

    fn compute_domain(&self, replica: i32, group: &str) -> ComputeDomain {
        let name = names::compute_domain(&self.set_name(), replica, group);
        let mut metadata = child_meta(self.set, &name, Some(labels::component::COMPUTE_DOMAIN));
        let index = (labels::PCS_REPLICA_INDEX.to_owned(), replica.to_string());
        metadata.labels.get_or_insert_default().extend([index]);
        // Deleted by mistake, it would take the channel away from running pods.
        metadata.finalizers = Some(vec![labels::finalizer::COMPUTE_DOMAIN.to_owned()]);
        // No number of nodes: the fabric is as large as the pods that claim a channel of it make it.
        let fields = Map::from_iter([
            ("numNodes".to_owned(), json!(0)),
            (
                "channel".to_owned(),
                json!({ "resourceClaimTemplate": { "name": name } }),
            ),
        ]);
        ComputeDomain {
            metadata,
            spec: ComputeDomainSpec { fields },
        }
    }
}

/// Whether any clique of the set is in an NVLink group.
pub fn has_mnnvl_group(set: &PodCliqueSet) -> bool {
    let mut cliques = set.spec.template.cliques.iter();
    cliques.any(|clique| mnnvl_group(set, clique).is_some())
}

/// The NVLink group of a clique: the nearest annotation decides, and only pods with GPUs take part.
pub fn mnnvl_group<'a>(set: &'a PodCliqueSet, clique: &'a PodCliqueTemplate) -> Option<&'a str> {
    let template = &set.spec.template;
    let group = template
        .scaling_groups
        .iter()
        .find(|group| group.clique_names.contains(&clique.name));
    let annotation = labels::annotation::MNNVL_GROUP;
    let nearest = (clique.annotations.get(annotation))
        .or_else(|| group.and_then(|group| group.annotations.get(annotation)))
        .or_else(|| set.annotations().get(annotation))?;
    (nearest != NO_GROUP && !nearest.is_empty() && has_gpu(&clique.spec.pod_spec)).then_some(nearest.as_str())
}

fn has_gpu(pod: &PodSpec) -> bool {
    pod.containers
        .iter()
        .chain(pod.init_containers.iter().flatten())
        .any(asks_for_gpu)
}

pub(crate) fn asks_for_gpu(container: &Container) -> bool {
    let Some(resources) = &container.resources else {
        return false;
    };
    let named = [&resources.limits, &resources.requests];
    named
        .into_iter()
        .flatten()
        .any(|quantities| quantities.contains_key(GPU))
}
