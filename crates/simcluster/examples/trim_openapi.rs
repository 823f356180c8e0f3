//! Trims OpenAPI v3 documents of a kube-apiserver to what the embedded cluster reads: the schemas of the kinds it
//! serves and what they refer to, without descriptions; or with `--descriptions` only these, by schema and field.
//! `openapi/README.md` says when and how to run it.

use std::collections::{BTreeMap, BTreeSet};
use std::{env, fs};

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// The kinds that are kept, with their lists, as `(group, version, kind)`.
const KINDS: &[(&str, &str, &str)] = &[
    ("", "v1", "Binding"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Endpoints"),
    ("", "v1", "Event"),
    ("", "v1", "LimitRange"),
    ("", "v1", "Namespace"),
    ("", "v1", "Node"),
    ("", "v1", "Pod"),
    ("", "v1", "ResourceQuota"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("", "v1", "ServiceAccount"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("apps", "v1", "ControllerRevision"),
    ("apps", "v1", "Deployment"),
    ("authentication.k8s.io", "v1", "SelfSubjectReview"),
    ("authentication.k8s.io", "v1", "TokenRequest"),
    ("authentication.k8s.io", "v1", "TokenReview"),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview"),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"),
    ("autoscaling", "v1", "Scale"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("discovery.k8s.io", "v1", "EndpointSlice"),
    ("events.k8s.io", "v1", "Event"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("policy", "v1", "Eviction"),
    ("policy", "v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("resource.k8s.io", "v1", "DeviceClass"),
    ("resource.k8s.io", "v1", "ResourceClaim"),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate"),
    ("resource.k8s.io", "v1", "ResourceSlice"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
    ("", "v1", "DeleteOptions"),
];

fn main() -> Result<()> {
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    let (options, paths): (Vec<String>, Vec<String>) = env::args().skip(1).partition(|word| word.starts_with("--"));
    for path in paths {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let document: Value = serde_json::from_str(&text).with_context(|| format!("{path} is not JSON"))?;
        let found = document["components"]["schemas"]
            .as_object()
            .with_context(|| format!("{path} has no components.schemas"))?;
        for (name, schema) in found {
            schemas.entry(name.clone()).or_insert(schema.clone());
        }
    }
    let mut wanted: Vec<String> = Vec::new();
    for (group, version, kind) in KINDS {
        let of_kind = |kind: &str| {
            let mut found = schemas
                .iter()
                .filter(|(_, schema)| is_of_kind(schema, (group, version, kind)));
            found.next().map(|(name, _)| name.clone())
        };
        wanted.push(of_kind(kind).with_context(|| format!("no document holds {kind}"))?);
        wanted.extend(of_kind(&format!("{kind}List")));
    }
    let mut kept = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if kept.insert(name.clone()) {
            let schema = schemas.get(&name).with_context(|| format!("nothing defines {name}"))?;
            collect_references(schema, &mut wanted);
        }
    }
    let line = |name: &String, value: &Value| format!("{}:{value}", Value::from(name.as_str()));
    if options.iter().any(|option| option == "--descriptions") {
        let lines: Vec<String> = kept
            .iter()
            .map(|name| line(name, &descriptions(&schemas[name])))
            .collect();
        println!("{{\n{}\n}}", lines.join(",\n"));
        return Ok(());
    }
    // One schema a line: small, and a diff shows which type changed.
    let mut lines = Vec::new();
    for name in &kept {
        let mut schema = schemas[name].clone();
        drop_descriptions(&mut schema);
        lines.push(line(name, &schema));
    }
    println!("{{\"components\":{{\"schemas\":{{\n{}\n}}}}}}", lines.join(",\n"));
    Ok(())
}

fn is_of_kind(schema: &Value, (group, version, kind): (&str, &str, &str)) -> bool {
    let listed = schema["x-kubernetes-group-version-kind"].as_array();
    listed.is_some_and(|all| {
        all.iter()
            .any(|one| one["group"] == group && one["version"] == version && one["kind"] == kind)
    })
}

/// What is said about a type, under an empty name, and about its fields.
fn descriptions(schema: &Value) -> Value {
    let text = |schema: &Value| schema.get("description").filter(|text| text.is_string()).cloned();
    let mut texts = Map::new();
    texts.extend(text(schema).map(|text| (String::new(), text)));
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        texts.extend(text(schema).map(|text| (field.clone(), text)));
    }
    Value::Object(texts)
}

/// Removes documentation. A *property* may be called `description`; its value is an object, not text.
fn drop_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        _ => {}
    }
}

fn collect_references(schema: &Value, into: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) = reference(fields) {
                into.push(name.to_owned());
            }
            fields.values().for_each(|value| collect_references(value, into));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, into)),
        _ => {}
    }
}

fn reference(schema: &Map<String, Value>) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/components/schemas/")
}
