//! Rules of CustomResourceDefinitions.

use serde_json::{Value, json};

use super::kinds::{items, set_default};
use super::{metadata, names, webhooks};
use crate::schema::Schema;
use crate::status::FieldError;

pub(super) fn default(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "conversion", json!({"strategy": "None"}));
    if let Some(service) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        set_default(service, "port", json!(443));
    }
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    set_default(&mut spec["names"], "singular", json!(kind.to_lowercase()));
    set_default(&mut spec["names"], "listKind", json!(format!("{kind}List")));
}

/// A definition knows every version in which there may be objects.
pub(super) fn note_stored_version(definition: &mut Value) {
    let stored = items(&definition["spec"], "versions")
        .find(|version| version["storage"] == true)
        .map(|version| version["name"].clone());
    let Some(stored) = stored else { return };
    let known = definition.pointer_mut("/status/storedVersions");
    if let Some(known) = known.and_then(Value::as_array_mut)
        && !known.contains(&stored)
    {
        known.push(stored);
    }
}

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let mut errors = Vec::new();
    let expected = format!("{plural}.{group}");
    if metadata::text(object, "name") != expected {
        let name = &object["metadata"]["name"];
        errors.push(FieldError::invalid(
            "metadata.name",
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    for (field, value) in [("spec.group", &group), ("spec.names.plural", &plural)] {
        match value.is_empty() {
            true => errors.push(FieldError::required(field, "")),
            false => {
                let problem = names::subdomain_problem(value);
                errors.extend(problem.map(|why| FieldError::invalid(field, json!(value), why)));
            }
        }
    }
    if text(&spec["names"]["kind"]).is_empty() {
        errors.push(FieldError::required("spec.names.kind", ""));
    }
    if !matches!(spec["scope"].as_str(), Some("Cluster" | "Namespaced")) {
        errors.push(FieldError::not_supported(
            "spec.scope",
            &spec["scope"],
            &["Cluster", "Namespaced"],
        ));
    }
    errors.extend(webhooks::conversion(&spec["conversion"]));
    let stored = items(spec, "versions")
        .filter(|version| version["storage"] == true)
        .count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], why));
    }
    for (i, version) in items(spec, "versions").enumerate() {
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            let field = format!("spec.versions[{i}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, "schemas are required"));
            continue;
        }
        // With one version, the API server speaks of the field where a schema stood before versions had their own.
        let path = match items(spec, "versions").count() {
            1 => "spec.validation.openAPIV3Schema".to_owned(),
            _ => format!("spec.versions[{i}].schema.openAPIV3Schema"),
        };
        errors.extend(Schema::compile(&path, schema).err().into_iter().flatten());
    }
    errors
}
