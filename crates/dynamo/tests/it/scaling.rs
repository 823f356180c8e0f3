//! Scaling adapters, by table: which there are, what their numbers mean, and what autoscalers are told.

use grove_api::dynamo::{DynamoGraphDeploymentScalingAdapter, DynamoGraphDeploymentStatus};
use grove_dynamo::status::adapter_status;
use grove_dynamo::translate::{Surroundings, Wish, keep_numbers, translate, wishes, with_wishes};
use serde_json::json;

use crate::graphs::{graph, with_worker};

fn scaled(min_available: i32) -> grove_api::DynamoGraphDeployment {
    with_worker(json!({"scalingAdapter": {}, "minAvailable": min_available, "replicas": 4}))
}

fn adapters(graph: &grove_api::DynamoGraphDeployment) -> Vec<DynamoGraphDeploymentScalingAdapter> {
    translate(graph, &Surroundings::default()).expect("a graph").adapters
}

fn asking(replicas: i32) -> DynamoGraphDeploymentScalingAdapter {
    let mut adapter = adapters(&scaled(2)).remove(0);
    adapter.spec.replicas = replicas;
    adapter
}

#[test]
fn whoever_asks_has_an_adapter_with_the_graphs_number() {
    assert_eq!(adapters(&graph(json!({}))), []);
    let [adapter]: [_; 1] = adapters(&scaled(2)).try_into().expect("one adapter");
    let written = json!(adapter);
    assert_eq!(
        written["spec"],
        json!({"replicas": 4, "dgdRef": {"name": "g", "componentName": "Worker"}})
    );
    assert_eq!(written["metadata"]["name"], "g-worker");
    assert_eq!(written["metadata"]["ownerReferences"][0]["uid"], "graph-uid");
    let labels = json!({"nvidia.com/dynamo-graph-deployment-name": "g", "nvidia.com/dynamo-component": "Worker"});
    assert_eq!(written["metadata"]["labels"], labels);
}

#[test]
fn an_adapter_that_exists_keeps_its_number() {
    let (mut wanted, live) = (adapters(&scaled(2)), asking(7));
    keep_numbers(&mut wanted, &[&live]);
    assert_eq!(wanted[0].spec.replicas, 7);
    let mut other = live;
    other.metadata.name = Some("g-frontend".to_owned());
    let mut wanted = adapters(&scaled(2));
    keep_numbers(&mut wanted, &[&other]);
    assert_eq!(wanted[0].spec.replicas, 4);
}

#[test]
fn a_number_is_followed_if_the_component_can_have_it() {
    let graph = scaled(2);
    for replicas in [0, 2, 3, 5] {
        let (found, refused) = wishes(&graph, &[&asking(replicas)]);
        assert_eq!(found, [Wish { index: 1, replicas }]);
        assert_eq!(refused, []);
        let spec = with_wishes(&graph.spec, &found);
        let numbers: Vec<i32> = spec.components.iter().map(|component| component.replicas).collect();
        assert_eq!(numbers, [1, replicas]);
    }
    assert_eq!(wishes(&graph, &[&asking(4)]), (vec![], vec![]), "it has that already");
    assert_eq!(wishes(&graph, &[]), (vec![], vec![]));
    let (found, refused) = wishes(&graph, &[&asking(1)]);
    assert_eq!(found, []);
    let told: Vec<&str> = refused.iter().map(|violation| violation.message.as_str()).collect();
    assert_eq!(
        told,
        [
            "DynamoGraphDeploymentScalingAdapter g-worker: spec.replicas: Invalid value: \"1\": component Worker must have 0 \
          replicas, or at least its minAvailable of 2"
        ]
    );
}

/// One that is there from before scales nothing until it is removed.
#[test]
fn an_adapter_that_nobody_asks_for_is_not_followed() {
    let free = with_worker(json!({"replicas": 4}));
    assert_eq!(wishes(&free, &[&asking(7)]), (vec![], vec![]));
}

#[test]
fn autoscalers_are_told_how_many_there_are_and_which_pods() {
    let status: DynamoGraphDeploymentStatus = serde_json::from_value(json!({"components": {"Worker": {
        "componentKind": "PodClique", "componentNames": ["g-0-worker"], "replicas": 3, "updatedReplicas": 3,
        "scheduledReplicas": 3, "readyReplicas": 2}}}))
    .expect("a status");
    let selector = "nvidia.com/dynamo-component=Worker,nvidia.com/dynamo-graph-deployment-name=g";
    let told = adapter_status(&scaled(2), "Worker", &status);
    assert_eq!((told.replicas, told.selector.as_deref()), (3, Some(selector)));
    let nothing = adapter_status(&scaled(2), "Worker", &DynamoGraphDeploymentStatus::default());
    assert_eq!((nothing.replicas, nothing.selector.as_deref()), (0, Some(selector)));
}
