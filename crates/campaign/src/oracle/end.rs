//! O1: the end of a run, without what is another in every run.
//!
//! Left out are UIDs, revisions, generations and times, names that follow from them, where pods are (any place that the
//! rules allow is right, and O3 and O4 judge it), and what other controllers wrote (O7 judges it).

use std::collections::BTreeMap;

use grove_api::labels;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::label;
use crate::play::Played;
use crate::trace::state;
use crate::world::{FOREIGN, NAMESPACE};

/// Fields that differ from run to run, or say where something is.
const DIFFERS: [&str; 15] = [
    "uid",
    "resourceVersion",
    "managedFields",
    "generation",
    "observedGeneration",
    "message",
    "placement",
    "placementScore",
    "pending",
    "nodeName",
    "clusterIP",
    "clusterIPs",
    "hostIP",
    // Which pod an update took last.
    "readyPodsSelectedToUpdate",
    // A hash of everything, the UID of the owner included.
    "nvidia.com/last-applied-hash",
];

/// Lists whose order means nothing.
const UNORDERED: [&str; 4] = ["podReferences", "conditions", "podGangStatuses", "ownerReferences"];

/// Everything that there is at the end, by kind and name.
pub(super) fn state_of(played: &Played) -> BTreeMap<String, Value> {
    let changes = &played.changes[..played.ended];
    let pods = changes.iter().filter(|change| change.plural() == "pods");
    let aliases: BTreeMap<&str, String> = pods
        .filter_map(|change| Some((change.key.2.as_str(), alias(change.after.as_deref()?))))
        .collect();
    let there = state(changes).into_iter();
    let judged = there.filter(|((plural, namespace, _), _)| {
        let is_here = namespace == NAMESPACE && plural != "leases";
        is_here || plural == "clustertopologies"
    });
    let named = judged.map(|((plural, _, name), object)| {
        let name = aliases.get(name.as_str()).unwrap_or(name);
        (format!("{plural} {name}"), plain(&essence(plural, object), &aliases))
    });
    named.collect()
}

/// Every difference, in words.
pub(super) fn differences(these: &BTreeMap<String, Value>, those: &BTreeMap<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    for name in those.keys().filter(|name| !these.contains_key(*name)) {
        found.push(format!("{name} is missing"));
    }
    for (name, object) in these {
        match those.get(name) {
            None => found.push(format!("{name} should not be there")),
            Some(other) => differ(name, object, other, &mut found),
        }
    }
    found
}

fn differ(path: &str, this: &Value, that: &Value, found: &mut Vec<String>) {
    match (this, that) {
        (Value::Object(these), Value::Object(those)) => {
            let names = these
                .keys()
                .chain(those.keys().filter(|name| !these.contains_key(*name)));
            for name in names {
                differ(&format!("{path}.{name}"), &this[name], &that[name], found);
            }
        }
        (Value::Array(these), Value::Array(those)) if these.len() == those.len() => {
            for (index, (this, that)) in these.iter().zip(those).enumerate() {
                differ(&format!("{path}[{index}]"), this, that, found);
            }
        }
        _ if this != that => found.push(format!("{path} is {this} and not {that}")),
        _ => {}
    }
}

/// A pod by its clique and index: its name comes from the UID of its clique.
fn alias(pod: &Value) -> String {
    format!("{}[{}]", label(pod, labels::PODCLIQUE), label(pod, labels::POD_INDEX))
}

/// What Grove answers for.
fn essence(plural: &str, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mine = json!({
        "labels": metadata["labels"], "annotations": metadata["annotations"],
        "ownerReferences": metadata["ownerReferences"], "finalizers": metadata["finalizers"],
        "isLeaving": super::object::is_leaving(object),
    });
    match plural {
        // Its status is the kubelet's.
        "pods" => json!({"metadata": mine, "spec": object["spec"]}),
        // Tokens are random.
        "secrets" => json!({"metadata": mine, "type": object["type"]}),
        _ => {
            let mut object = object.clone();
            object["metadata"] = mine;
            object
        }
    }
}

fn plain(value: &Value, aliases: &BTreeMap<&str, String>) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, value)| {
                let is_empty = value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
                !DIFFERS.contains(&name.as_str()) && !name.starts_with(FOREIGN) && !is_empty
            });
            let plain = kept.map(|(name, value)| {
                let mut value = plain(value, aliases);
                if let (true, Value::Array(items)) = (UNORDERED.contains(&name.as_str()), &mut value) {
                    items.sort_by_key(Value::to_string);
                }
                (name.clone(), value)
            });
            // A map of nothing but foreign entries is as good as none.
            let plain = plain.filter(|(_, value)| !value.as_object().is_some_and(|map| map.is_empty()));
            Value::Object(plain.collect())
        }
        Value::Array(items) => items.iter().map(|item| plain(item, aliases)).collect(),
        Value::String(text) => match aliases.get(text.as_str()) {
            Some(alias) => json!(alias),
            None if text.parse::<Timestamp>().is_ok() => json!("a time"),
            // The API server ends the name of this volume with random letters.
            None if text.starts_with("kube-api-access-") => json!("kube-api-access"),
            None => value.clone(),
        },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_by_its_path_and_what_does_not_matter_is_left_out() {
        let object = |image: &str, uid: &str, theirs: &str| {
            let annotations = json!({"example.com/count": theirs});
            let metadata = json!({"uid": uid, "annotations": annotations});
            plain(
                &json!({"metadata": metadata, "spec": {"images": [image]}}),
                &BTreeMap::new(),
            )
        };
        let state = |image, uid, theirs| BTreeMap::from([("pods p".to_owned(), object(image, uid, theirs))]);
        let clean = state("one", "1", "a");
        assert!(differences(&state("one", "2", "b"), &clean).is_empty());
        let wrong = r#"pods p.spec.images[0] is "two" and not "one""#;
        assert_eq!(differences(&state("two", "2", "b"), &clean), [wrong]);
        assert_eq!(differences(&BTreeMap::new(), &clean), ["pods p is missing"]);
        assert_eq!(differences(&clean, &BTreeMap::new()), ["pods p should not be there"]);
    }
}
