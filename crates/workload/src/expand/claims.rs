//! Resource claims that several pods share: which exist, and which a pod uses.
//!
//! A claim belongs to the level that declares it: the set, a scaling group or a clique. Its spec is never changed once
//! it exists, because the API server does not allow it.

use std::collections::BTreeMap;

use grove_api::podcliqueset::PodCliqueTemplate;
use grove_api::sharing::{CliqueSharing, ScalingGroupSharing, SetSharing, SharingScope};
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, labels};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplateSpec};
use kube::{Resource, ResourceExt};

use super::Expansion;
use crate::meta::{child_meta, owner_reference};
use crate::names::{self, Place};

/// Specs of ResourceClaimTemplate objects, by namespace and name.
pub type ClaimTemplates = BTreeMap<(String, String), ResourceClaimTemplateSpec>;

/// A reference to a claim template; `namespace` is only written for an object outside of the set's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference<'a> {
    name: &'a str,
    namespace: Option<&'a str>,
}

/// Claims of one owner.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    pub wanted: Vec<ResourceClaim>,
    /// Names of those whose template is not there (any more): what exists of them stays as it is.
    pub kept: Vec<String>,
}

impl<'a> Expansion<'a> {
    pub(super) fn set_claims(&self) -> Claims {
        let set = self.set_name();
        let mut claims = Claims::default();
        for sharing in &self.set.spec.template.resource_sharing {
            let reference = to(&sharing.name, &sharing.namespace);
            let names: Vec<String> = match sharing.scope {
                SharingScope::AllReplicas => vec![names::claim_of_all(&set, &sharing.name)],
                SharingScope::PerReplica => self
                    .replicas()
                    .map(|replica| names::claim_of_one(&set, replica, &sharing.name))
                    .collect(),
            };
            self.add_claims(&mut claims, self.set, reference, names);
        }
        claims
    }

    pub(super) fn group_claims(&self, group: &PodCliqueScalingGroup) -> Claims {
        let name = group.name_any();
        let Some(replica) = names::index_label(&group.metadata, labels::PCS_REPLICA_INDEX) else {
            return Claims::default();
        };
        let templates = self.set.spec.template.scaling_groups.iter();
        let mut claims = Claims::default();
        for template in
            templates.filter(|template| names::scaling_group(&self.set_name(), replica, &template.name) == name)
        {
            for sharing in &template.resource_sharing {
                let reference = to(&sharing.name, &sharing.namespace);
                let names: Vec<String> = match sharing.scope {
                    SharingScope::AllReplicas => vec![names::claim_of_all(&name, &sharing.name)],
                    SharingScope::PerReplica => (0..self.live.group_replicas(&name, template))
                        .map(|index| names::claim_of_one(&name, index, &sharing.name))
                        .collect(),
                };
                self.add_claims(&mut claims, group, reference, names);
            }
        }
        claims
    }

    /// The claims that `clique` should own, for pods of these indices.
    pub fn clique_claims(&self, clique: &PodClique, indices: &[i32]) -> Claims {
        let Some(place) = Place::of(self.set, clique) else {
            return Claims::default();
        };
        let owner = clique.name_any();
        let mut claims = Claims::default();
        for sharing in &place.template.resource_sharing {
            let reference = to(&sharing.name, &sharing.namespace);
            let names: Vec<String> = match sharing.scope {
                SharingScope::AllReplicas => vec![names::claim_of_all(&owner, &sharing.name)],
                SharingScope::PerReplica => indices
                    .iter()
                    .map(|index| names::claim_of_one(&owner, *index, &sharing.name))
                    .collect(),
            };
            self.add_claims(&mut claims, clique, reference, names);
        }
        claims
    }

    /// ResourceClaimTemplates outside of the set that it refers to, as (namespace, name), to be looked up.
    pub fn external_claim_templates(set: &PodCliqueSet) -> Vec<(String, String)> {
        let template = &set.spec.template;
        let of_set = template
            .resource_sharing
            .iter()
            .map(|s: &SetSharing| (&s.name, &s.namespace));
        let of_groups = template.scaling_groups.iter().flat_map(|group| {
            group
                .resource_sharing
                .iter()
                .map(|s: &ScalingGroupSharing| (&s.name, &s.namespace))
        });
        let of_cliques = template.cliques.iter().flat_map(|clique: &PodCliqueTemplate| {
            clique
                .resource_sharing
                .iter()
                .map(|s: &CliqueSharing| (&s.name, &s.namespace))
        });
        let all = of_set.chain(of_groups).chain(of_cliques);
        let references = all.map(|(name, namespace)| Reference {
            name,
            namespace: namespace.as_deref(),
        });
        let mut external: Vec<(String, String)> = references
            .filter(|reference| internal(set, *reference).is_none())
            .map(|reference| key(set, reference))
            .collect();
        external.sort();
        external.dedup();
        external
    }

