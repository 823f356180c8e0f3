//! Reading an object into its type and writing it again loses nothing (invariant 3).

use std::path::Path;

use grove_api::*;
use proptest::test_runner::{Config, TestRunner};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::generate::objects_of;

fn through<T: Serialize + DeserializeOwned>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}\n{object:#}"));
    serde_json::to_value(typed).expect("our types can be written as JSON")
}

/// Reads and writes an object by its kind.
fn round_trip(object: &Value) -> Value {
    match object["kind"].as_str() {
        Some("PodCliqueSet") => through::<PodCliqueSet>(object),
        Some("PodClique") => through::<PodClique>(object),
        Some("PodCliqueScalingGroup") => through::<PodCliqueScalingGroup>(object),
        Some("PodGang") => through::<PodGang>(object),
        Some("ClusterTopology") => through::<ClusterTopology>(object),
        Some("ClusterTopologyBinding") => through::<ClusterTopologyBinding>(object),
        Some("TopologyDomain") => through::<TopologyDomain>(object),
        Some("DynamoGraphDeployment") => through::<DynamoGraphDeployment>(object),
        Some("DynamoGraphDeploymentScalingAdapter") => through::<DynamoGraphDeploymentScalingAdapter>(object),
        kind => panic!("no type for kind {kind:?}"),
    }
}

#[test]
fn generated_objects_lose_nothing() {
    for definition in crds::all() {
        let definition = serde_json::to_value(definition).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        // A pod spec has some 900 fields; few cases of it cost as much as many of a small kind.
        let cases = if schema.to_string().len() > 50_000 { 48 } else { 256 };
        TestRunner::new(Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        })
        .run(&objects_of(&definition), |object| {
            let written = round_trip(&object);
            proptest::prop_assert_eq!(contained_in(&written, &object, ""), None);
            proptest::prop_assert_eq!(round_trip(&written), written);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{}: {error}", definition["metadata"]["name"]));
    }
}

#[test]
fn examples_lose_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut objects = 0;
    for entry in std::fs::read_dir(folder).expect("there are examples") {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        {
            if !object["apiVersion"]
                .as_str()
                .is_some_and(|version| version.contains("grove"))
            {
                continue;
            }
            let yaml = serde_saphyr::to_string(&round_trip(&with_text_quantities(&object))).unwrap();
            let again: Value = serde_saphyr::from_str(&yaml).unwrap();
            assert_eq!(
                contained_in(&again, &with_text_quantities(&object), ""),
                None,
                "{}",
                path.display()
            );
            objects += 1;
        }
    }
    assert!(objects > 0, "the folder holds objects of ours");
}

/// The first path of `small` that `large` lacks or has otherwise; what the type adds (defaults, Kubernetes' empty
/// names) is no loss.
fn contained_in(large: &Value, small: &Value, path: &str) -> Option<String> {
    match (large, small) {
        (Value::Object(large), Value::Object(small)) => small.iter().find_map(|(name, field)| {
            let path = format!("{path}.{name}");
            large
                .get(name)
                .map_or(Some(path.clone()), |found| contained_in(found, field, &path))
        }),
        (Value::Array(large), Value::Array(small)) if large.len() == small.len() => large
            .iter()
            .zip(small)
            .enumerate()
            .find_map(|(i, (l, s))| contained_in(l, s, &format!("{path}[{i}]"))),
        (large, small) => (large != small).then(|| path.to_owned()),
    }
}

/// Quantities may be written without quotes; they are the same quantity as text.
fn with_text_quantities(object: &Value) -> Value {
    match object {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, field)| match field {
                    Value::Object(map) if name == "limits" || name == "requests" => {
                        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
                        (
                            name.clone(),
                            map.iter().map(|(k, v)| (k.clone(), json!(text(v)))).collect(),
                        )
                    }
                    other => (name.clone(), with_text_quantities(other)),
                })
                .collect(),
        ),
        Value::Array(items) => items.iter().map(with_text_quantities).collect(),
        other => other.clone(),
    }
}

#[test]
fn numbers_are_read_where_kubernetes_takes_a_quantity() {
    let clique: PodCliqueSpec = serde_json::from_value(json!({
        "roleName": "worker", "replicas": 1,
        "podSpec": {
            "overhead": { "cpu": 1 },
            "containers": [{
                "name": "c",
                "resources": { "limits": { "nvidia.com/gpu": 8, "memory": "64Gi" }, "requests": { "cpu": 2 } },
                "env": [{ "name": "M", "valueFrom": { "resourceFieldRef": { "resource": "limits.memory", "divisor": 1 } } }],
            }],
            "volumes": [{ "name": "shm", "emptyDir": { "medium": "Memory", "sizeLimit": 1024 } }],
        },
        "autoScalingConfig": {
            "maxReplicas": 4,
            "metrics": [{ "type": "Pods", "pods": {
                "metric": { "name": "queue" }, "target": { "type": "AverageValue", "averageValue": 30 },
            } }],
        },
    }))
    .unwrap();
    let written = serde_json::to_value(clique).unwrap();
    let container = &written["podSpec"]["containers"][0];
    assert_eq!(
        container["resources"]["limits"],
        json!({ "nvidia.com/gpu": "8", "memory": "64Gi" })
    );
    assert_eq!(container["resources"]["requests"]["cpu"], "2");
    assert_eq!(container["env"][0]["valueFrom"]["resourceFieldRef"]["divisor"], "1");
    assert_eq!(written["podSpec"]["overhead"]["cpu"], "1");
    assert_eq!(written["podSpec"]["volumes"][0]["emptyDir"]["sizeLimit"], "1024");
    assert_eq!(
        written["autoScalingConfig"]["metrics"][0]["pods"]["target"]["averageValue"],
        "30"
    );
}
