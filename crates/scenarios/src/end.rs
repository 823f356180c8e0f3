//! Objects without what is another in every run, so that the ends of two runs can be compared.
//!
//! Left out are UIDs, revisions, generations and times, names that follow from them, where pods are, and what other
//! controllers wrote.

use std::collections::BTreeMap;

use grove_api::labels;
use jiff::Timestamp;
use serde_json::{Value, json};

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

/// Names of pods, and what they are called in every run.
#[derive(Clone, Debug, Default)]
pub struct Aliases(BTreeMap<String, String>);

impl Aliases {
    /// A pod by its clique and index: its name comes from the UID of its clique.
    pub fn of<'a>(pods: impl IntoIterator<Item = &'a Value>) -> Self {
        let label = |pod: &Value, key: &str| pod["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
        let alias = |pod: &Value| {
            let name = pod["metadata"]["name"].as_str()?.to_owned();
            Some((
                name,
                format!("{}[{}]", label(pod, labels::PODCLIQUE), label(pod, labels::POD_INDEX)),
            ))
        };
        Self(pods.into_iter().filter_map(alias).collect())
    }

    /// What an object is called in every run.
    pub fn name<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.get(name).map_or(name, String::as_str)
    }

    /// What Grove answers for of an object. What other controllers wrote has names that begin with `foreign`.
    pub fn plain(&self, plural: &str, object: &Value, foreign: &str) -> Value {
        plain(&essence(plural, object), self, foreign)
    }
}

/// Every difference, in words.
pub fn differences(these: &BTreeMap<String, Value>, those: &BTreeMap<String, Value>) -> Vec<String> {
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

fn essence(plural: &str, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mine = json!({
        "labels": metadata["labels"], "annotations": metadata["annotations"],
        "ownerReferences": metadata["ownerReferences"], "finalizers": metadata["finalizers"],
        "isLeaving": !metadata["deletionTimestamp"].is_null(),
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

fn plain(value: &Value, aliases: &Aliases, foreign: &str) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, value)| {
                let is_empty = value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
                !DIFFERS.contains(&name.as_str()) && !name.starts_with(foreign) && !is_empty
            });
            let plain = kept.map(|(name, value)| {
                let mut value = plain(value, aliases, foreign);
                if let (true, Value::Array(items)) = (UNORDERED.contains(&name.as_str()), &mut value) {
                    items.sort_by_key(Value::to_string);
                }
                (name.clone(), value)
            });
            // A map of nothing but foreign entries is as good as none.
            let plain = plain.filter(|(_, value)| !value.as_object().is_some_and(|map| map.is_empty()));
            Value::Object(plain.collect())
        }
        Value::Array(items) => items.iter().map(|item| plain(item, aliases, foreign)).collect(),
        Value::String(text) => match aliases.0.get(text) {
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
            let object = json!({"metadata": metadata, "spec": {"images": [image]}});
            Aliases::default().plain("pods", &object, "example.com/")
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
