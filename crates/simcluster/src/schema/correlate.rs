//! Which part of the old object belongs to a part of the new one, and whether it changed.
//!
//! Fields belong together by name and items of a list-map by their keys. Items of other lists never do: nothing tells
//! which of them is the same.

use serde_json::Value;

use super::node::{ListType, Node};

/// The item of the old list with the same keys as the new item at this place. Most lists keep their order, so that is
/// where it is looked for first.
pub(super) fn old_item<'a>(node: &Node, old: Option<&'a Value>, at: usize, item: &Value) -> Option<&'a Value> {
    let ListType::Map(keys) = &node.list else { return None };
    let is_same = |one: &&Value| one.is_object() && keys.iter().all(|key| one.get(key) == item.get(key));
    let old = old?.as_array().filter(|_| item.is_object())?;
    old.get(at).filter(is_same).or_else(|| old.iter().find(is_same))
}

/// A place in both objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Correlated<'a> {
    pub(super) node: &'a Node,
    pub(super) old: &'a Value,
    pub(super) new: &'a Value,
}

impl<'a> Correlated<'a> {
    pub(super) fn field(self, name: &str) -> Option<Self> {
        let (old, new) = (self.old.as_object()?.get(name)?, self.new.as_object()?.get(name)?);
        Some(Self {
            node: self.node.field(name)?,
            old,
            new,
        })
    }

    pub(super) fn item(self, at: usize) -> Option<Self> {
        let new = self.new.as_array()?.get(at)?;
        let old = old_item(self.node, Some(self.old), at, new)?;
        Some(Self {
            node: self.node.items.as_deref()?,
            old,
            new,
        })
    }

    /// Whether both are equal; a list-map may be in another order, and a field that the schema does not declare counts
    /// as changed, since nothing correlates it.
    pub(super) fn is_unchanged(self) -> bool {
        match (self.old, self.new) {
            (Value::Array(old), Value::Array(new)) if matches!(self.node.list, ListType::Map(_)) => {
                old.len() == new.len() && (0..new.len()).all(|at| self.item(at).is_some_and(Self::is_unchanged))
            }
            (Value::Object(old), Value::Object(new)) => {
                old.len() == new.len() && new.keys().all(|name| self.field(name).is_some_and(Self::is_unchanged))
            }
            (old, new) => old == new,
        }
    }
}
