//! The JSON patch that turns what a user sent into what defaulting made of it.
//!
//! Three documents are compared: what was sent, as it came (`raw`), and the same read by our types before and after the
//! defaults. Only what the defaults changed is patched, so that nothing is lost that our types do not know.

use serde_json::{Map, Value, json};

/// Operations that carry the difference from `before` to `after` over to `raw`. Defaulting adds and replaces; it never
/// takes anything away.
pub(crate) fn additions(raw: &Value, before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    walk(Some(raw), before, after, "", &mut operations);
    operations
}

fn walk(raw: Option<&Value>, before: &Value, after: &Value, path: &str, operations: &mut Vec<Value>) {
    if before == after {
        return;
    }
    match (raw, before, after) {
        (Some(Value::Object(raw)), before, Value::Object(after)) => {
            let nothing = Map::new();
            let before = before.as_object().unwrap_or(&nothing);
            for (key, value) in after {
                let path = format!("{path}/{}", escaped(key));
                walk(
                    raw.get(key),
                    before.get(key).unwrap_or(&Value::Null),
                    value,
                    &path,
                    operations,
                );
            }
        }
        (Some(Value::Array(raw)), Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                walk(raw.get(index), before, after, &format!("{path}/{index}"), operations);
            }
        }
        // `add` also replaces what is there.
        _ => operations.push(json!({"op": "add", "path": path, "value": after})),
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_filled_is_patched() {
        // `replicas` was not written, and the type reads that as 0; `unknown` is not in the type at all.
        let raw = json!({"spec": {"items": [{"name": "a", "unknown": 1}]}});
        let before = json!({"spec": {"items": [{"name": "a", "replicas": 0}]}});
        let after = json!({"spec": {"items": [{"name": "a", "replicas": 1}], "delay": "4h"}});
        assert_eq!(
            additions(&raw, &before, &after),
            [
                json!({"op": "add", "path": "/spec/delay", "value": "4h"}),
                json!({"op": "add", "path": "/spec/items/0/replicas", "value": 1}),
            ]
        );
    }

    #[test]
    fn a_parent_that_was_not_sent_is_added_whole() {
        let before = json!({});
        let after = json!({"a": {"b/c": 1}});
        assert_eq!(
            additions(&json!({}), &before, &after),
            [json!({"op": "add", "path": "/a", "value": {"b/c": 1}})]
        );
        assert_eq!(
            additions(&json!({"a": {}}), &json!({"a": {}}), &after),
            [json!({"op": "add", "path": "/a/b~1c", "value": 1})]
        );
    }

    #[test]
    fn no_change_is_no_patch() {
        let same = json!({"spec": [1, 2]});
        assert_eq!(additions(&json!({"spec": []}), &same, &same), Vec::<Value>::new());
    }
}
