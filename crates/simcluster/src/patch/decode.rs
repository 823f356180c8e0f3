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

/// Whether an object is certain to come out of the type of its kind as it went in: every field is known and of its plain
/// type, and none is missing that the type always has. What stands for something else (times, bytes, large numbers) is
/// not judged here, and nulls are dropped by the type: for those the answer is no.
pub fn is_plain(object: &Value, schema: TypeSchema<'_>) -> bool {
    match (object, schema.map(), schema.list(), schema.scalar()) {
        (Value::Object(fields), Some(map), None, _) => {
            let known =
                |(name, value): (&String, &Value)| map.field(name).is_some_and(|schema| is_plain(value, schema));
            fields.iter().all(known) && map.required().all(|name| fields.contains_key(name))
        }
        (Value::Array(items), None, Some(list), _) => items.iter().all(|item| is_plain(item, list.items)),
        (Value::String(_), None, None, Some(Scalar::String)) | (Value::Bool(_), None, None, Some(Scalar::Boolean)) => {
            true
        }
        (Value::String(_), None, None, Some(Scalar::Any)) => schema.short_name() == "Quantity",
        (Value::Number(number), None, None, Some(Scalar::Number)) => {
            number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        }
        _ => false,
    }
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
            Some(Scalar::String | Scalar::Bytes) => *value = Value::from(""),
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
    fn only_what_the_type_leaves_alone_is_plain() {
        let plain = |spec: Value| {
            let pod = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec});
            is_plain(&pod, builtin_types().kind("v1", "Pod").unwrap())
        };
        let container = |more: Value| {
            let mut container = json!({"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}});
            container
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"containers": [container], "hostNetwork": true})
        };
        assert!(plain(container(json!({"ports": [{"containerPort": 80}]}))));
        for (why, more) in [
            ("an unknown field", json!({"nope": 1})),
            ("a null", json!({"image": null})),
            ("a wrong type", json!({"image": 5})),
            ("a number as a quantity", json!({"resources": {"limits": {"cpu": 1}}})),
            (
                "a number or a text",
                json!({"livenessProbe": {"httpGet": {"port": "http"}}}),
            ),
            ("a field that is always there", json!({"env": [{"value": "v"}]})),
            (
                "a number that is too large",
                json!({"ports": [{"containerPort": 5_000_000_000_i64}]}),
            ),
        ] {
            assert!(!plain(container(more)), "{why}");
        }
        let secret = json!({"data": {"a": "AA=="}});
        assert!(!is_plain(&secret, builtin_types().kind("v1", "Secret").unwrap()));
        let timed = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00+02:00"}});
        assert!(!is_plain(&timed, builtin_types().kind("v1", "ConfigMap").unwrap()));
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
