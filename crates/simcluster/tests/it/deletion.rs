//! Deletion: marks, finalizers, preconditions, collections.

use serde_json::{Value, json};

use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn an_object_that_nothing_holds_is_gone_at_once() {
    let cluster = cluster();
    let made = post(&cluster, MAPS, &json!({"metadata": {"name": "d"}})).await.body;
    let answer = delete(
        &cluster,
        &format!("{MAPS}/d"),
        &json!({"propagationPolicy": "Background"}),
    )
    .await;
    assert_eq!(
        answer.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
               "details": {"name": "d", "kind": "configmaps", "uid": made["metadata"]["uid"]}})
    );
    assert_eq!(
        delete(&cluster, &format!("{MAPS}/d"), &Value::Null).await.message(),
        "configmaps \"d\" not found"
    );
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object() {
    let cluster = cluster();
    let path = format!("{MAPS}/f");
    post(
        &cluster,
        MAPS,
        &json!({"metadata": {"name": "f", "finalizers": ["a/b"]}}),
    )
    .await;
    let marked = delete(&cluster, &path, &Value::Null).await.body;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = delete(&cluster, &path, &Value::Null).await.body;
    assert_eq!(again, marked, "a second deletion changes nothing");
    let taken = post(&cluster, MAPS, &json!({"metadata": {"name": "f"}})).await;
    assert_eq!(
        taken.message(),
        "object is being deleted: configmaps \"f\" already exists"
    );
    let add = json!({"metadata": {"finalizers": ["a/b", "z/z"]}});
    let refused = patch(&cluster, &path, "merge-patch+json", &add).await;
    assert!(
        refused
            .message()
            .contains("no new finalizers can be added if the object is being deleted")
    );
    let change = json!({"data": {"x": "1"}, "metadata": {"deletionTimestamp": null}});
    let changed = patch(&cluster, &path, "merge-patch+json", &change).await;
    assert_eq!(
        (changed.code, changed.body["metadata"]["deletionTimestamp"].is_string()),
        (200, true)
    );
    let mut tap = cluster.store().tap();
    let released = patch(
        &cluster,
        &path,
        "merge-patch+json",
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    assert_eq!(
        (released.code, &released.body["metadata"]["resourceVersion"]),
        (200, &changed.body["metadata"]["resourceVersion"])
    );
    let (_, event) = tap.try_recv().unwrap();
    let last: Value = serde_json::from_slice(&event.object).unwrap();
    assert_eq!(
        last["metadata"]["finalizers"],
        json!(["a/b"]),
        "watchers see the object as it was stored"
    );
    assert_eq!(get(&cluster, &path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn preconditions_protect_another_object_of_the_same_name() {
    let cluster = cluster();
    post(&cluster, MAPS, &json!({"metadata": {"name": "d1"}})).await;
    let answer = delete(
        &cluster,
        &format!("{MAPS}/d1"),
        &json!({"preconditions": {"uid": "abc"}}),
    )
    .await;
    assert_eq!(
        (answer.code, &answer.body["details"]["kind"]),
        (409, &json!("ConfigMap"))
    );
    assert!(answer.message().starts_with("Operation cannot be fulfilled on ConfigMap \"d1\": the UID in the precondition (abc) does not match the UID in record"));
    let answer = delete(
        &cluster,
        &format!("{MAPS}/d1"),
        &json!({"preconditions": {"resourceVersion": "1"}}),
    )
    .await;
    assert!(
        answer.message().contains("the ResourceVersion in the precondition (1)"),
        "{}",
        answer.message()
    );
    let dry = delete(&cluster, &format!("{MAPS}/d1?dryRun=All"), &Value::Null).await;
    assert_eq!((dry.code, get(&cluster, &format!("{MAPS}/d1")).await.code), (200, 200));
    let odd = delete(
        &cluster,
        &format!("{MAPS}/d1"),
        &json!({"propagationPolicy": "Sideways"}),
    )
    .await;
    assert_eq!(odd.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_collection_goes_by_selector() {
    let cluster = cluster();
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        post(
            &cluster,
            MAPS,
            &json!({"metadata": {"name": name, "labels": {"app": app}}}),
        )
        .await;
    }
    let answer = delete(&cluster, &format!("{MAPS}?labelSelector=app%3Dx"), &Value::Null).await;
    assert_eq!((answer.code, answer.body["items"].as_array().unwrap().len()), (200, 2));
    assert_eq!(get(&cluster, &format!("{MAPS}/c")).await.code, 200);
    assert_eq!(get(&cluster, &format!("{MAPS}/a")).await.code, 404);
    assert_eq!(delete(&cluster, "/api/v1/namespaces", &Value::Null).await.code, 405);
}
