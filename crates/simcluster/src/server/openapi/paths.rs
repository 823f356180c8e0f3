//! Which paths there are, and what can be done at each.

use serde_json::{Map, Value, json};

use super::{Names, add_builtin, gvk};
use crate::registry::{Resource, Review, Subresource};

const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The paths of a kind: its collections, its objects, and their subresources.
pub(super) fn of_resource(resource: &Resource, at: &str, version: &str, names: &Names) -> Map<String, Value> {
    let kind = &gvk(&resource.name.group, version, &resource.kind);
    let plural = &resource.name.plural;
    let scope = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let one = Operations { resource, kind };
    let mut paths = Map::new();
    let list = one.operation("list", None, Some(&names.list));
    if resource.namespaced {
        paths.insert(format!("/{at}/{plural}"), json!({"get": list.clone()}));
    }
    let object = Some(names.object.as_str());
    let mut collection = json!({"get": list, "post": one.operation("post", object, object)});
    if resource.traits.delete_collection {
        collection["delete"] = one.operation("deletecollection", None, None);
    }
    let path = format!("/{at}{scope}/{plural}");
    let single = json!({
        "get": one.operation("get", None, object), "put": one.operation("put", object, object),
        "patch": one.operation("patch", object, object), "delete": one.operation("delete", None, None),
    });
    for sub in &resource.subresources {
        let item = one.subresource(*sub, &names.object);
        paths.insert(format!("{path}/{{name}}/{}", sub.path()), item);
    }
    paths.insert(format!("{path}/{{name}}"), single);
    paths.insert(path, collection);
    paths
}

/// The path of something that can only be asked.
pub(super) fn of_review(review: Review, at: &str, plural: &str, kind: &Value, name: &str) -> Option<(String, Value)> {
    let scope = if review.is_namespaced() {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let item = json!({"post": operation("post", kind, false, Some(name), Some(name))});
    Some((format!("/{at}{scope}/{plural}"), item))
}

struct Operations<'a> {
    resource: &'a Resource,
    kind: &'a Value,
}

impl Operations<'_> {
    fn operation(&self, action: &str, body: Option<&str>, answer: Option<&str>) -> Value {
        operation(action, self.kind, self.resource.custom, body, answer)
    }

    fn subresource(&self, sub: Subresource, object: &str) -> Value {
        let answers = sub.answers().map(|(group, version, kind)| gvk(group, version, kind));
        // Custom resources are named by their own kind at every path.
        let kind = answers.as_ref().filter(|_| !self.resource.custom).unwrap_or(self.kind);
        let name = match sub.answers() {
            Some(answers) => add_builtin(Some(answers), &mut Map::new()),
            None => object.to_owned(),
        };
        let name = Some(name.as_str());
        let methods = sub.verbs().iter().map(|verb| match *verb {
            "create" => ("post", name),
            "update" => ("put", name),
            "patch" => ("patch", name),
            _ => ("get", None),
        });
        let custom = self.resource.custom;
        methods
            .map(|(method, body)| (method.to_owned(), operation(method, kind, custom, body, name)))
            .collect()
    }
}

fn operation(action: &str, kind: &Value, custom: bool, body: Option<&str>, answer: Option<&str>) -> Value {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let mut ok = json!({"description": "OK"});
    if let Some(answer) = answer {
        ok["content"] = json!({"application/json": {"schema": reference(answer)}});
    }
    let mut operation = json!({
        "responses": {"200": ok}, "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
    });
    if let Some(body) = body {
        let takes = |media: &&&str| !(custom && media.contains("strategic"));
        let content: Map<String, Value> = match action {
            "patch" => PATCHES
                .iter()
                .filter(takes)
                .map(|media| ((*media).to_owned(), json!({"schema": {"type": "object"}})))
                .collect(),
            _ => [("*/*".to_owned(), json!({"schema": reference(body)}))]
                .into_iter()
                .collect(),
        };
        operation["requestBody"] = json!({"content": content, "required": true});
        operation["parameters"] = parameters(action).collect();
    }
    operation
}

fn parameters(action: &str) -> impl Iterator<Item = Value> {
    let force = (action == "patch").then_some(("force", "boolean"));
    ["dryRun", "fieldManager", "fieldValidation", "pretty"]
        .into_iter()
        .map(|name| (name, "string"))
        .chain(force)
        .map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}))
}
