//! Conversion: what comes back is what went, and means the same on the way.

use grove_dynamo::convert::{KEPT_NEW, KEPT_OLD, convert};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate;

const OLD: &str = "nvidia.com/v1alpha1";
const NEW: &str = "nvidia.com/v1beta1";

fn there_and_back(object: &Value, there: &str, back: &str) -> Value {
    let other = convert(object, there).expect("a well-formed object");
    assert_eq!(other["apiVersion"], there);
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        assert_eq!(
            other["metadata"][field], object["metadata"][field],
            "the API server refuses a change of {field}"
        );
    }
    convert(&other, back).expect("what was converted")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn the_older_version_comes_back_as_it_was(object in generate::old()) {
        prop_assert_eq!(there_and_back(&object, NEW, OLD), object);
    }

    /// The API server fills in defaults when it reads what it stored.
    #[test]
    fn the_older_version_comes_back_from_storage_as_it_was(object in generate::old()) {
        let stored = generate::read_from_storage(convert(&object, NEW).unwrap());
        prop_assert_eq!(convert(&stored, OLD).unwrap(), object);
    }

    #[test]
    fn the_newer_version_comes_back_as_it_was(object in generate::new().prop_map(generate::read_from_storage)) {
        prop_assert_eq!(there_and_back(&object, OLD, NEW), object);
    }

    /// A reader of one version and a writer of the other meet again and again.
    #[test]
    fn a_second_round_adds_nothing(object in generate::old()) {
        let once = convert(&object, NEW).unwrap();
        let twice = convert(&convert(&once, OLD).unwrap(), NEW).unwrap();
        prop_assert_eq!(once, twice);
    }
}

fn graph(version: &str, spec: Value) -> Value {
    json!({"apiVersion": version, "kind": "DynamoGraphDeployment", "metadata": {"name": "g"}, "spec": spec})
}

