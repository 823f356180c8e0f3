//! What happens to an object when it is decoded: unknown fields go, nulls go, defaults come.

use serde_json::Value;

use super::node::{Additional, Node};
use super::{child, index};

/// The fields that every object has and a schema need not declare.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes what the schema of an object does not know; returns the paths of what was removed.
pub(super) fn prune(root: &Node, object: &mut Value) -> Vec<String> {
    let mut pruner = Pruner { removed: Vec::new() };
    pruner.visit(Some(root), object, "", true);
    pruner.removed.sort();
    pruner.removed
}

/// Removes what the schema of a part of an object does not know.
pub(super) fn prune_value(node: &Node, value: &mut Value) {
    Pruner { removed: Vec::new() }.visit(Some(node), value, "", false);
}

struct Pruner {
    removed: Vec<String>,
}

impl Pruner {
    fn visit(&mut self, node: Option<&Node>, value: &mut Value, path: &str, is_root: bool) {
        let keeps_unknown = node.is_some_and(|node| node.preserves_unknown);
        match value {
            Value::Object(fields) => {
                let is_resource = is_root || node.is_some_and(|node| node.is_embedded);
                fields.retain(|name, value| {
                    let is_meta = META_FIELDS.contains(&name.as_str());
                    if is_resource && is_meta {
                        return true;
                    }
                    let path = child(path, name);
                    let known = node.and_then(|node| match (&node.additional, node.properties.get(name)) {
                        (_, Some(declared)) => Some(Some(declared)),
                        (Additional::Typed(typed), None) => Some(Some(typed.as_ref())),
                        (Additional::Any, None) => Some(None),
                        (Additional::Unset, None) => None,
                    });
                    match known {
                        Some(node) => self.visit(node, value, &path, false),
                        None if keeps_unknown => {}
                        None => self.removed.push(path),
                    }
                    known.is_some() || keeps_unknown
                });
            }
            Value::Array(items) => {
                let of_items = node.and_then(|node| node.items.as_deref());
                if keeps_unknown && of_items.is_none() {
                    return;
                }
                for (at, item) in items.iter_mut().enumerate() {
                    self.visit(of_items, item, &index(path, at), false);
                }
            }
            _ => {}
        }
    }
}

/// Removes nulls of fields that may not be null and have no default. Where nothing is declared, a null is a value.
pub(super) fn drop_nulls(node: Option<&Node>, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let node = node.and_then(|node| node.field(name));
            let goes = value.is_null() && node.is_some_and(|node| !node.nullable && node.default.is_none());
            if !goes {
                drop_nulls(node, value);
            }
            !goes
        }),
        Value::Array(items) => {
            let node = node.and_then(|node| node.items.as_deref());
            items.iter_mut().for_each(|item| drop_nulls(node, item));
        }
        _ => {}
    }
}

/// Fills in defaults, also inside defaults, and in place of a null that may not be.
pub(super) fn default(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, declared) in &node.properties {
                let Some(default) = &declared.default else { continue };
                let is_missing = fields
                    .get(name)
                    .is_none_or(|value| value.is_null() && !declared.nullable);
                if is_missing {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                if let Some(node) = node.field(name) {
                    replace_null(node, value);
                    self::default(node, value);
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = node.items.as_deref() else { return };
            for item in items {
                replace_null(node, item);
                self::default(node, item);
            }
        }
        _ => {}
    }
}

fn replace_null(node: &Node, value: &mut Value) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
}
