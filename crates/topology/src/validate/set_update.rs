//! What an UPDATE of a PodCliqueSet may change.
//!
//! Scopes are compared by name, so moving a clique in the list changes nothing. Whether cliques or groups may be added
//! and removed at all is not a matter of topology and not judged here.

use std::collections::BTreeMap;

use grove_api::config::{ConstraintUpdates, TopologySource};
use grove_api::podcliqueset::PodCliqueSetTemplate;
use grove_api::{PodCliqueSet, TopologyConstraint};

use super::set::{NAME_FIELD, SetReview};
use super::{Cause, Violation};
use crate::resolve;
use crate::scopes::{self, Scope};

/// Whether an update moves the set to another topology. Only then does it matter how many pods are scheduled, which
/// takes a live read.
pub fn changes_topology(old: &PodCliqueSet, new: &PodCliqueSet, source: &TopologySource) -> bool {
    name(old, source) != name(new, source)
}

/// Whether any topology field means something else than before. Writing `packDomain` as `pack.required` does not.
pub(super) fn fields_differ(old: &PodCliqueSet, new: &PodCliqueSet) -> bool {
    let (old, new) = (&old.spec.template, &new.spec.template);
    old.cluster_topology_name() != new.cluster_topology_name() || meanings(old) != meanings(new)
}

/// Required and preferred word.
type Words<'a> = (Option<&'a str>, Option<&'a str>);

fn meanings(template: &PodCliqueSetTemplate) -> BTreeMap<Scope<'_>, (Option<&str>, Words<'_>)> {
    scopes::constraints(template)
        .into_iter()
        .map(|scoped| {
            let constraint = scoped.constraint;
            (scoped.scope, (constraint.topology_name(), words(Some(constraint))))
        })
        .collect()
}

/// Runs on every update.
pub(super) fn immutability(review: &SetReview<'_>, old: &PodCliqueSet) -> Vec<Violation> {
    let mut violations = Vec::new();
    if review.tas.constraint_updates == ConstraintUpdates::Immutable {
        violations.extend(changed_constraints(old, review.new));
    }
    violations.extend(changed_name(review, old));
    violations
}

fn changed_constraints(old: &PodCliqueSet, new: &PodCliqueSet) -> Vec<Violation> {
    let before: BTreeMap<_, _> = scopes::all(&old.spec.template)
        .into_iter()
        .map(|(scope, _, constraint)| (scope, constraint))
        .collect();
    scopes::all(&new.spec.template)
        .into_iter()
        .filter(|(scope, _, constraint)| before.get(scope).is_some_and(|old| words(*old) != words(*constraint)))
        .map(|(_, path, _)| {
            let message = format!("topology constraints are immutable: {path}; delete and recreate the PodCliqueSet");
            Violation::new(path, Cause::Forbidden, message)
        })
        .collect()
}

/// Pods are where the old topology put them, so its name is fixed as long as one of them has a node.
fn changed_name(review: &SetReview<'_>, old: &PodCliqueSet) -> Option<Violation> {
    let source = &review.tas.source;
    if review.scheduled_pods == 0 || !changes_topology(old, review.new, source) {
        return None;
    }
    let (before, after) = (name(old, source), name(review.new, source));
    let pods = match review.scheduled_pods {
        1 => "1 pod is scheduled".to_owned(),
        many => format!("{many} pods are scheduled"),
    };
    let message = format!("clusterTopologyName cannot be changed from '{before}' to '{after}': {pods}");
    Some(Violation::new(NAME_FIELD, Cause::Forbidden, message))
}

fn name<'a>(set: &'a PodCliqueSet, source: &'a TopologySource) -> &'a str {
    resolve::named_or_default(&set.spec.template, source).name
}

fn words(constraint: Option<&TopologyConstraint>) -> Words<'_> {
    constraint.map_or((None, None), |constraint| {
        (constraint.required(), constraint.preferred())
    })
}
