//! What the cluster does by itself.

use std::sync::Arc;

use grove_simcluster::{Cluster, FleetOptions, InitRunner, NodeSpec};
use serde_json::{Value, json};

use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn owned(cluster: &grove_simcluster::Cluster, name: &str, owner: &Value, block: bool) -> Value {
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                           "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block});
    let object = json!({"metadata": {"name": name, "ownerReferences": [reference]}});
    let made = post(cluster, MAPS, &object).await;
    assert_eq!(made.code, 201, "{}", made.text);
    made.body
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_in_the_background() {
    let cluster = cluster();
    let owner = post(&cluster, MAPS, &json!({"metadata": {"name": "owner"}})).await.body;
    let child = owned(&cluster, "child", &owner, false).await;
    owned(&cluster, "grandchild", &child, false).await;
    delete(
        &cluster,
        &format!("{MAPS}/owner"),
        &json!({"propagationPolicy": "Background"}),
    )
    .await;
    assert_eq!(
        get(&cluster, &format!("{MAPS}/owner")).await.code,
        404,
        "the owner does not wait"
    );
    until_gone(&cluster, &format!("{MAPS}/grandchild")).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_ends_with_the_owner() {
    let cluster = cluster();
    let owner = post(&cluster, MAPS, &json!({"metadata": {"name": "owner"}})).await.body;
    let mut tap = cluster.store().tap();
    let child = owned(&cluster, "child", &owner, true).await;
    owned(&cluster, "grandchild", &child, true).await;
    let marked = delete(
        &cluster,
        &format!("{MAPS}/owner"),
        &json!({"propagationPolicy": "Foreground"}),
    )
    .await
    .body;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    until_gone(&cluster, &format!("{MAPS}/owner")).await;
    let deleted: Vec<String> = std::iter::from_fn(|| tap.try_recv().ok())
        .filter(|(_, event)| event.kind == grove_simcluster::store::EventKind::Deleted)
        .map(|(_, event)| event.key.name.clone())
        .collect();
    assert_eq!(deleted, ["grandchild", "child", "owner"]);
}

#[tokio::test(start_paused = true)]
async fn orphans_stay() {
    let cluster = cluster();
    let owner = post(&cluster, MAPS, &json!({"metadata": {"name": "owner"}})).await.body;
    owned(&cluster, "child", &owner, true).await;
    delete(
        &cluster,
        &format!("{MAPS}/owner"),
        &json!({"propagationPolicy": "Orphan"}),
    )
    .await;
    until_gone(&cluster, &format!("{MAPS}/owner")).await;
    let child = get(&cluster, &format!("{MAPS}/child")).await.body;
    assert!(child["metadata"].get("ownerReferences").is_none(), "{child}");
}

#[tokio::test(start_paused = true)]
async fn an_object_with_a_missing_owner_goes_and_one_with_two_loses_one() {
    let cluster = cluster();
    let ghost = json!({"metadata": {"name": "ghost", "uid": "no-such-uid"}});
    owned(&cluster, "lost", &ghost, false).await;
    until_gone(&cluster, &format!("{MAPS}/lost")).await;
    let a = post(&cluster, MAPS, &json!({"metadata": {"name": "a"}})).await.body;
    let b = post(&cluster, MAPS, &json!({"metadata": {"name": "b"}})).await.body;
    let reference = |owner: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]});
    post(
        &cluster,
        MAPS,
        &json!({"metadata": {"name": "both", "ownerReferences": [reference(&a), reference(&b)]}}),
    )
    .await;
    delete(&cluster, &format!("{MAPS}/a"), &Value::Null).await;
    let one = |answer: &Answer| {
        answer.body["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|list| list.len() == 1)
    };
    let both = until(&cluster, &format!("{MAPS}/both"), one).await.body;
    assert_eq!(both["metadata"]["ownerReferences"][0]["name"], "b");
}

