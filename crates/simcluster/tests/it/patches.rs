//! Patches that know the types of the built-in kinds.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::definitions::install;
use crate::support::*;

const STRATEGIC: &str = "strategic-merge-patch+json";

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_merges_lists_by_their_keys() {
    let cluster = cluster();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p", "finalizers": ["a/b"]}, "spec": {"containers": [
        {"name": "one", "image": "i:1"}, {"name": "two", "image": "i:1"}]}});
    assert_eq!(post(&cluster, pods, &pod).await.code, 201);
    let change = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]},
                        "spec": {"containers": [{"name": "two", "image": "i:2"}]}});
    let answer = patch(&cluster, &format!("{pods}/p"), STRATEGIC, &change).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    let images: Vec<_> = answer.body["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| (&container["name"], &container["image"]))
        .collect();
    let expected = [(&json!("one"), &json!("i:1")), (&json!("two"), &json!("i:2"))];
    assert_eq!(images, expected);
    assert!(answer.body["metadata"].get("finalizers").is_none());
    let keyless = json!({"spec": {"containers": [{"image": "x"}]}});
    let answer = patch(&cluster, &format!("{pods}/p"), STRATEGIC, &keyless).await;
    assert_eq!(
        (answer.code, answer.message()),
        (500, "map: map[image:x] does not contain declared merge key: name")
    );
}

#[tokio::test(start_paused = true)]
async fn a_stock_client_taints_a_node() {
    let cluster = cluster();
    let node = json!({"metadata": {"name": "n"}});
    assert_eq!(post(&cluster, "/api/v1/nodes", &node).await.code, 201);
    let nodes: Api<Node> = Api::all(cluster.client());
    let taint = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
    let tainted = Patch::Strategic(json!({"spec": {"taints": [taint]}}));
    let node = nodes.patch("n", &PatchParams::default(), &tainted).await.unwrap();
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let mut keys: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).collect();
    keys.sort_unstable();
    assert!(keys.contains(&"dedicated"), "{keys:?}");
    let free = Patch::Strategic(json!({"spec": {"taints": null}}));
    let node = nodes.patch("n", &PatchParams::default(), &free).await.unwrap();
    assert_eq!(node.spec.and_then(|spec| spec.taints), None);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_have_no_strategic_patches() {
    let cluster = cluster();
    install(&cluster).await;
    let widgets = "/apis/demo.test/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "demo.test/v1", "kind": "Widget", "metadata": {"name": "w"}});
    assert_eq!(post(&cluster, widgets, &widget).await.code, 201);
    let answer = patch(&cluster, &format!("{widgets}/w"), STRATEGIC, &json!({})).await;
    assert_eq!((answer.code, answer.reason()), (415, "UnsupportedMediaType"));
}
