//! What a CustomResourceDefinition may not say in its schema.
//!
//! A schema is structural if every field and item has a type outside of `allOf`, `anyOf`, `oneOf` and `not`, and these
//! only narrow values. The words are those of the API server; the checks are those that people meet, not the whole of
//! its validation (types of CEL rules are not checked).

use regex::Regex;
use serde_json::{Value, json};

use super::node::{array, object};
use super::{index, key};
use crate::status::FieldError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Everything wrong with a schema, sorted. Whether it is structural is judged only if its keywords are in order.
pub(super) fn errors(path: &str, schema: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit_keywords(schema, path, &mut errors);
    if errors.is_empty() {
        visit_structure(schema, path, Level::Root, &mut errors);
    }
    errors.sort_by_key(ToString::to_string);
    errors
}

fn visit_keywords(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    check_keywords(schema, path, errors);
    check_list_and_map_types(schema, path, errors);
    check_list_keys(schema, path, errors);
    check_rules(schema, path, errors);
    for (name, property) in object(&schema["properties"]) {
        visit_keywords(property, &key(&format!("{path}.properties"), name), errors);
    }
    for name in ["additionalProperties", "items", "not"] {
        if schema[name].is_object() {
            visit_keywords(&schema[name], &format!("{path}.{name}"), errors);
        }
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (at, nested) in array(&schema[name]).enumerate() {
            visit_keywords(nested, &index(&format!("{path}.{name}"), at), errors);
        }
    }
}

fn visit_structure(schema: &Value, path: &str, level: Level, errors: &mut Vec<FieldError>) {
    check_type(schema, path, level, errors);
    check_narrowing(schema, path, errors);
    let properties = &schema["properties"];
    if level == Level::Root || schema["x-kubernetes-embedded-resource"] == true {
        check_metadata(properties, path, level, errors);
    }
    let is_metadata = |name: &str| level == Level::Root && name == "metadata";
    for (name, property) in object(properties).filter(|(name, _)| !is_metadata(name)) {
        visit_structure(
            property,
            &key(&format!("{path}.properties"), name),
            Level::Field,
            errors,
        );
    }
    if schema["additionalProperties"].is_object() {
        visit_structure(
            &schema["additionalProperties"],
            &format!("{path}.additionalProperties"),
            Level::Field,
            errors,
        );
    }
    if schema["items"].is_object() {
        visit_structure(&schema["items"], &format!("{path}.items"), Level::Item, errors);
    }
}

fn check_keywords(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in [
        "$ref",
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
    ] {
        if schema.get(name).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::forbidden(
                format!("{path}.{name}"),
                format!("{name} is not supported"),
            ));
        }
    }
    if schema["uniqueItems"] == true {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    let additional = &schema["additionalProperties"];
    if object(&schema["properties"]).next().is_some() && (additional.is_object() || *additional == false) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(&path, false, "must be true or undefined"));
    }
    let ty = schema["type"].as_str().unwrap_or_default();
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(
            format!("{path}.type"),
            ty,
            &TYPES.map(Value::from),
        ));
    }
    if ty == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), detail));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), pattern, detail));
    }
}

fn check_type(schema: &Value, path: &str, level: Level, errors: &mut Vec<FieldError>) {
    let at = format!("{path}.type");
    let ty = schema["type"].as_str().unwrap_or_default();
    let is = |name: &str| schema[name] == true;
    if ty == "array" && schema.get("items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if is("x-kubernetes-embedded-resource") && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if ty.is_empty() {
            FieldError::required(&at, detail)
        } else {
            FieldError::invalid(&at, ty, detail)
        });
    } else if ty.is_empty() && !is("x-kubernetes-int-or-string") && !is("x-kubernetes-preserve-unknown-fields") {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(&at, format!("must not be empty {place}")));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(&at, ty, "must be object at the root"));
    }
    if level == Level::Root && schema.get("additionalProperties").is_some() {
        errors.push(FieldError::forbidden(
            format!("{path}.additionalProperties"),
            "must not be used at the root",
        ));
    }
    let has_properties = object(&schema["properties"]).next().is_some();
    if is("x-kubernetes-embedded-resource") && !is("x-kubernetes-preserve-unknown-fields") && !has_properties {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
    if is("x-kubernetes-int-or-string") && is("x-kubernetes-preserve-unknown-fields") {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(
            &path,
            true,
            "must be false if x-kubernetes-int-or-string is true",
        ));
    }
}

