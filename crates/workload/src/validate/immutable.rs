//! What of a set may not change once it exists.

use grove_api::PodCliqueSet;
use grove_api::podcliqueset::{CliqueStartupType, PodCliqueTemplate, ScalingGroupTemplate};

use super::{Path, Reason, Violations};
use crate::default;

const IMMUTABLE: &str = "field is immutable";

impl Violations {
    fn unless_equal<T: PartialEq>(&mut self, old: &T, new: &T, path: &Path) {
        self.invalid_if(old != new, path, IMMUTABLE);
    }
}

pub(super) fn check(old: &PodCliqueSet, new: &PodCliqueSet, found: &mut Violations) {
    let path = Path::root("spec").field("template");
    // One that was stored while admission was away says the same without a word.
    let mut old = old.clone();
    default::fill(&mut old);
    let (old, new) = (&old.spec.template, &new.spec.template);
    found.unless_equal(
        &old.clique_startup_type,
        &new.clique_startup_type,
        &path.field("cliqueStartupType"),
    );
    found.unless_equal(
        &old.resource_claim_templates,
        &new.resource_claim_templates,
        &path.field("resourceClaimTemplates"),
    );
    found.unless_equal(
        &old.resource_sharing,
        &new.resource_sharing,
        &path.field("resourceSharing"),
    );
    let is_ordered = new.clique_startup_type != CliqueStartupType::AnyOrder;
    cliques(&old.cliques, &new.cliques, is_ordered, &path.field("cliques"), found);
    groups(
        &old.scaling_groups,
        &new.scaling_groups,
        &path.field("podCliqueScalingGroups"),
        found,
    );
}

fn cliques(
    old: &[PodCliqueTemplate],
    new: &[PodCliqueTemplate],
    is_ordered: bool,
    path: &Path,
    found: &mut Violations,
) {
    if old.len() != new.len() {
        found.add(path, Reason::Forbidden, "not allowed to change clique composition");
    }
    for (index, clique) in new.iter().enumerate() {
        let Some(before) = old.iter().find(|before| before.name == clique.name) else {
            let name = &clique.name;
            let message = format!("not allowed to change clique composition, new clique name '{name}' is not allowed");
            found.add(&path.index(index).field("name"), Reason::Forbidden, message);
            continue;
        };
        if let Some(expected) = old
            .get(index)
            .filter(|expected| is_ordered && expected.name != clique.name)
        {
            let message = format!(
                "clique order cannot be changed when StartupType is InOrder or Explicit. Expected '{}' at position \
                 {index}, got '{}'",
                expected.name, clique.name
            );
            found.add(path, Reason::Invalid, message);
        }
        let sharing = path.index(index).field("resourceSharing");
        found.unless_equal(&before.resource_sharing, &clique.resource_sharing, &sharing);
        let path = path.index(index).field("spec");
        let (before, spec) = (&before.spec, &clique.spec);
        found.unless_equal(&before.role_name, &spec.role_name, &path.field("roleName"));
        found.unless_equal(&before.min_available, &spec.min_available, &path.field("minAvailable"));
        found.unless_equal(&before.starts_after, &spec.starts_after, &path.field("startsAfter"));
        found.unless_equal(
            &before.pod_spec.scheduler_name,
            &spec.pod_spec.scheduler_name,
            &path.field("podSpec").field("schedulerName"),
        );
    }
}

fn groups(old: &[ScalingGroupTemplate], new: &[ScalingGroupTemplate], path: &Path, found: &mut Violations) {
    let is_known = |group: &ScalingGroupTemplate| old.iter().any(|before| before.name == group.name);
    if old.len() != new.len() || !new.iter().all(is_known) {
        let message = "not allowed to add or remove PodCliqueScalingGroupConfigs";
        found.add(path, Reason::Forbidden, message);
    }
    for (index, group) in new.iter().enumerate() {
        let Some(before) = old.iter().find(|before| before.name == group.name) else {
            continue;
        };
        let path = path.index(index);
        found.unless_equal(&before.clique_names, &group.clique_names, &path.field("cliqueNames"));
        found.unless_equal(
            &before.min_available(),
            &group.min_available(),
            &path.field("minAvailable"),
        );
        found.unless_equal(
            &before.resource_sharing,
            &group.resource_sharing,
            &path.field("resourceSharing"),
        );
    }
}
