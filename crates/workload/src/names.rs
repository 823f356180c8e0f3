//! The name of every object that is made from a PodCliqueSet, and how a PodClique is recognised again.
//!
//! Names are only ever put together here, never taken apart: two different objects can have names of which one ends
//! like the other, so an object's place is found by computing the name that each place would have and comparing whole
//! names, and whose it is by the UID of its owner.

use std::collections::BTreeSet;
use std::ops::Range;

use grove_api::podclique::REPLICAS_MAX;
use grove_api::podcliqueset::{PodCliqueTemplate, ScalingGroupTemplate};
use grove_api::{PodClique, PodCliqueSet, labels};
use kube::ResourceExt;
use kube::core::ObjectMeta;

use crate::hash::Digest;

/// How long the names of a set, a scaling group and a clique may be together, so that every name made of them fits.
pub const COMBINED_LENGTH_MAX: usize = 45;

/// The most pods that one gang may have; beyond it a PodGang would not fit into the API server's storage.
pub const GANG_PODS_MAX: i32 = 10_000;

/// Indices of the replicas that a set should have. The schema refuses absurd numbers; an object that is older than that
/// rule must not make anybody count to it.
pub fn replicas(set: &PodCliqueSet) -> Range<i32> {
    0..bounded(set.spec.replicas)
}

pub(crate) fn bounded(replicas: i32) -> i32 {
    replicas.clamp(0, REPLICAS_MAX)
}

/// A standalone PodClique, and the HorizontalPodAutoscaler of it.
pub fn podclique(set: &str, replica: i32, clique: &str) -> String {
    format!("{set}-{replica}-{clique}")
}

/// A PodCliqueScalingGroup, and the HorizontalPodAutoscaler of it.
pub fn scaling_group(set: &str, replica: i32, group: &str) -> String {
    format!("{set}-{replica}-{group}")
}

/// A PodClique of one replica of a scaling group; `group` is the name of the PodCliqueScalingGroup.
pub fn member_podclique(group: &str, group_replica: i32, clique: &str) -> String {
    format!("{group}-{group_replica}-{clique}")
}

/// The base gang of a replica.
pub fn base_gang(set: &str, replica: i32) -> String {
    format!("{set}-{replica}")
}

/// The gang of a scaling-group replica above the minimum. Scaled gangs are counted from zero.
pub fn scaled_gang(group: &str, group_replica: i32, min_available: i32) -> String {
    format!("{group}-{}", group_replica - min_available)
}

/// The gang that a replica of a scaling group belongs to.
pub fn gang_of_group_replica(set: &str, replica: i32, group: &str, group_replica: i32, min_available: i32) -> String {
    if group_replica < min_available {
        base_gang(set, replica)
    } else {
        scaled_gang(group, group_replica, min_available)
    }
}

/// The headless Service of a replica.
pub fn service(set: &str, replica: i32) -> String {
    format!("{set}-{replica}")
}

/// The DNS name under which the pods of a replica find each other.
pub fn service_domain(set: &str, replica: i32, namespace: &str) -> String {
    format!("{}.{namespace}.svc.cluster.local", service(set, replica))
}

/// The Role, and the RoleBinding, that let waiting pods of a set see the cliques that they wait for.
pub fn role(set: &str) -> String {
    format!("grove.io:pcs:{set}")
}

/// The ComputeDomain of an NVLink group in one replica, and the claim template that it makes.
pub fn compute_domain(set: &str, replica: i32, group: &str) -> String {
    format!("{set}-{replica}-{group}")
}

/// A claim that all replicas of `owner` share.
pub fn claim_of_all(owner: &str, template: &str) -> String {
    format!("{owner}-all-{template}")
}

/// A claim that belongs to one replica (or pod index) of `owner`.
pub fn claim_of_one(owner: &str, index: i32, template: &str) -> String {
    format!("{owner}-{index}-{template}")
}

/// The host name of a pod.
pub fn hostname(podclique: &str, index: i32) -> String {
    format!("{podclique}-{index}")
}

/// The record of the templates that a set follows; the content makes the name.
pub fn revision(set: &str, content: &str) -> String {
    format!("{set}-{}", Digest::new().text(content).letters(10))
}

