//! Strategic merge patch: a merge patch in which lists of the built-in kinds merge item by item.
//!
//! Which lists merge, and by which key, is in the type. The patch may also carry directives: `$patch` (replace or delete
//! the object it stands in), `$retainKeys`, `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`. Custom
//! resources have no such types; for them the caller answers 415.

use serde_json::{Map, Value};
use thiserror::Error;

use super::go;
use super::types::{MapView, PatchRule, TypeSchema};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

/// Why a strategic merge patch cannot be applied, in the API server's words.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum StrategicError {
    /// 400.
    #[error("{0}")]
    Format(String),
    /// 422; the API server says only that the request was in error.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// 500 without a reason.
    #[error("{0}")]
    Content(String),
}

type Object = Map<String, Value>;
type Result<T> = std::result::Result<T, StrategicError>;

fn bad_format(of: &str) -> StrategicError {
    StrategicError::Format(format!("invalid patch format of {of}"))
}

fn expected(wanted: &str, found: &Value) -> StrategicError {
    StrategicError::Content(format!("expected a {wanted}, but received a {}", go::type_name(found)))
}

/// Merges `patch` into `object`, a value of the type that `schema` describes.
pub fn strategic_merge_patch(object: Object, patch: &Value, schema: TypeSchema<'_>) -> Result<Object> {
    match patch {
        Value::Object(patch) => merge_object(object, patch.clone(), schema),
        Value::Null => Ok(object),
        other => Err(StrategicError::Format(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::json_name(other)
        ))),
    }
}

fn merge_object(mut object: Object, mut patch: Object, schema: TypeSchema<'_>) -> Result<Object> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(&patch)),
        };
    }
    retain_keys(&mut object, &mut patch)?;
    merge_ordered_lists(&mut object, &mut patch, schema)?;
    // What the patch adds to a list and deletes from it again is deleted.
    let is_deletion = |key: &str| key.starts_with(DELETE_FROM_PRIMITIVE_LIST);
    let (deletions, changes): (Object, Object) = patch.into_iter().partition(|(key, _)| is_deletion(key));
    for (key, new) in changes {
        merge_field(&mut object, key, new, schema)?;
    }
    for (key, unwanted) in deletions {
        if let Some(list) = list_of_directive(&key, DELETE_FROM_PRIMITIVE_LIST)? {
            delete_from_list(&mut object, list, &unwanted, schema)?;
        }
    }
    Ok(object)
}

fn unknown_directive(patch: &Object) -> StrategicError {
    let directive = match &patch[DIRECTIVE] {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", go::type_name(other), go::plain(other)),
    };
    let patch = go::plain(&Value::Object(patch.clone()));
    StrategicError::Content(format!("unknown patch type: {directive} in map: {patch}"))
}

/// The field that a directive such as `$setElementOrder/containers` speaks of; `None` if `key` is not that directive.
fn list_of_directive<'a>(key: &'a str, directive: &str) -> Result<Option<&'a str>> {
    let Some(rest) = key.strip_prefix(directive) else {
        return Ok(None);
    };
    let called = if directive == SET_ELEMENT_ORDER {
        "setElementOrder list"
    } else {
        "primitive list"
    };
    rest.strip_prefix('/').map(Some).ok_or_else(|| bad_format(called))
}

/// `$retainKeys` names every field that may stay: the others are removed, and the patch may not set any other.
fn retain_keys(object: &mut Object, patch: &mut Object) -> Result<()> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let keys = keys.as_array().ok_or_else(|| bad_format("retainKeys"))?;
    let kept = |name: &str| keys.iter().any(|key| key == name);
    let is_directive = |name: &str| name.starts_with(DELETE_FROM_PRIMITIVE_LIST) || name.starts_with(SET_ELEMENT_ORDER);
    if patch
        .iter()
        .any(|(name, value)| !value.is_null() && !is_directive(name) && !kept(name))
    {
        return Err(bad_format("retainKeys"));
    }
    object.retain(|name, _| kept(name));
    Ok(())
}

fn merge_field(object: &mut Object, key: String, new: Value, schema: TypeSchema<'_>) -> Result<()> {
    let merged = match (object.remove(&key), new) {
        (_, Value::Null) => None,
        (Some(Value::Object(old)), Value::Object(new)) => {
            let (ty, rule) = struct_field(schema, &key)?;
            Some(Value::Object(if rule.replace {
                new
            } else {
                merge_object(old, new, ty)?
            }))
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let field = ListField::of(schema, &key)?;
            Some(Value::Array(if field.rule.merge {
                field.merge(old, new)?
            } else {
                new
            }))
        }
        (old, mut new) => {
            if old.is_none_or(|old| go::type_name(&old) != go::type_name(&new)) {
                discard_nulls(&mut new);
            }
            without_directives(new)
        }
    };
    if let Some(merged) = merged {
        object.insert(key, merged);
    }
    Ok(())
}

/// In what is added there is nothing for a null to remove.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// What is added must not keep directives: an object that carries one is left out.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

