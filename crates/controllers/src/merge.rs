//! What a write must say so that others lose nothing by it. Pure functions over JSON.

use grove_api::labels::annotation;
use grove_workload::diff::{Content, OWN_ANNOTATIONS};
use grove_workload::meta::TakenOver;
use serde_json::{Map, Value, json};

/// The stored object with what is wanted in it.
pub(crate) fn merged(stored: Value, wanted: Value, content: Content) -> Value {
    let (Value::Object(stored), Value::Object(wanted)) = (stored, wanted) else {
        return Value::Null;
    };
    let mut merged = Map::new();
    for (name, value) in &stored {
        let is_content = !matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status");
        match (content, is_content) {
            (_, false) | (Content::Fixed | Content::Written, true) => drop(merged.insert(name.clone(), value.clone())),
            (Content::Whole, true) => {}
        }
    }
    merged.remove("status");
    for (name, value) in wanted {
        match name.as_str() {
            "metadata" => merge_metadata(merged.entry("metadata").or_insert_with(|| json!({})), value),
            "apiVersion" | "kind" => drop(merged.insert(name, value)),
            "status" => {}
            _ if content == Content::Fixed => {}
            _ => overlay(merged.entry(name).or_insert(Value::Null), value),
        }
    }
    Value::Object(merged)
}

fn merge_metadata(stored: &mut Value, wanted: Value) {
    let record = stored["annotations"][annotation::TAKEN_OVER].as_str();
    let taken_over = record.map(TakenOver::read).unwrap_or_default();
    for (map, names) in [("labels", taken_over.labels), ("annotations", taken_over.annotations)] {
        if let Some(map) = stored.get_mut(map).and_then(Value::as_object_mut) {
            map.retain(|name, _| !names.contains(name));
        }
    }
    for map in ["labels", "annotations"] {
        if wanted[map].is_object() {
            overlay(&mut stored[map], wanted[map].clone());
        }
    }
    if let Some(annotations) = stored.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations
            .retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()) || wanted["annotations"].get(key).is_some());
    }
    let ours = wanted["finalizers"].as_array().cloned().unwrap_or_default();
    if !ours.is_empty() && !stored["finalizers"].is_array() {
        stored["finalizers"] = json!([]);
    }
    if let Some(finalizers) = stored.get_mut("finalizers").and_then(Value::as_array_mut) {
        for finalizer in ours {
            if !finalizers.contains(&finalizer) {
                finalizers.push(finalizer);
            }
        }
    }
    // The revision that the decision was made on, if it says so.
    if wanted["resourceVersion"].is_string() {
        stored["resourceVersion"] = wanted["resourceVersion"].clone();
    }
}

/// Puts what is written over what is there. Lists are written whole.
fn overlay(stored: &mut Value, written: Value) {
    match (stored, written) {
        (Value::Object(stored), Value::Object(written)) => {
            for (name, value) in written {
                overlay(stored.entry(name).or_insert(Value::Null), value);
            }
        }
        (stored, written) => *stored = written,
    }
}

/// The merge patch that makes `new` of `old`.
pub(crate) fn merge_difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return new.clone();
    };
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        match before.get(name) {
            Some(known) if known == value => {}
            Some(known) => drop(patch.insert(name.clone(), merge_difference(known, value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_patch_holds_what_changed_and_takes_out_what_is_gone() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "gone": true, "list": [1]});
        let new = json!({"a": 1, "b": {"c": 2, "d": 4}, "list": [1, 2], "new": 5});
        let patch = merge_difference(&old, &new);
        assert_eq!(patch, json!({"b": {"d": 4}, "gone": null, "list": [1, 2], "new": 5}));
    }

    #[test]
    fn an_annotation_of_ours_goes_when_it_no_longer_holds() {
        let annotations = json!({"grove.io/topology-name": "t", "theirs": "1"});
        let stored = json!({"metadata": {"annotations": annotations}});
        let whole = merged(stored.clone(), json!({"metadata": {"name": "a"}}), Content::Whole);
        assert_eq!(whole["metadata"]["annotations"], json!({"theirs": "1"}));
        let kept = merged(stored.clone(), stored, Content::Whole);
        assert_eq!(kept["metadata"]["annotations"], annotations);
    }

    #[test]
    fn what_was_taken_over_goes_when_its_author_takes_it_out() {
        let record = json!({"annotations": ["note"], "labels": ["stays", "team"]}).to_string();
        let stored = json!({"metadata": {"labels": {"stays": "1", "team": "1", "theirs": "1"},
            "annotations": {"note": "1", "theirs": "1", "grove.io/taken-over": record}}});
        let wanted = json!({"metadata": {"name": "a", "labels": {"stays": "2"}}});
        let found = merged(stored, wanted, Content::Whole);
        let metadata = json!({"labels": {"stays": "2", "theirs": "1"}, "annotations": {"theirs": "1"}});
        assert_eq!(found["metadata"], metadata);
    }

    #[test]
    fn what_others_wrote_into_the_metadata_stays() {
        let stored = json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"theirs": "1", "ours": "old"}, "finalizers": ["theirs"],
                "resourceVersion": "7"},
            "spec": {"replicas": 1, "gone": true}, "status": {"x": 1},
        });
        let wanted = json!({
            "metadata": {"name": "a", "labels": {"ours": "new"}, "finalizers": ["ours"], "resourceVersion": "5"},
            "spec": {"replicas": 2},
        });
        let metadata = json!({"name": "a", "uid": "u", "labels": {"theirs": "1", "ours": "new"},
            "finalizers": ["theirs", "ours"], "resourceVersion": "5"});
        let whole = merged(stored.clone(), wanted.clone(), Content::Whole);
        assert_eq!(whole, json!({"metadata": metadata, "spec": {"replicas": 2}}));
        let written = merged(stored.clone(), wanted.clone(), Content::Written);
        assert_eq!(written["spec"], json!({"replicas": 2, "gone": true}));
        let fixed = merged(stored, wanted, Content::Fixed);
        assert_eq!(fixed["spec"], json!({"replicas": 1, "gone": true}));
    }
}
