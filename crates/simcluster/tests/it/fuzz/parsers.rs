//! Everything that reads what somebody wrote: an input becomes a sort of answer.

use std::sync::LazyLock;

use grove_simcluster::patch::{self, FieldSet, JsonPatch, Types, Writer};
use grove_simcluster::rules::quantity::Quantity;
use grove_simcluster::schema::{Schema, duplicate_fields};
use grove_simcluster::selector::{FieldSelector, LabelSelector};
use grove_simcluster::table::{IncludeObject, Printer};
use grove_simcluster::{protobuf, status};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::sort_of;

type Parse = fn(&[u8]) -> String;

pub(super) const ALL: [(&str, Parse); 11] = [
    ("label-selector", label_selector),
    ("field-selector", field_selector),
    ("quantity", quantity),
    ("json-path", json_path),
    ("cel", cel),
    ("json-patch", json_patch),
    ("merge-patch", merge_patch),
    ("strategic", strategic),
    ("apply", apply),
    ("schema", schema),
    ("protobuf", protobuf),
];

fn told<T, E: std::fmt::Display>(result: Result<T, E>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => sort_of(&error.to_string()),
    }
}

fn sample() -> Value {
    json!({"metadata": {"name": "a", "namespace": "b", "labels": {"app": "x", "tier": "1"}},
           "spec": {"n": 3, "s": "text", "list": [1, 2, 3], "items": [{"name": "a", "v": 1}, {"name": "b", "v": 2}],
                    "map": {"k": "v"}, "when": "2026-01-01T00:00:00Z", "nodeName": "n"}})
}

fn label_selector(input: &[u8]) -> String {
    let parsed = LabelSelector::parse(&String::from_utf8_lossy(input));
    if let Ok(selector) = &parsed {
        return format!("ok {} {}", selector.is_empty(), selector.matches(&sample()));
    }
    told(parsed)
}

fn field_selector(input: &[u8]) -> String {
    let known = |field: &str| match field {
        "metadata.name" | "spec.nodeName" => Ok(()),
        other => Err(format!("field label not supported: {other}")),
    };
    let parsed = FieldSelector::parse(&String::from_utf8_lossy(input), known);
    if let Ok(selector) = &parsed {
        return format!("ok {}", selector.matches(&sample()));
    }
    told(parsed)
}

fn quantity(input: &[u8]) -> String {
    let Some(read) = Quantity::parse(&String::from_utf8_lossy(input)) else {
        return "none".to_owned();
    };
    // What is written is read as the same, unless it has more digits than anybody means.
    if let Some(again) = Quantity::parse(&read.canonical()) {
        assert_eq!(again.millis(), read.millis(), "{}", read.canonical());
    }
    let _ = (read.plus(read).canonical(), read.minus(read).canonical());
    format!("ok {}", read.canonical().len())
}

fn json_path(input: &[u8]) -> String {
    let column = json!({"name": "A", "type": "string", "jsonPath": String::from_utf8_lossy(input)});
    let printer = Printer::custom(&[column]);
    if let Ok(printer) = &printer {
        let row = printer.row(&sample(), IncludeObject::None, Timestamp::UNIX_EPOCH);
        return format!("ok {}", sort_of(&row["cells"][1].to_string()));
    }
    told(printer)
}

fn cel(input: &[u8]) -> String {
    let rule = json!({"rule": String::from_utf8_lossy(input)});
    let schema = json!({"type": "object", "properties": {"spec": {
    "type": "object", "x-kubernetes-validations": [rule],
    "properties": {
        "n": {"type": "integer"}, "s": {"type": "string"}, "list": {"type": "array", "items": {"type": "integer"}},
        "items": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "v": {"type": "integer"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "when": {"type": "string", "format": "date-time"}, "nodeName": {"type": "string"},
    }}}});
    judged(&schema, &sample(), Some(&sample()))
}

fn judged(schema: &Value, object: &Value, old: Option<&Value>) -> String {
    match Schema::compile("spec", schema) {
        Ok(schema) => {
            let mut object = object.clone();
            let pruned = schema.prune(&mut object).len();
            schema.default(&mut object);
            let validation = schema.validate(&object, old);
            let first = validation.errors.first().map(ToString::to_string).unwrap_or_default();
            format!("ok {} {}", pruned.min(3), sort_of(&first))
        }
        Err(errors) => {
            let error: Option<&status::FieldError> = errors.first();
            sort_of(&error.map(ToString::to_string).unwrap_or_default())
        }
    }
}

/// The two values that an input holds.
fn pair(input: &[u8]) -> Option<(Value, Value)> {
    serde_json::from_slice(input).ok()
}

fn json_patch(input: &[u8]) -> String {
    let Some((mut object, patch)) = pair(input) else {
        return "no pair".to_owned();
    };
    told(JsonPatch::decode(&patch).and_then(|patch| patch.apply(&mut object)))
}

fn merge_patch(input: &[u8]) -> String {
    match pair(input) {
        Some((Value::Object(mut object), patch)) => told(patch::merge_patch(&mut object, &patch)),
        _ => "no pair".to_owned(),
    }
}

fn strategic(input: &[u8]) -> String {
    let Some((Value::Object(object), patch)) = pair(input) else {
        return "no pair".to_owned();
    };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("Pod");
    let types = patch::builtin_types();
    let Some(schema) = types.kind("v1", kind).or_else(|| types.kind("v1", "Pod")) else {
        return "no kind".to_owned();
    };
    told(patch::strategic_merge_patch(object.clone(), &patch, schema))
}

fn apply(input: &[u8]) -> String {
    static CUSTOM: LazyLock<Types> = LazyLock::new(|| {
        let schema = serde_json::from_str(include_str!("../../../fixtures/gadget-schema.json")).unwrap();
        Types::from_custom_resource("demo.test/v1", "Gadget", &schema).unwrap()
    });
    let Some((live, config)) = pair(input) else {
        return "no pair".to_owned();
    };
    let api_version = config["apiVersion"].as_str().unwrap_or("v1");
    let kind = config["kind"].as_str().unwrap_or("Pod");
    let known = CUSTOM.kind(api_version, kind);
    let Some(schema) = known.or_else(|| patch::builtin_types().kind(api_version, kind)) else {
        return "no kind".to_owned();
    };
    let ignored = FieldSet::default();
    let writer = Writer {
        manager: "m",
        api_version,
        kind,
        subresource: "",
        ignored: &ignored,
        now: Timestamp::UNIX_EPOCH,
    };
    let live = Some(&live).filter(|live| live.is_object());
    told(patch::apply(live, &config, schema, &writer, false))
}

fn schema(input: &[u8]) -> String {
    let repeated = duplicate_fields(input).len().min(2);
    match pair(input) {
        Some((schema, object)) => format!("{repeated} {}", judged(&schema, &object, None)),
        None => format!("{repeated} no pair"),
    }
}

fn protobuf(input: &[u8]) -> String {
    told(protobuf::decode(input))
}