fn delete_from_list(object: &mut Object, key: &str, unwanted: &Value, schema: TypeSchema<'_>) -> Result<()> {
    match (object.get_mut(key), unwanted) {
        (_, Value::Null) => {
            object.remove(key);
        }
        (Some(Value::Array(items)), Value::Array(unwanted)) if !(items.is_empty() && unwanted.is_empty()) => {
            ListField::of(schema, key)?;
            element_type(items, unwanted)?;
            items.retain(|item| !unwanted.contains(item));
        }
        _ => {}
    }
    Ok(())
}

/// Merges every list whose order the patch sets, and takes the list and the directive out of the patch.
fn merge_ordered_lists(object: &mut Object, patch: &mut Object, schema: TypeSchema<'_>) -> Result<()> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else {
            continue;
        };
        let Value::Array(order) = order else {
            return Err(expected("[]interface {}", &order));
        };
        let Some(key) = list_of_directive(&directive, SET_ELEMENT_ORDER)? else {
            continue;
        };
        let as_list = |value: Value| match value {
            Value::Array(items) => Ok(items),
            other => Err(expected("[]interface {}", &other)),
        };
        let live = object.get(key).cloned().map(as_list).transpose()?;
        let new = patch.get(key).cloned().map(as_list).transpose()?;
        let field = ListField::of(schema, key)?;
        field.check_order(new.as_deref().unwrap_or_default(), &order)?;
        let kind = || element_type(live.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default());
        let (merged, known) = match (live.clone(), new.clone()) {
            (Some(live), Some(new)) if field.rule.merge => {
                let merged = field.merge(live.clone(), new)?;
                let known = known_order(live, &merged, &field)?;
                (merged, known)
            }
            (Some(live), Some(new)) => (new, live),
            (Some(live), None) => (live.clone(), live),
            (None, Some(new)) => (new.into_iter().filter_map(without_directives).collect(), Vec::new()),
            (None, None) => continue,
        };
        if kind()? == ElementType::Object && field.rule.merge_key.is_none() {
            return Err(field.not_sortable(&order, &known));
        }
        let ordered = field.in_order(merged, &order, &known)?;
        object.insert(key.to_owned(), Value::Array(ordered));
        patch.remove(key);
    }
    Ok(())
}

