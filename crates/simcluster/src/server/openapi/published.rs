//! The schema of a custom resource as the API server publishes it: with what every object has, and what keywords mean.

use serde_json::{Value, json};

use super::{LIST_META, descriptions};
use crate::patch::OBJECT_META;
use crate::registry::Resource;

/// A type that says about its version and its metadata what all do.
const COMMON: &str = "io.k8s.api.core.v1.ConfigMap";
/// What is said about the metadata of a list.
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
/// What is said about the version and the kind of an object inside another.
const EMBEDDED: [(&str, &str); 2] = [
    (
        "apiVersion",
        "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    ),
    (
        "kind",
        "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    ),
];

/// What is published of a definition's schema.
pub(super) fn published(definition: &Value, kind: &Value) -> Value {
    let mut schema = match definition.is_object() {
        true => definition.clone(),
        false => json!({"type": "object"}),
    };
    spell_out(&mut schema);
    schema["x-kubernetes-group-version-kind"] = json!([kind]);
    let texts = ["apiVersion", "kind"].map(|field| (field, descriptions::of(COMMON, field)));
    add_common(&mut schema, &texts);
    schema
}

/// What is published of a list of custom resources.
pub(super) fn list(resource: &Resource, item: &str, kind: &Value) -> Value {
    let text = |field| json!({"type": "string", "description": descriptions::of(COMMON, field)});
    let items = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        resource.name.plural
    );
    json!({
        "type": "object", "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": text("apiVersion"),
            "kind": text("kind"),
            "items": {
                "type": "array", "description": items,
                "items": {"$ref": format!("#/components/schemas/{item}")},
            },
            "metadata": {
                "allOf": [{"$ref": format!("#/components/schemas/{LIST_META}")}],
                "description": LIST_METADATA,
            },
        },
        "x-kubernetes-group-version-kind": [kind],
    })
}

/// The fields that every object has, whatever its schema says about them.
fn add_common(schema: &mut Value, texts: &[(&str, &str)]) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    for (field, text) in texts {
        schema["properties"][*field] = json!({"type": "string", "description": text});
    }
    schema["properties"]["metadata"] = json!({
        "allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}],
        "description": descriptions::of(COMMON, "metadata"),
    });
}

/// Says in plain keywords what the ones of Kubernetes stand for.
fn spell_out(schema: &mut Value) {
    if schema["x-kubernetes-int-or-string"] == true && schema.get("anyOf").is_none() {
        schema["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
    }
    let Some(keywords) = schema.as_object_mut() else { return };
    for (keyword, value) in keywords.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => fields.values_mut().for_each(spell_out),
            ("items" | "additionalProperties", inner) if inner.is_object() => spell_out(inner),
            ("minimum" | "maximum" | "multipleOf", bound) => without_fraction(bound),
            _ => {}
        }
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        add_common(schema, &EMBEDDED);
        schema["required"] = json!(["kind", "apiVersion"]);
    }
}

/// A whole number is published as one, whatever it was read as.
#[allow(
    clippy::cast_possible_truncation,
    reason = "only of what has no fraction and few digits"
)]
fn without_fraction(number: &mut Value) {
    if let Some(float) = number
        .as_f64()
        .filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15)
    {
        *number = json!(float as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kube-apiserver 1.36 publishes it.
    #[test]
    fn keywords_are_spelled_out() {
        let definition = json!({"type": "object", "description": "A gear.", "properties": {
            "port": {"x-kubernetes-int-or-string": true, "minimum": 1.0, "maximum": 1.5},
            "inner": {"type": "object", "x-kubernetes-embedded-resource": true},
            "list": {"type": "array", "items": {"x-kubernetes-int-or-string": true}},
        }});
        let kind = json!({"group": "demo.test", "version": "v1", "kind": "Gear"});
        let schema = published(&definition, &kind);
        assert_eq!(schema["description"], "A gear.");
        let fields = &schema["properties"];
        let either = json!([{"type": "integer"}, {"type": "string"}]);
        assert_eq!(
            (&fields["port"]["anyOf"], &fields["list"]["items"]["anyOf"]),
            (&either, &either)
        );
        assert_eq!(
            (&fields["port"]["minimum"], &fields["port"]["maximum"]),
            (&json!(1), &json!(1.5))
        );
        assert_eq!(fields["inner"]["required"], json!(["kind", "apiVersion"]));
        for object in [&schema, &fields["inner"]] {
            for field in ["apiVersion", "kind", "metadata"] {
                assert!(
                    object["properties"][field]["description"]
                        .as_str()
                        .is_some_and(|text| !text.is_empty())
                );
            }
        }
    }
}
