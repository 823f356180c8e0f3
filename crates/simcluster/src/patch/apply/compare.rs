//! What changed between two states of an object, as sets of fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fieldset::{FieldSet, PathElement};
use super::typed::element_of;
use crate::patch::types::{ListKind, ListView, MapView, Shape, TypeSchema};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// What is new or has a new value.
    pub(super) changed: FieldSet,
    pub(super) removed: FieldSet,
}

impl Comparison {
    pub(super) fn between(schema: TypeSchema<'_>, old: &Value, new: &Value) -> Self {
        visit(schema, Some(old), Some(new)).below
    }

    /// The comparison without fields that a write to this endpoint cannot change.
    pub(super) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            changed: self.changed.difference_below(ignored),
            removed: self.removed.difference_below(ignored),
        }
    }

    /// Takes in what was found about a field or an item.
    fn attach(&mut self, element: PathElement, found: Found) {
        self.changed.attach(&element, found.below.changed);
        self.removed.attach(&element, found.below.removed);
        if found.is_removed {
            self.removed.insert_element(element.clone());
        }
        if found.is_changed {
            self.changed.insert_element(element);
        }
    }
}

/// What became of a value and of everything in it.
#[derive(Debug, Default)]
struct Found {
    is_changed: bool,
    /// An item that stood twice and now stands once is both.
    is_removed: bool,
    below: Comparison,
}

fn visit(schema: TypeSchema<'_>, old: Option<&Value>, new: Option<&Value>) -> Found {
    let (old_shape, new_shape) = (schema.shape(old), schema.shape(new));
    match (old, new, old_shape, new_shape) {
        (Some(_), Some(_), Some(a), Some(b)) if !a.is_same_kind(&b) => {
            // The value took another shape: what was is gone, what is new is added.
            let (mut was, is) = (visit_shape(a, old, new), visit_shape(b, old, new));
            was.below.changed = was.below.changed.union(is.below.changed);
            was.below.removed = was.below.removed.union(is.below.removed);
            was.is_changed |= is.is_changed;
            was
        }
        (Some(_), None, Some(shape), _) | (_, Some(_), _, Some(shape)) => visit_shape(shape, old, new),
        _ => Found::default(),
    }
}

fn visit_shape(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Found {
    let mut below = Comparison::default();
    let is_leaf = match shape {
        Shape::Map(map) if !map.atomic => {
            let (a, b) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let is_empty = a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty);
            visit_fields(map, a, b, &mut below);
            is_empty
        }
        Shape::List(list) if *list.kind != ListKind::Atomic => {
            let (a, b) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            let is_empty = a.is_none_or(Vec::is_empty) && b.is_none_or(Vec::is_empty);
            visit_items(
                list,
                a.map_or(&[], |items| items),
                b.map_or(&[], |items| items),
                &mut below,
            );
            is_empty
        }
        _ => true,
    };
    // What merges field by field is judged by its fields.
    let is_modified = is_leaf && old.is_some() && new.is_some() && old != new;
    Found {
        is_changed: old.is_none() || is_modified,
        is_removed: new.is_none(),
        below,
    }
}

fn visit_fields(
    map: MapView<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    below: &mut Comparison,
) {
    let only_new = new
        .into_iter()
        .flat_map(Map::keys)
        .filter(|name| !old.is_some_and(|old| old.contains_key(*name)));
    for name in old.into_iter().flat_map(Map::keys).chain(only_new) {
        let Some(schema) = map.field(name) else { continue };
        let (old, new) = (
            old.and_then(|fields| fields.get(name)),
            new.and_then(|fields| fields.get(name)),
        );
        below.attach(PathElement::Field(name.clone()), visit(schema, old, new));
    }
}

fn visit_items(list: ListView<'_>, old: &[Value], new: &[Value], below: &mut Comparison) {
    let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Ok(element) = element_of(list, item) {
            items.entry(element).or_default().0.push(item);
        }
    }
    for item in new {
        if let Ok(element) = element_of(list, item) {
            items.entry(element).or_default().1.push(item);
        }
    }
    for (element, (old, new)) in items {
        // Items that stand twice are compared and owned as one.
        let (first_old, first_new) = (old.first().copied(), new.first().copied());
        let mut found = match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => visit(list.items, first_old, first_new),
            (0 | 1, _) => visit(list.items, first_old, None),
            (_, 0 | 1) => visit(list.items, None, first_new),
            _ => Found::default(),
        };
        found.is_changed |= new.len() > 1 && old != new;
        found.is_removed |= old.len() > 1 && new.len() < 2;
        below.attach(element, found);
    }
}
