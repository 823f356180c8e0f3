//! The rules of ClusterTopology and TopologyDomain objects.
//!
//! Owns who may write `grove-topology` and when levels may change. Deleting a topology that is in use is not refused
//! here: its finalizer holds it ([`crate::usage`]).

use grove_api::config::TopologyAwareScheduling;
use grove_api::labels::{MANAGED_BY, finalizer};
use grove_api::podgang::NamespacedName;
use grove_api::topology::{DEFAULT_TOPOLOGY_NAME, DomainWord, HOSTNAME_LABEL};
use grove_api::{ClusterTopology, TopologyDomain};

use super::{Cause, Verdict, Violation};
use crate::levels::Topology;

/// More blockers than this are counted, not named.
const BLOCKERS_NAMED_MAX: usize = 10;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    Create {
        new: &'a ClusterTopology,
    },
    Update {
        old: &'a ClusterTopology,
        new: &'a ClusterTopology,
    },
    Delete {
        old: &'a ClusterTopology,
    },
}

/// A write to a ClusterTopology.
#[derive(Clone, Copy, Debug)]
pub struct ClusterTopologyReview<'a> {
    pub request: Request<'a>,
    /// The caller is the operator's own user.
    pub is_operator: bool,
    pub tas: &'a TopologyAwareScheduling,
    /// The sets that use this topology and have a pod with a node now. Only looked at where [`changes_levels`].
    pub scheduled_users: &'a [NamespacedName],
}

/// Judges a write to a ClusterTopology. The operator may do everything: its configuration was judged at its start.
pub fn review_cluster_topology(review: &ClusterTopologyReview<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    if review.is_operator {
        return verdict;
    }
    verdict.violations.extend(protection(review));
    let (new, levels_change) = match review.request {
        Request::Create { new } => (new, true),
        Request::Update { old, new } => (new, old.spec.levels != new.spec.levels),
        Request::Delete { .. } => return verdict,
    };
    if !levels_change || new.metadata.deletion_timestamp.is_some() {
        return verdict;
    }
    if let Request::Update { old, .. } = review.request {
        verdict.violations.extend(in_use(old, new, review.scheduled_users));
    }
    let levels = new.spec.levels.iter();
    let levels: Vec<_> = levels
        .map(|level| (level.domain.as_str(), level.key.as_str()))
        .collect();
    verdict.violations.extend(judge_levels(&levels, "domain", "key"));
    verdict.warnings.extend(order_warning(new));
    verdict.warnings.extend(host_warning(new));
    verdict
}

/// Judges a write to a TopologyDomain; `old` is `None` on CREATE.
pub fn review_topology_domain(old: Option<&TopologyDomain>, new: &TopologyDomain) -> Verdict {
    let mut verdict = Verdict::default();
    if new.metadata.deletion_timestamp.is_some() {
        return verdict;
    }
    if old.is_some_and(|old| old.spec.levels != new.spec.levels) {
        let violation = Violation::new("spec.levels", Cause::Invalid, "levels list is immutable");
        verdict.violations.push(violation);
    }
    if old.is_none() {
        let levels = new.spec.levels.iter();
        let levels: Vec<_> = levels
            .map(|level| (level.name.as_str(), level.topology_key.as_str()))
            .collect();
        verdict.violations.extend(judge_levels(&levels, "name", "topologyKey"));
    }
    verdict
}

/// Whether an update changes what a topology means. A ClusterTopology is ordered by meaning, so listing its levels in
/// another order does not.
pub fn changes_levels(old: &ClusterTopology, new: &ClusterTopology) -> bool {
    Topology::from(old).levels() != Topology::from(new).levels()
}

/// `grove-topology` is the operator's. Other metadata than what the operator itself relies on is free.
fn protection(review: &ClusterTopologyReview<'_>) -> Option<Violation> {
    let (object, field, done) = match review.request {
        Request::Create { new } => (new, "metadata.name", "created"),
        Request::Delete { old } => (old, "metadata.name", "deleted"),
        Request::Update { old, new } => (new, protected_change(old, new)?, "modified"),
    };
    let is_default = object.metadata.name.as_deref() == Some(DEFAULT_TOPOLOGY_NAME);
    (is_default && review.tas.protect_default_topology).then(|| {
        let message = format!("ClusterTopology '{DEFAULT_TOPOLOGY_NAME}' can only be {done} by the operator");
        Violation::new(field, Cause::Forbidden, message)
    })
}

fn protected_change(old: &ClusterTopology, new: &ClusterTopology) -> Option<&'static str> {
    let label = |object: &ClusterTopology| object.metadata.labels.as_ref()?.get(MANAGED_BY).cloned();
    // Only ours: the garbage collector works with finalizers of its own.
    let is_held = |object: &ClusterTopology| {
        let mut finalizers = object.metadata.finalizers.iter().flatten();
        finalizers.any(|name| name == finalizer::CLUSTER_TOPOLOGY)
    };
    if old.spec != new.spec {
        Some("spec")
    } else if label(old) != label(new) {
        Some("metadata.labels")
    } else if is_held(old) != is_held(new) {
        Some("metadata.finalizers")
    } else {
        None
    }
}

fn in_use(old: &ClusterTopology, new: &ClusterTopology, users: &[NamespacedName]) -> Option<Violation> {
    if users.is_empty() || !changes_levels(old, new) {
        return None;
    }
    let shown = users.iter().take(BLOCKERS_NAMED_MAX);
    let shown: Vec<String> = shown.map(|set| format!("{}/{}", set.namespace, set.name)).collect();
    let mut list = shown.join(", ");
    if users.len() > shown.len() {
        list += &format!(" and {} more", users.len() - shown.len());
    }
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let message = format!(
        "topology levels of ClusterTopology '{name}' cannot be changed: topology in use by scheduled workloads: {list}"
    );
    Some(Violation::new("spec.levels", Cause::Forbidden, message))
}

/// Words and keys are unique. The sentences are those of the schema, which says it first where there is an API server.
fn judge_levels(levels: &[(&str, &str)], word_field: &str, key_field: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, (word, key)) in levels.iter().enumerate() {
        let before = &levels[..index];
        let mut judge = |is_repeated: bool, field: &str| {
            if is_repeated {
                let message = format!("{field} must be unique across all levels");
                violations.push(Violation::new(
                    format!("spec.levels[{index}].{field}"),
                    Cause::Duplicate,
                    message,
                ));
            }
        };
        judge(before.iter().any(|(other, _)| other == word), word_field);
        judge(before.iter().any(|(_, other)| other == key), key_field);
    }
    violations
}

fn order_warning(object: &ClusterTopology) -> Option<String> {
    let listed: Vec<DomainWord> = object.spec.levels.iter().map(|level| level.domain).collect();
    let mut sorted = listed.clone();
    sorted.sort();
    let join = |words: &[DomainWord]| words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(", ");
    (listed != sorted).then(|| {
        format!(
            "spec.levels: listed as {}, used by meaning as {}",
            join(&listed),
            join(&sorted)
        )
    })
}

fn host_warning(object: &ClusterTopology) -> Option<String> {
    let mut levels = object.spec.levels.iter().enumerate();
    let (index, level) = levels.find(|(_, level)| level.domain == DomainWord::Host)?;
    (level.key != HOSTNAME_LABEL).then(|| {
        format!(
            "spec.levels[{index}].key: '{}' instead of {HOSTNAME_LABEL}, which the kubelet sets; nodes without it are not \
             used",
            level.key
        )
    })
}
