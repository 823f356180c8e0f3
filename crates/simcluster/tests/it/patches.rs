//! Patches that know the types of the built-in kinds.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::definitions::{install, install_definition};
use crate::schemas::{gadget, gadgets};
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

#[tokio::test(start_paused = true)]
async fn server_side_apply_creates_conflicts_and_comes_to_rest() {
    let cluster = cluster();
    install_definition(&cluster, &gadgets()).await;
    let path = "/apis/demo.test/v1/namespaces/default/gadgets/g";
    let apply = async |query: &str, spec: serde_json::Value| {
        patch(&cluster, &format!("{path}?{query}"), "apply-patch+yaml", &gadget(spec)).await
    };
    let nobody = apply("", json!({"color": "red"})).await;
    assert_eq!(
        (nobody.code, nobody.message()),
        (
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        )
    );
    let first = json!({"color": "red", "replicas": 4, "items": [{"name": "a", "value": "1"}]});
    let made = apply("fieldManager=m1", first.clone()).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let entry = &made.body["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["operation"]),
        (&json!("m1"), &json!("Apply"))
    );
    let again = apply("fieldManager=m1", first).await;
    assert_eq!((again.code, &again.body), (200, &made.body), "nothing changed");

    let other = json!({"replicas": 5, "items": [{"name": "b", "value": "2"}]});
    let refused = apply("fieldManager=m2", other.clone()).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"m1\": .spec.replicas"
        )
    );
    let causes =
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".spec.replicas"}]);
    assert_eq!(refused.body["details"], json!({"causes": causes}));
    let forced = apply("fieldManager=m2&force=true", other).await;
    assert_eq!(forced.code, 200, "{}", forced.text);
    let items = json!([{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]);
    assert_eq!(
        (&forced.body["spec"]["replicas"], &forced.body["spec"]["items"]),
        (&json!(5), &items)
    );
    let updated = json!({"spec": {"replicas": 6}});
    patch(
        &cluster,
        &format!("{path}?fieldManager=m3"),
        "merge-patch+json",
        &updated,
    )
    .await;
    let refused = apply("fieldManager=m2", json!({"replicas": 5})).await;
    assert_eq!(
        refused.message(),
        "Apply failed with 1 conflict: conflict with \"m3\" using demo.test/v1: .spec.replicas"
    );
    let unknown = apply("fieldManager=m1", json!({"zzz": 1})).await;
    assert_eq!(
        (unknown.code, unknown.message()),
        (
            500,
            "failed to create typed patch object (/g; demo.test/v1, Kind=Gadget): .spec.zzz: field not declared in schema"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_stock_client_applies_to_a_built_in_kind() {
    let cluster = cluster();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let config = |data: serde_json::Value| {
        Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}))
    };
    let mine = PatchParams::apply("mine");
    maps.patch("m", &mine, &config(json!({"a": "1", "b": "2"})))
        .await
        .unwrap();
    let kept = maps.patch("m", &mine, &config(json!({"a": "1"}))).await.unwrap();
    let data = kept.data.unwrap_or_default();
    assert_eq!(
        data.keys().collect::<Vec<_>>(),
        ["a"],
        "what the applier leaves out goes"
    );
    let theirs = maps
        .patch("m", &PatchParams::apply("theirs"), &config(json!({"a": "9"})))
        .await;
    assert!(matches!(theirs, Err(kube::Error::Api(status)) if status.code == 409));
}

#[tokio::test(start_paused = true)]
async fn force_is_for_apply_only() {
    let cluster = cluster();
    let maps = "/api/v1/namespaces/default/configmaps";
    post(&cluster, maps, &json!({"metadata": {"name": "m"}})).await;
    let data = json!({"data": {"a": "b"}});
    let refused = patch(&cluster, &format!("{maps}/m?force=true"), "merge-patch+json", &data).await;
    assert_eq!((refused.code, refused.reason()), (422, "Invalid"));
    assert_eq!(
        refused.message(),
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
}
