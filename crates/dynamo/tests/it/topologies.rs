//! Words are asked of the framework, whichever it is: the same graphs against one that knows nothing of Grove.

use std::collections::BTreeMap;

use grove_api::DynamoGraphDeployment;
use grove_dynamo::framework::{Framework, Reading};
use grove_dynamo::validate::{Conditions, review};
use serde_json::json;

use crate::graphs::graph;

/// A framework of node labels, with a mapping from words as its administrator wrote it; none while it cannot be read.
struct Labels {
    words: Option<BTreeMap<&'static str, &'static str>>,
}

impl Framework for Labels {
    type Error = &'static str;

    fn kind(&self) -> &str {
        "mapping"
    }

    async fn topology(&self, name: Option<&str>) -> Result<Reading, &'static str> {
        let words = self.words.as_ref().ok_or("the file is empty")?;
        Ok(match name {
            Some(name) => Reading::NotFound {
                kind: "mapping".to_owned(),
                name: name.to_owned(),
            },
            None => Reading::Levels {
                kind: "mapping".to_owned(),
                name: "nodes".to_owned(),
                words: words.keys().map(|word| (*word).to_owned()).collect(),
            },
        })
    }
}

/// What the webhook asks, of whichever framework.
async fn judged(graph: &DynamoGraphDeployment, framework: &impl Framework) -> Vec<String> {
    let found = review(graph, framework, &Conditions::default()).await;
    found.into_iter().map(|violation| violation.message).collect()
}

/// Nothing can be promised of a topology that cannot be read; who asks for none is not concerned.
// shows: DGD-15
#[tokio::test]
async fn a_framework_that_cannot_be_read_refuses_constraints_alone() {
    let broken = Labels { words: None };
    let constrained = graph(json!({"spec": {"topologyConstraint": {"packDomain": "rack"}}}));
    assert_eq!(
        judged(&constrained, &broken).await,
        ["spec.topologyConstraint.clusterTopologyName: failed to read mapping: the file is empty"]
    );
    assert_eq!(judged(&graph(json!({})), &broken).await, Vec::<String>::new());
}

// shows: DGD-29
#[tokio::test]
async fn another_framework_judges_the_same_graphs_by_its_own_topology() {
    let words = BTreeMap::from([("rack", "cloud.example/rack"), ("host", "kubernetes.io/hostname")]);
    let framework = Labels { words: Some(words) };
    let verdict = async |constraint: serde_json::Value| {
        let graph = graph(json!({"spec": {"topologyConstraint": constraint}}));
        judged(&graph, &framework).await
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
