//! The constraints of a PodCliqueSet, scope by scope: the whole replica, each scaling group, each clique.
//!
//! Owns where a constraint stands (its field path) and which scopes lie around which. Judges nothing.

use std::collections::BTreeMap;

use grove_api::TopologyConstraint;
use grove_api::podcliqueset::PodCliqueSetTemplate;

/// A part of a PodCliqueSet that can carry a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope<'a> {
    /// All pods of one PodCliqueSet replica.
    Replica,
    /// All pods of one replica of the named scaling group.
    ScalingGroup(&'a str),
    /// All pods of the named clique.
    Clique(&'a str),
}

/// A constraint that says something, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopedConstraint<'a> {
    pub scope: Scope<'a>,
    pub path: String,
    pub constraint: &'a TopologyConstraint,
}

impl<'a> ScopedConstraint<'a> {
    /// The required and the preferred word, each with its field.
    pub(crate) fn words(&self) -> impl Iterator<Item = (String, &'a str)> {
        let constraint = self.constraint;
        let required = constraint.required().map(|word| (self.required_path(), word));
        let preferred = constraint.preferred().map(|word| (self.preferred_path(), word));
        required.into_iter().chain(preferred)
    }

    /// Field of the required word, in the spelling that the author chose.
    pub fn required_path(&self) -> String {
        let pack = self.constraint.pack.as_ref().and_then(|pack| pack.required.as_ref());
        let field = if pack.is_some() { "pack.required" } else { "packDomain" };
        format!("{}.{field}", self.path)
    }

    pub fn preferred_path(&self) -> String {
        format!("{}.pack.preferred", self.path)
    }
}

/// Every scope of a template, where its constraint stands or would stand, and the constraint if it says something: the
/// replica first, then scaling groups and cliques in their order.
pub(crate) fn all(template: &PodCliqueSetTemplate) -> Vec<(Scope<'_>, String, Option<&TopologyConstraint>)> {
    let replica = (Scope::Replica, String::new(), &template.topology_constraint);
    let groups = template.scaling_groups.iter().enumerate().map(|(index, group)| {
        let place = format!(".podCliqueScalingGroups[{index}]");
        (Scope::ScalingGroup(&group.name), place, &group.topology_constraint)
    });
    let cliques = template.cliques.iter().enumerate().map(|(index, clique)| {
        let place = format!(".cliques[{index}]");
        (Scope::Clique(&clique.name), place, &clique.topology_constraint)
    });
    std::iter::once(replica)
        .chain(groups)
        .chain(cliques)
        .map(|(scope, place, constraint)| {
            let constraint = constraint.as_ref().filter(|constraint| says_something(constraint));
            (scope, format!("spec.template{place}.topologyConstraint"), constraint)
        })
        .collect()
}

/// Every constraint with a word in it, in the order of the scopes.
pub fn constraints(template: &PodCliqueSetTemplate) -> Vec<ScopedConstraint<'_>> {
    let scoped = |(scope, path, constraint): (_, _, Option<_>)| {
        Some(ScopedConstraint {
            scope,
            path,
            constraint: constraint?,
        })
    };
    all(template).into_iter().filter_map(scoped).collect()
}

pub fn has_constraint(template: &PodCliqueSetTemplate) -> bool {
    !constraints(template).is_empty()
}

/// The constraints by scope, for looking one up.
pub fn by_scope(template: &PodCliqueSetTemplate) -> BTreeMap<Scope<'_>, &TopologyConstraint> {
    constraints(template)
        .into_iter()
        .map(|scoped| (scoped.scope, scoped.constraint))
        .collect()
}

/// The scopes around `scope`, innermost first.
pub fn around<'a>(template: &'a PodCliqueSetTemplate, scope: Scope<'_>) -> Vec<Scope<'a>> {
    match scope {
        Scope::Replica => Vec::new(),
        Scope::ScalingGroup(_) => vec![Scope::Replica],
        Scope::Clique(clique) => {
            let mut group_of = template.scaling_groups.iter();
            let group = group_of.find(|group| group.clique_names.iter().any(|name| name == clique));
            let group = group.map(|group| Scope::ScalingGroup(&group.name));
            group.into_iter().chain([Scope::Replica]).collect()
        }
    }
}

fn says_something(constraint: &TopologyConstraint) -> bool {
    constraint.required().is_some() || constraint.preferred().is_some()
}
