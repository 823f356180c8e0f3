//! Rules about NVLink groups (MNNVL).

use std::collections::BTreeMap;

use grove_api::PodCliqueSet;
use grove_api::labels::annotation::MNNVL_GROUP;
use kube::ResourceExt;

use super::{LABEL_MAX, Path, Reason, Rules, Violations, no_dns_label};
use crate::expand::NO_GROUP;
use crate::names;

/// Replicas are numbered to here at least, whatever their number is now.
const LAST_REPLICA: i32 = 999;

/// Every object has its name in a label.
fn is_too_long(set: &str, group: &str) -> bool {
    group != NO_GROUP && names::compute_domain(set, LAST_REPLICA, group).len() > LABEL_MAX
}

type Annotated<'a> = (Path, &'a BTreeMap<String, String>);

/// Every place that an annotation is read from, by a key that a change of order does not change.
fn places(set: &PodCliqueSet) -> BTreeMap<String, Annotated<'_>> {
    let template = Path::root("spec").field("template");
    let own = (Path::root("metadata").field("annotations"), set.annotations());
    let cliques = set.spec.template.cliques.iter().enumerate().map(|(index, clique)| {
        let path = template.field("cliques").index(index).field("annotations");
        (format!("clique {}", clique.name), (path, &clique.annotations))
    });
    let groups = set
        .spec
        .template
        .scaling_groups
        .iter()
        .enumerate()
        .map(|(index, group)| {
            let path = template
                .field("podCliqueScalingGroups")
                .index(index)
                .field("annotations");
            (format!("group {}", group.name), (path, &group.annotations))
        });
    std::iter::once(("set".to_owned(), own))
        .chain(cliques)
        .chain(groups)
        .collect()
}

pub(super) fn created(set: &PodCliqueSet, rules: &Rules, found: &mut Violations) {
    for (path, annotations) in places(set).into_values() {
        let Some(group) = annotations.get(MNNVL_GROUP) else {
            continue;
        };
        let path = path.key(MNNVL_GROUP);
        if let Some(why) = no_dns_label(group) {
            let message = format!("invalid group '{group}': {why}; write the name of a group, or none");
            found.add(&path, Reason::Invalid, message);
        } else if is_too_long(&set.name_any(), group) {
            let (name, max) = (set.name_any(), LABEL_MAX);
            let message = format!(
                "the ComputeDomain of group '{group}' would be called '{}', which is longer than {max} characters; \
                 shorten the group or PodCliqueSet '{name}'",
                names::compute_domain(&name, LAST_REPLICA, group)
            );
            found.add(&path, Reason::Invalid, message);
        } else if group != NO_GROUP && !rules.mnnvl_enabled {
            let message = format!(
                "MNNVL is not enabled in the operator configuration. Either enable MNNVL globally or remove the \
                 {MNNVL_GROUP} annotation"
            );
            found.add(&path, Reason::Invalid, message);
        }
    }
}

pub(super) fn unchanged(old: &PodCliqueSet, new: &PodCliqueSet, found: &mut Violations) {
    let before = places(old);
    for (place, (path, annotations)) in places(new) {
        let Some((_, was)) = before.get(&place) else { continue };
        let path = path.key(MNNVL_GROUP);
        let message = match (was.get(MNNVL_GROUP), annotations.get(MNNVL_GROUP)) {
            (None, Some(_)) => format!("annotation {MNNVL_GROUP} cannot be added after PodCliqueSet creation"),
            (Some(_), None) => format!("annotation {MNNVL_GROUP} cannot be removed after PodCliqueSet creation"),
            (Some(was), Some(is)) if was != is => {
                format!("annotation {MNNVL_GROUP} cannot be changed from '{was}' to '{is}'")
            }
            _ => continue,
        };
        found.add(&path, Reason::Forbidden, message);
    }
}
