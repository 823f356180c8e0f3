//! Rules about the order in which cliques start.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::PodCliqueSet;
use grove_api::podcliqueset::CliqueStartupType;

use super::{Path, Reason, Violations};

pub(super) fn check(set: &PodCliqueSet, template: &Path, found: &mut Violations) {
    if set.spec.template.clique_startup_type != CliqueStartupType::Explicit {
        return;
    }
    let cliques = &set.spec.template.cliques;
    let defined: BTreeSet<&str> = cliques.iter().map(|clique| clique.name.as_str()).collect();
    for (index, clique) in cliques.iter().enumerate() {
        let path = template
            .field("cliques")
            .index(index)
            .field("spec")
            .field("startsAfter");
        let parents = &clique.spec.starts_after;
        for parent in parents {
            if parent.is_empty() {
                found.add(&path, Reason::Required, "clique dependency must not be empty");
            }
            found.invalid_if(
                *parent == clique.name,
                &path,
                "clique dependency cannot refer to itself",
            );
        }
        found.duplicates(parents.iter().map(|parent| (path.clone(), parent.as_str())));
        let unknown = parents
            .iter()
            .any(|parent| !parent.is_empty() && !defined.contains(parent.as_str()));
        let message = "unknown clique names found, all clique dependencies must be defined as cliques";
        found.invalid_if(unknown, &path, message);
    }
    let path = template.field("cliques");
    found.invalid_if(has_circle(set), &path, "clique must not have circular dependencies");
}

/// Whether somebody waits for itself by way of others: taking away, again and again, what waits for nothing that is
/// left, leaves something.
fn has_circle(set: &PodCliqueSet) -> bool {
    let cliques = set.spec.template.cliques.iter();
    let mut waiting: BTreeMap<&str, Vec<&str>> = cliques
        .map(|clique| {
            let others = clique.spec.starts_after.iter().filter(|parent| **parent != clique.name);
            (clique.name.as_str(), others.map(String::as_str).collect())
        })
        .collect();
    loop {
        let left: BTreeSet<&str> = waiting.keys().copied().collect();
        waiting.retain(|_, parents| parents.iter().any(|parent| left.contains(parent)));
        if waiting.len() == left.len() {
            return !waiting.is_empty();
        }
    }
}
