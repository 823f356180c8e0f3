//! Which PodCliqueSets are refused, and which changes of them: every violated rule at once, each with the field.
//!
//! What a schema or a CEL rule can say is not repeated here, and rules about topology are elsewhere. Rules that depend
//! on the operator's configuration, and rules of our own making, are judged on create only: a set that was admitted can
//! always be scaled, changed and deleted.

mod cliques;
mod collisions;
mod groups;
mod immutable;
mod nvlink;
mod order;
mod path;
mod pods;
mod sharing;

use grove_api::PodCliqueSet;
use kube::ResourceExt;

pub use path::Path;

use crate::names::GANG_PODS_MAX;

/// What the operator's configuration allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Names of scheduler profiles that a clique may name.
    pub schedulers: Vec<String>,
    pub mnnvl_enabled: bool,
}

/// What kind of rule was violated, as in a `StatusCause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Required,
    Invalid,
    Duplicate,
    Forbidden,
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, `spec.template.cliques[0].name` for example.
    pub path: String,
    pub message: String,
    pub reason: Reason,
}

/// Violations as they are found.
#[derive(Debug, Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, path: &Path, reason: Reason, message: impl Into<String>) {
        self.0.push(Violation {
            path: path.to_string(),
            message: message.into(),
            reason,
        });
    }

    fn invalid_if(&mut self, violated: bool, path: &Path, message: &str) {
        if violated {
            self.add(path, Reason::Invalid, message);
        }
    }

    /// Reports every name that occurs before.
    fn duplicates<'a>(&mut self, names: impl IntoIterator<Item = (Path, &'a str)>) {
        let mut seen = std::collections::BTreeSet::new();
        for (path, name) in names {
            if !seen.insert(name) {
                self.add(&path, Reason::Duplicate, format!("duplicate value '{name}'"));
            }
        }
    }
}

/// Why `set` may not be created.
pub fn create(set: &PodCliqueSet, rules: &Rules) -> Vec<Violation> {
    let mut found = Violations::default();
    generic(set, &mut found);
    let name = Path::root("metadata").field("name");
    let set_name = set.name_any();
    if let Some(why) = no_dns_label(&set_name) {
        found.add(&name, Reason::Invalid, format!("invalid name '{set_name}': {why}"));
    } else if !set_name.starts_with(|c: char| c.is_ascii_lowercase()) {
        let message =
            format!("invalid name '{set_name}': must start with a letter: the names of Services begin with it");
        found.add(&name, Reason::Invalid, message);
    }
    cliques::schedulers_are_enabled(set, rules, &mut found);
    pods::created(set, &mut found);
    nvlink::created(set, rules, &mut found);
    collisions::check(set, &mut found);
    found.0
}

/// Why `old` may not become `new`. What is being deleted may change in any way: finalizers must come off.
pub fn update(old: &PodCliqueSet, new: &PodCliqueSet) -> Vec<Violation> {
    let mut found = Violations::default();
    if new.metadata.deletion_timestamp.is_none() {
        generic(new, &mut found);
        immutable::check(old, new, &mut found);
        nvlink::unchanged(old, new, &mut found);
    }
    found.0
}

/// Why a scaling group or clique of this minimum may not have so many replicas.
pub fn scale(replicas: i32, min_available: i32) -> Option<Violation> {
    let path = Path::root("spec").field("replicas");
    (replicas != 0 && replicas < min_available).then(|| Violation {
        path: path.to_string(),
        message: format!("replicas must be 0 or at least minAvailable ({min_available}): fewer are of no use"),
        reason: Reason::Invalid,
    })
}

fn generic(set: &PodCliqueSet, found: &mut Violations) {
    let spec = Path::root("spec");
    found.invalid_if(
        set.spec.replicas < 0,
        &spec.field("replicas"),
        "must be greater than or equal to 0",
    );
    let template = spec.field("template");
    cliques::check(set, &template, found);
    order::check(set, &template, found);
    groups::check(set, &template, found);
    sharing::check(set, &template, found);
    pods::check(set, &template, found);
    if let Some(delay) = &set.spec.template.termination_delay {
        let path = template.field("terminationDelay");
        match delay.nanoseconds() {
            Ok(delay) => found.invalid_if(delay.0 <= 0, &path, "terminationDelay must be greater than 0"),
            Err(error) => found.add(&path, Reason::Invalid, error.to_string()),
        }
    }
    gang_sizes(set, &template, found);
}

/// A larger gang would not fit into one PodGang.
fn gang_sizes(set: &PodCliqueSet, template: &Path, found: &mut Violations) {
    let standalone: i64 = crate::names::standalone(set)
        .map(|clique| i64::from(clique.spec.replicas))
        .sum();
    let group_size = |group| -> i64 {
        crate::names::members(set, group)
            .map(|clique| i64::from(clique.spec.replicas))
            .sum()
    };
    let groups = &set.spec.template.scaling_groups;
    let base = groups
        .iter()
        .map(|group| group_size(group).saturating_mul(group.min_available().into()));
    let base = base.fold(standalone, i64::saturating_add);
    let largest = groups.iter().map(group_size).fold(base, i64::max);
    if largest > i64::from(GANG_PODS_MAX) {
        let message = format!("a gang may have at most {GANG_PODS_MAX} pods, and one of this template has {largest}");
        found.add(template, Reason::Invalid, message);
    }
}

/// The longest name that is a DNS label, and the longest value of a Kubernetes label.
const LABEL_MAX: usize = 63;

/// Why a name is no RFC 1123 label, which names of cliques and groups must be.
fn no_dns_label(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_spelt_well = name.starts_with(plain) && name.ends_with(plain) && name.chars().all(|c| plain(c) || c == '-');
    if !is_spelt_well {
        let why =
            "must be a DNS label: lower case letters, digits and '-', beginning and ending with a letter or digit";
        return Some(why.to_owned());
    }
    let length = name.len();
    (length > LABEL_MAX).then(|| format!("must have at most {LABEL_MAX} characters, and has {length}"))
}

/// Names for a message, in quotes.
fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("'{name}'")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
