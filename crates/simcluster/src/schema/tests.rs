use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const PATH: &str = "spec.validation.openAPIV3Schema";

fn sprocket_json() -> Value {
    serde_json::from_str(include_str!("../../fixtures/sprocket-schema.json")).unwrap()
}

fn sprocket() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::compile(PATH, &sprocket_json()).unwrap())
}

fn sprocket_without_rules() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let mut schema = sprocket_json();
        drop_rules(&mut schema);
        Schema::compile(PATH, &schema).unwrap()
    })
}

/// Objects written to kube-apiserver 1.36.3 and what it answered: the stored spec or the causes, and its warnings.
#[test]
fn objects_are_judged_as_the_api_server_judges_them() {
    let schema = sprocket();
    let mut wrong = Vec::new();
    for line in include_str!("../../fixtures/schema.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut object = json!({"apiVersion": "demo.test/v1", "kind": "Sprocket", "spec": case["new"]});
        let old = (!case["old"].is_null())
            .then(|| json!({"apiVersion": "demo.test/v1", "kind": "Sprocket", "spec": case["old"]}));
        let unknown = schema.prune(&mut object);
        schema.default(&mut object);
        let found = schema.validate(&object, old.as_ref());
        let mut causes: Vec<Value> = found
            .errors
            .iter()
            .map(|error| json!([error.reason(), error.message, error.field_or_nil()]))
            .collect();
        causes.sort_by_key(Value::to_string);
        let mut expected = case["answer"]["causes"].as_array().cloned().unwrap_or_default();
        expected.sort_by_key(Value::to_string);
        // The API server tells some causes of an update twice.
        expected.dedup();
        let is_stored = causes.is_empty() && case["answer"]["spec"] == stored(&object["spec"]);
        let header = |text: &str| Value::from(format!("299 - {text:?}"));
        let mut warnings: Vec<Value> = unknown
            .iter()
            .map(|path| header(&format!("unknown field {path:?}")))
            .collect();
        warnings.extend(found.warnings.iter().map(|text| header(text)));
        let same_warnings = warnings == *case["warnings"].as_array().unwrap();
        let is_right = if expected.is_empty() {
            is_stored
        } else {
            causes == expected
        };
        if !is_right || !same_warnings {
            wrong.push(format!(
                "{case}\n  causes   {causes:?}\n  warnings {warnings:?}\n  spec     {}",
                object["spec"]
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ, such as\n{}",
        wrong.len(),
        wrong[..wrong.len().min(8)].join("\n")
    );
}

/// Whole floats are written without a fraction.
fn stored(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|value| value.fract() == 0.0) => {
            json!(number.as_f64().unwrap() as i64)
        }
        Value::Array(items) => items.iter().map(stored).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), stored(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Schemas of CustomResourceDefinitions and the causes with which kube-apiserver 1.36.3 refused them, if it did.
#[test]
fn schemas_are_refused_as_the_api_server_refuses_them() {
    let mut wrong = Vec::new();
    for line in include_str!("../../fixtures/structural.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let errors = Schema::compile(PATH, &case["schema"]).err().unwrap_or_default();
        let mut causes: Vec<Value> = errors
            .iter()
            .map(|error| json!([error.reason(), error.message, error.field]))
            .collect();
        causes.sort_by_key(Value::to_string);
        let mut expected = case["causes"].as_array().unwrap().clone();
        expected.sort_by_key(Value::to_string);
        if causes != expected {
            wrong.push(format!("{case}\n  found {causes:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} schemas differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn rules_that_cannot_be_compiled_are_refused() {
    let with_rule = |rule: Value| json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [rule]}}});
    let refused = |rule: Value| Schema::compile(PATH, &with_rule(rule)).unwrap_err()[0].to_string();
    let shown = "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self ==\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:8: Syntax error";
    assert!(
        refused(json!({"rule": "self =="})).starts_with(shown),
        "{}",
        refused(json!({"rule": "self =="}))
    );
    let items = json!({"type": "object", "properties": {"a": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}}});
    let detail = "oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[a]";
    let refusal = &Schema::compile(PATH, &items).unwrap_err()[0].message;
    assert!(refusal.ends_with(detail), "{refusal}");
}

/// The old self of an optional rule is an optional; the first write meets it empty.
#[test]
fn optional_old_self_is_an_optional() {
    let rule = json!({"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true, "message": "must not shrink"});
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": [rule]}}});
    let schema = Schema::compile(PATH, &schema).unwrap();
    let judged = |new: i64, old: Option<i64>| {
        let old = old.map(|old| json!({"n": old}));
        schema
            .validate(&json!({"n": new}), old.as_ref())
            .errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(judged(1, None), Vec::<String>::new());
    assert_eq!(judged(3, Some(2)), Vec::<String>::new());
    assert_eq!(judged(1, Some(2)), ["n: Invalid value: 1: must not shrink"]);
}

#[test]
fn fields_that_stand_twice_are_found() {
    let json = br#"{"a":1,"b":{"c":1,"c":2,"c":3},"l":[{"x":1},{"x":1,"x":2}],"a":2}"#;
    assert_eq!(duplicate_fields(json), ["b.c", "l[1].x", "a"]);
    assert_eq!(duplicate_fields(br#"{"a":1,"a":2,"#), ["a"]);
    assert!(duplicate_fields(b"not json").is_empty());
}

/// Objects of the test kind, valid or not.
fn any_spec() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "must", "bad", "min", "items", "tags", "labels", "ios", "nul", "one", "all", "free", "dflt", "emb", "name",
        "n", "zz",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// An error in evaluating a rule is not forgiven, so the next property leaves rules out.
fn drop_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(drop_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_rules),
        _ => {}
    }
}

proptest! {
    #[test]
    fn decoding_twice_is_decoding_once(spec in any_spec()) {
        let schema = sprocket();
        let mut once = json!({"spec": spec});
        schema.prune(&mut once);
        schema.default(&mut once);
        let mut twice = once.clone();
        prop_assert_eq!(schema.prune(&mut twice), Vec::<String>::new());
        schema.default(&mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn what_is_unchanged_is_forgiven_by_the_schema(spec in any_spec()) {
        let schema = sprocket_without_rules();
        let mut object = json!({"spec": spec});
        schema.prune(&mut object);
        schema.default(&mut object);
        let again = schema.validate(&object, Some(&object));
        // Nothing correlates fields of preserved objects and items of list-maps without keys: errors beside them stay.
        if !["free", "emb", "items"].iter().any(|name| object["spec"].get(name).is_some()) {
            prop_assert_eq!(again.errors, Vec::new());
        }
    }
}
