//! What Kubernetes says about its own types and their fields, for `kubectl explain`.
//!
//! The texts are most of the size of the schemas, so they are kept apart, compressed, and unpacked when somebody asks.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use serde_json::{Map, Value};

/// By type and field; under an empty field stands what is said about the type itself.
const PACKED: &[u8] = include_bytes!("../../../openapi/descriptions-1.36.json.gz");

type Texts = BTreeMap<String, BTreeMap<String, String>>;

static TEXTS: LazyLock<Texts> = LazyLock::new(|| {
    let mut json = String::new();
    let unpacked = GzDecoder::new(PACKED).read_to_string(&mut json);
    unpacked.expect("the texts are part of the program and tested");
    serde_json::from_str(&json).expect("the texts are part of the program and tested")
});

/// Puts what is known about types and their fields into their schemas.
pub(super) fn describe(schemas: &mut Map<String, Value>) {
    for (name, schema) in schemas {
        for (field, text) in TEXTS.get(name).into_iter().flatten() {
            let described = match field.as_str() {
                "" => Some(&mut *schema),
                field => schema.get_mut("properties").and_then(|fields| fields.get_mut(field)),
            };
            if let Some(Value::Object(described)) = described {
                described.insert("description".to_owned(), Value::String(text.clone()));
            }
        }
    }
}

/// What is said about a field of a type.
pub(super) fn of(name: &str, field: &str) -> &'static str {
    TEXTS
        .get(name)
        .and_then(|texts| texts.get(field))
        .map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_is_served_is_described() {
        let schemas: Value = serde_json::from_str(include_str!("../../../openapi/kubernetes-1.36.json")).unwrap();
        let mut schemas = schemas["components"]["schemas"].as_object().unwrap().clone();
        let missing: Vec<&String> = schemas.keys().filter(|name| !TEXTS.contains_key(*name)).collect();
        assert!(
            missing.is_empty(),
            "openapi/README.md says how to add them: {missing:?}"
        );
        describe(&mut schemas);
        let pod = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["restartPolicy"];
        let text = pod["description"].as_str().unwrap();
        assert!(text.starts_with("Restart policy for all containers") && text.contains("Possible enum values"));
        assert_eq!(of("io.k8s.api.core.v1.Nothing", "x"), "");
    }
}
