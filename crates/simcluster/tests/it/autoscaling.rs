//! Autoscalers that follow metrics which somebody sets.

use std::time::Duration;

use grove_simcluster::{Cluster, NodeSpec};
use serde_json::{Value, json};

use crate::definitions::install_definition;
use crate::support::*;

const FARMS: &str = "/apis/demo.test/v1/namespaces/default/farms";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

/// A kind with a scale, and a farm of one.
async fn farm() -> Cluster {
    let cluster = Cluster::builder()
        .seed(1)
        .autoscaling(true)
        .nodes([NodeSpec::new("n")])
        .start();
    let numbers = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"}, "selector": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": numbers, "status": numbers}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                       "labelSelectorPath": ".status.selector"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                         "subresources": {"status": {}, "scale": scale}});
    let definition = json!({"metadata": {"name": "farms.demo.test"}, "spec": {"group": "demo.test",
        "scope": "Namespaced", "names": {"plural": "farms", "kind": "Farm"}, "versions": [version]}});
    install_definition(&cluster, &definition).await;
    let farm =
        json!({"apiVersion": "demo.test/v1", "kind": "Farm", "metadata": {"name": "f"}, "spec": {"replicas": 1}});
    assert_eq!(post(&cluster, FARMS, &farm).await.code, 201);
    let status = json!({"status": {"replicas": 1, "selector": "app=f"}});
    let told = patch(&cluster, &format!("{FARMS}/f/status"), "merge-patch+json", &status).await;
    assert_eq!(told.code, 200, "{}", told.text);
    cluster
}

fn scaler(metric: Value) -> Value {
    let target = json!({"apiVersion": "demo.test/v1", "kind": "Farm", "name": "f"});
    json!({"metadata": {"name": "h"}, "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 8,
                                               "metrics": [metric]}})
}

async fn annotate(cluster: &Cluster, path: &str, key: &str, value: &str) {
    let change = json!({"metadata": {"annotations": {key: value}}});
    let changed = patch(cluster, path, "merge-patch+json", &change).await;
    assert_eq!(changed.code, 200, "{}", changed.text);
}

fn has_replicas(count: i64) -> impl Fn(&Answer) -> bool {
    move |answer| answer.body["spec"]["replicas"] == count
}

#[tokio::test(start_paused = true)]
async fn replicas_follow_what_a_pod_says_that_it_uses() {
    let cluster = farm().await;
    let pod = json!({"metadata": {"name": "p", "labels": {"app": "f"}}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}});
    assert_eq!(post(&cluster, PODS, &pod).await.code, 201);
    let metric = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    assert_eq!(post(&cluster, SCALERS, &scaler(metric)).await.code, 201);
    let condition = |answer: &Answer, kind: &str| {
        let conditions = answer.body["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition["type"] == kind);
        found.map(|condition| condition["reason"].as_str().unwrap_or_default().to_owned())
    };
    let unknown = |answer: &Answer| condition(answer, "ScalingActive").as_deref() == Some("FailedGetResourceMetric");
    until(&cluster, &format!("{SCALERS}/h"), unknown).await;

    annotate(&cluster, &format!("{PODS}/p"), "usage.simcluster.internal/cpu", "750m").await;
    until(&cluster, &format!("{FARMS}/f"), has_replicas(3)).await;
    let found = |answer: &Answer| condition(answer, "ScalingActive").as_deref() == Some("ValidMetricFound");
    let told = until(&cluster, &format!("{SCALERS}/h"), found).await.body;
    let now = &told["status"]["currentMetrics"][0]["resource"]["current"];
    assert_eq!(*now, json!({"averageUtilization": 150, "averageValue": "750m"}));
}

#[tokio::test(start_paused = true)]
async fn fewer_replicas_come_after_a_calm_time() {
    let cluster = farm().await;
    let metric = json!({"type": "External", "external": {
        "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}});
    assert_eq!(post(&cluster, SCALERS, &scaler(metric)).await.code, 201);
    let queue = "metric.simcluster.internal/queue";
    annotate(&cluster, &format!("{SCALERS}/h"), queue, "500").await;
    // Four pods in a step, then twice as many, and never more than allowed.
    until(&cluster, &format!("{FARMS}/f"), has_replicas(8)).await;
    annotate(&cluster, &format!("{SCALERS}/h"), queue, "15").await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(
        has_replicas(8)(&get(&cluster, &format!("{FARMS}/f")).await),
        "too early"
    );
    until(&cluster, &format!("{FARMS}/f"), has_replicas(2)).await;
}
