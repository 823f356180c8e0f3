//! Pods: admission, gates, binding, grace periods, eviction.

use serde_json::{Value, json};

use crate::support::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

async fn bind(cluster: &grove_simcluster::Cluster, name: &str, node: &str) -> Answer {
    let binding =
        json!({"metadata": {"name": name, "annotations": {"why": "fits"}}, "target": {"kind": "Node", "name": node}});
    post(cluster, &format!("{PODS}/{name}/binding"), &binding).await
}

#[tokio::test(start_paused = true)]
async fn admission_completes_a_pod() {
    let cluster = cluster();
    let made = post(&cluster, PODS, &pod("p")).await.body;
    let spec = &made["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["priority"]),
        (&json!("default"), &json!(0))
    );
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(spec["volumes"][0]["projected"]["defaultMode"], 420);
    assert_eq!(
        spec["containers"][0]["volumeMounts"][0]["name"],
        spec["volumes"][0]["name"]
    );
    assert_eq!(
        (&made["status"]["phase"], &made["status"]["qosClass"]),
        (&json!("Pending"), &json!("BestEffort"))
    );
    assert_eq!(made["metadata"]["generation"], 1);
    let refused = |field: &str, value: Value| {
        let mut sent = pod("q");
        sent["spec"][field] = value;
        sent
    };
    let answer = post(&cluster, PODS, &refused("serviceAccountName", json!("nope"))).await;
    assert_eq!(
        (answer.code, answer.message()),
        (
            403,
            "pods \"q\" is forbidden: error looking up service account default/nope: serviceaccount \"nope\" not found"
        )
    );
    let answer = post(&cluster, PODS, &refused("priorityClassName", json!("nope"))).await;
    assert_eq!(
        answer.message(),
        "pods \"q\" is forbidden: no PriorityClass with name nope was found"
    );
    let answer = post(&cluster, PODS, &refused("priority", json!(5))).await;
    assert!(
        answer
            .message()
            .contains("the integer value of priority (5) must not be provided"),
        "{}",
        answer.message()
    );
    let answer = post(
        &cluster,
        PODS,
        &refused("priorityClassName", json!("system-node-critical")),
    )
    .await;
    assert_eq!(answer.body["spec"]["priority"], 2_000_001_000);
}

#[tokio::test(start_paused = true)]
async fn a_gate_holds_a_pod_until_it_is_lifted() {
    let cluster = cluster();
    let mut gated = pod("g");
    gated["spec"]["schedulingGates"] = json!([{"name": "grove.io/podgang-pending-creation"}]);
    let made = post(&cluster, PODS, &gated).await.body;
    assert_eq!(made["status"]["conditions"][0]["reason"], "SchedulingGated");
    let answer = bind(&cluster, "g", "n1").await;
    assert_eq!(
        (answer.code, answer.message()),
        (
            409,
            "Operation cannot be fulfilled on pods/binding \"g\": pod g has non-empty .spec.schedulingGates"
        )
    );
    let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}});
    let lift = json!([
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "grove.io/podgang-pending-creation"},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": terms}},
    ]);
    let lifted = patch(&cluster, &format!("{PODS}/g"), "json-patch+json", &lift).await;
    assert_eq!(lifted.code, 200, "{}", lifted.text);
    assert_eq!(lifted.body["metadata"]["generation"], 2);
    assert_eq!(bind(&cluster, "g", "n1").await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn a_binding_is_made_once() {
    let cluster = cluster();
    post(&cluster, PODS, &pod("b1")).await;
    let other = json!({"metadata": {"name": "zz"}, "target": {"name": "n"}});
    let answer = post(&cluster, &format!("{PODS}/b1/binding"), &other).await;
    assert_eq!(
        (answer.code, answer.message()),
        (400, "name in URL does not match name in Binding object")
    );
    let aimless = json!({"metadata": {"name": "b1"}});
    let answer = post(&cluster, &format!("{PODS}/b1/binding"), &aimless).await;
    assert_eq!((answer.code, answer.message()), (500, "target.name: Required value"));
    let bound = bind(&cluster, "b1", "n1").await;
    assert_eq!((bound.code, &bound.body["status"]), (201, &json!("Success")));
    let stored = get(&cluster, &format!("{PODS}/b1")).await.body;
    assert_eq!(
        (&stored["spec"]["nodeName"], &stored["metadata"]["annotations"]["why"]),
        (&json!("n1"), &json!("fits"))
    );
    assert_eq!(stored["metadata"]["generation"], 1, "a binding does not count");
    let again = bind(&cluster, "b1", "n2").await;
    assert!(
        again.message().ends_with("pod b1 is already assigned to node \"n1\""),
        "{}",
        again.message()
    );
    let listed = get(&cluster, &format!("{PODS}?fieldSelector=spec.nodeName%3Dn1"))
        .await
        .body;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_spec_is_frozen_but_for_what_kubernetes_allows() {
    let cluster = cluster();
    post(&cluster, PODS, &pod("p")).await;
    let path = format!("{PODS}/p");
    let answer = patch(&cluster, &path, "merge-patch+json", &json!({"spec": {"nodeName": "n"}})).await;
    assert_eq!(
        (answer.code, &answer.body["details"]["causes"][0]["field"]),
        (422, &json!("spec"))
    );
    assert!(
        answer
            .message()
            .starts_with("Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than")
    );
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}]);
    assert_eq!(patch(&cluster, &path, "json-patch+json", &image).await.code, 200);
    let status =
        json!({"status": {"phase": "Running"}, "spec": {"nodeName": "n"}, "metadata": {"labels": {"more": "1"}}});
    let answer = patch(&cluster, &format!("{path}/status"), "merge-patch+json", &status)
        .await
        .body;
    assert_eq!(answer["status"]["phase"], "Running");
    assert!(
        answer["spec"].get("nodeName").is_none(),
        "the status subresource changes no spec"
    );
    assert_eq!(answer["metadata"]["labels"]["more"], "1");
    let answer = patch(
        &cluster,
        &path,
        "merge-patch+json",
        &json!({"status": {"phase": "Failed"}}),
    )
    .await
    .body;
    assert_eq!(
        answer["status"]["phase"], "Running",
        "the main resource changes no status"
    );
}

