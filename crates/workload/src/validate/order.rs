//! Rules about the order in which cliques start.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::PodCliqueSet;
use grove_api::podcliqueset::CliqueStartupType;

use super::{Path, Reason, Violations, quoted};

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
        let named = parents.iter().map(String::as_str).filter(|parent| !parent.is_empty());
        let unknown: Vec<&str> = named.filter(|parent| !defined.contains(parent)).collect();
        if !unknown.is_empty() {
            let message = format!(
                "unknown clique names found, all clique dependencies must be defined as cliques: {}",
                quoted(unknown)
            );
            found.add(&path, Reason::Invalid, message);
        }
    }
    let stuck = never_started(set);
    if !stuck.is_empty() {
        let message = format!(
            "clique must not have circular dependencies: {} would never start",
            quoted(stuck)
        );
        found.add(&template.field("cliques"), Reason::Invalid, message);
    }
}

/// Cliques that wait for themselves by way of others, or for those that do: what is left after taking away, again and
/// again, what waits for nothing that is left.
fn never_started(set: &PodCliqueSet) -> BTreeSet<&str> {
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
            return left;
        }
    }
}
