//! O7 and O10: what belongs to others is left alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::object::{items, label, text, uid};
use crate::play::Played;
use crate::process::is_ours;
use crate::trace::Change;
use crate::world::FOREIGN;

/// O7: fields, gates and finalizers of others that one of our processes changed or removed.
pub(super) fn foreign_touched(played: &Played) -> Vec<String> {
    let ours = played.changes.iter().filter(|change| is_ours(&change.user));
    let touched = ours.filter_map(|change| {
        let (before, after) = (change.before.as_deref()?, change.after.as_deref()?);
        let (before, after) = (foreign(before), foreign(after));
        let lost: Vec<&String> = before.difference(&after).collect();
        (!lost.is_empty()).then(|| format!("{} touched {lost:?} and left {after:?}", change.words()))
    });
    touched.collect()
}

/// What others wrote into an object.
fn foreign(object: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for map in ["labels", "annotations"] {
        let entries = object["metadata"][map].as_object().into_iter().flatten();
        let theirs = entries.filter(|(name, _)| name.starts_with(FOREIGN));
        found.extend(theirs.map(|(name, value)| format!("{map} {name}={value}")));
    }
    let finalizers = items(object, "/metadata/finalizers").iter().filter_map(Value::as_str);
    let theirs = finalizers.filter(|name| name.starts_with(FOREIGN));
    found.extend(theirs.map(|name| format!("finalizer {name}")));
    let gates = items(object, "/spec/schedulingGates")
        .iter()
        .map(|gate| text(gate, "/name"));
    let theirs = gates.filter(|name| name.starts_with(FOREIGN));
    found.extend(theirs.map(|name| format!("gate {name}")));
    found
}

/// O10: writes of our processes to objects that are not Grove's, and objects for owners that never were.
pub(super) fn not_ours(played: &Played) -> Vec<String> {
    let mut named: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for change in &played.changes {
        if is_ours(&change.user) {
            findings.extend(stranger(change));
            findings.extend(orphan(change, &named));
        }
        if let Some(object) = change.after.as_deref() {
            named.insert(uid(object), change.key.2.as_str());
        }
    }
    findings
}

/// Whether a change is to an object that Grove neither made nor owns.
fn stranger(change: &Change) -> Option<String> {
    let before = change.before.as_deref()?;
    let is_grove = match change.plural() {
        "pods" => !label(before, "grove.io/podclique").is_empty() && owner_kinds(before).contains("PodClique"),
        "services" | "secrets" | "serviceaccounts" | "roles" | "rolebindings" | "controllerrevisions" => {
            !owner_kinds(before).is_empty()
        }
        "nodes" => false,
        _ => true,
    };
    (!is_grove).then(|| format!("{} is to an object of somebody else", change.words()))
}

fn owner_kinds(object: &Value) -> BTreeSet<&str> {
    let owners = items(object, "/metadata/ownerReferences").iter();
    owners.map(|owner| text(owner, "/kind")).collect()
}

/// Whether a new object names an owner that never was, or another of its name.
fn orphan(change: &Change, named: &BTreeMap<&str, &str>) -> Option<String> {
    if change.before.is_some() {
        return None;
    }
    let owners = items(change.after.as_deref()?, "/metadata/ownerReferences").iter();
    let mut wrong = owners.filter(|owner| named.get(text(owner, "/uid")).copied() != Some(text(owner, "/name")));
    let owner = wrong.next()?;
    Some(format!(
        "{} names an owner that never was: {}",
        change.words(),
        text(owner, "/name")
    ))
}
