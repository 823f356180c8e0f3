//! Rules about scaling groups.

use std::collections::BTreeSet;

use grove_api::PodCliqueSet;
use grove_api::podcliqueset::ScalingGroupTemplate;

use super::{Path, Reason, Violations, no_dns_label, quoted};

pub(super) fn check(set: &PodCliqueSet, template: &Path, found: &mut Violations) {
    let path = template.field("podCliqueScalingGroups");
    let groups = &set.spec.template.scaling_groups;
    let at = |index: usize| path.index(index);
    found.duplicates(
        groups
            .iter()
            .enumerate()
            .map(|(i, group)| (at(i).field("name"), group.name.as_str())),
    );
    let mut grouped = BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        let path = at(index);
        if let Some(why) = no_dns_label(&group.name) {
            let message = format!("invalid PodCliqueScalingGroupConfig name '{}': {why}", group.name);
            found.add(&path.field("name"), Reason::Invalid, message);
        }
        members(set, group, &path.field("cliqueNames"), found);
        for name in &group.clique_names {
            if !grouped.insert(name) && group.clique_names.iter().filter(|other| *other == name).count() == 1 {
                let message = format!("clique '{name}' is in another scaling group already");
                found.add(&path.field("cliqueNames"), Reason::Duplicate, message);
            }
        }
        numbers(group, &path, found);
    }
    let cliques = set.spec.template.cliques.iter().enumerate();
    for (index, clique) in cliques.filter(|(_, clique)| grouped.contains(&clique.name)) {
        let path = template
            .field("cliques")
            .index(index)
            .field("spec")
            .field("autoScalingConfig");
        let message = "AutoScalingConfig is not allowed to be defined for PodClique that is part of scaling group";
        found.invalid_if(clique.spec.auto_scaling_config.is_some(), &path, message);
    }
}

fn members(set: &PodCliqueSet, group: &ScalingGroupTemplate, path: &Path, found: &mut Violations) {
    if group.clique_names.is_empty() {
        found.add(path, Reason::Required, "field cannot be empty");
    }
    let cliques = || set.spec.template.cliques.iter().map(|clique| clique.name.as_str());
    let names = group.clique_names.iter().map(String::as_str);
    let unknown: Vec<&str> = names.filter(|name| !cliques().any(|clique| clique == *name)).collect();
    if !unknown.is_empty() {
        let (unknown, defined) = (quoted(unknown), quoted(cliques()));
        let message = format!("unidentified PodClique names found: {unknown}; defined: {defined}");
        found.add(path, Reason::Invalid, message);
    }
    found.duplicates(group.clique_names.iter().map(|name| (path.clone(), name.as_str())));
}

fn numbers(group: &ScalingGroupTemplate, path: &Path, found: &mut Violations) {
    let (replicas, min) = (group.replicas(), group.min_available());
    found.invalid_if(replicas <= 0, &path.field("replicas"), "must be greater than 0");
    found.invalid_if(min <= 0, &path.field("minAvailable"), "must be greater than 0");
    let above = "minAvailable must not be greater than replicas";
    found.invalid_if(replicas > 0 && min > replicas, &path.field("minAvailable"), above);
    let Some(config) = &group.scale_config else { return };
    let path = path.field("scaleConfig");
    let min_replicas = config.min_replicas.unwrap_or(replicas);
    let message = "scaleConfig.minReplicas must be greater than or equal to minAvailable";
    found.invalid_if(min_replicas < min, &path.field("minReplicas"), message);
    let message = "must be greater than or equal to scaleConfig.minReplicas";
    found.invalid_if(config.max_replicas < min_replicas, &path.field("maxReplicas"), message);
}
