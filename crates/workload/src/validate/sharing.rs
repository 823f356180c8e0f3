//! Rules about claim templates and the claims that are shared.

use grove_api::PodCliqueSet;
use grove_api::podcliqueset::ScalingGroupTemplate;

use super::{Path, Reason, Violations};

pub(super) fn check(set: &PodCliqueSet, template: &Path, found: &mut Violations) {
    claim_templates(set, &template.field("resourceClaimTemplates"), found);
    let spec = &set.spec.template;
    let path = template.field("resourceSharing");
    let own = spec.resource_sharing.iter();
    references_of(
        set,
        &path,
        own.map(|one| (one.name.as_str(), one.namespace.as_deref())),
        found,
    );
    set_filters(set, &path, found);
    for (index, clique) in spec.cliques.iter().enumerate() {
        let path = template.field("cliques").index(index).field("resourceSharing");
        let own = clique.resource_sharing.iter();
        references_of(
            set,
            &path,
            own.map(|one| (one.name.as_str(), one.namespace.as_deref())),
            found,
        );
    }
    for (index, group) in spec.scaling_groups.iter().enumerate() {
        let path = template
            .field("podCliqueScalingGroups")
            .index(index)
            .field("resourceSharing");
        let own = group.resource_sharing.iter();
        references_of(
            set,
            &path,
            own.map(|one| (one.name.as_str(), one.namespace.as_deref())),
            found,
        );
        group_filters(group, &path, found);
    }
}

fn set_filters(set: &PodCliqueSet, path: &Path, found: &mut Violations) {
    let spec = &set.spec.template;
    let cliques: Vec<&str> = spec.cliques.iter().map(|clique| clique.name.as_str()).collect();
    let groups: Vec<&str> = spec.scaling_groups.iter().map(|group| group.name.as_str()).collect();
    for (index, sharing) in spec.resource_sharing.iter().enumerate() {
        let Some(filter) = &sharing.filter else { continue };
        let path = path.index(index).field("filter");
        if filter.child_clique_names.is_empty() && filter.child_scaling_group_names.is_empty() {
            let message = "filter must specify at least one childCliqueNames or childScalingGroupNames entry";
            found.add(&path, Reason::Required, message);
        }
        names_exist(
            &filter.child_clique_names,
            &cliques,
            &path.field("childCliqueNames"),
            found,
        );
        names_exist(
            &filter.child_scaling_group_names,
            &groups,
            &path.field("childScalingGroupNames"),
            found,
        );
    }
}

fn group_filters(group: &ScalingGroupTemplate, path: &Path, found: &mut Violations) {
    let members: Vec<&str> = group.clique_names.iter().map(String::as_str).collect();
    for (index, sharing) in group.resource_sharing.iter().enumerate() {
        let Some(filter) = &sharing.filter else { continue };
        let path = path.index(index).field("filter");
        if filter.child_clique_names.is_empty() {
            found.add(
                &path,
                Reason::Required,
                "filter must specify at least one childCliqueNames entry",
            );
        }
        names_exist(
            &filter.child_clique_names,
            &members,
            &path.field("childCliqueNames"),
            found,
        );
    }
}

fn claim_templates(set: &PodCliqueSet, path: &Path, found: &mut Violations) {
    let templates = &set.spec.template.resource_claim_templates;
    found.duplicates(
        templates
            .iter()
            .enumerate()
            .map(|(i, one)| (path.index(i).field("name"), one.name.as_str())),
    );
    for (index, template) in templates.iter().enumerate() {
        if template.name.is_empty() {
            found.add(
                &path.index(index).field("name"),
                Reason::Required,
                "template name is required",
            );
        }
        let devices = template.template_spec.spec.devices.as_ref();
        if devices
            .and_then(|devices| devices.requests.as_ref())
            .is_none_or(Vec::is_empty)
        {
            let path = path
                .index(index)
                .field("templateSpec")
                .field("spec")
                .field("devices")
                .field("requests");
            found.add(&path, Reason::Required, "at least one device request is required");
        }
    }
}

fn references_of<'a>(
    set: &PodCliqueSet,
    path: &Path,
    references: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
    found: &mut Violations,
) {
    let internal = |name: &str| {
        set.spec
            .template
            .resource_claim_templates
            .iter()
            .any(|one| one.name == name)
    };
    found.duplicates(
        references
            .clone()
            .enumerate()
            .map(|(i, (name, _))| (path.index(i).field("name"), name)),
    );
    for (index, (name, namespace)) in references.enumerate() {
        if name.is_empty() {
            found.add(
                &path.index(index).field("name"),
                Reason::Required,
                "reference name is required",
            );
        }
        if internal(name) && namespace.is_some_and(|namespace| !namespace.is_empty()) {
            let message = "namespace must be empty when name matches an internal resourceClaimTemplate";
            found.add(&path.index(index).field("namespace"), Reason::Forbidden, message);
        }
    }
}

fn names_exist(names: &[String], known: &[&str], path: &Path, found: &mut Violations) {
    for (index, name) in names.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let message = format!("'{name}' is not defined here; known names: {}", known.join(", "));
            found.add(&path.index(index), Reason::Invalid, message);
        }
    }
}