fn check_list_and_map_types(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kinds = [
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
    ];
    for (name, ty, values) in kinds {
        let Some(kind) = schema[name].as_str() else { continue };
        if schema["type"] != ty {
            let detail = format!("must be {ty} if {name} is specified");
            let at = format!("{path}.type");
            errors.push(schema["type"].as_str().map_or_else(
                || FieldError::required(&at, &*detail),
                |found| FieldError::invalid(&at, found, &*detail),
            ));
        }
        if !values.contains(&kind) {
            let values: Vec<Value> = values.iter().map(|value| Value::from(*value)).collect();
            errors.push(FieldError::not_supported(format!("{path}.{name}"), kind, &values));
        }
    }
    let items = &schema["items"];
    if schema["x-kubernetes-list-type"] == "set"
        && items["type"] == "object"
        && items["x-kubernetes-map-type"] != "atomic"
    {
        let at = format!("{path}.items.x-kubernetes-map-type");
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        errors.push(FieldError::invalid(&at, Value::Null, detail));
    }
}

fn check_list_keys(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let keys: Vec<&str> = array(&schema["x-kubernetes-list-map-keys"])
        .filter_map(Value::as_str)
        .collect();
    if schema["x-kubernetes-list-type"] != "map" {
        if !keys.is_empty() {
            let at = format!("{path}.x-kubernetes-list-type");
            errors.push(FieldError::required(
                &at,
                "must be map if x-kubernetes-list-map-keys is non-empty",
            ));
        }
        return;
    }
    if keys.is_empty() {
        let at = format!("{path}.x-kubernetes-list-map-keys");
        errors.push(FieldError::required(
            &at,
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let items = &schema["items"];
    for name in keys {
        let property = &items["properties"][name];
        if property.is_null() {
            let at = format!("{path}.x-kubernetes-list-map-keys");
            errors.push(FieldError::invalid(
                &at,
                schema["x-kubernetes-list-map-keys"].clone(),
                "entries must all be names of item properties",
            ));
        } else if property.get("default").is_none() && !array(&items["required"]).any(|one| one == name) {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(
                format!("{}.default", key(&format!("{path}.items.properties"), name)),
                detail,
            ));
        }
    }
}

fn check_rules(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (at, rule) in array(&schema["x-kubernetes-validations"]).enumerate() {
        let path = index(&format!("{path}.x-kubernetes-validations"), at);
        let text = |name: &str| rule[name].as_str().unwrap_or_default();
        let (source, message) = (text("rule").trim(), text("message").trim());
        if source.is_empty() {
            errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
        } else if !text("message").is_empty() && message.is_empty() {
            errors.push(FieldError::invalid(
                format!("{path}.message"),
                text("message"),
                "must be non-empty if specified",
            ));
        } else if message.contains('\n') {
            errors.push(FieldError::invalid(
                format!("{path}.message"),
                text("message"),
                "must not contain line breaks",
            ));
        } else if source.contains('\n') && message.is_empty() {
            errors.push(FieldError::required(
                format!("{path}.message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        let field_path = text("fieldPath");
        if !field_path.is_empty() && !is_field_path(schema, field_path.trim()) {
            errors.push(FieldError::invalid(
                format!("{path}.fieldPath"),
                field_path,
                "must be a valid path",
            ));
        }
        let reasons = [
            "FieldValueRequired",
            "FieldValueForbidden",
            "FieldValueInvalid",
            "FieldValueDuplicate",
        ];
        if let Some(reason) = rule["reason"].as_str().filter(|reason| !reasons.contains(reason)) {
            let mut reasons = reasons;
            reasons.sort_unstable();
            errors.push(FieldError::not_supported(
                format!("{path}.reason"),
                reason,
                &reasons.map(Value::from),
            ));
        }
    }
}

/// Whether a path such as `.spec.replicas` or `['a b'].c` leads to a declared field.
fn is_field_path(schema: &Value, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    let (name, rest) = if let Some(quoted) = path.strip_prefix("['") {
        let Some((name, rest)) = quoted.split_once("']") else {
            return false;
        };
        (name, rest)
    } else {
        let Some(plain) = path.strip_prefix('.') else {
            return false;
        };
        plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len()))
    };
    match schema["properties"].get(name) {
        Some(property) => is_field_path(property, rest),
        None => {
            schema["properties"].is_null()
                && schema["additionalProperties"].is_object()
                && is_field_path(&schema["additionalProperties"], rest)
        }
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not` may only narrow values; an int-or-string may name its two types.
fn check_narrowing(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    let is_exempt = schema["x-kubernetes-int-or-string"] == true;
    for name in ["allOf", "anyOf", "oneOf"] {
        if is_exempt && name == "anyOf" && schema[name] == int_or_string {
            continue;
        }
        for (at, nested) in array(&schema[name]).enumerate() {
            let is_first = is_exempt && name == "allOf" && at == 0 && nested["anyOf"] == int_or_string;
            visit_nested(nested, &index(&format!("{path}.{name}"), at), is_first, errors);
        }
    }
    if schema["not"].is_object() {
        visit_nested(&schema["not"], &format!("{path}.not"), false, errors);
    }
}

fn visit_nested(schema: &Value, path: &str, skips_any_of: bool, errors: &mut Vec<FieldError>) {
    let words = [
        ("type", "must be empty"),
        ("title", "must be empty"),
        ("description", "must be empty"),
        ("default", "must be undefined"),
        ("additionalProperties", "must be undefined"),
        ("nullable", "must be false"),
        ("x-kubernetes-preserve-unknown-fields", "must be false"),
        ("x-kubernetes-embedded-resource", "must be false"),
        ("x-kubernetes-int-or-string", "must be false"),
        ("x-kubernetes-list-map-keys", "must be empty"),
        ("x-kubernetes-list-type", "must be undefined"),
        ("x-kubernetes-map-type", "must be undefined"),
        ("x-kubernetes-validations", "must be empty"),
    ];
    for (name, must) in words {
        if schema
            .get(name)
            .is_some_and(|value| !value.is_null() && *value != false)
        {
            errors.push(FieldError::forbidden(
                format!("{path}.{name}"),
                format!("{must} to be structural"),
            ));
        }
    }
    let properties = &schema["properties"];
    if properties.get("metadata").is_some() {
        let at = key(&format!("{path}.properties"), "metadata");
        errors.push(FieldError::forbidden(&at, "must not be specified in a nested context"));
    }
    if !skips_any_of {
        check_narrowing(schema, path, errors);
    }
    for (name, property) in object(properties) {
        visit_nested(property, &key(&format!("{path}.properties"), name), false, errors);
    }
    if schema["items"].is_object() {
        visit_nested(&schema["items"], &format!("{path}.items"), false, errors);
    }
}

fn check_metadata(properties: &Value, path: &str, level: Level, errors: &mut Vec<FieldError>) {
    for name in ["kind", "apiVersion"] {
        if let Some(property) = properties.get(name).filter(|property| property["type"] != "string") {
            let at = format!("{}.type", key(&format!("{path}.properties"), name));
            errors.push(FieldError::invalid(
                &at,
                property["type"].as_str().unwrap_or_default(),
                "must be string",
            ));
        }
    }
    let Some(metadata) = properties.get("metadata") else {
        return;
    };
    let at = key(&format!("{path}.properties"), "metadata");
    if metadata["type"] != "object" {
        errors.push(FieldError::invalid(
            format!("{at}.type"),
            metadata["type"].as_str().unwrap_or_default(),
            "must be object",
        ));
    }
    let is_name = |name: &str| matches!(name, "name" | "generateName");
    let names_only = object(&metadata["properties"]).all(|(name, _)| is_name(name));
    let plain =
        object(metadata).all(|(name, _)| matches!(name.as_str(), "type" | "properties" | "description" | "default"));
    if level == Level::Root && !(names_only && plain) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(&at, detail));
    }
}
