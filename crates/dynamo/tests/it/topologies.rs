//! Words are asked of the framework, whichever it is: the same graphs against one that knows nothing of Grove.

use std::collections::BTreeMap;
use std::convert::Infallible;

use grove_dynamo::framework::{Framework, Reading};
use grove_dynamo::validate::{Conditions, create};
use serde_json::json;

use crate::graphs::graph;

/// A framework of node labels, with a mapping from words as its administrator wrote it.
struct Labels {
    words: BTreeMap<&'static str, &'static str>,
}

impl Framework for Labels {
    type Error = Infallible;

    async fn topology(&self, name: Option<&str>) -> Result<Reading, Infallible> {
        Ok(match name {
            Some(name) => Reading::NotFound {
                kind: "mapping".to_owned(),
                name: name.to_owned(),
            },
            None => Reading::Levels {
                kind: "mapping".to_owned(),
                name: "nodes".to_owned(),
                words: self.words.keys().map(|word| (*word).to_owned()).collect(),
            },
        })
    }
}

// shows: DGD-29
#[tokio::test]
async fn another_framework_judges_the_same_graphs_by_its_own_topology() {
    let framework = Labels {
        words: BTreeMap::from([("rack", "cloud.example/rack"), ("host", "kubernetes.io/hostname")]),
    };
    let verdict = async |constraint: serde_json::Value| {
        let graph = graph(json!({"spec": {"topologyConstraint": constraint}}));
        let reading = framework
            .topology(graph.spec.topology_name())
            .await
            .expect("always there");
        let found = create(&graph, Some(&reading), &Conditions::default());
        found.into_iter().map(|violation| violation.message).collect::<Vec<_>>()
    };
    assert_eq!(verdict(json!({"packDomain": "rack"})).await, Vec::<String>::new());
    assert_eq!(
        verdict(json!({"packDomain": "zone"})).await,
        [
            "spec.topologyConstraint.packDomain: Invalid value: \"zone\": does not exist in mapping \"nodes\"; available \
          domains: [host rack]"
        ]
    );
    assert_eq!(
        verdict(json!({"packDomain": "rack", "clusterTopologyName": "x"})).await,
        [
            "spec.topologyConstraint.clusterTopologyName: Invalid value: \"x\": references a mapping resource that was not found"
        ]
    );
}

// shows: DGD-35
#[test]
fn both_constraints_have_the_same_form_and_may_be_left_out() {
    let mut definitions = grove_api::crds::all().into_iter();
    let graphs = definitions.find(|definition| definition.spec.names.kind == "DynamoGraphDeployment");
    let schema = json!(graphs.expect("a definition").spec.versions[0].schema);
    let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
    let component = &spec["properties"]["components"]["items"];
    for holder in [spec, component] {
        let constraint = &holder["properties"]["topologyConstraint"];
        let words = json!(["region", "zone", "datacenter", "block", "rack", "host", "numa"]);
        assert_eq!(constraint["type"], "object");
        assert_eq!(constraint["properties"]["packDomain"]["enum"], words);
        let required = holder["required"].as_array().cloned().unwrap_or_default();
        assert!(!required.contains(&json!("topologyConstraint")), "{required:?}");
    }
}

/// Names of all fields of a schema.
fn fields(schema: &serde_json::Value, found: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        found.push(name.to_lowercase());
        fields(property, found);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], found);
    }
}

// shows: DGD-2
#[test]
fn the_api_names_no_kind_of_the_framework() {
    let definitions = grove_api::crds::all().into_iter();
    let of_dynamo: Vec<_> = definitions
        .filter(|definition| definition.spec.group == "nvidia.com")
        .collect();
    assert_eq!(of_dynamo.len(), 2, "graphs and adapters");
    let mut found = Vec::new();
    for version in of_dynamo.iter().flat_map(|definition| &definition.spec.versions) {
        let schema = json!(version.schema);
        fields(&schema["openAPIV3Schema"], &mut found);
    }
    assert!(found.len() > 30, "{found:?}");
    for kind in ["podclique", "podgang", "pcs", "clustertopologybinding", "topologykey"] {
        assert!(found.iter().all(|field| !field.contains(kind)), "{kind} in {found:?}");
    }
}
