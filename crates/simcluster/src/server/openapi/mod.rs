//! `/openapi/v3` and `/openapi/v2`: what clients need to know that a kind can be patched, applied, validated and
//! explained.
//!
//! Schemas are complete, and so are the paths with their methods; of parameters and answers there is what clients look
//! for. Custom resources show the schema of their definition.

mod descriptions;
mod gnostic;
mod paths;
mod published;
mod v2;

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use super::output::Reply;
use crate::patch::{self, OBJECT_META, reached};
use crate::registry::{Form, Registry, Resource, Review, Version};
pub(super) use v2::whole;

const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

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
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    add_group(registry, group, version, &mut paths, &mut schemas);
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths, "components": {"schemas": schemas},
    })
}

/// Adds what a group's version serves, with the schemas of all that is sent and answered there.
fn add_group(
    registry: &Registry,
    group: &str,
    version: &str,
    paths: &mut Map<String, Value>,
    schemas: &mut Map<String, Value>,
) {
    let at = document_path(group, version);
    for resource in registry.iter().filter(|resource| &*resource.name.group == group) {
        if let Some(served) = resource.version(version) {
            let names = add_schemas(resource, served, schemas);
            for sub in &resource.subresources {
                add_builtin(sub.answers(), schemas);
            }
            paths.extend(paths::of_resource(resource, &at, version, &names));
        }
    }
    for (review, in_group, plural, kind) in Review::ALL {
        if in_group == group && version == "v1" {
            let name = add_builtin(Some((group, version, kind)), schemas);
            paths.extend(paths::of_review(review, &at, plural, &gvk(group, version, kind), &name));
        }
    }
}

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// Adds a built-in kind with all that it refers to, and tells the name of its schema.
fn add_builtin(kind: Option<(&str, &str, &str)>, schemas: &mut Map<String, Value>) -> String {
    let kind = kind.map(|(group, version, kind)| gvk(group, version, kind));
    let Some((name, found)) = kind.and_then(|kind| patch::published(&kind)) else {
        return String::new();
    };
    schemas.extend(found);
    name
}

/// Adds a kind and its list, and tells the names of their schemas.
fn add_schemas(resource: &Resource, served: &Version, schemas: &mut Map<String, Value>) -> Names {
    let (group, version) = (&*resource.name.group, served.name.as_str());
    if !resource.custom {
        return Names {
            object: add_builtin(Some((group, version, &resource.kind)), schemas),
            list: add_builtin(Some((group, version, &resource.list_kind)), schemas),
        };
    }
    let reversed: Vec<&str> = group.split('.').rev().collect();
    let prefix = format!("{}.{version}", reversed.join("."));
    let names = Names {
        object: format!("{prefix}.{}", resource.kind),
        list: format!("{prefix}.{}", resource.list_kind),
    };
    let kind = gvk(group, version, &resource.kind);
    let mut object = custom_schema(served, &kind);
    let list_kind = gvk(group, version, &resource.list_kind);
    let mut list = published::list(resource, &names.object, &list_kind);
    let selectable = resource.selectable.iter();
    let selectable: Vec<Value> = selectable.map(|field| json!({"fieldPath": field})).collect();
    if !selectable.is_empty() {
        for schema in [&mut object, &mut list] {
            schema["x-kubernetes-selectable-fields"] = json!(selectable);
        }
    }
    schemas.insert(names.object.clone(), object);
    schemas.insert(names.list.clone(), list);
    schemas.extend(reached(OBJECT_META));
    schemas.extend(reached(LIST_META));
    names
}

/// Names of schemas.
pub(super) struct Names {
    object: String,
    list: String,
}

fn custom_schema(version: &Version, kind: &Value) -> Value {
    match &version.form {
        Form::Custom(custom) => published::published(&custom.published, kind),
        Form::Typed(_) | Form::Converted { .. } => json!({"type": "object", "x-kubernetes-group-version-kind": [kind]}),
    }
}
