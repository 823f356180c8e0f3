//! What is left of an object when it passes through the Go type of its kind: unknown fields are gone, and nulls too.

use serde_json::{Map, Value};

use super::types::{ListView, MapView, Scalar, TypeSchema};

/// Removes what the type of a built-in kind does not know and returns the paths, for `fieldValidation`, in the order of
/// the object's fields. A null field goes; a null value of a map of texts (labels, data) is an empty text.
pub fn decode_builtin(object: &mut Value, schema: TypeSchema<'_>) -> Vec<String> {
    let mut unknown = Vec::new();
    visit(schema, object, "", &mut unknown);
    unknown
}

/// Removes empty maps, which Go's types leave out. An empty struct stays: it says that something is wanted.
pub fn drop_empty_maps(object: &mut Value, schema: TypeSchema<'_>) {
    match (object, schema.map(), schema.list()) {
        (_, Some(_), Some(_)) => {}
        (Value::Object(fields), Some(map), _) => fields.retain(|name, value| {
            let Some(schema) = map.field(name) else { return true };
            let is_map = schema.list().is_none() && schema.map().is_some_and(MapView::is_plain);
            if is_map && value.as_object().is_some_and(Map::is_empty) {
                return false;
            }
            drop_empty_maps(value, schema);
            true
        }),
        (Value::Array(items), _, Some(ListView { items: schema, .. })) => {
            items.iter_mut().for_each(|item| drop_empty_maps(item, schema));
        }
        _ => {}
    }
}

fn visit(schema: TypeSchema<'_>, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match (value, schema.map(), schema.list()) {
        // A type of any shape holds raw JSON, which is kept as it is.
        (_, Some(_), Some(_)) => {}
        (Value::Object(fields), Some(map), _) => visit_fields(map, fields, path, unknown),
        (Value::Array(items), _, Some(ListView { items: schema, .. })) => {
            for (at, item) in items.iter_mut().enumerate() {
                visit(schema, item, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

fn visit_fields(map: MapView<'_>, fields: &mut Map<String, Value>, path: &str, unknown: &mut Vec<String>) {
    fields.retain(|name, value| {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let Some(schema) = map.field(name) else {
            unknown.push(path);
            return false;
        };
        if !value.is_null() {
            visit(schema, value, &path, unknown);
            return true;
        }
        match schema.scalar().filter(|_| map.is_plain()) {
            Some(Scalar::String) => *value = Value::from(""),
            Some(Scalar::Number) => *value = Value::from(0),
            Some(Scalar::Boolean) => *value = Value::from(false),
            Some(Scalar::Any) | None => return false,
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::patch::builtin_types;

    /// Paths and results seen on kube-apiserver 1.36.3.
    #[test]
    fn unknown_fields_and_nulls_go() {
        let decoded = |kind, mut object: Value| {
            let schema = builtin_types().kind("v1", kind).unwrap();
            let mut unknown = decode_builtin(&mut object, schema);
            unknown.sort();
            (object, unknown)
        };
        let sent = json!({
            "metadata": {"name": "u", "zz": 1, "labels": {"a": null}}, "foo": 1, "data": {"b": null, "c": "x"}, "binaryData": null,
        });
        let kept = json!({"metadata": {"name": "u", "labels": {"a": ""}}, "data": {"b": "", "c": "x"}});
        assert_eq!(
            decoded("ConfigMap", sent),
            (kept, vec!["foo".to_owned(), "metadata.zz".to_owned()])
        );

        let container = json!({"name": "c", "nope": {"a": 1}, "env": [{"name": "x", "bad": 1}], "ports": null});
        let volume = json!({"name": "v", "emptyDir": {"q": 1}});
        let sent = json!({"spec": {"containers": [container], "volumes": [volume], "nodeSelector": null}, "zeta": 1});
        let (kept, unknown) = decoded("Pod", sent);
        let volumes = json!([{"name": "v", "emptyDir": {}}]);
        let containers = json!([{"name": "c", "env": [{"name": "x"}]}]);
        assert_eq!(kept, json!({"spec": {"containers": containers, "volumes": volumes}}));
        let expected = [
            "spec.containers[0].env[0].bad",
            "spec.containers[0].nope",
            "spec.volumes[0].emptyDir.q",
            "zeta",
        ];
        assert_eq!(unknown, expected);
    }

    #[test]
    fn raw_json_is_kept_as_it_is() {
        let schema = builtin_types().kind("apps/v1", "ControllerRevision").unwrap();
        let mut object = json!({"revision": 1, "data": {"a": null, "b": {"c": [null]}}});
        let sent = object.clone();
        assert!(decode_builtin(&mut object, schema).is_empty());
        assert_eq!(object, sent);
    }
}
