use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::json;

use super::fieldset::{Item, PathElement};
use super::*;
use crate::patch::{Types, builtin_types, merge_patch};

fn gadget_schema() -> TypeSchema<'static> {
    static TYPES: OnceLock<Types> = OnceLock::new();
    let types = TYPES.get_or_init(|| {
        let schema = serde_json::from_str(include_str!("../../../fixtures/gadget-schema.json")).unwrap();
        Types::from_custom_resource("demo.test/v1", "Gadget", &schema).unwrap()
    });
    types.kind("demo.test/v1", "Gadget").unwrap()
}

fn ignored(subresource: &str) -> FieldSet {
    match subresource {
        "status" => FieldSet::of_fields([&["metadata"], &["spec"]]),
        _ => FieldSet::of_fields([&["status"]]),
    }
}

/// What the server does to an object around this code: the one default of the schema, and nulls dropped on decoding.
fn defaulted(mut object: Value) -> Value {
    let items = object.pointer_mut("/spec/items").and_then(Value::as_array_mut);
    for port in items
        .into_iter()
        .flatten()
        .filter_map(|item| item.get_mut("ports")?.as_array_mut())
        .flatten()
    {
        port.as_object_mut()
            .unwrap()
            .entry("protocol")
            .or_insert_with(|| "TCP".into());
    }
    object
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

/// The main endpoint keeps the live status, the status endpoint everything else; both keep the new entries.
fn stored(live: Option<&Value>, new: Value, subresource: &str) -> Value {
    let mut object = new.clone();
    if subresource == "status" {
        object = live.unwrap().clone();
        object["status"] = new["status"].clone();
        object["metadata"]["managedFields"] = new["metadata"]["managedFields"].clone();
    } else {
        object["status"] = live.map_or(Value::Null, |live| live["status"].clone());
    }
    let fields = object.as_object_mut().unwrap();
    fields.retain(|name, value| name != "status" || !value.is_null());
    with_tidy_metadata(object)
}

/// Metadata passes through a Go struct, which omits what is empty.
fn with_tidy_metadata(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let is_empty = |value: &Value| matches!(value, Value::Null) || *value == json!({}) || *value == json!([]);
    metadata.retain(|_, value| !is_empty(value));
    metadata.insert("namespace".to_owned(), "default".into());
    object
}

fn decoded(object: &Value) -> Value {
    with_tidy_metadata(defaulted(without_nulls(object)))
}

/// The time of the write: that of the writer's entry in the recorded answer.
fn time_of(step: &Value) -> Timestamp {
    let operation = if step["op"] == "apply" { "Apply" } else { "Update" };
    let entries = step["result"]["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    let is_ours = |entry: &&Value| {
        entry["manager"] == step["manager"]
            && entry["operation"] == operation
            && entry["subresource"].as_str().unwrap_or_default() == step["subresource"]
    };
    let latest = entries
        .filter(is_ours)
        .filter_map(|entry| entry["time"].as_str()?.parse().ok())
        .max();
    latest.unwrap_or(Timestamp::UNIX_EPOCH)
}

fn replay(step: &Value, live: Option<&Value>, schema: TypeSchema<'_>) -> Result<Value, ApplyError> {
    let subresource = step["subresource"].as_str().unwrap();
    let ignored = ignored(subresource);
    let writer = Writer {
        manager: step["manager"].as_str().unwrap(),
        api_version: "demo.test/v1",
        kind: "Gadget",
        subresource,
        ignored: &ignored,
        now: time_of(step),
    };
    let body = &step["body"];
    let new = match step["op"].as_str().unwrap() {
        "apply" => defaulted(apply(live, body, schema, &writer, step["force"] == true)?),
        "merge" => {
            let mut object = live.unwrap().as_object().unwrap().clone();
            merge_patch(&mut object, body).unwrap();
            track_update(live, decoded(&Value::Object(object)), schema, &writer)
        }
        _ => track_update(live, decoded(body), schema, &writer),
    };
    Ok(stored(live, new, subresource))
}

fn same_errors(error: &ApplyError, answer: &Value) -> bool {
    let ApplyError::Conflicts(conflicts) = error else {
        return error.to_string() == answer["message"];
    };
    // The API server tells the conflicts of several managers in random order.
    let mut told: Vec<String> = conflicts
        .iter()
        .map(|one| format!("conflict with {} {}", one.manager, one.field))
        .collect();
    let causes = answer["causes"].as_array().into_iter().flatten();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let mut expected: Vec<String> = causes
        .map(|cause| format!("{} {}", text(cause, "message"), text(cause, "field")))
        .collect();
    told.sort();
    expected.sort();
    told == expected && (conflicts.len() > 1 || error.to_string() == answer["message"])
}

/// Sequences of writes by several managers and the answers of kube-apiserver 1.36.3, one sequence a line.
#[test]
fn sequences_of_writes_give_what_the_api_server_gives() {
    let schema = gadget_schema();
    let mut wrong = Vec::new();
    let mut steps = 0;
    for line in include_str!("../../../fixtures/apply.jsonl").lines() {
        let sequence: Value = serde_json::from_str(line).unwrap();
        let mut live: Option<Value> = None;
        for step in sequence["steps"].as_array().unwrap() {
            let answer = &step["result"];
            // What validation refuses is not this module's business.
            if step["code"] == 422 {
                continue;
            }
            steps += 1;
            match replay(step, live.as_ref(), schema) {
                Ok(object) if object == *answer => {}
                Err(error) if same_errors(&error, answer) => {}
                found => {
                    let live = live.clone().unwrap_or_default();
                    let (name, found) = (
                        &sequence["name"],
                        found.map_or_else(|error| error.to_string(), |object| object.to_string()),
                    );
                    wrong.push(format!(
                        "{name} {step}\n  live     {live}\n  expected {answer}\n  found    {found}"
                    ));
                }
            }
            if answer["kind"] == "Gadget" {
                live = Some(answer.clone());
            }
        }
    }
    assert!(steps > 100);
    assert!(
        wrong.is_empty(),
        "{} of {steps} steps differ, such as\n{}",
        wrong.len(),
        wrong[..wrong.len().min(3)].join("\n")
    );
}

#[test]
fn a_configuration_outside_the_schema_is_refused_in_the_servers_words() {
    let schema = gadget_schema();
    let ignored = FieldSet::default();
    let writer = Writer {
        manager: "m",
        api_version: "demo.test/v1",
        kind: "Gadget",
        subresource: "",
        ignored: &ignored,
        now: Timestamp::UNIX_EPOCH,
    };
    let refused = |config: Value| apply(None, &config, schema, &writer, false).unwrap_err();
    let with = |spec| {
        refused(json!({"apiVersion": "demo.test/v1", "kind": "Gadget", "metadata": {"name": "ws"}, "spec": spec}))
            .to_string()
    };
    let typed = |words: &str| format!("failed to create typed patch object (/ws; demo.test/v1, Kind=Gadget): {words}");
    assert_eq!(
        with(json!({"zzz": 1})),
        typed(".spec.zzz: field not declared in schema")
    );
    let twice = json!({"items": [{"name": "a"}, {"name": "a"}]});
    assert_eq!(
        with(twice),
        typed(".spec.items: duplicate entries for key [name=\"a\"]")
    );
    let keyless = "associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)";
    assert_eq!(
        with(json!({"items": [{}]})),
        typed(&format!(".spec.items: element 0: {keyless}"))
    );
    assert_eq!(
        refused(json!({})),
        ApplyError::BadRequest("invalid object type: /, Kind=".to_owned())
    );
    let entries = json!({"apiVersion": "demo.test/v1", "kind": "Gadget", "metadata": {"managedFields": []}});
    assert_eq!(
        refused(entries),
        ApplyError::BadRequest("metadata.managedFields must be nil".to_owned())
    );
}

/// What the API server adds to an object after it recorded the owner: allocated addresses, priorities, finalizers.
const ADDED_LATER: &[&str] = &[
    "/spec/clusterIP",
    "/spec/clusterIPs",
    "/spec/ipFamilies",
    "/spec/ipFamilyPolicy",
    "/spec/finalizers",
    "/spec/preemptionPolicy",
    "/spec/priority",
];

fn without_later_additions(object: &Value) -> Value {
    let mut object = object.clone();
    for path in ADDED_LATER {
        let (parent, name) = path.rsplit_once('/').unwrap();
        if let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(name);
        }
    }
    object
}