    fn add_claims<K: Resource<DynamicType = ()>>(
        &self,
        claims: &mut Claims,
        owner: &K,
        reference: Reference<'_>,
        names: Vec<String>,
    ) {
        for name in names {
            match self.claim(owner, reference, &name) {
                Some(claim) => claims.wanted.push(claim),
                None => claims.kept.push(name),
            }
        }
    }

    /// Claims that a pod needs and that cannot be made, each with its template, as (namespace, name), which is not there.
    pub fn unmade_claims(&self, clique: &PodClique, index: i32) -> Vec<(String, (String, String))> {
        let Some(place) = Place::of(self.set, clique) else {
            return vec![];
        };
        let podclique = clique.name_any();
        let used = used_by_pod(self.set, &place, &podclique, index).into_iter();
        let unmade = used.filter(|(_, reference)| internal(self.set, *reference).is_none());
        let unmade = unmade.map(|(name, reference)| (name, key(self.set, reference)));
        unmade
            .filter(|(_, template)| !self.claim_templates.contains_key(template))
            .collect()
    }

    /// None if the template is not known (yet): a pod that needs the claim waits for it.
    fn claim<K: Resource<DynamicType = ()>>(
        &self,
        owner: &K,
        reference: Reference<'_>,
        name: &str,
    ) -> Option<ResourceClaim> {
        let template = match internal(self.set, reference) {
            Some(template) => template,
            None => self.claim_templates.get(&key(self.set, reference))?,
        };
        let mut metadata = child_meta(self.set, name, Some(labels::component::RESOURCE_CLAIM));
        metadata.owner_references = Some(vec![owner_reference(owner)]);
        if let Some(written) = &template.metadata {
            let mut all = written.labels.clone().unwrap_or_default();
            all.extend(metadata.labels.take().unwrap_or_default());
            metadata.labels = Some(all);
            metadata.annotations = written.annotations.clone();
        }
        Some(ResourceClaim {
            metadata,
            spec: template.spec.clone(),
            status: None,
        })
    }
}

/// A template that lives in the set itself.
fn internal<'a>(set: &'a PodCliqueSet, reference: Reference<'_>) -> Option<&'a ResourceClaimTemplateSpec> {
    let elsewhere = reference.namespace.is_some_and(|namespace| !namespace.is_empty());
    let mut templates = set.spec.template.resource_claim_templates.iter();
    let found = templates.find(|template| template.name == reference.name && !elsewhere);
    found.map(|template| &template.template_spec)
}

fn key(set: &PodCliqueSet, reference: Reference<'_>) -> (String, String) {
    let written = reference.namespace.filter(|namespace| !namespace.is_empty());
    let own = || set.metadata.namespace.clone().unwrap_or_default();
    (written.map_or_else(own, str::to_owned), reference.name.to_owned())
}

/// Names of the claims that the pod of a clique at `place` uses, widest scope first.
pub fn of_pod(set: &PodCliqueSet, place: &Place<'_>, podclique: &str, index: i32) -> Vec<String> {
    let used = used_by_pod(set, place, podclique, index).into_iter();
    used.map(|(name, _)| name).collect()
}

fn used_by_pod<'p>(
    set: &'p PodCliqueSet,
    place: &Place<'p>,
    podclique: &str,
    index: i32,
) -> Vec<(String, Reference<'p>)> {
    let set_name = set.name_any();
    let clique = &place.template.name;
    let group = place.member.map(|member| &member.group.name);
    let mut claims = Vec::new();
    for sharing in &set.spec.template.resource_sharing {
        let included = sharing.filter.as_ref().is_none_or(|filter| {
            filter.child_clique_names.contains(clique)
                || group.is_some_and(|group| filter.child_scaling_group_names.contains(group))
        });
        let name = scoped(sharing.scope, &set_name, place.replica, &sharing.name);
        claims.extend(included.then(|| (name, to(&sharing.name, &sharing.namespace))));
    }
    if let Some(member) = place.member {
        let owner = names::scaling_group(&set_name, place.replica, &member.group.name);
        for sharing in &member.group.resource_sharing {
            let included = sharing
                .filter
                .as_ref()
                .is_none_or(|filter| filter.child_clique_names.contains(clique));
            let name = scoped(sharing.scope, &owner, member.group_replica, &sharing.name);
            claims.extend(included.then(|| (name, to(&sharing.name, &sharing.namespace))));
        }
    }
    let own = place.template.resource_sharing.iter();
    claims.extend(own.map(|sharing| {
        let name = scoped(sharing.scope, podclique, index, &sharing.name);
        (name, to(&sharing.name, &sharing.namespace))
    }));
    claims
}

fn to<'p>(name: &'p str, namespace: &'p Option<String>) -> Reference<'p> {
    Reference {
        name,
        namespace: namespace.as_deref(),
    }
}

fn scoped(scope: SharingScope, owner: &str, index: i32, template: &str) -> String {
    match scope {
        SharingScope::AllReplicas => names::claim_of_all(owner, template),
        SharingScope::PerReplica => names::claim_of_one(owner, index, template),
    }
}
