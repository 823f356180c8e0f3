//! Rules about the pods that cliques describe.

use grove_api::PodCliqueSet;
use k8s_openapi::api::core::v1::Container;

use super::{Path, Reason, Violations};

/// The API server judges pods only when they are created, when nobody is there to read it: what is certain to be refused
/// is refused here.
pub(super) fn check(set: &PodCliqueSet, template: &Path, found: &mut Violations) {
    for (index, clique) in set.spec.template.cliques.iter().enumerate() {
        let path = template.field("cliques").index(index).field("spec").field("podSpec");
        let spec = &clique.spec.pod_spec;
        let init = spec.init_containers.iter().flatten();
        let named = [
            ("initContainers", init.collect::<Vec<_>>()),
            ("containers", spec.containers.iter().collect()),
        ];
        for (list, containers) in named {
            for (index, container) in containers.into_iter().enumerate() {
                environment(container, &path.field(list).index(index).field("env"), found);
            }
        }
    }
}

fn environment(container: &Container, path: &Path, found: &mut Violations) {
    let variables = || container.env.iter().flatten().enumerate();
    found.duplicates(variables().map(|(index, variable)| (path.index(index).field("name"), variable.name.as_str())));
    for (index, variable) in variables() {
        let path = path.index(index).field("name");
        if variable.name.is_empty() {
            found.add(&path, Reason::Required, "name is required");
        } else if !variable.name.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
            found.add(
                &path,
                Reason::Invalid,
                "must consist of printable ASCII characters other than '='",
            );
        }
    }
}

/// What would take the decision where pods go away from gangs.
pub(super) fn created(set: &PodCliqueSet, found: &mut Violations) {
    for (index, clique) in set.spec.template.cliques.iter().enumerate() {
        let template = Path::root("spec").field("template");
        let path = template.field("cliques").index(index).field("spec").field("podSpec");
        let spec = &clique.spec.pod_spec;
        let spread = spec
            .topology_spread_constraints
            .as_ref()
            .is_some_and(|all| !all.is_empty());
        found.invalid_if(spread, &path.field("topologySpreadConstraints"), "must not be set");
        let pinned = spec.node_name.as_ref().is_some_and(|name| !name.is_empty());
        found.invalid_if(pinned, &path.field("nodeName"), "must not be set");
    }
}
