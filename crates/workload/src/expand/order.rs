//! The order in which the cliques of a replica start: which PodCliques each one waits for.
//!
//! An order delays containers, not scheduling: the whole gang is placed at once.

use std::collections::BTreeSet;

use grove_api::podcliqueset::{CliqueStartupType, PodCliqueTemplate, ScalingGroupTemplate};
use kube::ResourceExt;

use super::Expansion;
use super::live::min_available;
use crate::names::{self, Place};

/// A PodClique that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Name of the PodClique.
    pub name: String,
    /// How many of its pods must be ready.
    pub ready: i32,
}

impl<'a> Expansion<'a> {
    /// The PodCliques that must be ready before the containers of the clique at `place` start.
    pub fn parents(&self, place: &Place<'_>) -> Vec<Parent> {
        let mut found = Vec::new();
        let mut roles: Vec<&PodCliqueTemplate> = self.parent_templates(place.template);
        let mut seen: BTreeSet<&str> = roles.iter().map(|role| role.name.as_str()).collect();
        while !roles.is_empty() {
            let mut before = Vec::new();
            for role in roles {
                let possible = self.cliques_of_role(place, role);
                let is_outside = possible.is_empty();
                let there = possible.into_iter().take(self.replicas_of_role(place, role));
                let parents: Vec<String> = there.filter(|name| self.live.clique_replicas(name, role) > 0).collect();
                if parents.is_empty() && !is_outside {
                    // A role that is scaled to zero would be waited for without end. Those before it still come first.
                    before.extend(self.parent_templates(role));
                }
                let ready = min_available(role);
                found.extend(parents.into_iter().map(|name| Parent { name, ready }));
            }
            before.retain(|role| seen.insert(role.name.as_str()));
            roles = before;
        }
        found
    }

    /// The PodCliques that the clique at `place` may have to wait for, however many replicas they have now.
    pub(super) fn possible_parents(&self, place: &Place<'_>) -> Vec<String> {
        let roles = self.parent_templates(place.template);
        roles
            .iter()
            .flat_map(|role| self.cliques_of_role(place, role))
            .collect()
    }

    /// The roles that start before this one.
    fn parent_templates(&self, template: &PodCliqueTemplate) -> Vec<&'a PodCliqueTemplate> {
        let cliques = &self.set.spec.template.cliques;
        match self.set.spec.template.clique_startup_type {
            CliqueStartupType::AnyOrder => vec![],
            CliqueStartupType::InOrder => {
                let position = cliques.iter().position(|clique| clique.name == template.name);
                let previous = position.and_then(|position| position.checked_sub(1));
                previous.map(|position| &cliques[position]).into_iter().collect()
            }
            CliqueStartupType::Explicit => {
                let names = template.spec.starts_after.iter();
                names
                    .filter_map(|name| cliques.iter().find(|clique| clique.name == *name))
                    .collect()
            }
        }
    }

    fn group_of(&self, role: &PodCliqueTemplate) -> Option<&'a ScalingGroupTemplate> {
        let mut groups = self.set.spec.template.scaling_groups.iter();
        groups.find(|group| group.clique_names.contains(&role.name))
    }

    /// The cliques of a role that the clique at `place` waits for, as the template has it.
    fn cliques_of_role(&self, place: &Place<'_>, role: &PodCliqueTemplate) -> Vec<String> {
        let set = self.set.name_any();
        match (self.group_of(role), scaled_replica(place)) {
            // A scaled gang comes and goes by itself: it waits for nothing outside of itself.
            (Some(group), Some((own, replica))) if own == group.name => {
                let group = names::scaling_group(&set, place.replica, &group.name);
                vec![names::member_podclique(&group, replica, &role.name)]
            }
            (_, Some(_)) => vec![],
            (None, None) => vec![names::podclique(&set, place.replica, &role.name)],
            (Some(group), None) => {
                let name = names::scaling_group(&set, place.replica, &group.name);
                let replicas = 0..names::bounded(group.min_available());
                replicas
                    .map(|replica| names::member_podclique(&name, replica, &role.name))
                    .collect()
            }
        }
    }

    /// How many of these cliques there are now.
    fn replicas_of_role(&self, place: &Place<'_>, role: &PodCliqueTemplate) -> usize {
        match self.group_of(role) {
            Some(group) if scaled_replica(place).is_none() => {
                let name = names::scaling_group(&self.set.name_any(), place.replica, &group.name);
                usize::try_from(self.live.base_group_replicas(&name, group)).unwrap_or_default()
            }
            _ => 1,
        }
    }
}

/// The scaling group and replica of a clique in a scaled gang.
fn scaled_replica<'p>(place: &Place<'p>) -> Option<(&'p str, i32)> {
    let member = place.member?;
    let scaled = member.group_replica >= member.group.min_available();
    scaled.then_some((member.group.name.as_str(), member.group_replica))
}
