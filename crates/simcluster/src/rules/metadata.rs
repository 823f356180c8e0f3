//! Rules of `metadata` that hold for every kind.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::names;
use crate::clock::seconds;
use crate::registry::Resource;
use crate::status::FieldError;

/// Finalizer of a foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of a deletion that orphans dependents.
pub const ORPHAN: &str = "orphan";

/// Finalizers that built-in kinds take without a domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];

/// The metadata of an object, which is made if it is missing.
pub fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let map = object.as_object_mut().expect("made an object above");
    let metadata = map.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("made an object above")
}

/// A text field of the metadata; empty if it is missing.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The finalizers.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Sets the finalizers; none removes the field.
pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    match finalizers.is_empty() {
        true => of(object).remove("finalizers"),
        false => of(object).insert("finalizers".into(), json!(finalizers)),
    };
}

/// Whether the object is being deleted.
pub fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Fills the metadata of a new object. What only the server may set is replaced silently, as the API server does.
pub fn prepare_create(resource: &Resource, object: &mut Value, uid: String, now: Timestamp) {
    let metadata = of(object);
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "resourceVersion",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), json!(uid));
    metadata.insert("creationTimestamp".into(), json!(seconds(now)));
    if resource.traits.generation {
        metadata.insert("generation".into(), json!(1));
    }
    tidy(metadata);
}

/// Carries over from the stored object what a writer may not change or may leave out.
pub fn prepare_update(old: &Value, new: &mut Value) {
    let was = old["metadata"].as_object();
    let kept = |field: &str| was.and_then(|metadata| metadata.get(field)).cloned();
    let metadata = of(new);
    for field in ["uid", "name", "namespace", "generateName"] {
        if metadata.get(field).is_none_or(|value| value.is_null() || value == "") {
            restore(metadata, field, kept(field));
        }
    }
    for field in ["creationTimestamp", "generation", "resourceVersion", "selfLink"] {
        restore(metadata, field, kept(field));
    }
    // A deletion can neither be taken back nor be started by an update.
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        restore(metadata, field, kept(field));
    }
    tidy(metadata);
}

/// Raises the generation if the desired state changed.
pub fn count_generation(resource: &Resource, has_status: bool, old: &Value, new: &mut Value) {
    if !resource.traits.generation || same_desired_state(old, new, has_status) {
        return;
    }
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    of(new).insert("generation".into(), json!(generation));
}

fn same_desired_state(old: &Value, new: &Value, has_status: bool) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return old == new;
    };
    let counts = |key: &&String| *key != "metadata" && !(has_status && *key == "status");
    let old_keys = old.keys().filter(counts);
    let new_keys = new.keys().filter(counts);
    old_keys.clone().count() == new_keys.count() && old_keys.into_iter().all(|key| old.get(key) == new.get(key))
}

fn restore(metadata: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => metadata.insert(field.into(), value),
        None => metadata.remove(field),
    };
}

/// Empty lists and maps are not stored, and an owner is listed once.
fn tidy(metadata: &mut Map<String, Value>) {
    if let Some(Value::Array(references)) = metadata.get_mut("ownerReferences") {
        let mut seen: Vec<Value> = Vec::new();
        references.retain(|reference| {
            let new = !seen.contains(reference);
            seen.push(reference.clone());
            new
        });
    }
    for field in [
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "generateName",
    ] {
        let empty = match metadata.get(field) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if empty {
            metadata.remove(field);
        }
    }
}

/// Judges the metadata of any object that is about to be stored.
pub fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(object, "name");
    match name {
        "" => errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        )),
        name => {
            let problem = resource.traits.names.problem(name);
            errors.extend(problem.map(|p| FieldError::invalid("metadata.name", json!(name), p)));
        }
    }
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        let problem = names::label_key_problem(key);
        errors.extend(problem.map(|p| FieldError::invalid("metadata.labels", json!(key), p)));
        let problem = value.as_str().and_then(names::label_value_problem);
        errors.extend(problem.map(|p| FieldError::invalid("metadata.labels", value, p)));
    }
    for (key, _) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        let problem = names::label_key_problem(&key.to_lowercase());
        errors.extend(problem.map(|p| FieldError::invalid("metadata.annotations", json!(key), p)));
    }
    for (i, finalizer) in finalizers(object).into_iter().enumerate() {
        if let Some(problem) = names::label_key_problem(finalizer) {
            errors.push(FieldError::invalid("metadata.finalizers", json!(finalizer), problem));
        } else if !resource.custom && !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let problem = "name is neither a standard finalizer name nor is it fully qualified";
            let path = format!("metadata.finalizers[{i}]");
            errors.push(FieldError::invalid(path, json!(finalizer), problem));
        }
    }
    errors.extend(validate_owners(object));
    errors
}

