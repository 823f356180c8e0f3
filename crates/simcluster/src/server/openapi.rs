//! `/openapi/v3`: what clients need to know that a kind can be patched, applied, validated and explained.
//!
//! Schemas are complete; of the operations there is only PATCH, which clients look for. Custom resources show the schema
//! of their definition.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use super::output::Reply;
use super::{descriptions, published};
use crate::patch::{self, OBJECT_META, reached};
use crate::registry::{Form, Registry, Resource, Version};

const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The list of documents.
pub(super) fn index(registry: &Registry) -> Reply {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = document_path(&group, &version);
            let mut hasher = DefaultHasher::new();
            // Without the descriptions, which do not change.
            document(registry, &group, &version).to_string().hash(&mut hasher);
            let url = format!("/openapi/v3/{path}?hash={:0128X}", hasher.finish());
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    let text = json!({"paths": paths}).to_string();
    Reply::bytes(200, "text/plain; charset=utf-8", text.into())
}

/// One document, by its path after `/openapi/v3/`.
pub(super) fn by_path(registry: &Registry, path: &str) -> Option<Reply> {
    let found = registry.groups().into_iter().find_map(|(group, versions)| {
        let version = versions
            .into_iter()
            .find(|version| document_path(&group, version) == path)?;
        Some((group, version))
    });
    found.map(|(group, version)| {
        let mut document = document(registry, &group, &version);
        if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
            descriptions::describe(schemas);
        }
        Reply::json(200, &document)
    })
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn document(registry: &Registry, group: &str, version: &str) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in registry.iter().filter(|resource| &*resource.name.group == group) {
        let Some(served) = resource.version(version) else {
            continue;
        };
        let scope = if resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let path = format!(
            "/{}{scope}/{}/{{name}}",
            document_path(group, version),
            resource.name.plural
        );
        let kind = json!({"group": group, "version": version, "kind": resource.kind});
        let name = match patch::published(&kind).filter(|_| !resource.custom) {
            Some((name, found)) => {
                schemas.extend(found);
                name
            }
            None => {
                let name = schema_name(resource, version);
                schemas.insert(name.clone(), schema(resource, served, &kind));
                schemas.extend(reached(OBJECT_META));
                name
            }
        };
        paths.insert(path, json!({"patch": patch_operation(resource, &name, &kind)}));
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths, "components": {"schemas": schemas},
    })
}

/// `io.k8s.api.core.v1.Pod` for built-in kinds, the reversed group for custom ones.
fn schema_name(resource: &Resource, version: &str) -> String {
    let group = &resource.name.group;
    match resource.custom {
        true => {
            let reversed: Vec<&str> = group.split('.').rev().collect();
            format!("{}.{version}.{}", reversed.join("."), resource.kind)
        }
        false => {
            let short = if group.is_empty() {
                "core"
            } else {
                group.split('.').next().unwrap_or_default()
            };
            format!("io.k8s.api.{short}.{version}.{}", resource.kind)
        }
    }
}

fn schema(resource: &Resource, version: &Version, kind: &Value) -> Value {
    match &version.form {
        Form::Custom(custom) => {
            let mut schema = published::published(&custom.published, kind);
            let selectable = resource.selectable.iter();
            let selectable: Vec<Value> = selectable.map(|field| json!({"fieldPath": field})).collect();
            if !selectable.is_empty() {
                schema["x-kubernetes-selectable-fields"] = json!(selectable);
            }
            schema
        }
        Form::Typed(_) | Form::Converted { .. } => json!({"type": "object", "x-kubernetes-group-version-kind": [kind]}),
    }
}

fn patch_operation(resource: &Resource, schema: &str, kind: &Value) -> Value {
    let reference = json!({"$ref": format!("#/components/schemas/{schema}")});
    let takes = |media: &&&str| !(resource.custom && media.contains("strategic"));
    let bodies: Map<String, Value> = PATCHES
        .iter()
        .filter(takes)
        .map(|media| ((*media).to_owned(), json!({"schema": {"type": "object"}})))
        .collect();
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force", "pretty"]
        .into_iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": if name == "force" { "boolean" } else { "string" }, "uniqueItems": true}}))
        .collect();
    json!({
        "parameters": parameters, "requestBody": {"content": bodies, "required": true},
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": kind,
    })
}
