//! What changed between two states of an object, as sets of fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fieldset::{FieldSet, PathElement};
use super::typed::element_of;
use crate::patch::types::{ListKind, ListView, MapView, Shape, TypeSchema};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Comparison {
    pub(super) fn between(schema: TypeSchema<'_>, old: &Value, new: &Value) -> Self {
        let mut comparison = Self::default();
        comparison.visit(schema, &mut Vec::new(), Some(old), Some(new));
        comparison
    }

    /// The comparison without fields that a write to this endpoint cannot change.
    pub(super) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.difference_below(ignored),
            modified: self.modified.difference_below(ignored),
            removed: self.removed.difference_below(ignored),
        }
    }

    /// Everything that has a new value.
    pub(super) fn changed(&self) -> FieldSet {
        self.modified.clone().union(&self.added)
    }

    fn visit(&mut self, schema: TypeSchema<'_>, path: &mut Vec<PathElement>, old: Option<&Value>, new: Option<&Value>) {
        let (old_shape, new_shape) = (schema.shape(old), schema.shape(new));
        let is_leaf = match (old, new, old_shape, new_shape) {
            (None, None, ..) => return,
            (Some(_), Some(_), Some(a), Some(b)) if !a.is_same_kind(&b) => {
                // The value took another shape: what was is gone, what is new is added.
                self.visit_shape(a, path, old, new);
                self.visit_shape(b, path, old, new)
            }
            (Some(_), None, Some(shape), _) | (_, Some(_), _, Some(shape)) => self.visit_shape(shape, path, old, new),
            _ => false,
        };
        if !is_leaf {
            match (old, new) {
                (None, _) => self.added.insert(path),
                (_, None) => self.removed.insert(path),
                _ => {}
            }
        }
    }

    /// Whether the value is compared as a whole.
    fn visit_shape(
        &mut self,
        shape: Shape<'_>,
        path: &mut Vec<PathElement>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> bool {
        match shape {
            Shape::Map(map) if !map.atomic => {
                let (a, b) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
                if !(a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty)) {
                    self.visit_fields(map, path, a, b);
                    return false;
                }
            }
            Shape::List(list) if *list.kind != ListKind::Atomic => {
                let (a, b) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
                if !(a.is_none_or(Vec::is_empty) && b.is_none_or(Vec::is_empty)) {
                    self.visit_items(list, path, a.map_or(&[], |items| items), b.map_or(&[], |items| items));
                    return false;
                }
            }
            _ => {}
        }
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(old), Some(new)) if old != new => self.modified.insert(path),
            _ => {}
        }
        true
    }

    fn visit_fields(
        &mut self,
        map: MapView<'_>,
        path: &mut Vec<PathElement>,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
    ) {
        let only_new = new
            .into_iter()
            .flat_map(Map::keys)
            .filter(|name| !old.is_some_and(|old| old.contains_key(*name)));
        for name in old.into_iter().flat_map(Map::keys).chain(only_new) {
            let Some(schema) = map.field(name) else { continue };
            path.push(PathElement::Field(name.clone()));
            self.visit(
                schema,
                path,
                old.and_then(|fields| fields.get(name)),
                new.and_then(|fields| fields.get(name)),
            );
            path.pop();
        }
    }

    fn visit_items(&mut self, list: ListView<'_>, path: &mut Vec<PathElement>, old: &[Value], new: &[Value]) {
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
            path.push(element);
            match (old.len(), new.len()) {
                (0 | 1, 0 | 1) => self.visit(list.items, path, old.first().copied(), new.first().copied()),
                // Items that stand twice are compared and owned as one.
                (0 | 1, _) => {
                    self.visit(list.items, path, old.first().copied(), None);
                    self.added.insert(path);
                }
                (_, 0 | 1) => {
                    self.visit(list.items, path, None, new.first().copied());
                    self.removed.insert(path);
                }
                _ if old != new => self.modified.insert(path),
                _ => {}
            }
            path.pop();
        }
    }
}
