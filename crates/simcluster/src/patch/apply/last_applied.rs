//! The bridge from client-side to server-side apply: kubectl keeps what it applied last in an annotation.
//!
//! When kubectl applies on the server for the first time, fields that still are as that annotation says are its own and
//! no conflict; and as long as the annotation is there, the server renews it, so that kubectl can go back.

use serde_json::Value;

use super::compare::Comparison;
use super::{OwnedConflict, Writer, typed};
use crate::patch::types::TypeSchema;

const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations of an object together may not be larger.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The conflicts that the annotation does not excuse.
pub(super) fn unexcused(
    conflicts: Vec<OwnedConflict>,
    live: &Value,
    schema: TypeSchema<'_>,
    writer: &Writer<'_>,
) -> Vec<OwnedConflict> {
    let annotation = live["metadata"]["annotations"][ANNOTATION]
        .as_str()
        .filter(|_| writer.manager == KUBECTL);
    let applied = annotation.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(applied) = applied.filter(|applied| applied["apiVersion"] == writer.api_version) else {
        return conflicts;
    };
    if !typed::errors(schema, &applied, false).is_empty() || !typed::errors(schema, live, false).is_empty() {
        return conflicts;
    }
    let since = Comparison::between(schema, &applied, live);
    let unchanged = typed::field_set(schema, &applied)
        .difference(&since.changed)
        .difference(&since.removed);
    conflicts
        .into_iter()
        .filter(|conflict| !unchanged.contains(&conflict.path))
        .collect()
}

/// Renews the annotation where there is one.
pub(super) fn renew(object: &mut Value, config: &Value, writer: &Writer<'_>) {
    let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let is_set = annotations
        .get(ANNOTATION)
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty());
    if writer.manager != KUBECTL || !is_set {
        return;
    }
    let mut applied = config.clone();
    if let Some(annotations) = applied
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    annotations.insert(
        ANNOTATION.to_owned(),
        Value::from(format!("{}\n", sorted_json(&applied))),
    );
    let bytes = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(bytes).sum::<usize>() > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

/// JSON with the fields of every object sorted, in whatever order they are kept.
fn sorted_json(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), sorted_json(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted_json).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    }
}
