//! Custom resources.

use serde_json::{Value, json};

use crate::support::*;

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/demo.test/v1/namespaces/default/widgets";

pub(crate) fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"metadata": {"name": "widgets.demo.test"}, "spec": {
        "group": "demo.test", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {
            "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}}],
    }})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "demo.test/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"replicas": 1}, "status": {"replicas": 9}})
}

pub(crate) async fn install(cluster: &grove_simcluster::Cluster) {
    install_definition(cluster, &definition()).await;
}

/// Creates a definition and waits until its kind is served.
pub(crate) async fn install_definition(cluster: &grove_simcluster::Cluster, definition: &Value) {
    let made = post(cluster, CRDS, definition).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let path = format!("{CRDS}/{}", made.body["metadata"]["name"].as_str().unwrap());
    let established = |answer: &Answer| {
        let conditions = answer.body["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "Established" && c["status"] == "True")
    };
    until(cluster, &path, established).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_adds_a_kind() {
    let cluster = cluster();
    let unknown = get(&cluster, WIDGETS).await;
    assert_eq!((unknown.code, unknown.text.as_str()), (404, "404 page not found\n"));
    install(&cluster).await;
    let made = post(&cluster, WIDGETS, &widget("w1")).await;
    assert_eq!((made.code, &made.body["metadata"]["generation"]), (201, &json!(1)));
    assert!(made.body.get("status").is_none(), "status is dropped on create");
    let list = get(&cluster, WIDGETS).await.body;
    assert_eq!(
        (&list["metadata"]["continue"], &list["items"][0]["kind"]),
        (&json!(""), &json!("Widget"))
    );
    let missing = get(&cluster, &format!("{WIDGETS}/nope")).await;
    assert_eq!(missing.message(), "widgets.demo.test \"nope\" not found");
    assert_eq!(
        missing.body["details"],
        json!({"name": "nope", "group": "demo.test", "kind": "widgets"})
    );
    let mut other = widget("w2");
    other["kind"] = json!("Foo");
    let answer = post(&cluster, WIDGETS, &other).await;
    assert!(
        answer
            .message()
            .ends_with("kind: Invalid value: \"Foo\": must be Widget"),
        "{}",
        answer.message()
    );
}

#[tokio::test(start_paused = true)]
async fn generation_counts_the_spec_only() {
    let cluster = cluster();
    install(&cluster).await;
    post(&cluster, WIDGETS, &widget("w1")).await;
    let path = format!("{WIDGETS}/w1");
    let change = json!({"spec": {"replicas": 2}, "metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        patch(&cluster, &path, "merge-patch+json", &change).await.body["metadata"]["generation"],
        2
    );
    let status = json!({"status": {"replicas": 3, "selector": "app=w"}, "spec": {"replicas": 7}, "metadata": {"labels": {"a": "c"}}});
    let answer = patch(&cluster, &format!("{path}/status"), "merge-patch+json", &status)
        .await
        .body;
    assert_eq!(
        (&answer["metadata"]["generation"], &answer["spec"]["replicas"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(
        answer["metadata"]["labels"]["a"], "b",
        "a custom resource's status write changes no metadata"
    );
    let unlocked = put(&cluster, &path, &widget("w1")).await;
    assert_eq!(
        unlocked.message(),
        "widgets.demo.test \"w1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

#[tokio::test(start_paused = true)]
async fn scale_is_a_view_of_the_replicas() {
    let cluster = cluster();
    install(&cluster).await;
    post(&cluster, WIDGETS, &widget("w1")).await;
    let path = format!("{WIDGETS}/w1/scale");
    let scale = get(&cluster, &path).await.body;
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"]),
        (&json!("Scale"), &json!(1))
    );
    let patched = patch(&cluster, &path, "merge-patch+json", &json!({"spec": {"replicas": 4}})).await;
    assert_eq!((patched.code, &patched.body["spec"]["replicas"]), (200, &json!(4)));
    let put_back = put(
        &cluster,
        &path,
        &json!({"metadata": {"name": "w1"}, "spec": {"replicas": 5}}),
    )
    .await;
    assert_eq!(put_back.code, 200, "no revision is needed");
    let stored = get(&cluster, &format!("{WIDGETS}/w1")).await.body;
    assert_eq!(
        (&stored["spec"]["replicas"], &stored["metadata"]["generation"]),
        (&json!(5), &json!(3))
    );
    let negative = patch(&cluster, &path, "merge-patch+json", &json!({"spec": {"replicas": -1}})).await;
    assert_eq!(negative.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_definition_goes_after_its_instances() {
    let cluster = cluster();
    install(&cluster).await;
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["a/b"]);
    post(&cluster, WIDGETS, &held).await;
    post(&cluster, WIDGETS, &widget("free")).await;
    let path = format!("{CRDS}/widgets.demo.test");
    let marked = delete(&cluster, &path, &Value::Null).await.body;
    assert_eq!(
        marked["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    until_gone(&cluster, &format!("{WIDGETS}/free")).await;
    assert_eq!(get(&cluster, &path).await.code, 200, "one instance is left");
    patch(
        &cluster,
        &format!("{WIDGETS}/held"),
        "merge-patch+json",
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    until_gone(&cluster, &path).await;
    assert_eq!(get(&cluster, WIDGETS).await.text, "404 page not found\n");
}

#[tokio::test(start_paused = true)]
async fn a_definition_must_be_named_after_what_it_defines() {
    let cluster = cluster();
    let mut wrong = definition();
    wrong["metadata"]["name"] = json!("gadgets.demo.test");
    let answer = post(&cluster, CRDS, &wrong).await;
    assert!(
        answer.message().contains("must be spec.names.plural+\".\"+spec.group"),
        "{}",
        answer.message()
    );
}

/// `kubectl create` asks for the schema as soon as the definition is established.
#[tokio::test(start_paused = true)]
async fn an_established_definition_has_its_schema_published() {
    let cluster = cluster();
    install(&cluster).await;
    let index = get(&cluster, "/openapi/v3").await.body;
    let url = index["paths"]["apis/demo.test/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let document = get(&cluster, url).await.body;
    let schema = &document["components"]["schemas"]["test.demo.v1.Widget"];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Widget", "{url}");
    let path = &document["paths"]["/apis/demo.test/v1/namespaces/{namespace}/widgets/{name}"];
    assert!(path["patch"]["parameters"].is_array());
}
