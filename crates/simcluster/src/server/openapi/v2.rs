//! `/openapi/v2`: the same in one document of an older form. `kubectl` asks for it before it sends a List or a review.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{add_group, descriptions, gnostic};
use crate::registry::Registry;
use crate::server::output::Reply;

/// How `kubectl` asks for the document in protobuf.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Everything that is served, as JSON or in protobuf.
pub(in crate::server) fn whole(registry: &Registry, accept: &str) -> Reply {
    let document = document(registry);
    match accept.contains(PROTOBUF) {
        true => {
            let media_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
            Reply::bytes(200, media_type, Bytes::from(gnostic::encode(&document)))
        }
        false => Reply::json(200, &document),
    }
}

fn document(registry: &Registry) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for (group, versions) in registry.groups() {
        for version in versions {
            add_group(registry, &group, &version, &mut paths, &mut schemas);
        }
    }
    descriptions::describe(&mut schemas);
    schemas.values_mut().for_each(older);
    for operation in paths.values_mut().flat_map(|item| item.as_object_mut()) {
        operation.values_mut().for_each(older_operation);
    }
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths, "definitions": schemas,
    })
}

/// A schema without what the older form has no words for.
fn older(schema: &mut Value) {
    let Some(keywords) = schema.as_object_mut() else { return };
    // A reference beside other keywords is wrapped in the newer form only.
    if let Some(target) = keywords.get("allOf").and_then(|all| all[0]["$ref"].as_str()) {
        let target = json!(target);
        keywords.insert("$ref".to_owned(), target);
    }
    if keywords.remove("oneOf").is_some() {
        keywords.insert("type".to_owned(), json!("string"));
    }
    keywords.retain(|keyword, _| !["allOf", "anyOf", "not", "default"].contains(&keyword.as_str()));
    if keywords.remove("nullable").is_some() {
        // It cannot say that nothing is a value too, so it says nothing.
        keywords.remove("type");
    }
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => fields.values_mut().for_each(older),
            ("items" | "additionalProperties", inner) => older(inner),
            ("$ref", Value::String(target)) => *target = target.replace("/components/schemas/", "/definitions/"),
            _ => {}
        }
    }
}

fn older_operation(operation: &mut Value) {
    let mut ok = json!({"description": "OK"});
    let answer = &mut operation["responses"]["200"]["content"]["application/json"]["schema"];
    if answer.is_object() {
        older(answer);
        ok["schema"] = answer.take();
    }
    operation["responses"] = json!({"200": ok});
    let mut parameters = Vec::new();
    if let Some(content) = operation["requestBody"]["content"].as_object_mut() {
        let mut schema = content
            .values_mut()
            .next()
            .map(|body| body["schema"].take())
            .unwrap_or_default();
        older(&mut schema);
        parameters.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
    }
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        parameters.push(json!({
            "name": parameter["name"], "in": "query", "type": parameter["schema"]["type"], "uniqueItems": true,
        }));
    }
    if let Some(operation) = operation.as_object_mut() {
        operation.remove("requestBody");
        operation.insert("parameters".to_owned(), Value::Array(parameters));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_document_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|field| references(field, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let document = document(&Registry::builtin());
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 300);
        for target in found {
            assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
        }
    }

    #[test]
    fn a_schema_loses_only_what_has_no_word() {
        let mut schema = json!({"type": "object", "properties": {
            "a": {"allOf": [{"$ref": "#/components/schemas/x.Y"}], "default": {}, "description": "d"},
            "b": {"type": "string", "nullable": true},
            "c": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
        }});
        older(&mut schema);
        let expected = json!({"type": "object", "properties": {
            "a": {"$ref": "#/definitions/x.Y", "description": "d"},
            "b": {},
            "c": {"type": "string", "format": "int-or-string"},
        }});
        assert_eq!(schema, expected);
    }
}
