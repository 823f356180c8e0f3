//! Judges values: types, bounds, patterns, formats, alternatives. An error of a part that did not change since the old
//! object is forgiven, so that a schema can be tightened without locking existing objects.

use serde_json::{Map, Value};

use super::correlate::Correlated;
use super::node::{Additional, Bound, Node};
use super::{child, index, key};
use crate::status::FieldError;

pub(super) fn errors(root: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let old = old.map(|old| Correlated {
        node: root,
        old,
        new: object,
    });
    let mut errors: Vec<FieldError> = Vec::new();
    for error in plain(root, object, old, "") {
        // The same thing may be found on several ways; it is told once.
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
    errors
}

/// The errors of a value, unless it is unchanged.
fn ratcheted(node: &Node, value: &Value, old: Option<Correlated<'_>>, path: &str) -> Vec<FieldError> {
    let errors = plain(node, value, old, path);
    if !errors.is_empty() && old.is_some_and(Correlated::is_unchanged) {
        Vec::new()
    } else {
        errors
    }
}

fn plain(node: &Node, value: &Value, old: Option<Correlated<'_>>, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(type_error(node, value, path));
    if !value.is_null() {
        alternatives(node, value, old, path, &mut errors);
    }
    match value {
        Value::String(text) => string_errors(node, text, path, &mut errors),
        Value::Number(found) => number_errors(node, found, path, &mut errors),
        Value::Array(items) => array_errors(node, items, old, path, &mut errors),
        Value::Object(fields) => object_errors(node, fields, old, path, &mut errors),
        Value::Null | Value::Bool(_) => {}
    }
    let allowed = &node.checks.allowed;
    if !allowed.is_empty() && !allowed.contains(value) {
        errors.push(FieldError::not_supported(path, value.clone(), allowed));
    }
    errors
}

fn type_error(node: &Node, value: &Value, path: &str) -> Option<FieldError> {
    let types: Vec<&str> = match (node.int_or_string, node.ty.as_str()) {
        (true, _) => vec!["integer", "string"],
        (false, "") => vec![],
        (false, ty) => vec![ty],
    };
    let wrong = |wanted: &str, found: &str| {
        let detail = format!("{path} in body must be of type {wanted}: {found:?}");
        Some(FieldError::type_invalid(path, found, detail))
    };
    let (found, found_format) = match value {
        Value::Null if types.is_empty() || node.nullable => return None,
        Value::Null => return wrong(&types.join(","), "null"),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
    };
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = types.contains(&found)
        || (found == "number" && is_whole && types.contains(&"integer"))
        || (found == "integer" && types.contains(&"number"));
    match &node.checks.format {
        // Text of a format is judged by the format alone.
        Some(_)
            if matches!(found, "string" | "array") && !types.iter().any(|ty| matches!(*ty, "number" | "integer")) =>
        {
            None
        }
        Some(format) if !matches!(found, "string" | "array") && !fits && found_format != format.name => {
            wrong(&format.name, found_format)
        }
        _ if types.is_empty() || fits => None,
        _ => wrong(&types.join(","), found),
    }
}

fn string_errors(node: &Node, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let checks = &node.checks;
    let length = text.chars().count() as u64;
    if let Some(max) = checks.length_max.filter(|max| length > *max) {
        errors.push(FieldError::too_long(path, max));
    } else if let Some(min) = checks.length_min.filter(|min| length < *min) {
        errors.push(FieldError::invalid(
            path,
            text,
            format!("{path} in body should be at least {min} chars long"),
        ));
    } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        errors.push(FieldError::invalid(
            path,
            text,
            format!("{path} in body should match '{pattern}'"),
        ));
    }
    if let Some(format) = checks.format.as_ref().filter(|format| !format.accepts(text)) {
        let detail = format!("{path} in body must be of type {}: {text:?}", format.name);
        errors.push(FieldError::type_invalid(path, text, detail));
    }
}

/// Whole numbers are compared with the whole part of a bound, as the API server does it.
fn number_errors(node: &Node, found: &serde_json::Number, path: &str, errors: &mut Vec<FieldError>) {
    let checks = &node.checks;
    let value = found.as_f64().unwrap_or_default();
    let is_whole = !found.is_f64();
    errors.extend(range_error(node, found, path));
    let native = |bound: f64| if is_whole { bound.trunc() } else { bound };
    let invalid = |detail: String| {
        FieldError::invalid(
            path,
            Value::Number(found.clone()),
            format!("{path} in body should be {detail}"),
        )
    };
    if let Some(factor) = checks
        .multiple_of
        .map(native)
        .filter(|factor| *factor > 0.0 && (value / factor).fract() != 0.0)
    {
        errors.push(invalid(format!("a multiple of {factor}")));
    }
    if let Some(Bound {
        value: bound,
        is_exclusive,
    }) = checks.minimum
    {
        let bound = native(bound);
        if value < bound || (is_exclusive && value == bound) {
            let words = if is_exclusive {
                "greater than"
            } else {
                "greater than or equal to"
            };
            errors.push(invalid(format!("{words} {bound}")));
        }
    }
    if let Some(Bound {
        value: bound,
        is_exclusive,
    }) = checks.maximum
    {
        let bound = native(bound);
        if value > bound || (is_exclusive && value == bound) {
            let words = if is_exclusive {
                "less than"
            } else {
                "less than or equal to"
            };
            errors.push(invalid(format!("{words} {bound}")));
        }
    }
}

