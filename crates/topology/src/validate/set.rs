//! The rules of a PodCliqueSet.
//!
//! Rules about what exists (is the feature on, is the topology there, does it have the level) run on CREATE and when an
//! UPDATE changes a topology field. So a set that was once admitted can always be scaled, re-imaged and deleted,
//! whatever became of its topology. What an UPDATE may change at all is [`super::set_update`]'s.

use std::cmp::Ordering;

use grove_api::config::{OnTopologyMissing, TopologyAwareScheduling, TopologySource};
use grove_api::{Pack, PodCliqueSet, TopologyConstraint};

use super::set_update;
use super::{Cause, Verdict, Violation};
use crate::cells;
use crate::levels::{Topology, TopologyKind, compare_words};
use crate::resolve::{self, Found, Resolution};
use crate::scopes::{self, ScopedConstraint};

pub(super) const NAME_FIELD: &str = "spec.template.clusterTopologyName";

/// A PodCliqueSet that somebody wants to write.
#[derive(Clone, Copy, Debug)]
pub struct SetReview<'a> {
    /// What is stored; `None` on CREATE.
    pub old: Option<&'a PodCliqueSet>,
    pub new: &'a PodCliqueSet,
    pub tas: &'a TopologyAwareScheduling,
    /// What exists under the name that [`resolve::named_or_default`] gives for `new`, and the selected TopologyDomain
    /// where that is the source.
    pub found: Found<'a>,
    /// Live pods of the set that have a node now. Only looked at where [`super::changes_topology`] says so.
    pub scheduled_pods: usize,
    /// Why the scheduler cannot keep any level, with the way out; see [`crate::backend::relies_on`].
    pub unenforceable: Option<&'a str>,
    /// Why levels below the host come down to the host, if they do; see [`crate::cells::why_host`].
    pub why_host: Option<&'a str>,
}

/// Judges the topology part of a write.
pub fn review_set(review: &SetReview<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    if review.new.metadata.deletion_timestamp.is_some() {
        return verdict;
    }
    if let Some(old) = review.old {
        verdict.violations.extend(set_update::immutability(review, old));
    }
    if review.old.is_none_or(|old| set_update::fields_differ(old, review.new)) {
        verdict.violations.extend(names(review));
        let resolution = resolution(review);
        verdict.violations.extend(existence(review, &resolution));
        verdict.violations.extend(enforcement(review));
        verdict.violations.extend(hierarchy(review.new, resolution.topology()));
        verdict.warnings.extend(warnings(review, resolution.topology()));
    }
    verdict
}

/// The constraint that the configuration fills into the template of a new set that has none at all. An empty one counts:
/// this runs before the schema, which refuses it, and a mistake is not to be written over.
pub fn default_constraint(new: &PodCliqueSet, tas: &TopologyAwareScheduling) -> Option<TopologyConstraint> {
    let word = tas.default_pack_domain.as_ref().filter(|_| tas.enabled)?;
    let template = &new.spec.template;
    let of_groups = template.scaling_groups.iter().map(|group| &group.topology_constraint);
    let of_cliques = template.cliques.iter().map(|clique| &clique.topology_constraint);
    let mut all = std::iter::once(&template.topology_constraint)
        .chain(of_groups)
        .chain(of_cliques);
    all.all(Option::is_none).then(|| TopologyConstraint {
        pack: Some(Pack {
            required: Some(word.clone()),
            preferred: None,
        }),
        ..TopologyConstraint::default()
    })
}

/// What the topology of the new set comes to, as far as this write is concerned.
fn resolution(review: &SetReview<'_>) -> Resolution {
    let source = &review.tas.source;
    let reference = resolve::reference(review.new, source);
    let resolution = resolve::resolve(reference, review.tas, &review.found);
    let before = review.old.and_then(|old| resolve::reference(old, source));
    let is_known = before.map(|before| (before.kind, before.name)) == reference.map(|now| (now.kind, now.name));
    if is_known {
        resolution
    } else {
        resolution.for_new_reference()
    }
}

