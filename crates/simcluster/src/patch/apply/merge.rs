//! Merging an applied configuration into the live object, and removing what an applier gave up.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fieldset::{FieldSet, PathElement};
use super::typed::element_of;
use crate::patch::types::{ListKind, ListView, MapView, Shape, TypeSchema};

/// The live value with the configuration laid over it; `None` where neither has one.
pub(super) fn merge(schema: TypeSchema<'_>, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let newer = || config.or(live).cloned();
    match schema.shape(config.or(live)) {
        Some(Shape::Map(map)) if !map.atomic => {
            let (old, new) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            if old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
                // Nothing to merge: the difference between empty, null and missing is kept.
                return newer();
            }
            merge_fields(map, old, new)
        }
        Some(Shape::List(list)) if *list.kind != ListKind::Atomic => {
            let (old, new) = (live.and_then(Value::as_array), config.and_then(Value::as_array));
            let is_empty = |items: Option<&Vec<Value>>| items.is_none_or(Vec::is_empty);
            if is_empty(old) && is_empty(new) {
                return newer();
            }
            merge_items(list, old.map_or(&[], |items| items), new.map_or(&[], |items| items))
        }
        _ => newer(),
    }
}

fn merge_fields(map: MapView<'_>, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>) -> Option<Value> {
    let mut merged = Map::new();
    let names = old.into_iter().chain(new).flat_map(Map::keys);
    for name in names {
        if merged.contains_key(name) {
            continue;
        }
        let (old, new) = (
            old.and_then(|fields| fields.get(name)),
            new.and_then(|fields| fields.get(name)),
        );
        let value = match map.field(name) {
            Some(schema) => merge(schema, old, new),
            None => new.or(old).cloned(),
        };
        if let Some(value) = value {
            merged.insert(name.clone(), value);
        }
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// The items of both lists: shared ones in the order of the configuration, those of the live list around them.
fn merge_items(list: ListView<'_>, live: &[Value], config: &[Value]) -> Option<Value> {
    let named =
        |items: &[Value]| -> Vec<PathElement> { items.iter().filter_map(|item| element_of(list, item).ok()).collect() };
    let (old_names, new_names) = (named(live), named(config));
    if old_names.len() != live.len() || new_names.len() != config.len() {
        // An item without a name cannot be merged; such lists were refused before.
        return Some(Value::from(config));
    }
    let mut old: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (name, item) in old_names.iter().zip(live) {
        // Items that stand twice in the live list give nothing to merge with.
        old.entry(name).and_modify(|value| *value = None).or_insert(Some(item));
    }
    let new: BTreeMap<&PathElement, &Value> = new_names.iter().zip(config).collect();
    let mut shared = new_names.iter().filter(|name| old.contains_key(name)).peekable();
    let mut merged = Vec::new();
    let mut taken: BTreeSet<&PathElement> = BTreeSet::new();
    let (mut at_old, mut at_new) = (0, 0);
    while at_old < live.len() || at_new < config.len() {
        if let Some(name) = old_names.get(at_old) {
            let is_next = new_names.get(at_new) == Some(name);
            if !is_next && !new.contains_key(name) {
                merged.extend(merge(list.items, live.get(at_old), None));
                at_old += 1;
                continue;
            }
            let is_later = at_new < config.len() && shared.peek().is_some_and(|next| *next != name);
            if !is_next && is_later {
                at_old += 1;
                continue;
            }
            at_old += usize::from(is_next || taken.contains(name));
        }
        let Some(name) = new_names.get(at_new) else { continue };
        let both = old.get(name).copied().flatten();
        merged.extend(merge(list.items, both, new.get(name).copied()));
        taken.insert(name);
        shared.next_if(|next| *next == name);
        at_new += 1;
    }
    (!merged.is_empty()).then_some(Value::Array(merged))
}

/// The value without the paths of the set. What becomes empty by it is null: the API server does not tell it from an
/// empty object.
pub(super) fn remove(schema: TypeSchema<'_>, value: &Value, set: &FieldSet) -> Value {
    match (schema.shape(Some(value)), value) {
        (Some(Shape::Scalar(_)) | None, _) => value.clone(),
        (Some(Shape::Map(map)), Value::Object(fields)) if !map.atomic => {
            let mut left = Map::new();
            for (name, value) in fields {
                let element = PathElement::Field(name.clone());
                if set.members.contains(&element) {
                    continue;
                }
                let value = match (set.children.get(&element), map.field(name)) {
                    (Some(below), Some(schema)) => remove(schema, value, below),
                    _ => value.clone(),
                };
                left.insert(name.clone(), value);
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Object(left)
            }
        }
        (Some(Shape::List(list)), Value::Array(items)) if *list.kind != ListKind::Atomic => {
            let mut left = Vec::new();
            for item in items {
                let Ok(element) = element_of(list, item) else { continue };
                if !set.members.contains(&element) {
                    let below = set.children.get(&element);
                    left.push(below.map_or_else(|| item.clone(), |below| remove(list.items, item, below)));
                }
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Array(left)
            }
        }
        _ => Value::Null,
    }
}
