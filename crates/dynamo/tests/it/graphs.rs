//! Graphs for tests.

use std::fs;
use std::path::{Path, PathBuf};

use grove_api::DynamoGraphDeployment;
use grove_dynamo::convert::convert;
use grove_dynamo::framework::Reading;
use serde_json::{Value, json};

/// Every file of `examples/dynamo`, by name.
pub(crate) fn example_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dynamo");
    let entries = fs::read_dir(folder)
        .expect("the examples")
        .map(|entry| entry.expect("a file").path());
    let mut files: Vec<PathBuf> = entries.collect();
    files.sort();
    files
}

/// A manifest of either version as it is stored.
pub(crate) fn stored(path: &Path) -> DynamoGraphDeployment {
    let text = fs::read_to_string(path).expect("an example");
    let object: Value = serde_saphyr::from_str(&text).expect("YAML");
    let object = convert(&object, "nvidia.com/v1beta1").expect("a version that is known");
    serde_json::from_value(object).expect("a graph")
}

/// The same as the API server would have it.
pub(crate) fn example(path: &Path) -> DynamoGraphDeployment {
    let mut graph = stored(path);
    graph.metadata.namespace = Some("default".to_owned());
    graph.metadata.uid = Some("graph-uid".to_owned());
    graph.metadata.generation = Some(1);
    graph
}

/// A frontend and two workers, changed by a merge patch.
pub(crate) fn graph(patch: Value) -> DynamoGraphDeployment {
    let container =
        |args: &str| json!([{"name": "main", "image": "server", "command": ["/bin/sh", "-c"], "args": [args]}]);
    let mut object = json!({
        "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
        "metadata": {"name": "g", "namespace": "ns", "uid": "graph-uid", "generation": 1},
        "spec": {"components": [
            {"name": "Frontend", "type": "frontend", "podTemplate": {"spec": {"containers": container("serve")}}},
            {"name": "Worker", "type": "worker", "replicas": 2,
                "podTemplate": {"spec": {"containers": container("python3 -m dynamo.vllm --model m")}}},
        ]},
    });
    merge(&mut object, patch);
    serde_json::from_value(object).expect("a graph")
}

/// The worker of [`graph`], changed by a merge patch.
pub(crate) fn with_worker(patch: Value) -> DynamoGraphDeployment {
    with_component(1, patch)
}

pub(crate) fn with_component(index: usize, patch: Value) -> DynamoGraphDeployment {
    let mut object = json!(graph(json!({})));
    merge(&mut object["spec"]["components"][index], patch);
    serde_json::from_value(object).expect("a graph")
}

pub(crate) fn merge(object: &mut Value, patch: Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (name, value) in patch {
                match value {
                    Value::Null => drop(object.remove(&name)),
                    value => merge(object.entry(name).or_insert(Value::Null), value),
                }
            }
        }
        (object, patch) => *object = patch,
    }
}

/// A topology with these words.
pub(crate) fn levels(words: &[&str]) -> Reading {
    Reading::Levels {
        kind: "ClusterTopology".to_owned(),
        name: "grove-topology".to_owned(),
        words: words.iter().map(|word| (*word).to_owned()).collect(),
    }
}