/// A set uses one topology, so its names must agree.
fn names(review: &SetReview<'_>) -> Vec<Violation> {
    let template = &review.new.spec.template;
    let constraints = scopes::constraints(template);
    let mut violations = Vec::new();
    let mut first = None;
    for scoped in &constraints {
        let Some(name) = scoped.constraint.topology_name() else {
            continue;
        };
        let field = format!("{}.topologyName", scoped.path);
        match (template.cluster_topology_name(), *first.get_or_insert(name)) {
            (Some(chosen), _) if chosen != name => {
                let message = format!("topologyName '{name}' must be the same as clusterTopologyName '{chosen}'");
                violations.push(Violation::new(field, Cause::Invalid, message));
            }
            (None, other) if other != name => {
                let message = "all topologyConstraint.topologyName values within a PodCliqueSet must match in the \
                               current implementation";
                violations.push(Violation::new(field, Cause::Invalid, message));
            }
            _ => {}
        }
    }
    if let Some(name) = template.cluster_topology_name().filter(|_| constraints.is_empty()) {
        let message = format!("clusterTopologyName '{name}' is set but no topologyConstraint is specified");
        violations.push(Violation::new(NAME_FIELD, Cause::Invalid, message));
    }
    violations
}

/// Is the feature on, is the topology there, does it have the levels.
fn existence(review: &SetReview<'_>, resolution: &Resolution) -> Vec<Violation> {
    match resolution {
        Resolution::Unused => without_constraint(review),
        Resolution::Disabled => vec![not_enabled(reference_field(review.new))],
        Resolution::Missing { .. } => vec![missing(review)],
        Resolution::InForce { topology, .. } => scopes::constraints(&review.new.spec.template)
            .iter()
            .flat_map(|scoped| undefined_levels(scoped, topology))
            .collect(),
    }
}

fn not_enabled(field: String) -> Violation {
    let message = "topology support is not enabled in the operator";
    Violation::new(field, Cause::Forbidden, message)
}

/// A set that uses no topology can still be refused: for a name while the feature is off, and, by policy, for a missing
/// TopologyDomain.
fn without_constraint(review: &SetReview<'_>) -> Vec<Violation> {
    let tas = review.tas;
    if !tas.enabled {
        let name = review.new.spec.template.cluster_topology_name();
        return name.map(|_| not_enabled(NAME_FIELD.to_owned())).into_iter().collect();
    }
    let rejects_all = matches!(
        tas.source,
        TopologySource::TopologyDomain {
            on_topology_missing: OnTopologyMissing::RejectAll,
            ..
        }
    );
    let selected = resolve::default_reference(&tas.source);
    let is_there = || {
        let resolution = resolve::resolve(Some(selected), tas, &review.found);
        resolution.for_new_reference().topology().is_some()
    };
    if rejects_all && review.old.is_none() && !is_there() {
        return vec![domain_missing("spec.template".to_owned(), selected.name)];
    }
    Vec::new()
}

fn domain_missing(field: String, name: &str) -> Violation {
    let message = format!("TopologyDomain '{name}' not found; create it or remove --topology-domain-name");
    Violation::new(field, Cause::NotFound, message)
}

fn missing(review: &SetReview<'_>) -> Violation {
    let reference = resolve::named_or_default(&review.new.spec.template, &review.tas.source);
    let (name, field) = (reference.name, reference_field(review.new));
    match &review.tas.source {
        TopologySource::TopologyDomain {
            topology_domain_name, ..
        } if reference.kind == TopologyKind::TopologyDomain => domain_missing(field, topology_domain_name),
        TopologySource::TopologyDomain {
            topology_domain_name, ..
        } => {
            let message = format!(
                "topology '{name}' cannot be used: the operator uses TopologyDomain '{topology_domain_name}' only; \
                 remove the name, or write '{topology_domain_name}'"
            );
            Violation::new(field, Cause::Invalid, message)
        }
        TopologySource::ClusterTopology { .. } => {
            // Where it is still there, it is being deleted: `kubectl get` shows it, so say why it does not count.
            let is_there = resolve::resolve(Some(reference), review.tas, &review.found)
                .topology()
                .is_some();
            let why = if is_there { ": it is being deleted" } else { "" };
            Violation::new(
                field,
                Cause::NotFound,
                format!("ClusterTopology '{name}' not found{why}"),
            )
        }
    }
}

/// The field that makes a set use its topology.
fn reference_field(set: &PodCliqueSet) -> String {
    let template = &set.spec.template;
    if template.cluster_topology_name().is_some() {
        return NAME_FIELD.to_owned();
    }
    let constraints = scopes::constraints(template);
    let named = constraints
        .iter()
        .find(|scoped| scoped.constraint.topology_name().is_some());
    match (named, constraints.first()) {
        (Some(named), _) => format!("{}.topologyName", named.path),
        (None, Some(first)) => first.path.clone(),
        (None, None) => NAME_FIELD.to_owned(),
    }
}

