//! What a namespace allows: LimitRanges, ResourceQuotas; and where its Services lead.

use grove_simcluster::Cluster;
use serde_json::{Value, json};

use crate::support::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

fn pod(name: &str, resources: Value) -> Value {
    let containers = json!([{"name": "c", "image": "i", "resources": resources}]);
    json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": {"containers": containers, "schedulerName": "nobody"}})
}

async fn limited(hard: Value) -> Cluster {
    let cluster = cluster();
    let made = post(
        &cluster,
        QUOTAS,
        &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}),
    )
    .await;
    assert_eq!((made.code, &made.body["status"]), (201, &json!({})), "{}", made.text);
    until(&cluster, &format!("{QUOTAS}/q"), |answer| {
        answer.body["status"]["used"].is_object()
    })
    .await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_charged_and_given_back() {
    let cluster = limited(json!({"pods": 2, "requests.nvidia.com/gpu": "8", "count/widgets.demo.test": "1"})).await;
    let status = get(&cluster, &format!("{QUOTAS}/q")).await.body["status"].clone();
    let hard = json!({"count/widgets.demo.test": "1", "pods": "2", "requests.nvidia.com/gpu": "8"});
    let used = json!({"count/widgets.demo.test": "0", "pods": "0", "requests.nvidia.com/gpu": "0"});
    assert_eq!(status, json!({"hard": hard, "used": used}));
    let gpus = |count: &str| json!({"limits": {"nvidia.com/gpu": count}});
    assert_eq!(post(&cluster, PODS, &pod("a", gpus("6"))).await.code, 201);
    let refused = post(&cluster, PODS, &pod("b", gpus("4"))).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            403,
            "pods \"b\" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=4, used: \
             requests.nvidia.com/gpu=6, limited: requests.nvidia.com/gpu=8"
        )
    );
    assert_eq!(post(&cluster, PODS, &pod("b", gpus("2"))).await.code, 201);
    let refused = post(&cluster, PODS, &pod("c", json!({}))).await;
    assert!(
        refused
            .message()
            .ends_with("requested: pods=1, used: pods=2, limited: pods=2"),
        "{}",
        refused.text
    );
    delete(&cluster, &format!("{PODS}/a"), &json!({"gracePeriodSeconds": 0})).await;
    let freed = |answer: &Answer| answer.body["status"]["used"]["pods"] == "1";
    let status = until(&cluster, &format!("{QUOTAS}/q"), freed).await.body["status"].clone();
    assert_eq!(status["used"]["requests.nvidia.com/gpu"], "2");
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_cpu_makes_everybody_say_what_they_want() {
    let cluster = limited(json!({"limits.cpu": "1", "requests.cpu": "1"})).await;
    let refused = post(&cluster, PODS, &pod("p", json!({}))).await;
    assert_eq!(
        refused.message(),
        "pods \"p\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.cpu for: c"
    );
    let range =
        json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "500m"}}]}});
    let made = post(&cluster, "/api/v1/namespaces/default/limitranges", &range).await;
    assert_eq!(
        made.body["spec"]["limits"][0]["defaultRequest"],
        json!({"cpu": "500m"}),
        "{}",
        made.text
    );
    let made = post(&cluster, PODS, &pod("p", json!({}))).await;
    let resources = &made.body["spec"]["containers"][0]["resources"];
    assert_eq!(
        resources,
        &json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}),
        "{}",
        made.text
    );
    let told = "LimitRanger plugin set: cpu request for container c; cpu limit for container c";
    assert_eq!(made.body["metadata"]["annotations"]["kubernetes.io/limit-ranger"], told);
}

#[tokio::test(start_paused = true)]
async fn a_range_refuses_what_is_outside_of_it() {
    let cluster = cluster();
    let limit = json!({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "100m"}});
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": [limit]}});
    post(&cluster, "/api/v1/namespaces/default/limitranges", &range).await;
    let refused = post(
        &cluster,
        PODS,
        &pod("p", json!({"limits": {"cpu": "2"}, "requests": {"cpu": "50m"}})),
    )
    .await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            403,
            "pods \"p\" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per \
             Container is 1, but limit is 2]"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_leads_to_the_pods_that_it_selects() {
    let cluster = Cluster::builder().seed(1).endpoints(true).start();
    let service = json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    post(&cluster, "/api/v1/namespaces/default/services", &service).await;
    let mut placed = pod("p", json!({}));
    placed["spec"]["nodeName"] = json!("n");
    post(&cluster, PODS, &placed).await;
    let endpoints = "/api/v1/namespaces/default/endpoints/s";
    until(&cluster, endpoints, |answer| {
        answer.code == 200 && answer.body["subsets"].is_null()
    })
    .await;
    let ready = json!({"status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}});
    patch(&cluster, &format!("{PODS}/p/status"), "merge-patch+json", &ready).await;
    let led = until(&cluster, endpoints, |answer| answer.body["subsets"].is_array())
        .await
        .body;
    let subset = &led["subsets"][0];
    assert_eq!(
        (&subset["addresses"][0]["ip"], &subset["ports"][0]["port"]),
        (&json!("10.0.0.7"), &json!(8080))
    );
    let slices = get(&cluster, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices")
        .await
        .body;
    let endpoint = &slices["items"][0]["endpoints"][0];
    assert_eq!(
        endpoint["conditions"],
        json!({"ready": true, "serving": true, "terminating": false})
    );
    delete(&cluster, &format!("{PODS}/p"), &json!({"gracePeriodSeconds": 0})).await;
    until(&cluster, endpoints, |answer| answer.body["subsets"].is_null()).await;
    delete(&cluster, "/api/v1/namespaces/default/services/s", &Value::Null).await;
    until_gone(&cluster, endpoints).await;
    let none = |answer: &Answer| answer.body["items"].as_array().is_some_and(Vec::is_empty);
    until(
        &cluster,
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        none,
    )
    .await;
}