/// What the name of a pod is made from. The same pod gets the same name in every attempt to create it.
#[derive(Clone, Copy, Debug)]
pub struct PodKey<'a> {
    pub clique: &'a str,
    pub clique_uid: &'a str,
    pub index: i32,
    pub template_hash: &'a str,
    /// UIDs of pods that are on their way out and still hold the index. With them in the name, a replacement never
    /// waits for a node that is dead.
    pub predecessors: &'a [&'a str],
}

/// The name of a pod. Five letters are few: of 5,000 pods two will share them, so names that are `taken` are passed
/// over, in an order that depends on nothing but the key.
pub fn pod(key: &PodKey<'_>, taken: &BTreeSet<String>) -> String {
    let mut predecessors: Vec<&str> = key.predecessors.to_vec();
    predecessors.sort_unstable();
    let mut digest = Digest::new()
        .text(key.clique_uid)
        .number(i64::from(key.index))
        .text(key.template_hash);
    for uid in predecessors {
        digest = digest.text(uid);
    }
    let mut attempt = 0;
    loop {
        let candidate = if attempt == 0 { digest } else { digest.number(attempt) };
        let name = format!("{}-{}", key.clique, candidate.letters(5));
        // Ends soon: there are fourteen million names, and at most some ten thousand pods.
        if !taken.contains(&name) {
            return name;
        }
        attempt += 1;
    }
}

/// Where a PodClique stands in its set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place<'a> {
    /// Index of the set's replica.
    pub replica: i32,
    /// The role that it plays.
    pub template: &'a PodCliqueTemplate,
    /// The replica of a scaling group that it is part of; none for a standalone clique.
    pub member: Option<Membership<'a>>,
}

/// A replica of a scaling group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Membership<'a> {
    pub group: &'a ScalingGroupTemplate,
    pub group_replica: i32,
}

impl<'a> Place<'a> {
    /// The place of a PodClique that is `set`'s; none if it has no place in the set's template.
    pub fn of(set: &'a PodCliqueSet, clique: &PodClique) -> Option<Self> {
        let replica = index_label(&clique.metadata, labels::PCS_REPLICA_INDEX)?;
        let name = clique.metadata.name.as_deref()?;
        match clique.labels().get(labels::SCALING_GROUP) {
            None => standalone(set)
                .find(|template| podclique(&set.name_any(), replica, &template.name) == name)
                .map(|template| Self {
                    replica,
                    template,
                    member: None,
                }),
            Some(group_name) => {
                let group_replica = index_label(&clique.metadata, labels::SCALING_GROUP_REPLICA_INDEX)?;
                let mut groups = set.spec.template.scaling_groups.iter();
                let group = groups.find(|group| scaling_group(&set.name_any(), replica, &group.name) == *group_name)?;
                let template = members(set, group)
                    .find(|template| member_podclique(group_name, group_replica, &template.name) == name)?;
                let member = Some(Membership { group, group_replica });
                Some(Self {
                    replica,
                    template,
                    member,
                })
            }
        }
    }
}

/// The cliques that belong to no scaling group, in the template's order.
pub fn standalone(set: &PodCliqueSet) -> impl Iterator<Item = &PodCliqueTemplate> {
    let template = &set.spec.template;
    let grouped = |name: &String| {
        template
            .scaling_groups
            .iter()
            .any(|group| group.clique_names.contains(name))
    };
    template.cliques.iter().filter(move |clique| !grouped(&clique.name))
}

/// The cliques of a scaling group, in the group's order.
pub fn members<'a>(
    set: &'a PodCliqueSet,
    group: &'a ScalingGroupTemplate,
) -> impl Iterator<Item = &'a PodCliqueTemplate> {
    let cliques = &set.spec.template.cliques;
    let find = |name: &String| cliques.iter().find(|clique| clique.name == *name);
    group.clique_names.iter().filter_map(find)
}

/// A label that holds an index.
pub fn index_label(meta: &ObjectMeta, label: &str) -> Option<i32> {
    let value = meta.labels.as_ref()?.get(label)?;
    value.parse().ok().filter(|index| *index >= 0)
}

/// Whether the object is controlled by the owner with this UID. Names can be used again; UIDs are not.
pub fn is_owned_by(meta: &ObjectMeta, owner_uid: &str) -> bool {
    let owners = meta.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.controller == Some(true))
        .any(|owner| owner.uid == owner_uid)
}

#[cfg(test)]
mod tests;