fn undefined_levels(scoped: &ScopedConstraint<'_>, topology: &Topology) -> Vec<Violation> {
    scoped
        .words()
        .filter(|(_, word)| topology.key(word).is_none())
        .map(|(field, word)| {
            let (kind, name) = (topology.kind(), topology.name());
            let message = format!("topology level '{word}' not defined in {kind} '{name}'");
            Violation::new(field, Cause::Invalid, message)
        })
        .collect()
}

/// A scheduler that cannot keep a level would hold the pods for ever, and nobody would be told why.
fn enforcement(review: &SetReview<'_>) -> Option<Violation> {
    let why = review.unenforceable?;
    let constraints = scopes::constraints(&review.new.spec.template);
    let field = constraints.first()?.path.clone();
    let message = format!("topology constraints cannot be enforced: {why}");
    Some(Violation::new(field, Cause::Forbidden, message))
}

/// A scope inside another cannot be wider than it. Required and preferred words are judged each among themselves.
fn hierarchy(set: &PodCliqueSet, topology: Option<&Topology>) -> Vec<Violation> {
    let template = &set.spec.template;
    let by_scope = scopes::by_scope(template);
    let judge = |field: String, child: Option<&str>, parent: Option<&str>| {
        let (child, parent) = (child?, parent?);
        let is_wider = compare_words(topology, child, parent) == Some(Ordering::Less);
        is_wider.then(|| {
            let message = format!(
                "child topology constraint '{child}' must be equal to or stricter than parent constraint '{parent}'"
            );
            Violation::new(field, Cause::Invalid, message)
        })
    };
    let mut violations: Vec<Violation> = Vec::new();
    for scoped in scopes::constraints(template) {
        let child = scoped.constraint;
        for parent in scopes::around(template, scoped.scope) {
            let Some(parent) = by_scope.get(&parent) else { continue };
            let required = judge(scoped.required_path(), child.required(), parent.required());
            let preferred = judge(scoped.preferred_path(), child.preferred(), parent.preferred());
            for found in required.into_iter().chain(preferred) {
                // A group and a replica with the same word make one mistake of a clique, not two.
                if !violations.contains(&found) {
                    violations.push(found);
                }
            }
        }
    }
    violations
}

fn warnings(review: &SetReview<'_>, topology: Option<&Topology>) -> Vec<String> {
    let constraints = scopes::constraints(&review.new.spec.template);
    let without_effect = |scoped: &ScopedConstraint<'_>| {
        let (required, preferred) = (scoped.constraint.required()?, scoped.constraint.preferred()?);
        let is_wider = compare_words(topology, preferred, required) == Some(Ordering::Less);
        is_wider.then(|| {
            let field = scoped.preferred_path();
            format!("{field}: '{preferred}' is broader than the required '{required}' and has no effect")
        })
    };
    let without_effect = constraints.iter().filter_map(without_effect);
    let defined = topology.and_then(|topology| defined_levels(&constraints, topology));
    let as_host = review.why_host.zip(topology).into_iter();
    let as_host = as_host.flat_map(|(why, topology)| cells::warnings(&constraints, topology, why));
    let spelling = old_spelling(&constraints).into_iter();
    spelling.chain(without_effect).chain(defined).chain(as_host).collect()
}

/// Which levels there are, for whoever wrote one that there is not.
fn defined_levels(constraints: &[ScopedConstraint<'_>], topology: &Topology) -> Option<String> {
    let has_undefined = constraints
        .iter()
        .any(|scoped| !undefined_levels(scoped, topology).is_empty());
    has_undefined.then(|| {
        let defined: Vec<&str> = topology.levels().iter().map(|level| level.word.as_str()).collect();
        let (kind, name) = (topology.kind(), topology.name());
        format!("{kind} '{name}' defines these levels: {}", defined.join(", "))
    })
}

fn old_spelling(constraints: &[ScopedConstraint<'_>]) -> Option<String> {
    let old = constraints
        .iter()
        .filter(|scoped| scoped.constraint.pack_domain.is_some())
        .map(|scoped| format!("{}.packDomain", scoped.path));
    let fields = old.collect::<Vec<_>>().join(", ");
    (!fields.is_empty()).then(|| format!("{fields}: deprecated spelling of pack.required, which means the same"))
}
