//! What the API server publishes about its own types, cut down to what our CRDs embed.

use std::collections::BTreeMap;

use http::Request;
use kube::Client;
use serde_json::Value;

/// The types that our CRDs embed, and the document that describes each.
const ROOTS: [(&str, &str); 3] = [
    ("/openapi/v3/api/v1", "io.k8s.api.core.v1.PodSpec"),
    (
        "/openapi/v3/apis/autoscaling/v2",
        "io.k8s.api.autoscaling.v2.MetricSpec",
    ),
    (
        "/openapi/v3/apis/resource.k8s.io/v1",
        "io.k8s.api.resource.v1.ResourceClaimTemplateSpec",
    ),
];

/// Keywords that no custom resource has, and texts that nobody reads in a CRD of ours.
const LEFT_OUT: [&str; 5] = [
    "description",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-unions",
];

/// The schemas of these types and of all that they refer to, one in a line: `crates/api/openapi/kubernetes.json`.
pub async fn embedded_types(client: &Client) -> Result<String, kube::Error> {
    let mut schemas = BTreeMap::new();
    for (path, root) in ROOTS {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let document: Value = client.request(request).await?;
        collect(&document["components"]["schemas"], root, &mut schemas);
    }
    let lines: Vec<String> = schemas
        .iter()
        .map(|(name, schema)| format!("\"{name}\": {schema}"))
        .collect();
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

fn collect(published: &Value, name: &str, schemas: &mut BTreeMap<String, Value>) {
    if schemas.contains_key(name) {
        return;
    }
    let schema = trimmed(&published[name]);
    schemas.insert(name.to_owned(), schema.clone());
    for reference in references(&schema) {
        collect(published, &reference, schemas);
    }
}

fn trimmed(schema: &Value) -> Value {
    match schema {
        Value::Object(keywords) => {
            let kept = keywords
                .iter()
                .filter(|(keyword, _)| !LEFT_OUT.contains(&keyword.as_str()));
            let kept = kept.map(|(keyword, value)| match (keyword.as_str(), value) {
                // Names of fields are no keywords: a field may be called `description`.
                ("properties", Value::Object(fields)) => {
                    let fields = fields.iter().map(|(name, field)| (name.clone(), trimmed(field)));
                    (keyword.clone(), Value::Object(fields.collect()))
                }
                _ => (keyword.clone(), trimmed(value)),
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(trimmed).collect(),
        other => other.clone(),
    }
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(keywords) => keywords
            .iter()
            .flat_map(|(keyword, value)| match (keyword.as_str(), value) {
                ("$ref", Value::String(target)) => target.rsplit('/').next().map(str::to_owned).into_iter().collect(),
                _ => references(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}
