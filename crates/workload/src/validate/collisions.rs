//! Names that two objects of one set would share. Who is second would never be made.

use grove_api::PodCliqueSet;

use super::{Path, Reason, Violations};
use crate::names;

pub(super) fn check(set: &PodCliqueSet, found: &mut Violations) {
    let path = Path::root("spec").field("template").field("cliques");
    let cliques = &set.spec.template.cliques;
    for standalone in names::standalone(set) {
        let index = cliques
            .iter()
            .position(|clique| clique.name == standalone.name)
            .unwrap_or_default();
        let path = path.index(index).field("name");
        for group in &set.spec.template.scaling_groups {
            let clash = names::members(set, group)
                .find(|member| is_name_of_member(&standalone.name, &group.name, &member.name));
            if let Some(member) = clash {
                let message = format!(
                    "the PodClique of '{}' would have the name of a replica of '{}' in scaling group '{}'; rename one",
                    standalone.name, member.name, group.name
                );
                found.add(&path, Reason::Invalid, message);
            }
            let both_scale = standalone.spec.auto_scaling_config.is_some() && group.scale_config.is_some();
            if both_scale && group.name == standalone.name {
                let message = format!(
                    "clique and scaling group '{}' would share a HorizontalPodAutoscaler; rename one",
                    group.name
                );
                found.add(&path, Reason::Invalid, message);
            }
        }
    }
}

/// Whether `clique` reads `<group>-<number>-<member>`.
fn is_name_of_member(clique: &str, group: &str, member: &str) -> bool {
    let middle = clique.strip_prefix(group).and_then(|rest| rest.strip_suffix(member));
    let number = middle.and_then(|middle| middle.strip_prefix('-')?.strip_suffix('-'));
    number.is_some_and(|number| number == "0" || (number.parse::<u32>().is_ok() && !number.starts_with(['0', '+'])))
}
