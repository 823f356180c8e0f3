//! Objects that a structural schema allows, made at random.
//!
//! Every optional field is present in some of them, so what a type forgets is found without listing fields by hand.

use proptest::prelude::*;
use proptest::strategy::BoxedStrategy;
use serde_json::{Map, Value, json};

/// Below this depth only required fields are filled in, which keeps a pod spec of 900 fields within bounds.
const DEPTH_MAX: u32 = 9;

/// Objects of the kind whose CustomResourceDefinition is given, with a name and a namespace.
pub(crate) fn objects_of(definition: &Value) -> BoxedStrategy<Value> {
    let names = &definition["spec"]["names"];
    let version = &definition["spec"]["versions"][0];
    let api_version = format!("{}/{}", text(&definition["spec"]["group"]), text(&version["name"]));
    let kind = text(&names["kind"]).to_owned();
    value_of(&version["schema"]["openAPIV3Schema"], 0)
        .prop_map(move |mut object| {
            object["apiVersion"] = json!(api_version);
            object["kind"] = json!(kind);
            object["metadata"] = json!({ "name": "generated", "namespace": "default" });
            object
        })
        .boxed()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a definition has texts here")
}

fn value_of(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return prop::sample::select(words.clone()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        let pattern = schema["pattern"]
            .as_str()
            .map_or_else(|| "[a-z]{1,8}".to_owned(), unanchored);
        return matching(&pattern);
    }
    match schema["type"].as_str() {
        Some("object") => object_of(schema, depth),
        Some("array") => prop::collection::vec(value_of(&schema["items"], depth + 1), 1..3)
            .prop_map(Value::from)
            .boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") if schema["format"] == "int64" => any::<i64>().prop_map(Value::from).boxed(),
        Some("integer") => any::<i32>().prop_map(Value::from).boxed(),
        Some("number") => (0_u32..1000).prop_map(|n| json!(f64::from(n) / 8.0)).boxed(),
        Some("string") => string_of(schema),
        other => panic!("a structural schema has no type {other:?}: {schema}"),
    }
}

fn string_of(schema: &Value) -> BoxedStrategy<Value> {
    if schema["format"] == "date-time" {
        return (0_i64..4_000_000_000)
            .prop_map(|second| json!(k8s_openapi::jiff::Timestamp::from_second(second).unwrap().to_string()))
            .boxed();
    }
    let pattern = schema["pattern"]
        .as_str()
        .map_or_else(|| "[ -~µ☃]{0,12}".to_owned(), unanchored);
    matching(&pattern)
}

fn unanchored(pattern: &str) -> String {
    pattern.trim_start_matches('^').trim_end_matches('$').to_owned()
}

fn matching(pattern: &str) -> BoxedStrategy<Value> {
    prop::string::string_regex(pattern)
        .expect("our patterns are plain")
        .prop_map(Value::from)
        .boxed()
}

fn object_of(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    if let Some(properties) = schema["properties"].as_object() {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        return properties
            .iter()
            .fold(Just(json!({})).boxed(), |object, (name, property)| {
                let value = || value_of(property, depth + 1);
                let value = match (required.contains(&name.as_str()), chance_at(depth)) {
                    (true, _) => value().prop_map(Some).boxed(),
                    (false, None) => return object,
                    (false, Some(chance)) => prop::option::weighted(chance, value()).boxed(),
                };
                with_property(object, name.clone(), value)
            });
    }
    let values = match schema.get("additionalProperties") {
        // Anything goes.
        None | Some(Value::Bool(_)) => any::<i32>().prop_map(Value::from).boxed(),
        Some(values) => value_of(values, depth + 1),
    };
    prop::collection::btree_map("[a-z]{1,6}(/[a-z]{1,6})?", values, 1..3)
        .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>()))
        .boxed()
}

fn with_property(
    object: BoxedStrategy<Value>,
    name: String,
    value: BoxedStrategy<Option<Value>>,
) -> BoxedStrategy<Value> {
    (object, value)
        .prop_map(move |(mut object, value)| {
            if let Some(value) = value {
                object[&name] = value;
            }
            object
        })
        .boxed()
}

/// How likely an optional field is present; below a depth it never is.
fn chance_at(depth: u32) -> Option<f64> {
    match depth {
        0..=4 => Some(0.7),
        5..DEPTH_MAX => Some(0.25),
        _ => None,
    }
}
