//! Rules about cliques: names, numbers, autoscaling, scheduler.

use std::collections::BTreeSet;

use grove_api::PodCliqueSet;
use grove_api::podcliqueset::PodCliqueTemplate;
use kube::ResourceExt;

use super::{Path, Reason, Rules, Violations, no_dns_label, quoted};
use crate::expand::gangs::scheduler;
use crate::names::COMBINED_LENGTH_MAX;

pub(super) fn check(set: &PodCliqueSet, template: &Path, found: &mut Violations) {
    let path = template.field("cliques");
    let cliques = &set.spec.template.cliques;
    if cliques.is_empty() {
        found.add(&path, Reason::Required, "at least one PodClique must be defined");
    }
    let at = |index: usize| path.index(index);
    found.duplicates(
        cliques
            .iter()
            .enumerate()
            .map(|(i, clique)| (at(i).field("name"), clique.name.as_str())),
    );
    let roles = cliques.iter().enumerate();
    found.duplicates(roles.map(|(i, clique)| (at(i).field("spec").field("roleName"), clique.spec.role_name.as_str())));
    for (index, clique) in cliques.iter().enumerate() {
        name(set, clique, &at(index).field("name"), found);
        numbers(clique, &at(index).field("spec"), found);
    }
    let schedulers: BTreeSet<&str> = cliques.iter().filter_map(scheduler).collect();
    let message = format!(
        "the schedulerName for all pods have to be the same; found {}",
        quoted(schedulers.iter().copied())
    );
    let scheduler_name = path.field("spec").field("podSpec").field("schedulerName");
    found.invalid_if(schedulers.len() > 1, &scheduler_name, &message);
}

fn name(set: &PodCliqueSet, clique: &PodCliqueTemplate, path: &Path, found: &mut Violations) {
    if clique.name.is_empty() {
        found.add(path, Reason::Required, "field cannot be empty");
        return;
    }
    if let Some(why) = no_dns_label(&clique.name) {
        let message = format!("invalid PodCliqueTemplateSpec name '{}': {why}", clique.name);
        found.add(path, Reason::Invalid, message);
    }
    let groups = &set.spec.template.scaling_groups;
    let group = groups.iter().find(|group| group.clique_names.contains(&clique.name));
    let length = set.name_any().len() + clique.name.len() + group.map_or(0, |group| group.name.len());
    if length > COMBINED_LENGTH_MAX {
        let (set, clique) = (set.name_any(), &clique.name);
        let whom = match group {
            Some(group) => {
                format!(
                    "PodCliqueSet '{set}', PodCliqueScalingGroup '{}', or PodClique '{clique}'",
                    group.name
                )
            }
            None => format!("PodCliqueSet '{set}' or PodClique '{clique}'"),
        };
        let message = format!(
            "combined resource name length {length} exceeds {COMBINED_LENGTH_MAX}-character limit required for pod \
             naming. Consider shortening: {whom}"
        );
        found.add(path, Reason::Invalid, message);
    }
}

fn numbers(clique: &PodCliqueTemplate, path: &Path, found: &mut Violations) {
    let spec = &clique.spec;
    found.invalid_if(spec.replicas <= 0, &path.field("replicas"), "must be greater than 0");
    let min = spec.min_available.unwrap_or(spec.replicas);
    found.invalid_if(min <= 0, &path.field("minAvailable"), "must be greater than 0");
    let above = "minAvailable must not be greater than replicas";
    found.invalid_if(
        spec.replicas > 0 && min > spec.replicas,
        &path.field("minAvailable"),
        above,
    );
    let Some(config) = &spec.auto_scaling_config else {
        return;
    };
    let path = path.field("autoScalingConfig");
    let min_replicas = config.min_replicas.unwrap_or(spec.replicas);
    let message = "must be greater than or equal to podCliqueSpec.minAvailable";
    found.invalid_if(min_replicas < min, &path.field("minReplicas"), message);
    let message = "must be greater than or equal to podCliqueSpec.autoScalingConfig.minReplicas";
    found.invalid_if(config.max_replicas < min_replicas, &path.field("maxReplicas"), message);
    let message = "must be greater than or equal to podCliqueSpec.replicas";
    found.invalid_if(config.max_replicas < spec.replicas, &path.field("maxReplicas"), message);
}

pub(super) fn schedulers_are_enabled(set: &PodCliqueSet, rules: &Rules, found: &mut Violations) {
    let path = Path::root("spec").field("template").field("cliques");
    for (index, clique) in set.spec.template.cliques.iter().enumerate() {
        let disabled = scheduler(clique).filter(|name| !rules.schedulers.iter().any(|enabled| enabled == name));
        if let Some(name) = disabled {
            let message = format!(
                "schedulerName must be an enabled scheduler backend; this scheduler is not enabled in \
                 OperatorConfiguration: '{name}'; enabled: {}",
                quoted(rules.schedulers.iter().map(String::as_str))
            );
            let path = path.index(index).field("spec").field("podSpec").field("schedulerName");
            found.add(&path, Reason::Invalid, message);
        }
    }
}
