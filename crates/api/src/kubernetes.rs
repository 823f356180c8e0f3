//! Kubernetes' own types inside ours: their schemas, and how they are read.
//!
//! The schemas come from what a kube-apiserver publishes (`openapi/kubernetes.json`, written by
//! `cargo xtask gen --openapi`), not from the Rust types: only the former knows list types and map keys, without which
//! two containers of one name, or two ports of one number, would be stored.
//!
//! Left out on purpose: descriptions (346 KB of CRD become 58 KB), enums (a value that a newer Kubernetes knows must
//! not be refused by us; the API server judges it when the pod is made), and defaults other than those of map keys
//! (what the user did not write stays unwritten).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::serde::de::DeserializeOwned;
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

const OPENAPI: &str = include_str!("../openapi/kubernetes.json");

static SCHEMAS: LazyLock<BTreeMap<String, Value>> =
    LazyLock::new(|| serde_json::from_str(OPENAPI).expect("the embedded document is checked by a test"));

/// The notation of a quantity, as Kubernetes parses it.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

pub(crate) fn pod_spec(_: &mut SchemaGenerator) -> Schema {
    schema_of("io.k8s.api.core.v1.PodSpec", "The pod, as in core/v1 PodSpec.")
}

pub(crate) fn resource_claim_template_spec(_: &mut SchemaGenerator) -> Schema {
    schema_of(
        "io.k8s.api.resource.v1.ResourceClaimTemplateSpec",
        "The claim template, as in resource.k8s.io/v1 ResourceClaimTemplateSpec.",
    )
}

pub(crate) fn metric_specs(_: &mut SchemaGenerator) -> Schema {
    let items = structural(&SCHEMAS["io.k8s.api.autoscaling.v2.MetricSpec"], &[]);
    from_json(json!({
        "description": "What to scale by, as in autoscaling/v2 MetricSpec.",
        "type": "array", "x-kubernetes-list-type": "atomic", "items": items,
    }))
}

/// Conditions are a list-map by `type` everywhere, so that several writers can share a status.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    from_json(json!({
        "description": "The latest observations of the object's state.",
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "message": { "type": "string", "maxLength": 32768 },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
            },
        },
    }))
}

fn schema_of(name: &str, description: &str) -> Schema {
    let mut schema = structural(&SCHEMAS[name], &[]);
    schema["description"] = description.into();
    from_json(schema)
}

fn from_json(schema: Value) -> Schema {
    schema.try_into().expect("a JSON object is a schema")
}

/// Turns a published schema into the structural form that a CRD takes: references resolved, and only what the API
/// server enforces for a custom resource kept. `map_keys` are the keys of the list-map whose items this schema is of.
fn structural(schema: &Value, map_keys: &[&str]) -> Value {
    let Some(schema) = schema.as_object() else {
        return schema.clone();
    };
    if let Some(reference) = reference(schema) {
        return match reference {
            QUANTITY => json!({ "x-kubernetes-int-or-string": true, "pattern": QUANTITY_PATTERN }),
            INT_OR_STRING => json!({ "x-kubernetes-int-or-string": true }),
            name => structural(&SCHEMAS[name], map_keys),
        };
    }
    let mut out = Map::new();
    for keyword in [
        "type",
        "format",
        "required",
        "x-kubernetes-map-type",
        "x-kubernetes-list-type",
    ] {
        if let Some(value) = schema.get(keyword) {
            out.insert(keyword.into(), value.clone());
        }
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let properties = properties
            .iter()
            .map(|(name, property)| (name.clone(), property_of(name, property, map_keys)));
        out.insert("properties".into(), Value::Object(properties.collect()));
    }
    if let Some(values) = schema.get("additionalProperties") {
        out.insert("additionalProperties".into(), structural(values, &[]));
    }
    if let Some(items) = schema.get("items") {
        let keys = schema.get("x-kubernetes-list-map-keys");
        let names: Vec<&str> = keys
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        out.insert("items".into(), structural(items, &names));
        if let Some(keys) = keys {
            out.insert("x-kubernetes-list-map-keys".into(), keys.clone());
        }
    }
    let opaque = !out.contains_key("properties") && !out.contains_key("additionalProperties");
    if opaque && out.get("type").is_some_and(|kind| kind == "object") {
        out.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }
    Value::Object(out)
}

/// A property keeps its default only where it is part of a list-map's key: `protocol: TCP`.
fn property_of(name: &str, property: &Value, map_keys: &[&str]) -> Value {
    let mut out = structural(property, &[]);
    if let Some(default) = property.get("default").filter(|_| map_keys.contains(&name)) {
        out["default"] = default.clone();
    }
    out
}

/// The name of the schema that this one stands for: `$ref`, or `allOf` around one.
fn reference(schema: &Map<String, Value>) -> Option<&str> {
    let direct = schema.get("$ref");
    let wrapped = || schema.get("allOf")?.as_array()?.first()?.get("$ref");
    direct.or_else(wrapped)?.as_str()?.rsplit('/').next()
}

/// Reads a Kubernetes type as the API server stored it inside ours.
///
/// A quantity written without quotes (`nvidia.com/gpu: 8`) is stored as the number 8 in a custom resource, where a
/// built-in kind would have turned it into text. Kubernetes' Rust types take text only, so it is turned here.
pub(crate) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let mut value = Value::deserialize(deserializer)?;
    write_quantities_as_text(&mut value);
    T::deserialize(value).map_err(serde::de::Error::custom)
}

/// Fields that hold one quantity, and fields that hold a map of them, wherever they occur in the types we embed.
const QUANTITY_FIELDS: [&str; 4] = ["averageValue", "divisor", "sizeLimit", "value"];
const QUANTITY_MAPS: [&str; 4] = ["capacity", "limits", "overhead", "requests"];

/// Turns quantities that were written without quotes into text, wherever they are.
pub fn write_quantities_as_text(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(write_quantities_as_text),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::Number(number) if QUANTITY_FIELDS.contains(&name.as_str()) => {
                        *field = Value::String(number.to_string());
                    }
                    Value::Object(quantities) if QUANTITY_MAPS.contains(&name.as_str()) => {
                        for quantity in quantities.values_mut() {
                            if let Value::Number(number) = quantity {
                                *quantity = Value::String(number.to_string());
                            }
                            write_quantities_as_text(quantity);
                        }
                    }
                    other => write_quantities_as_text(other),
                }
            }
        }
        _ => {}
    }
}
