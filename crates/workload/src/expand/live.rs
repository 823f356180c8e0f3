//! How many replicas things have that others may scale: an autoscaler, or a person with `kubectl scale`.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use grove_api::podcliqueset::{PodCliqueTemplate, ScalingGroupTemplate};
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet};
use kube::core::ObjectMeta;

use super::Recycled;
use crate::meta::uid;
use crate::names::{bounded, is_owned_by};

/// On a PodClique or PodCliqueScalingGroup: the template's number of replicas when the object was last written. An
/// edit of the template differs from it; a scaled object does not.
pub const TEMPLATE_REPLICAS: &str = "grove.io/template-replicas";

/// The cliques and scaling groups of a set that exist, by name. Those of another set of the same name and those that
/// are being deleted are absent.
#[derive(Clone, Debug, Default)]
pub struct Live<'a> {
    cliques: BTreeMap<&'a str, &'a PodClique>,
    groups: BTreeMap<&'a str, &'a PodCliqueScalingGroup>,
    recycled: Recycled,
}

impl<'a> Live<'a> {
    pub fn of<C, G>(set: &PodCliqueSet, cliques: &'a [C], groups: &'a [G]) -> Self
    where
        C: Borrow<PodClique>,
        G: Borrow<PodCliqueScalingGroup>,
    {
        let stays = |meta: &ObjectMeta| meta.deletion_timestamp.is_none();
        let groups: BTreeMap<&str, &PodCliqueScalingGroup> = groups
            .iter()
            .map(Borrow::borrow)
            .filter(|group| is_owned_by(&group.metadata, uid(set)) && stays(&group.metadata))
            .filter_map(|group| Some((group.metadata.name.as_deref()?, group)))
            .collect();
        let owners: BTreeSet<&str> = groups.values().map(|group| uid(*group)).chain([uid(set)]).collect();
        let ours = |clique: &&PodClique| {
            let references = clique.metadata.owner_references.iter().flatten();
            references
                .into_iter()
                .any(|owner| owner.controller == Some(true) && owners.contains(owner.uid.as_str()))
        };
        let cliques = cliques
            .iter()
            .map(Borrow::borrow)
            .filter(|clique| stays(&clique.metadata))
            .filter(ours)
            .filter_map(|clique| Some((clique.metadata.name.as_deref()?, clique)))
            .collect();
        Self {
            cliques,
            groups,
            recycled: Recycled::default(),
        }
    }

    /// The same, where these cliques are being replaced.
    pub fn with_recycled(self, recycled: Recycled) -> Self {
        Self { recycled, ..self }
    }

    pub fn clique(&self, name: &str) -> Option<&'a PodClique> {
        self.cliques.get(name).copied()
    }

    /// All cliques of the set, standalone ones and members.
    pub fn cliques(&self) -> impl Iterator<Item = &'a PodClique> {
        self.cliques.values().copied()
    }

    pub fn group(&self, name: &str) -> Option<&'a PodCliqueScalingGroup> {
        self.groups.get(name).copied()
    }

    /// Replicas that the PodClique of this name has, or will have.
    pub fn clique_replicas(&self, name: &str, template: &PodCliqueTemplate) -> i32 {
        let autoscaled = template.spec.auto_scaling_config.is_some();
        let live = self.clique(name);
        let observed = live.map(|clique| (clique.spec.replicas, template_replicas(&clique.metadata)));
        let replaced = || self.recycled.get(name).map(|entry| (entry.replicas, entry.template));
        bounded(kept(template.spec.replicas, autoscaled, observed.or_else(replaced)))
    }

    /// Replicas that the PodCliqueScalingGroup of this name has, or will have.
    pub fn group_replicas(&self, name: &str, template: &ScalingGroupTemplate) -> i32 {
        let live = self.group(name);
        let observed = live.map(|group| (group.spec.replicas, template_replicas(&group.metadata)));
        bounded(kept(template.replicas(), template.scale_config.is_some(), observed))
    }

    /// Replicas of a scaling group that are in the base gang. A group at zero replicas takes no part in it.
    pub fn base_group_replicas(&self, name: &str, template: &ScalingGroupTemplate) -> i32 {
        template.min_available().min(self.group_replicas(name, template)).max(0)
    }

    /// Pods of a clique that must be placed together. A clique at zero replicas takes no part in its gang.
    pub fn clique_minimum(&self, name: &str, template: &PodCliqueTemplate) -> i32 {
        min_available(template).min(self.clique_replicas(name, template)).max(0)
    }
}

/// The minimum of a clique's template, with the default that admission fills in.
pub(crate) fn min_available(template: &PodCliqueTemplate) -> i32 {
    template.spec.min_available.unwrap_or(template.spec.replicas)
}

/// The template's number when the object was last written.
pub(super) fn template_replicas(meta: &ObjectMeta) -> Option<i32> {
    let annotations = meta.annotations.as_ref()?;
    annotations.get(TEMPLATE_REPLICAS)?.parse().ok()
}

/// The live number, unless the author has written another one into the template than was `written` there, and no
/// autoscaler owns it.
fn kept(template: i32, autoscaled: bool, observed: Option<(i32, Option<i32>)>) -> i32 {
    let Some((live, written)) = observed else {
        return template;
    };
    if autoscaled || written.is_none_or(|written| written == template) {
        live
    } else {
        template
    }
}
