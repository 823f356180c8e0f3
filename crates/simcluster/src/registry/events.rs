//! Events are one collection with two faces: core `v1` is stored, `events.k8s.io/v1` is a view on it.

use serde_json::{Map, Value};

/// Stored name and name in the view, where they differ.
const RENAMED: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("reportingComponent", "reportingController"),
];

/// Fields that core events can be selected by.
pub(super) const CORE_FIELDS: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// Fields that `events.k8s.io` events can be selected by.
pub(super) const EVENTS_FIELDS: [&str; 10] = [
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

pub(super) fn to_core(event: Value) -> Value {
    rename(event, |key| {
        RENAMED.iter().find(|(_, view)| *view == key).map(|(core, _)| *core)
    })
}

pub(super) fn from_core(event: Value) -> Value {
    let mut view = rename(event, |key| {
        RENAMED.iter().find(|(core, _)| *core == key).map(|(_, view)| *view)
    });
    if let Some(fields) = view.as_object_mut() {
        // This type leaves out who reported if nobody is named; the other one does not.
        fields.retain(|name, value| !(name.starts_with("reporting") && value == ""));
    }
    view
}

fn rename(event: Value, new_name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = event else { return event };
    let renamed = fields.into_iter().map(|(key, value)| match new_name(&key) {
        Some(name) => (name.to_owned(), value),
        None => (key, value),
    });
    Value::Object(renamed.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_two_faces_are_inverse() {
        let core = json!({"metadata": {"name": "e"}, "involvedObject": {"name": "p"}, "message": "m", "count": 1, "reason": "R"});
        let view = from_core(core.clone());
        assert_eq!(
            view,
            json!({"metadata": {"name": "e"}, "regarding": {"name": "p"}, "note": "m", "deprecatedCount": 1, "reason": "R"})
        );
        assert_eq!(to_core(view), core);
    }
}