/// The sequence that the live list gives to items which the order does not name. In the API server an item that the
/// patch adds takes the place that a deleted one frees, and so comes to stand behind the live ones.
fn known_order(live: Vec<Value>, merged: &[Value], field: &ListField<'_>) -> Result<Vec<Value>> {
    let len = live.len();
    let has = |items: &[Value], item: &Value| -> Result<bool> {
        let identity = field.identity(item)?;
        for one in items {
            if field.identity(one)? == identity {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let mut known = Vec::with_capacity(len);
    for item in &live {
        if has(merged, item)? {
            known.push(item.clone());
        }
    }
    for item in merged {
        if known.len() < len && !has(&live, item)? {
            known.push(item.clone());
        }
    }
    Ok(known)
}

fn struct_field<'a>(schema: TypeSchema<'a>, key: &str) -> Result<(TypeSchema<'a>, &'a PatchRule)> {
    let not_a_struct =
        || StrategicError::Content("merging an object in json but data type is not struct, instead is: map".into());
    let map = schema
        .map()
        .filter(|map: &MapView<'_>| !map.is_plain())
        .ok_or_else(not_a_struct)?;
    map.patched(key).ok_or_else(|| {
        let name = schema.short_name();
        StrategicError::Content(format!(
            "unable to find api field in struct {name} for the json field {key:?}"
        ))
    })
}

/// A list field: the type of its items and how they are told apart.
struct ListField<'a> {
    items: TypeSchema<'a>,
    rule: &'a PatchRule,
}

impl<'a> ListField<'a> {
    fn of(schema: TypeSchema<'a>, key: &str) -> Result<Self> {
        let (ty, rule) = struct_field(schema, key)?;
        let list = ty
            .list()
            .ok_or_else(|| StrategicError::Content("expected slice or array type, but got: struct".into()))?;
        Ok(Self {
            items: list.items,
            rule,
        })
    }

    fn merge(&self, live: Vec<Value>, new: Vec<Value>) -> Result<Vec<Value>> {
        if live.is_empty() && new.is_empty() {
            return Ok(live);
        }
        if element_type(&live, &new)? != ElementType::Object {
            let mut merged: Vec<Value> = Vec::with_capacity(live.len() + new.len());
            for item in live.iter().chain(&new) {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            return self.in_order(merged, &new, &live);
        }
        let Some(key) = self.rule.merge_key.as_deref() else {
            let words = format!("cannot merge lists without merge key for {}", self.items.short_name());
            return Err(StrategicError::Content(words));
        };
        let (live, new) = special_elements(live, new, key)?;
        let merged = self.merge_items(live.clone(), &new, key)?;
        self.in_order(merged, &new, &live)
    }

    fn merge_items(&self, mut live: Vec<Value>, new: &[Value], key: &str) -> Result<Vec<Value>> {
        for item in new {
            let Value::Object(fields) = item else { continue };
            let name = fields.get(key).ok_or_else(|| no_merge_key(item, key))?;
            match live.iter_mut().find(|one| one.get(key) == Some(name)) {
                Some(Value::Object(old)) => *old = merge_object(std::mem::take(old), fields.clone(), self.items)?,
                _ => live.push(item.clone()),
            }
        }
        Ok(live)
    }

    /// What tells an item apart: its merge key, or itself in a list of scalars.
    fn identity<'v>(&self, item: &'v Value) -> Result<&'v Value> {
        match self.rule.merge_key.as_deref() {
            None => Ok(item),
            Some(key) if item.is_object() => item.get(key).ok_or_else(|| no_merge_key(item, key)),
            Some(_) => Err(expected("map[string]interface {}", item)),
        }
    }

    /// The items that `order` names in that order, and the others, as far as possible, where they were in `live`.
    fn in_order(&self, merged: Vec<Value>, order: &[Value], live: &[Value]) -> Result<Vec<Value>> {
        let identities = |items: &[Value]| {
            items
                .iter()
                .map(|item| self.identity(item).cloned())
                .collect::<Result<Vec<_>>>()
        };
        let (order, live) = (identities(order)?, identities(live)?);
        let position = |among: &[Value], identity: &Value| among.iter().position(|one| one == identity);
        let (mut named, mut others) = (Vec::new(), Vec::new());
        for item in merged {
            let identity = self.identity(&item)?;
            let (in_order, in_live) = (position(&order, identity), position(&live, identity));
            match in_order {
                Some(at) => named.push((at, in_live, item)),
                None => others.push((in_live, item)),
            }
        }
        named.sort_by_key(|(at, ..)| *at);
        others.sort_by_key(|(at, _)| at.unwrap_or(usize::MAX));
        let mut result = Vec::with_capacity(named.len() + others.len());
        let mut others = others.into_iter().peekable();
        for (_, in_live, item) in named {
            // An item of the patch that is new goes before those that only the live list has.
            while let Some((_, other)) = others.next_if(|(at, _)| matches!((at, in_live), (Some(a), Some(b)) if *a < b))
            {
                result.push(other);
            }
            result.push(item);
        }
        result.extend(others.map(|(_, item)| item));
        Ok(result)
    }

    /// Objects that no key tells apart cannot be put in order.
    fn not_sortable(&self, order: &[Value], live: &[Value]) -> StrategicError {
        match order.iter().chain(live).next() {
            Some(item) if item.is_object() => no_merge_key(item, ""),
            Some(item) => expected("map[string]interface {}", item),
            None => StrategicError::Content("cannot order lists without merge key".into()),
        }
    }

    /// Every item of the patch must be named by the order, in the order's sequence.
    fn check_order(&self, new: &[Value], order: &[Value]) -> Result<()> {
        if new.is_empty() || order.is_empty() {
            return Ok(());
        }
        let mut named = order.iter();
        for item in new.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
            let identity = self.identity(item)?;
            let mut found = false;
            for one in named.by_ref() {
                if self.identity(one)? == identity {
                    found = true;
                    break;
                }
            }
            if !found {
                let (new, order) = (go::plain(&Value::from(new)), go::plain(&Value::from(order)));
                let words =
                    format!("The order in patch list:\n{new}\n doesn't match $setElementOrder list:\n{order}\n");
                return Err(StrategicError::Content(words));
            }
        }
        Ok(())
    }
}

fn no_merge_key(item: &Value, key: &str) -> StrategicError {
    StrategicError::Content(format!(
        "map: {} does not contain declared merge key: {key}",
        go::plain(item)
    ))
}

/// Obeys the items that carry a directive: the live list after deletions, and the patch without those items.
fn special_elements(mut live: Vec<Value>, new: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>)> {
    let mut plain = Vec::new();
    let mut replaces = false;
    for item in new {
        match item.get(DIRECTIVE).map(Value::as_str) {
            None => plain.push(item),
            Some(Some("delete")) => {
                let name = item.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                live.retain(|one| one.get(key) != Some(name));
            }
            Some(Some("replace")) => replaces = true,
            Some(Some("merge")) => {
                return Err(StrategicError::Content(
                    "merging lists cannot yet be specified in the patch".into(),
                ));
            }
            Some(_) => return Err(item.as_object().map_or_else(|| bad_format("list"), unknown_directive)),
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (live, plain) })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementType {
    Scalar,
    Object,
}

/// What both lists hold: only lists whose items are of one type can be merged.
fn element_type(live: &[Value], new: &[Value]) -> Result<ElementType> {
    let mut items = live.iter().chain(new);
    let first = items
        .next()
        .ok_or_else(|| StrategicError::Content("no elements in any of the given slices".into()))?;
    if first.is_array() {
        return Err(StrategicError::ListOfLists);
    }
    if items.any(|item| go::type_name(item) != go::type_name(first)) {
        let lists = go::plain(&Value::from(vec![Value::from(live), Value::from(new)]));
        return Err(StrategicError::Content(format!(
            "list element types are not identical: {lists}"
        )));
    }
    Ok(if first.is_object() {
        ElementType::Object
    } else {
        ElementType::Scalar
    })
}

#[cfg(test)]
mod tests;
