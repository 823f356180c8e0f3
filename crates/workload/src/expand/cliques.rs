//! PodCliques: standalone ones, and the members of a scaling group.

use std::collections::BTreeMap;

use grove_api::podcliqueset::UpdateStrategyType;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSpec, labels};
use kube::ResourceExt;
use kube::core::ObjectMeta;

use super::live::min_available;
use super::{Expansion, TEMPLATE_REPLICAS};
use crate::hash::with_priority;
use crate::meta::{TakenOver, base_labels, owner_reference, uid};
use crate::names::{self, Membership, Place, is_owned_by};

impl<'a> Expansion<'a> {
    pub(super) fn standalone_cliques(&self, replica: i32) -> Vec<PodClique> {
        let clique = |template| {
            let place = Place {
                replica,
                template,
                member: None,
            };
            let name = names::podclique(&self.set_name(), replica, &template.name);
            let mut clique = self.podclique(&place, &name, labels::component::SET_PODCLIQUE);
            clique.metadata.owner_references = Some(vec![owner_reference(self.set)]);
            clique
        };
        names::standalone(self.set).map(clique).collect()
    }

    /// The cliques of every replica of the group. Under `RollingRecreate` a replica is replaced whole, so the template
    /// of a clique that exists stays until its replica's turn comes.
    pub(super) fn member_cliques(&self, group: &PodCliqueScalingGroup) -> Vec<PodClique> {
        let group_name = group.name_any();
        let Some(replica) = names::index_label(&group.metadata, labels::PCS_REPLICA_INDEX) else {
            return vec![];
        };
        let templates = &self.set.spec.template.scaling_groups;
        let named = |name: &str| names::scaling_group(&self.set_name(), replica, name) == group_name;
        let Some(template) = templates.iter().find(|template| named(&template.name)) else {
            return vec![];
        };
        let replicas = 0..self.live.group_replicas(&group_name, template);
        let cliques = replicas.flat_map(|group_replica| {
            let member = Some(Membership {
                group: template,
                group_replica,
            });
            names::members(self.set, template).map(move |template| Place {
                replica,
                template,
                member,
            })
        });
        cliques
            .map(|place| {
                let index = place.member.map_or(0, |member| member.group_replica);
                let name = names::member_podclique(&group_name, index, &place.template.name);
                let mut clique = self.podclique(&place, &name, labels::component::SCALING_GROUP_PODCLIQUE);
                clique.metadata.owner_references = Some(vec![owner_reference(group)]);
                let observed = self
                    .live
                    .clique(&name)
                    .filter(|stored| is_owned_by(&stored.metadata, uid(group)));
                if let Some(stored) = observed.filter(|_| self.strategy() == UpdateStrategyType::RollingRecreate) {
                    keep_template(&mut clique, stored);
                }
                clique
            })
            .collect()
    }

    pub(crate) fn strategy(&self) -> UpdateStrategyType {
        self.set
            .spec
            .update_strategy
            .as_ref()
            .map(|strategy| strategy.type_)
            .unwrap_or_default()
    }

    fn podclique(&self, place: &Place<'_>, name: &str, component: &str) -> PodClique {
        let template = place.template;
        let stored = self.live.clique(name);
        let replicas = self.live.clique_replicas(name, template);
        let mut annotations = template.annotations.clone();
        annotations.remove(labels::annotation::TOPOLOGY_NAME);
        annotations.insert(TEMPLATE_REPLICAS.to_owned(), template.spec.replicas.to_string());
        let taken_over = TakenOver::new(&template.labels, &template.annotations);
        let mut metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: self.set.metadata.namespace.clone(),
            labels: Some(self.clique_labels(place, name, component)),
            annotations: Some(annotations),
            finalizers: Some(vec![labels::finalizer::PODCLIQUE.to_owned()]),
            // Somebody may be scaling the object at this moment: the number that was read must still be the number.
            resource_version: stored.and_then(|stored| stored.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        };
        taken_over.record(&mut metadata);
        let spec = PodCliqueSpec {
            role_name: template.spec.role_name.clone(),
            pod_spec: with_priority(self.set, &template.spec.pod_spec),
            replicas,
            min_available: Some(min_available(template)),
            starts_after: self.parents(place).into_iter().map(|parent| parent.name).collect(),
            auto_scaling_config: template.spec.auto_scaling_config.clone(),
        };
        PodClique {
            metadata,
            spec,
            status: None,
        }
    }

    fn clique_labels(&self, place: &Place<'_>, name: &str, component: &str) -> BTreeMap<String, String> {
        let set = self.set_name();
        let mut all = place.template.labels.clone();
        all.extend(base_labels(&set));
        let mut put = |label: &str, value: &str| all.insert(label.to_owned(), value.to_owned());
        put(labels::NAME, name);
        put(labels::COMPONENT, component);
        put(labels::PCS_REPLICA_INDEX, &place.replica.to_string());
        put(labels::POD_TEMPLATE_HASH, self.hashes.of(&place.template.name));
        let base = names::base_gang(&set, place.replica);
        match place.member {
            None => drop(put(labels::PODGANG, &base)),
            Some(member) => {
                let (group, min) = (&member.group.name, member.group.min_available());
                let group = names::scaling_group(&set, place.replica, group);
                let gang = names::gang_of_group_replica(&set, place.replica, &group, member.group_replica, min);
                put(labels::SCALING_GROUP, &group);
                put(labels::SCALING_GROUP_REPLICA_INDEX, &member.group_replica.to_string());
                put(labels::PODGANG, &gang);
                if member.group_replica >= min {
                    put(labels::BASE_PODGANG, &base);
                }
            }
        }
        all
    }
}

/// Everything that would make new pods stays as it is stored.
fn keep_template(clique: &mut PodClique, stored: &PodClique) {
    let hash = |labels: &BTreeMap<String, String>| labels.get(labels::POD_TEMPLATE_HASH).cloned();
    if hash(clique.labels()) == hash(stored.labels()) {
        return;
    }
    clique.spec.pod_spec = stored.spec.pod_spec.clone();
    clique.metadata.labels = stored.metadata.labels.clone();
    let replicas = clique.annotations().get(TEMPLATE_REPLICAS).cloned();
    let mut annotations = stored.metadata.annotations.clone().unwrap_or_default();
    annotations.extend(replicas.map(|replicas| (TEMPLATE_REPLICAS.to_owned(), replicas)));
    clique.metadata.annotations = Some(annotations);
}