/// A controller that still believes in an owner makes its object again as soon as it is gone. Were it collected in no
/// time, the two would go round for ever under a paused clock.
#[tokio::test(start_paused = true)]
async fn time_passes_for_whoever_makes_garbage_again_and_again() {
    let cluster = cluster();
    let gone = json!({"metadata": {"name": "owner", "uid": "00000000-0000-4000-8000-000000000000"}});
    let begun = tokio::time::Instant::now();
    for _ in 0..5 {
        owned(&cluster, "child", &gone, false).await;
        until_gone(&cluster, &format!("{MAPS}/child")).await;
    }
    assert!(begun.elapsed() >= std::time::Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_furnished_and_emptied() {
    let cluster = cluster();
    let made = post(&cluster, "/api/v1/namespaces", &json!({"metadata": {"name": "gn"}}))
        .await
        .body;
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "gn");
    assert_eq!(
        (&made["spec"]["finalizers"], &made["status"]["phase"]),
        (&json!(["kubernetes"]), &json!("Active"))
    );
    let maps = "/api/v1/namespaces/gn/configmaps";
    until(&cluster, "/api/v1/namespaces/gn/serviceaccounts/default", |answer| {
        answer.code == 200
    })
    .await;
    until(&cluster, &format!("{maps}/kube-root-ca.crt"), |answer| {
        answer.code == 200
    })
    .await;
    post(
        &cluster,
        maps,
        &json!({"metadata": {"name": "held", "finalizers": ["a/b"]}}),
    )
    .await;
    let start = tokio::time::Instant::now();
    let marked = delete(&cluster, "/api/v1/namespaces/gn", &Value::Null).await.body;
    assert_eq!(marked["status"]["phase"], "Terminating");
    let refused = post(&cluster, maps, &json!({"metadata": {"name": "late"}})).await;
    assert_eq!(refused.code, 403);
    assert!(
        refused
            .message()
            .ends_with("unable to create new content in namespace gn because it is being terminated")
    );
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let waits = |answer: &Answer| {
        let conditions = answer.body["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|c| c["reason"] == "SomeFinalizersRemain")
    };
    let waiting = until(&cluster, "/api/v1/namespaces/gn", waits).await;
    assert!(start.elapsed().as_secs() >= 5, "the content goes after a pause");
    assert!(waiting.text.contains("a/b in 1 resource instances"), "{}", waiting.text);
    patch(
        &cluster,
        &format!("{maps}/held"),
        "merge-patch+json",
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    until_gone(&cluster, "/api/v1/namespaces/gn").await;
    let refused = delete(&cluster, "/api/v1/namespaces/default", &Value::Null).await;
    assert_eq!(
        refused.message(),
        "namespaces \"default\" is forbidden: this namespace may not be deleted"
    );
}

/// A cluster that has lost one of its tasks looks as if it worked: somebody must say that it does not.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_is_noticed() {
    let runner: InitRunner = Arc::new(|_, _| panic!("as the test wants it"));
    let options = FleetOptions {
        init_runner: Some(runner),
        ..FleetOptions::default()
    };
    let cluster = Cluster::builder().nodes([NodeSpec::new("n1")]).fleet(options).start();
    assert_eq!(get(&cluster, "/readyz").await.text, "ok");
    let container = |name: &str| json!([{"name": name, "image": "i"}]);
    let spec = json!({"containers": container("c"), "initContainers": container("i")});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    assert_eq!(post(&cluster, "/api/v1/namespaces/default/pods", &pod).await.code, 201);
    let ended = cluster.failed().await;
    assert_eq!(ended.task, "fleet");
    let health = get(&cluster, "/readyz").await;
    assert_eq!(
        (health.code, health.text.as_str()),
        (500, "[+]ping ok\n[-]fleet failed: it has ended\nreadyz check failed\n")
    );
    assert_eq!(get(&cluster, "/readyz/ping").await.code, 200);
}