/// The entries without their times.
fn entries(object: &Value) -> Vec<Value> {
    let mut entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for entry in &mut entries {
        entry.as_object_mut().unwrap().remove("time");
    }
    entries
}

/// One object of each built-in kind as kube-apiserver 1.36.3 stored it: after a POST, after a label was applied to it by
/// another manager, and after it was created by apply.
#[test]
fn owners_of_built_in_kinds_are_those_of_the_api_server() {
    for line in include_str!("../../../fixtures/apply-builtin.jsonl").lines() {
        let fixture: Value = serde_json::from_str(line).unwrap();
        let sent = &fixture["sent"];
        let (api_version, kind) = (sent["apiVersion"].as_str().unwrap(), sent["kind"].as_str().unwrap());
        let schema = builtin_types().kind(api_version, kind).unwrap();
        let ignored = ignored("");
        let writer = |manager| Writer {
            manager,
            api_version,
            kind,
            subresource: "",
            ignored: &ignored,
            now: Timestamp::UNIX_EPOCH,
        };

        let mut posted = without_later_additions(&fixture["posted"]);
        forget_managed_fields(&mut posted);
        let tracked = track_update(None, posted, schema, &writer("poster"));
        assert_eq!(entries(&tracked), entries(&fixture["posted"]), "{kind} posted");

        if fixture["labelled"]["kind"] == kind {
            let label = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": sent["metadata"]["name"], "labels": {"m2": "1"}}});
            let labelled = apply(Some(&fixture["posted"]), &label, schema, &writer("m2"), true).unwrap();
            assert_eq!(entries(&labelled), entries(&fixture["labelled"]), "{kind} labelled");
        }

        let applied = apply(None, sent, schema, &writer("m1"), false).unwrap();
        assert_eq!(entries(&applied), entries(&fixture["applied"]), "{kind} applied");
    }
}

