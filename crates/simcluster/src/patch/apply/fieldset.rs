//! Sets of fields: who owns what is a set of paths into an object.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::patch::types::TypeSchema;

/// One step of a path. The order of the variants is the order in which the API server writes them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathElement {
    Field(String),
    /// An item of a list-map, by the values of its keys, sorted by key.
    Key(Vec<(String, Item)>),
    /// An item of a set.
    Value(Item),
    Index(i64),
}

/// A value inside a path: a key of a list item or a member of a set.
#[derive(Debug, Clone)]
pub(super) struct Item(pub(super) Value);

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    /// Numbers by value, then texts, booleans, and last what a schema does not allow here, by its JSON.
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        };
        match (&self.0, &other.0) {
            (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => a
                    .as_f64()
                    .unwrap_or_default()
                    .total_cmp(&b.as_f64().unwrap_or_default()),
            },
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (a, b) => rank(a).cmp(&rank(b)).then_with(|| a.to_string().cmp(&b.to_string())),
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A set of paths. A path may be in it without its children, and the children without it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) members: BTreeSet<PathElement>,
    /// Never holds an empty set.
    pub(super) children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// The set of these paths of field names.
    pub fn of_fields<const N: usize>(paths: [&[&str]; N]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let elements: Vec<PathElement> = path.iter().map(|name| PathElement::Field((*name).to_owned())).collect();
            set.insert(&elements);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// The empty path is the object itself, which nobody owns.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(super) fn insert_element(&mut self, element: PathElement) {
        self.members.insert(element);
    }

    pub(super) fn union(mut self, other: Self) -> Self {
        self.members.extend(other.members);
        for (element, theirs) in other.children {
            self.attach(&element, theirs);
        }
        self
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let both = self.children.iter().filter_map(|(element, ours)| {
            let common = ours.intersection(other.children.get(element)?);
            (!common.is_empty()).then(|| (element.clone(), common))
        });
        Self {
            members,
            children: both.collect(),
        }
    }

    /// What is in this set and not in the other; children of a path in the other stay.
    pub(super) fn difference(mut self, other: &Self) -> Self {
        self.members.retain(|member| !other.members.contains(member));
        self.children.retain(|element, ours| {
            if let Some(theirs) = other.children.get(element) {
                *ours = std::mem::take(ours).difference(theirs);
            }
            !ours.is_empty()
        });
        self
    }

    /// What is in this set, and neither in the other nor below one of its paths.
    pub(super) fn difference_below(mut self, other: &Self) -> Self {
        self.members.retain(|member| !other.members.contains(member));
        self.children.retain(|element, ours| {
            if other.members.contains(element) {
                return false;
            }
            if let Some(theirs) = other.children.get(element) {
                *ours = std::mem::take(ours).difference_below(theirs);
            }
            !ours.is_empty()
        });
        self
    }

    /// Puts a set below an element of this one.
    pub(super) fn attach(&mut self, element: &PathElement, below: Self) {
        if !below.is_empty() {
            let ours = self.children.remove(element).unwrap_or_default();
            self.children
                .insert(element.clone(), if ours.is_empty() { below } else { ours.union(below) });
        }
    }

    pub(super) fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.contains(rest)),
        }
    }

    /// Adds the parents that the schema names: an applier that owns a field of a struct owns the struct too.
    pub(super) fn with_named_parents(&self, schema: Option<TypeSchema<'_>>) -> Self {
        let map = schema.and_then(TypeSchema::map);
        let list = schema.and_then(TypeSchema::list);
        let mut members = self.members.clone();
        let mut children = BTreeMap::new();
        for (element, child) in &self.children {
            let below = match element {
                PathElement::Field(name) => map.and_then(|map| map.field(name)),
                PathElement::Key(_) => list.map(|list| list.items),
                PathElement::Value(_) | PathElement::Index(_) => None,
            };
            if matches!((element, map), (PathElement::Field(name), Some(map)) if map.declares(name)) {
                members.insert(element.clone());
            }
            children.insert(element.clone(), child.with_named_parents(below));
        }
        Self { members, children }
    }

    /// Every path of the set, members of a node before its children.
    pub(super) fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, into: &mut Vec<Vec<PathElement>>) {
        for member in &self.members {
            into.push(prefix.iter().chain([member]).cloned().collect());
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect_paths(prefix, into);
            prefix.pop();
        }
    }
}
