use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::patch::builtin_types;

fn patched(kind: &str, original: &Value, patch: &Value) -> Result<Value> {
    let schema = builtin_types().kind("v1", kind).unwrap();
    let original = original.as_object().unwrap().clone();
    strategic_merge_patch(original, patch, schema).map(Value::Object)
}

/// Cases made by the strategic merge of `k8s.io/apimachinery` 0.36.3 itself, one a line.
#[test]
fn patches_give_what_the_kubernetes_library_gives() {
    let mut wrong = Vec::new();
    for line in include_str!("../../../fixtures/strategic-merge.jsonl").lines() {
        let fixture: Value = serde_json::from_str(line).unwrap();
        let case = &fixture["case"];
        let result = patched(case["kind"].as_str().unwrap(), &case["original"], &case["patch"]);
        let expected = match fixture.get("error") {
            Some(words) => Err(words.as_str().unwrap().to_owned()),
            None => Ok(fixture["result"].clone()),
        };
        let result = result.map_err(|error| error.to_string());
        if result != expected {
            wrong.push(format!("{case}\n  expected {expected:?}\n  found    {result:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ, such as\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
}

/// Answers of kube-apiserver 1.36.3.
#[test]
fn bad_patches_are_refused_in_the_servers_words() {
    let format = |words: &str| StrategicError::Format(words.to_owned());
    let content = |words: &str| StrategicError::Content(words.to_owned());
    let cases = [
        (
            json!([]),
            format("json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ),
        (
            json!({"data": {"$retainKeys": ["b"], "c": "1"}}),
            format("invalid patch format of retainKeys"),
        ),
        (
            json!({"data": {"$retainKeys": "b", "c": "1"}}),
            format("invalid patch format of retainKeys"),
        ),
        (
            json!({"metadata": {"$setElementOrder": ["x"]}}),
            format("invalid patch format of setElementOrder list"),
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": ["x"]}}),
            format("invalid patch format of primitive list"),
        ),
        (
            json!({"metadata": {"finalizers": [["x"]]}}),
            StrategicError::ListOfLists,
        ),
        (
            json!({"data": {"$patch": "zork", "z": "1"}}),
            content("unknown patch type: zork in map: map[$patch:zork z:1]"),
        ),
        (
            json!({"$patch": 1}),
            content("unknown patch type: %!s(int64=1) in map: map[$patch:1]"),
        ),
        (
            json!({"$setElementOrder/data": ["a"]}),
            content("expected a []interface {}, but received a map[string]interface {}"),
        ),
    ];
    let original = json!({"metadata": {"name": "x", "finalizers": []}, "data": {"a": "1"}});
    for (patch, error) in cases {
        assert_eq!(patched("ConfigMap", &original, &patch), Err(error), "{patch}");
    }
}

/// Scalars, objects and lists with names, as parts of a patch that may be nonsense.
fn any_json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "containers",
        "env",
        "finalizers",
        "image",
        "metadata",
        "name",
        "spec",
        "volumes",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        prop::sample::select(vec!["a", "b", "delete", "replace"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_panics(original in any_json(), patch in any_json()) {
        if original.is_object() {
            let _ = patched("Pod", &original, &patch);
        }
    }

    #[test]
    fn an_empty_patch_changes_nothing(original in any_json()) {
        if original.is_object() {
            prop_assert_eq!(patched("Pod", &original, &json!({})), Ok(original));
        }
    }
}