/// The way from client-side to server-side apply, as kube-apiserver 1.36.3 answered: kubectl may take back what still is
/// as it applied it, not what somebody changed since, and its annotation is renewed.
#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "1"}});
    let mut created = config.clone();
    created["metadata"]["annotations"] = json!({annotation: format!("{config}\n")});
    let ignored = FieldSet::default();
    let writer = |manager| Writer {
        manager,
        api_version: "v1",
        kind: "ConfigMap",
        subresource: "",
        ignored: &ignored,
        now: Timestamp::UNIX_EPOCH,
    };
    let schema = builtin_types().kind("v1", "ConfigMap").unwrap();
    let created = track_update(None, created, schema, &writer("kubectl-client-side-apply"));
    let mut changed = created.clone();
    changed["data"]["b"] = json!("2");
    let live = track_update(Some(&created), changed, schema, &writer("other"));

    let mut next = config.clone();
    next["data"]["a"] = json!("9");
    let refused = apply(Some(&live), &next, schema, &writer("kubectl"), false).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Apply failed with 1 conflict: conflict with \"other\" using v1: .data.b"
    );

    next["data"].as_object_mut().unwrap().remove("b");
    let applied = apply(Some(&live), &next, schema, &writer("kubectl"), false).unwrap();
    assert_eq!(applied["data"], json!({"a": "9", "b": "2"}));
    let renewed =
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"9\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"}}\n";
    assert_eq!(applied["metadata"]["annotations"][annotation], renewed);
    let fields: Vec<Value> = entries(&applied)
        .iter()
        .map(|entry| entry["fieldsV1"].clone())
        .collect();
    let annotations = json!({"f:annotations": {".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}}});
    let expected = [
        json!({"f:data": {"f:a": {}}}),
        json!({"f:data": {}, "f:metadata": annotations}),
        json!({"f:data": {"f:b": {}}}),
    ];
    assert_eq!(fields, expected);
}

#[test]
fn the_oldest_updates_are_folded_into_one_entry() {
    let schema = builtin_types().kind("v1", "ConfigMap").unwrap();
    let ignored = FieldSet::default();
    let mut live = json!({"metadata": {"name": "c"}, "data": {"k0": "0"}});
    for index in 0..12 {
        let manager = format!("m{index:02}");
        let now = Timestamp::from_second(1_000 + index).unwrap();
        let writer = Writer {
            manager: &manager,
            api_version: "v1",
            kind: "ConfigMap",
            subresource: "",
            ignored: &ignored,
            now,
        };
        let mut next = live.clone();
        next["data"][format!("k{index}")] = json!("1");
        live = track_update((index > 0).then_some(&live), next, schema, &writer);
    }
    let managers: Vec<String> = entries(&live)
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(managers.len(), 10);
    assert_eq!(managers[0], "ancient-changes");
    assert_eq!(
        entries(&live)[0]["fieldsV1"]["f:data"],
        json!({".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}})
    );
}

/// A spec of the test kind, no part of it empty: of what is emptied the API server keeps a null. Two of them over
/// different letters share no field and no list item.
fn spec(letters: &'static str) -> impl Strategy<Value = Value> {
    let letter = move || (0..letters.len()).prop_map(move |at| letters[at..=at].to_owned());
    let text_map = move || prop::collection::btree_map(letter(), "[01]", 1..3);
    let port = (prop::sample::select(vec![80, 443]), prop::option::of("UDP|TCP"));
    let ports = prop::collection::btree_map(port, prop::option::of("[hk]"), 0..3).prop_map(|ports| {
        let port = |((port, protocol), host): ((i32, Option<String>), Option<String>)| json!({"port": port, "protocol": protocol.unwrap_or_else(|| "SCTP".to_owned()), "host": host.unwrap_or_default()});
        ports.into_iter().map(port).collect::<Vec<Value>>()
    });
    let items = prop::collection::btree_map(letter(), ("[01]", ports), 1..3).prop_map(|items| {
        let item = |(name, (value, ports)): (String, (String, Vec<Value>))| json!({"name": name, "value": value, "ports": ports});
        items.into_iter().map(item).collect::<Vec<Value>>()
    });
    let tags = prop::collection::btree_set(letter(), 1..3);
    (text_map(), items, tags, text_map())
        .prop_map(|(labels, items, tags, free)| json!({"labels": labels, "items": items, "tags": tags, "free": free}))
}

fn gadget(spec: &Value) -> Value {
    json!({"apiVersion": "demo.test/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": spec})
}

fn apply_gadget(live: Option<&Value>, spec: &Value, manager: &str, second: i64) -> Value {
    let schema = gadget_schema();
    let ignored = FieldSet::default();
    let now = Timestamp::from_second(second).unwrap();
    let writer = Writer {
        manager,
        api_version: "demo.test/v1",
        kind: "Gadget",
        subresource: "",
        ignored: &ignored,
        now,
    };
    apply(live, &gadget(spec), schema, &writer, true).unwrap()
}

/// Lists of which the order does not matter, in one order.
fn sorted(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => items.sort_by_key(Value::to_string),
        Value::Object(fields) => fields.values_mut().for_each(|field| *field = sorted(field.take())),
        _ => {}
    }
    value
}

fn path_element() -> impl Strategy<Value = PathElement> {
    let item = || {
        prop_oneof![
            "[a-c\"]{0,2}".prop_map(|text| Item(text.into())),
            any::<i8>().prop_map(|number| Item(number.into()))
        ]
    };
    prop_oneof![
        "[a-c:.]{1,2}".prop_map(PathElement::Field),
        item().prop_map(PathElement::Value),
        any::<i8>().prop_map(|index| PathElement::Index(index.into())),
        prop::collection::btree_map("[a-c]", item(), 1..3)
            .prop_map(|keys| PathElement::Key(keys.into_iter().collect())),
    ]
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(first in spec("abcd"), second in spec("abcd")) {
        let live = apply_gadget(None, &first, "one", 1);
        let once = apply_gadget(Some(&live), &second, "two", 2);
        prop_assert_eq!(&apply_gadget(Some(&once), &second, "two", 3), &once);
    }

    #[test]
    fn managers_of_disjoint_fields_commute(left in spec("ab"), right in spec("cd")) {
        let there = apply_gadget(Some(&apply_gadget(None, &left, "left", 1)), &right, "right", 1);
        let back = apply_gadget(Some(&apply_gadget(None, &right, "right", 1)), &left, "left", 1);
        prop_assert_eq!(sorted(there["spec"].clone()), sorted(back["spec"].clone()));
        let owned = |object: &Value| entries(object).iter().map(|entry| entry["fieldsV1"].clone()).collect::<Vec<_>>();
        prop_assert_eq!(owned(&there), owned(&back));
    }

    #[test]
    fn an_applier_owns_every_field_it_applied(first in spec("abcd"), second in spec("abcd")) {
        let live = apply_gadget(Some(&apply_gadget(None, &first, "one", 1)), &second, "two", 2);
        let schema = gadget_schema();
        let managed = Managed::decode(&live).unwrap();
        let identity = Identity::new("two", Operation::Apply, "", "");
        let owned = managed.0.get(&identity).map(|entry| entry.fields.clone()).unwrap_or_default();
        let applied = typed::field_set(schema, &gadget(&second)).difference(unowned_metadata());
        prop_assert!(applied.difference(&owned).is_empty());
    }

    #[test]
    fn what_an_applier_drops_disappears(first in spec("ab"), second in spec("cd")) {
        let live = apply_gadget(Some(&apply_gadget(None, &first, "one", 1)), &second, "one", 2);
        prop_assert_eq!(sorted(live["spec"].clone()), sorted(apply_gadget(None, &second, "one", 2)["spec"].clone()));
    }

    #[test]
    fn field_sets_survive_being_stored(paths in prop::collection::vec(prop::collection::vec(path_element(), 1..4), 0..8)) {
        let mut set = FieldSet::default();
        paths.iter().for_each(|path| set.insert(path));
        prop_assert_eq!(fields_v1::decode(&fields_v1::encode(&set)), Ok(set));
    }
}
