//! Objects as trees of a schema: what an applied configuration must look like, and which fields it names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields_v1::key_element;
use super::fieldset::{FieldSet, Item, PathElement};
use crate::patch::go;
use crate::patch::types::{ListKind, ListView, MapView, Scalar, Shape, TypeSchema};

/// What names an item of a list that merges by item.
pub(super) fn element_of(list: ListView<'_>, item: &Value) -> Result<PathElement, String> {
    match (list.kind, item) {
        (ListKind::Atomic, _) => Err("invalid indexing of non-associative list".to_owned()),
        (ListKind::Set, Value::Object(_)) => {
            Err("associative list without keys has an element that's a map type".to_owned())
        }
        (ListKind::Set, Value::Array(_)) => Err("not supported: associative list with lists as elements".to_owned()),
        (ListKind::Set, Value::Null) => {
            Err("associative list without keys has an element that's an explicit null".to_owned())
        }
        (ListKind::Set, scalar) => Ok(PathElement::Value(Item(scalar.clone()))),
        (ListKind::Map(keys), Value::Object(fields)) => keyed_element(list, keys, fields),
        (ListKind::Map(_), Value::Null) => Err("associative list with keys may not have a null element".to_owned()),
        (ListKind::Map(_), _) => Err("associative list with keys may not have non-map elements".to_owned()),
    }
}

/// A key that is missing takes its default; one that has none is left out, so that its absence names the item.
fn keyed_element(list: ListView<'_>, keys: &[String], fields: &Map<String, Value>) -> Result<PathElement, String> {
    let default = |key: &str| list.items.map().and_then(|map| map.default_of(key));
    let present = keys
        .iter()
        .filter_map(|key| Some((key.clone(), fields.get(key).or_else(|| default(key))?.clone())));
    let present: Vec<(String, Value)> = present.collect();
    if present.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(key_element(present))
}

/// Everything in `value` that the type does not allow, each with its path. Live objects may hold duplicate items (they
/// were written by other means than apply); an applied configuration may not.
pub(super) fn errors(schema: TypeSchema<'_>, value: &Value, allows_duplicates: bool) -> Vec<String> {
    let mut validator = Validator {
        allows_duplicates,
        errors: Vec::new(),
    };
    validator.visit(schema, value, "");
    validator.errors
}

struct Validator {
    allows_duplicates: bool,
    errors: Vec<String>,
}

impl Validator {
    fn report(&mut self, path: &str, message: impl std::fmt::Display) {
        self.errors.push(if path.is_empty() {
            message.to_string()
        } else {
            format!("{path}: {message}")
        });
    }

    fn visit(&mut self, schema: TypeSchema<'_>, value: &Value, path: &str) {
        match (schema.shape(Some(value)), value) {
            (_, Value::Null) | (None, _) => {}
            (Some(Shape::Scalar(scalar)), _) => {
                if let Some(message) = scalar_error(scalar, value) {
                    self.report(path, message);
                }
            }
            (Some(Shape::Map(map)), Value::Object(fields)) => self.visit_fields(map, fields, path),
            (Some(Shape::List(list)), Value::Array(items)) => self.visit_items(list, items, path),
            (Some(Shape::Map(_)), _) => self.report(path, format!("expected map, got &{{{}}}", go::plain(value))),
            (Some(Shape::List(_)), _) => self.report(path, format!("expected list, got &{{{}}}", go::plain(value))),
        }
    }

    fn visit_fields(&mut self, map: MapView<'_>, fields: &Map<String, Value>, path: &str) {
        for (name, value) in fields {
            let path = format!("{path}.{name}");
            match map.field(name) {
                Some(schema) => self.visit(schema, value, &path),
                None => {
                    self.report(&path, "field not declared in schema");
                    // The API server tells of the first only.
                    return;
                }
            }
        }
    }

    fn visit_items(&mut self, list: ListView<'_>, items: &[Value], path: &str) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = if *list.kind == ListKind::Atomic {
                PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match element_of(list, item) {
                    Ok(element) => element,
                    Err(message) => return self.report(path, format!("element {index}: {message}")),
                }
            };
            if seen.contains(&element) && !self.allows_duplicates {
                self.report(path, format!("duplicate entries for key {element}"));
            }
            self.visit(list.items, item, &format!("{path}{element}"));
            seen.insert(element);
        }
    }
}

fn scalar_error(scalar: Scalar, value: &Value) -> Option<String> {
    let wrapped = || format!("&value.valueUnstructured{{Value:{}}}", go::syntax(value));
    match (scalar, value) {
        (Scalar::Number, Value::Number(_)) | (Scalar::Boolean, Value::Bool(_)) => None,
        (Scalar::String | Scalar::Bytes, Value::String(_)) => None,
        (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Number, _) => Some(format!("expected numeric (int or float), got {}", go::type_name(value))),
        (Scalar::String | Scalar::Bytes, _) => Some(format!("expected string, got {}", wrapped())),
        (Scalar::Boolean, _) => Some(format!("expected boolean, got &{{{}}}", go::plain(value))),
        (Scalar::Any, _) => Some(format!("expected any scalar, got &{{{}}}", go::plain(value))),
    }
}

/// The fields that an object names: leaves, items of lists, and what is empty or not declared.
pub(super) fn field_set(schema: TypeSchema<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(schema, value, &mut Vec::new(), &mut set);
    set
}

fn collect(schema: TypeSchema<'_>, value: &Value, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    match (schema.shape(Some(value)), value) {
        (Some(Shape::Scalar(_)), _) => set.insert(path),
        (Some(Shape::Map(MapView { atomic: true, .. })), _) => set.insert(path),
        (
            Some(Shape::List(ListView {
                kind: ListKind::Atomic, ..
            })),
            _,
        ) => set.insert(path),
        (Some(Shape::Map(map)), Value::Object(fields)) => {
            for (name, value) in fields {
                path.push(PathElement::Field(name.clone()));
                if let Some(schema) = map.field(name) {
                    collect(schema, value, path, set);
                }
                let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if is_empty || !map.declares(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Some(Shape::List(list)), Value::Array(items)) => {
            let mut times: BTreeMap<PathElement, usize> = BTreeMap::new();
            let elements = || {
                items
                    .iter()
                    .filter_map(|item| Some((element_of(list, item).ok()?, item)))
            };
            elements().for_each(|(element, _)| *times.entry(element).or_default() += 1);
            for (element, item) in elements() {
                // Items that stand twice are owned as one, without what is in them.
                let is_single = times.get(&element) == Some(&1);
                path.push(element);
                if is_single {
                    collect(list.items, item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        _ => {}
    }
}