#[tokio::test(start_paused = true)]
async fn grace_periods_shrink_and_never_grow() {
    let cluster = cluster();
    post(&cluster, PODS, &pod("free")).await;
    let answer = delete(&cluster, &format!("{PODS}/free"), &Value::Null).await;
    assert_eq!((answer.code, &answer.body["kind"]), (200, &json!("Pod")));
    assert_eq!(
        get(&cluster, &format!("{PODS}/free")).await.code,
        404,
        "no kubelet, no grace"
    );

    post(&cluster, PODS, &pod("p")).await;
    bind(&cluster, "p", "nowhere").await;
    let path = format!("{PODS}/p");
    let marked = delete(&cluster, &path, &Value::Null).await.body;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    let longer = delete(&cluster, &path, &json!({"gracePeriodSeconds": 60})).await.body;
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 30);
    let shorter = delete(&cluster, &path, &json!({"gracePeriodSeconds": 10})).await.body;
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-01T00:00:10Z");
    let revision = cluster.store().revision();
    delete(&cluster, &path, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(get(&cluster, &path).await.code, 404);
    assert_eq!(
        cluster.store().revision(),
        revision + 2,
        "one write for the grace of 0, one for the end"
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_asks_the_budget() {
    let cluster = cluster();
    for name in ["p", "q"] {
        post(&cluster, PODS, &pod(name)).await;
        bind(&cluster, name, "nowhere").await;
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        patch(&cluster, &format!("{PODS}/{name}/status"), "merge-patch+json", &running).await;
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}});
    let made = post(&cluster, budgets, &json!({"metadata": {"name": "ev"}, "spec": spec})).await;
    assert_eq!(
        (made.code, &made.body["status"]["disruptionsAllowed"]),
        (201, &json!(0))
    );
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": {}});
    let unknown = post(&cluster, &format!("{PODS}/p/eviction"), &eviction("p")).await;
    assert!(
        unknown.text.contains("still being processed by the server"),
        "{}",
        unknown.text
    );
    let allows = |answer: &Answer| answer.body["status"]["disruptionsAllowed"] == 1;
    until(&cluster, &format!("{budgets}/ev"), allows).await;
    assert_eq!(
        post(&cluster, &format!("{PODS}/p/eviction"), &eviction("p")).await.code,
        201
    );
    let evicted = get(&cluster, &format!("{PODS}/p")).await.body;
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
    let conditions = evicted["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions
            .iter()
            .any(|c| c["type"] == "DisruptionTarget" && c["reason"] == "EvictionByEvictionAPI")
    );
    let one_left = |answer: &Answer| answer.body["status"]["currentHealthy"] == 1;
    until(&cluster, &format!("{budgets}/ev"), one_left).await;
    let refused = post(&cluster, &format!("{PODS}/q/eviction"), &eviction("q")).await;
    assert_eq!(
        (refused.code, refused.message()),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    let cause = &refused.body["details"]["causes"][0]["message"];
    assert_eq!(
        cause,
        "The disruption budget ev needs 1 healthy pods and has 1 currently"
    );
}