/// What is legal and still unwise in new metadata: a finalizer that another writer may choose too.
pub fn warnings(resource: &Resource, old: Option<&Value>, new: &Value) -> Vec<String> {
    let before = old.map(finalizers).unwrap_or_default();
    let plain = |finalizer: &&str| {
        resource.custom
            && !finalizer.contains('/')
            && !STANDARD_FINALIZERS.contains(finalizer)
            && !before.contains(finalizer)
    };
    let warning = |finalizer: &str| {
        format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        )
    };
    finalizers(new).into_iter().filter(plain).map(warning).collect()
}

/// Owner references as Go prints them: in the order of the type's fields.
fn owners_text(references: &[Value]) -> String {
    const FIELDS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let one = |reference: &Value| {
        let fields = FIELDS.iter().filter_map(|name| Some((name, reference.get(name)?)));
        let fields: Vec<String> = fields.map(|(name, value)| format!("{name:?}:{value}")).collect();
        format!("{{{}}}", fields.join(","))
    };
    references.iter().map(one).collect::<Vec<_>>().join(",")
}

fn validate_owners(object: &Value) -> Vec<FieldError> {
    let path = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for reference in object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let field = |name: &str| reference[name].as_str().unwrap_or_default();
        for name in ["apiVersion", "kind", "name", "uid"] {
            let why = if name == "apiVersion" {
                "version must not be empty"
            } else {
                "must not be empty"
            };
            if field(name).is_empty() {
                errors.push(FieldError::invalid(format!("{path}.{name}"), json!(""), why));
            }
        }
        if field("apiVersion") == "v1" && field("kind") == "Event" {
            let text = owners_text(std::slice::from_ref(reference));
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_text(path, &text, why));
        }
        if reference["controller"] == true {
            let this = format!("{}/{}", field("kind"), field("name"));
            match &controller {
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    let all = object["metadata"]["ownerReferences"].as_array();
                    let text = owners_text(all.map(Vec::as_slice).unwrap_or_default());
                    errors.push(FieldError::invalid_text(path, &format!("[{text}]"), why));
                }
                None => controller = Some(this),
            }
        }
    }
    errors
}

/// Judges what an update does to the metadata.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["name", "namespace", "uid"] {
        if old["metadata"][field] != new["metadata"][field] {
            let path = format!("metadata.{field}");
            errors.push(FieldError::invalid(path, &new["metadata"][field], "field is immutable"));
        }
    }
    if is_terminating(old) {
        let before = finalizers(old);
        let added: Vec<String> = finalizers(new)
            .into_iter()
            .filter(|f| !before.contains(f))
            .map(|f| format!("{f:?}"))
            .collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::store::ResourceName;

    fn config_map() -> std::sync::Arc<Resource> {
        Registry::builtin()
            .get(&ResourceName::new("", "configmaps"))
            .cloned()
            .unwrap()
    }

    #[test]
    fn a_client_cannot_choose_what_is_the_servers() {
        let mut object = json!({"metadata": {"name": "a", "uid": "mine", "generation": 9, "labels": {}}});
        prepare_create(
            &config_map(),
            &mut object,
            "u1".into(),
            "2026-01-01T00:00:00.5Z".parse().unwrap(),
        );
        // Nobody counts the changes of a config map, and so nobody minds its generation.
        let expected = json!({"metadata": {
            "name": "a", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 9,
        }});
        assert_eq!(object, expected);
    }

    #[test]
    fn an_update_keeps_identity_and_deletion() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "deletionTimestamp": "t", "finalizers": ["a/b"]}});
        let mut new = json!({"metadata": {"finalizers": ["a/b", "z/z"]}});
        prepare_update(&old, &mut new);
        assert_eq!(new["metadata"]["uid"], "u");
        assert_eq!(new["metadata"]["deletionTimestamp"], "t");
        let errors = validate_update(&old, &new);
        assert_eq!(
            errors[0].to_string(),
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"z/z\"}"
        );
    }

    #[test]
    fn only_one_owner_controls() {
        let owner =
            |name: &str| json!({"apiVersion": "v1", "kind": "A", "name": name, "uid": name, "controller": true});
        let object = json!({"metadata": {"name": "x", "ownerReferences": [owner("b"), owner("b2")]}});
        let errors = validate(&config_map(), &object);
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0]
                .message
                .ends_with("Found \"true\" in references for A/b and A/b2")
        );
    }
}