/// A number that its type or format cannot hold. The API server tells it of the whole object.
fn range_error(node: &Node, found: &serde_json::Number, path: &str) -> Option<FieldError> {
    let format = node.checks.format.as_ref().map(|format| format.name.as_str());
    let fits = match (node.ty.as_str(), format) {
        ("integer", Some("int32")) => found.as_i64().is_some_and(|value| i32::try_from(value).is_ok()),
        ("integer", _) => found.as_i64().is_some() || found.as_f64().is_some_and(|value| value.fract() == 0.0),
        ("number", Some("float")) => found.as_f64().is_some_and(|value| value.abs() <= f64::from(f32::MAX)),
        _ => true,
    };
    let ty = &node.ty;
    let described = format.map_or_else(
        || format!("{ty} (default format)"),
        |format| format!("{ty} with format {format}"),
    );
    (!fits).then(|| FieldError::invalid("", "", format!("Checked value must be of type {described} in {path}")))
}

fn array_errors(node: &Node, items: &[Value], old: Option<Correlated<'_>>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(of_items) = &node.items {
        for (at, item) in items.iter().enumerate() {
            errors.extend(ratcheted(
                of_items,
                item,
                old.and_then(|old| old.item(at)),
                &index(path, at),
            ));
        }
    }
    let count = items.len() as u64;
    if let Some(min) = node.checks.items_min.filter(|min| count < *min) {
        errors.push(FieldError::invalid(
            path,
            count,
            format!("{path} in body should have at least {min} items"),
        ));
    }
    if let Some(max) = node.checks.items_max.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, items.len(), max));
    }
}

fn object_errors(
    node: &Node,
    fields: &Map<String, Value>,
    old: Option<Correlated<'_>>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let count = fields.len() as u64;
    if let Some(min) = node.checks.properties_min.filter(|min| count < *min) {
        errors.push(FieldError::invalid(
            path,
            count,
            format!("{path} in body should have at least {min} properties"),
        ));
    }
    if let Some(max) = node.checks.properties_max.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, fields.len(), max));
    }
    for (name, value) in fields {
        if let Some(node) = node.field(name) {
            errors.extend(ratcheted(
                node,
                value,
                old.and_then(|old| old.field(name)),
                &child(path, name),
            ));
        }
    }
    for name in node.checks.required.iter().filter(|name| !fields.contains_key(*name)) {
        errors.push(FieldError::required(child(path, name), ""));
    }
}

/// `anyOf`, `oneOf`, `allOf`, `not`. That they fail is told of the whole object, with the errors of the first
/// alternative.
fn alternatives(node: &Node, value: &Value, old: Option<Correlated<'_>>, path: &str, errors: &mut Vec<FieldError>) {
    let of_object = |detail: String| FieldError::invalid("", "", format!("{path:?} must {detail}"));
    let judge = |nodes: &[Node]| nodes.iter().map(|one| plain(one, value, old, path)).collect::<Vec<_>>();
    let any = judge(&node.checks.any_of);
    if !any.is_empty() && any.iter().all(|errors| !errors.is_empty()) {
        errors.push(of_object("validate at least one schema (anyOf)".to_owned()));
        errors.extend(any.into_iter().next().unwrap_or_default());
    }
    let one = judge(&node.checks.one_of);
    let valid = one.iter().filter(|errors| errors.is_empty()).count();
    if !one.is_empty() && valid != 1 {
        let found = if valid == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {valid} valid alternatives")
        };
        errors.push(of_object(format!("validate one and only one schema (oneOf). {found}")));
        if valid == 0 {
            errors.extend(one.into_iter().next().unwrap_or_default());
        }
    }
    let all = judge(&node.checks.all_of);
    let valid = all.iter().filter(|errors| errors.is_empty()).count();
    if valid != all.len() {
        let note = if valid == 0 { ". None validated" } else { "" };
        errors.extend(all.into_iter().flatten());
        errors.push(of_object(format!("validate all the schemas (allOf){note}")));
    }
    if node
        .checks
        .not
        .as_ref()
        .is_some_and(|not| plain(not, value, old, path).is_empty())
    {
        errors.push(of_object("not validate the schema (not)".to_owned()));
    }
}

/// An embedded object must say what it is.
pub(super) fn embedded_errors(root: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit_embedded(root, object, "", &mut errors);
    errors
}

fn visit_embedded(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for name in ["apiVersion", "kind"].iter().filter(|_| node.is_embedded) {
                let field = child(path, name);
                match fields.get(*name) {
                    None => errors.push(FieldError::required(&field, "")),
                    Some(Value::String(text)) if text.is_empty() => {
                        errors.push(FieldError::invalid(&field, "", "must not be empty"));
                    }
                    Some(Value::String(_)) => {}
                    Some(other) => errors.push(FieldError::invalid(&field, other.clone(), "must be a string")),
                }
            }
            for (name, value) in fields {
                match (&node.additional, node.properties.get(name)) {
                    (_, Some(node)) => visit_embedded(node, value, &child(path, name), errors),
                    (Additional::Typed(node), None) => visit_embedded(node, value, &key(path, name), errors),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, item)| visit_embedded(node, item, &index(path, at), errors));
            }
        }
        _ => {}
    }
}
