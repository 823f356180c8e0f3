//! Merge patch (RFC 7386) as the API server does it.

use serde_json::{Map, Value};
use thiserror::Error;

use super::go;

/// Why a merge patch cannot be used; the caller answers 400.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MergePatchError {
    #[error("Invalid JSON Patch")]
    Null,
    #[error("error decoding patch: json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(&'static str),
}

/// Merges `patch` into `object`: null removes a field, objects merge, everything else replaces.
pub fn merge_patch(object: &mut Map<String, Value>, patch: &Value) -> Result<(), MergePatchError> {
    match patch {
        Value::Object(patch) => merge_fields(object, patch),
        Value::Null => return Err(MergePatchError::Null),
        other => return Err(MergePatchError::NotAnObject(go::json_name(other))),
    }
    Ok(())
}

fn merge_fields(object: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, new) in patch {
        match (object.get_mut(name), new) {
            (_, Value::Null) => {
                object.remove(name);
            }
            (Some(Value::Object(old)), Value::Object(new)) => merge_fields(old, new),
            // An object is replaced by the very value of the patch, nulls in its lists included.
            (Some(old @ Value::Object(_)), new) => *old = new.clone(),
            _ => {
                object.insert(name.clone(), without_nulls(new));
            }
        }
    }
}

/// Fields that are null mean "remove"; in what is added they have nothing to remove.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(object: Value, patch: Value) -> Value {
        let Value::Object(mut object) = object else {
            panic!("{object} is not an object")
        };
        merge_patch(&mut object, &patch).unwrap();
        Value::Object(object)
    }

    #[test]
    fn fields_merge_null_removes_and_lists_are_replaced() {
        let object = json!({"a": {"b": 1, "c": 2}, "l": [1, 2], "s": "x"});
        let patch = json!({"a": {"b": null, "d": 3}, "l": [3], "none": null});
        assert_eq!(
            merged(object, patch),
            json!({"a": {"c": 2, "d": 3}, "l": [3], "s": "x"})
        );
    }

    #[test]
    fn what_is_added_keeps_no_null_fields_but_null_items() {
        let patch = json!({"a": {"b": {"c": null}, "l": [null, {"d": null}]}});
        assert_eq!(
            merged(json!({}), patch.clone()),
            json!({"a": {"b": {}, "l": [null, {}]}})
        );
        assert_eq!(
            merged(json!({"a": null}), patch),
            json!({"a": {"b": {}, "l": [null, {}]}})
        );
        assert_eq!(
            merged(json!({"a": {}}), json!({"a": [{"d": null}]})),
            json!({"a": [{"d": null}]})
        );
    }

    #[test]
    fn a_patch_that_is_no_object_is_refused_in_the_servers_words() {
        let refused = |patch| merge_patch(&mut Map::new(), &patch).unwrap_err().to_string();
        assert_eq!(refused(json!(null)), "Invalid JSON Patch");
        let words = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
        assert_eq!(refused(json!([])), words);
    }
}
