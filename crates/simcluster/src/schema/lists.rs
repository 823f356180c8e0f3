//! Items that may stand only once: members of sets, and items of list-maps by their keys.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::{Additional, ListType, Node};
use super::{child, index, key};
use crate::status::FieldError;

pub(super) fn errors(root: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(root, object, "", &mut errors);
    errors
}

fn visit(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Additional::Typed(node) = &node.additional {
                    visit(node, value, &key(path, name), errors);
                }
                if let Some(node) = node.properties.get(name) {
                    visit(node, value, &child(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => report_repeated(items, path, errors),
                ListType::Map(keys) => check_map(keys, items, path, errors),
            }
            if let Some(node) = &node.items {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, item)| visit(node, item, &index(path, at), errors));
            }
        }
        _ => {}
    }
}

/// Tells of each value once, at its second place.
fn report_repeated(values: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (at, value) in values.iter().enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(index(path, at), Some(value.clone())));
        }
    }
}

fn check_map(keys: &[String], items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let not_an_object = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(at) = not_an_object {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(index(path, at), items[at].clone(), detail));
        return;
    }
    let identity = |item: &Value| -> Value {
        let named = keys
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(named.collect::<Map<_, _>>())
    };
    let identities: Vec<Value> = items.iter().map(identity).collect();
    report_repeated(&identities, path, errors);
}
