//! The order in which the cliques of a replica start: which PodCliques each one waits for.
//!
//! An order delays containers, not scheduling: the whole gang is placed at once.

use grove_api::podcliqueset::{CliqueStartupType, PodCliqueTemplate};
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
        let templates = self.parent_templates(place.template);
        templates
            .iter()
            .flat_map(|parent| self.parents_of_role(place, parent))
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

    fn parents_of_role(&self, place: &Place<'_>, parent: &PodCliqueTemplate) -> Vec<Parent> {
        let set = self.set.name_any();
        let group = self
            .set
            .spec
            .template
            .scaling_groups
            .iter()
            .find(|group| group.clique_names.contains(&parent.name));
        let names: Vec<String> = match (group, scaled_replica(place)) {
            // A scaled gang comes and goes by itself: it waits for nothing outside of itself.
            (Some(group), Some((own, replica))) if own == group.name => {
                let group = names::scaling_group(&set, place.replica, &group.name);
                vec![names::member_podclique(&group, replica, &parent.name)]
            }
            (_, Some(_)) => vec![],
            (None, None) => vec![names::podclique(&set, place.replica, &parent.name)],
            (Some(group), None) => {
                let name = names::scaling_group(&set, place.replica, &group.name);
                let replicas = 0..self.live.base_group_replicas(&name, group);
                replicas
                    .map(|replica| names::member_podclique(&name, replica, &parent.name))
                    .collect()
            }
        };
        // A role that is scaled to zero would be waited for without end.
        let waited_for = names
            .into_iter()
            .filter(|name| self.live.clique_replicas(name, parent) > 0);
        waited_for
            .map(|name| Parent {
                name,
                ready: min_available(parent),
            })
            .collect()
    }
}

/// The scaling group and replica of a clique in a scaled gang.
fn scaled_replica<'p>(place: &Place<'p>) -> Option<(&'p str, i32)> {
    let member = place.member?;
    let scaled = member.group_replica >= member.group.min_available();
    scaled.then_some((member.group.name.as_str(), member.group_replica))
}