/// What is filled in there must be all that the schema fills in: another default would come back as if it had been written.
#[test]
fn these_are_all_the_defaults_of_the_schema() {
    fn defaults(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
        if let Some(default) = schema.get("default") {
            found.push((path.to_owned(), default.clone()));
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            defaults(property, &format!("{path}.{name}"), found);
        }
        if schema["items"].is_object() {
            defaults(&schema["items"], path, found);
        }
    }
    let mut definitions = grove_api::crds::all().into_iter();
    let graphs = definitions.find(|definition| definition.spec.names.kind == "DynamoGraphDeployment");
    let mut found = Vec::new();
    for version in graphs.expect("a definition").spec.versions {
        defaults(&json!(version.schema)["openAPIV3Schema"], &version.name, &mut found);
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let component = "v1beta1.spec.components";
    let expected = [
        (format!("{component}.multinode.nodeCount"), json!(2)),
        (format!("{component}.replicas"), json!(1)),
    ];
    assert_eq!(found, expected);
}

/// A service that leaves its number to the default, in a spelling that does not come back by itself.
#[test]
fn a_default_that_was_filled_in_was_not_written() {
    let services = json!({
        "Plain": {"componentType": "frontend"},
        "Worker": {"resources": {"limits": {"gpu": "1", "gpuType": "vendor.example/gpu"}}, "multinode": {}},
    });
    let old = graph(OLD, json!({"services": services}));
    let stored = generate::read_from_storage(convert(&old, NEW).unwrap());
    assert_eq!(stored["spec"]["components"][1]["multinode"], json!({"nodeCount": 2}));
    assert_eq!(convert(&stored, OLD).unwrap(), old);
    // Somebody asks for another number: that is told.
    let mut scaled = stored;
    scaled["spec"]["components"][0]["replicas"] = json!(3);
    let seen = convert(&scaled, OLD).unwrap();
    assert_eq!(
        seen["spec"]["services"]["Plain"],
        json!({"componentType": "frontend", "replicas": 3})
    );
    assert_eq!(seen["spec"]["services"]["Worker"], services["Worker"]);
}

#[test]
fn a_list_and_a_map_of_services_are_the_same_components() {
    let worker = json!({"componentType": "worker", "replicas": 2});
    let mut named = worker.clone();
    named["name"] = json!("Worker");
    let map = convert(&graph(OLD, json!({"services": {"Worker": worker}})), NEW).unwrap();
    let list = convert(&graph(OLD, json!({"services": [named]})), NEW).unwrap();
    assert_eq!(map["spec"], list["spec"]);
    assert_eq!(
        map["spec"]["components"],
        json!([{"name": "Worker", "type": "worker", "replicas": 2}])
    );
    assert!(map["metadata"]["annotations"].is_null(), "the usual form needs no note");
    assert!(list["metadata"]["annotations"][KEPT_OLD].is_string());
}

#[test]
fn a_pod_is_put_together_and_taken_apart() {
    let old = json!({"services": {"Worker": {
        "componentType": "worker", "subComponentType": "decode", "replicas": 1,
        "resources": {"limits": {"gpu": "8", "custom": {"rdma/ib": "1"}}},
        "envs": [{"name": "A", "value": "b"}], "envFromSecret": "token", "sharedMemory": {"size": "1Gi"},
        "extraPodMetadata": {"labels": {"team": "chat"}},
        "extraPodSpec": {"nodeSelector": {"pool": "h100"}, "mainContainer": {"image": "i"}, "containers": [{"name": "side"}]},
    }}});
    let new = convert(&graph(OLD, old.clone()), NEW).unwrap();
    let main = json!({
        "name": "main", "image": "i", "env": [{"name": "A", "value": "b"}], "envFrom": [{"secretRef": {"name": "token"}}],
        "resources": {"limits": {"nvidia.com/gpu": "8", "rdma/ib": "1"}},
    });
    let template = json!({
        "metadata": {"labels": {"team": "chat"}},
        "spec": {"nodeSelector": {"pool": "h100"}, "containers": [main, {"name": "side"}]},
    });
    assert_eq!(
        new["spec"]["components"],
        json!([{"name": "Worker", "type": "decode", "replicas": 1, "sharedMemorySize": "1Gi", "podTemplate": template}])
    );
    assert!(
        new["metadata"]["annotations"].is_null(),
        "nothing needs to be kept aside"
    );
    assert_eq!(convert(&new, OLD).unwrap()["spec"], old);
}

/// Three spellings of the topology's name; each is returned as it was written.
#[test]
fn a_topology_is_named_in_any_of_its_words() {
    for word in ["topologyProfile", "topologyName", "clusterTopologyName"] {
        let old = graph(OLD, json!({"topologyConstraint": {word: "h100", "packDomain": "rack"}}));
        let new = convert(&old, NEW).unwrap();
        let constraint = &new["spec"]["topologyConstraint"];
        assert_eq!(
            *constraint,
            json!({"clusterTopologyName": "h100", "packDomain": "rack"}),
            "{word}"
        );
        assert_eq!(convert(&new, OLD).unwrap(), old, "{word}");
    }
}

#[test]
fn an_edit_in_one_version_is_seen_in_the_other() {
    // A spelling that does not come back by itself: the note must not hide the edit.
    let old = graph(
        OLD,
        json!({"services": {
            "Worker": {"resources": {"limits": {"gpu": "1", "gpuType": "vendor.example/gpu"}}, "replicas": 1},
            "Frontend": {"replicas": 1},
        }}),
    );
    let mut new = convert(&old, NEW).unwrap();
    assert!(new["metadata"]["annotations"][KEPT_OLD].is_string());
    assert_eq!(new["spec"]["components"][1]["name"], "Worker");
    new["spec"]["components"][1]["replicas"] = json!(5);
    let seen = convert(&new, OLD).unwrap();
    let services = &seen["spec"]["services"];
    assert_eq!(services["Worker"]["replicas"], 5);
    assert_eq!(
        services["Worker"]["resources"],
        json!({"limits": {"custom": {"vendor.example/gpu": "1"}}})
    );
    assert_eq!(services["Frontend"], json!({"replicas": 1}));
    assert!(seen["metadata"]["annotations"][KEPT_NEW].is_null());
}

#[test]
fn what_no_version_says_is_told() {
    let why = |spec: Value| convert(&graph(OLD, spec), NEW).unwrap_err().to_string();
    let cases = [
        (
            json!({"services": "x"}),
            "spec.services: must be a list of services with names, or a map of services by name",
        ),
        (json!({"services": ["x"]}), "spec.services[0]: must be an object"),
        (json!({"services": {"a": 1}}), "spec.services.a: must be an object"),
        (
            json!({"services": {"a": {"name": "b"}}}),
            "spec.services.a.name: the key of a service is its name; remove the field",
        ),
        (json!([]), "spec: must be an object"),
    ];
    for (spec, expected) in cases {
        assert_eq!(why(spec), expected);
    }
    let other = convert(&graph("nvidia.com/v1", json!({})), NEW)
        .unwrap_err()
        .to_string();
    assert!(
        other.contains("only nvidia.com/v1alpha1 and nvidia.com/v1beta1 are known"),
        "{other}"
    );
}

/// A note that somebody else wrote is nothing to go by.
#[test]
fn a_foreign_note_is_dropped() {
    let mut new = graph(NEW, json!({"components": [{"name": "a"}]}));
    new["metadata"]["annotations"] = json!({KEPT_OLD: "{broken", "theirs": "1"});
    let old = convert(&new, OLD).unwrap();
    assert_eq!(old["spec"], json!({"services": {"a": {}}}));
    assert_eq!(old["metadata"]["annotations"], json!({"theirs": "1"}));
}

/// In the newer version an adapter is enabled by being there, so one that is not enabled must not be there.
#[test]
fn an_adapter_is_there_only_if_it_is_enabled() {
    let new = |adapter: Value| {
        let services = json!({"Worker": {"scalingAdapter": adapter}});
        convert(&graph(OLD, json!({"services": services})), NEW).unwrap()["spec"]["components"][0]["scalingAdapter"]
            .take()
    };
    assert_eq!(new(json!({"enabled": true})), json!({}));
    assert_eq!(new(json!({"enabled": false})), Value::Null);
    assert_eq!(new(json!({})), Value::Null);
    // What nobody knows goes through, for admission to refuse it.
    assert_eq!(new(json!({"enabled": "yes"})), json!({"enabled": "yes"}));
    assert_eq!(new(json!({"enabled": true, "min": 1})), json!({"min": 1}));
    let components = json!([{"name": "Worker", "scalingAdapter": {}}]);
    let old = convert(&graph(NEW, json!({"components": components})), OLD).unwrap();
    assert_eq!(
        old["spec"]["services"]["Worker"]["scalingAdapter"],
        json!({"enabled": true})
    );
}

#[test]
fn an_adapter_names_a_service_here_and_a_component_there() {
    let adapter = |version: &str, field: &str| {
        json!({"apiVersion": version, "kind": "DynamoGraphDeploymentScalingAdapter", "metadata": {"name": "g-worker"},
            "spec": {"replicas": 2, "dgdRef": {"name": "g", field: "Worker"}}, "status": {"replicas": 2, "selector": "a=b"}})
    };
    let (old, new) = (adapter(OLD, "serviceName"), adapter(NEW, "componentName"));
    assert_eq!(convert(&old, NEW).unwrap(), new);
    assert_eq!(convert(&new, OLD).unwrap(), old);
}

/// Found by the property above: admission refuses it later, but until then nothing may change places.
#[test]
fn two_services_of_a_name_come_back_each_in_its_place() {
    let services = json!([{"name": "a"}, {"name": "a", "labels": "main"}]);
    let object = graph(OLD, json!({"services": services}));
    assert_eq!(there_and_back(&object, NEW, OLD), object);
}
