//! Watches.

use std::time::Duration;

use futures::StreamExt;
use grove_simcluster::Cluster;
use grove_simcluster::door::Door;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::client::Body;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Everything that a watch says until it ends.
async fn watch(cluster: &Cluster, query: &str) -> Vec<Value> {
    let answer = get(cluster, &format!("{MAPS}?watch=true&{query}")).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    answer
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn summary(events: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = |event: &&Value| event["object"]["metadata"]["name"] != "kube-root-ca.crt";
    events
        .iter()
        .filter(own)
        .map(|e| (text(&e["type"]), text(&e["object"]["metadata"]["name"])))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_changes_after_its_revision_and_ends_in_time() {
    let cluster = cluster();
    let start = cluster.store().revision();
    post(&cluster, MAPS, &json!({"metadata": {"name": "a"}})).await;
    patch(
        &cluster,
        &format!("{MAPS}/a"),
        "merge-patch+json",
        &json!({"data": {"x": "1"}}),
    )
    .await;
    delete(&cluster, &format!("{MAPS}/a"), &Value::Null).await;
    let before = tokio::time::Instant::now();
    let events = watch(&cluster, &format!("resourceVersion={start}&timeoutSeconds=5")).await;
    assert_eq!(before.elapsed().as_secs(), 5);
    let own = summary(&events);
    assert_eq!(own, pairs(&[("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]));
    let revisions: Vec<u64> = events
        .iter()
        .map(|e| {
            e["object"]["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    assert!(
        revisions.is_sorted_by(|a, b| a < b),
        "the deletion has a revision of its own: {revisions:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_revision_begins_with_all_objects() {
    let cluster = cluster();
    post(&cluster, MAPS, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(
        summary(&watch(&cluster, "timeoutSeconds=1").await),
        pairs(&[("ADDED", "a")])
    );
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1&allowWatchBookmarks=true";
    let events = watch(&cluster, query).await;
    let last = events.last().unwrap();
    assert_eq!(last["type"], "BOOKMARK");
    assert_eq!(
        last["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(
        last["object"]["metadata"]["resourceVersion"],
        json!(cluster.store().revision().to_string())
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_before_the_end() {
    let cluster = cluster();
    let revision = cluster.store().revision();
    let events = watch(
        &cluster,
        &format!("resourceVersion={revision}&allowWatchBookmarks=true&timeoutSeconds=130"),
    )
    .await;
    let bookmarks = events.iter().filter(|event| event["type"] == "BOOKMARK").count();
    assert_eq!(bookmarks, 3, "after 60 s, 120 s and 128 s: {events:?}");
}

#[tokio::test(start_paused = true)]
async fn objects_enter_and_leave_a_selection() {
    let cluster = cluster();
    let revision = cluster.store().revision();
    post(
        &cluster,
        MAPS,
        &json!({"metadata": {"name": "a", "labels": {"on": "1"}}}),
    )
    .await;
    post(&cluster, MAPS, &json!({"metadata": {"name": "b"}})).await;
    patch(
        &cluster,
        &format!("{MAPS}/b"),
        "merge-patch+json",
        &json!({"metadata": {"labels": {"on": "1"}}}),
    )
    .await;
    let left = patch(
        &cluster,
        &format!("{MAPS}/a"),
        "merge-patch+json",
        &json!({"metadata": {"labels": {"on": null}}}),
    )
    .await;
    let events = watch(
        &cluster,
        &format!("resourceVersion={revision}&labelSelector=on&timeoutSeconds=1"),
    )
    .await;
    assert_eq!(
        summary(&events),
        pairs(&[("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")])
    );
    let gone = &events[2]["object"]["metadata"];
    assert_eq!(gone["labels"]["on"], "1", "as the watcher knew it");
    assert_eq!(
        gone["resourceVersion"], left.body["metadata"]["resourceVersion"],
        "at the revision of the change"
    );
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_too_old_is_told_in_the_stream() {
    let cluster = cluster();
    let revision = cluster.store().revision();
    post(&cluster, MAPS, &json!({"metadata": {"name": "a"}})).await;
    cluster.store().compact(cluster.store().revision());
    let events = watch(&cluster, &format!("resourceVersion={revision}&timeoutSeconds=60")).await;
    assert_eq!(
        (&events[0]["type"], &events[0]["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert!(
        watch(&cluster, "resourceVersion=99999999&timeoutSeconds=3")
            .await
            .is_empty(),
        "the future is silent"
    );
}

#[tokio::test(start_paused = true)]
async fn options_that_make_no_sense_are_refused() {
    let cluster = cluster();
    let cases = [
        (
            "sendInitialEvents=true",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ];
    for (query, text) in cases {
        let answer = get(&cluster, &format!("{MAPS}?watch=1&{query}")).await;
        assert_eq!(answer.code, 422);
        assert!(answer.message().contains(text), "{}", answer.message());
    }
    assert_eq!(
        get(&cluster, &format!("{MAPS}?watch=1&resourceVersion=abc")).await.code,
        500
    );
}

#[tokio::test(start_paused = true)]
async fn every_one_of_a_hundred_listeners_hears_every_event() {
    let cluster = cluster();
    let revision = cluster.store().revision();
    let mut listeners = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let door = Door::new(cluster.server().clone(), grove_simcluster::User::admin());
        let path = format!("{MAPS}?watch=true&resourceVersion={revision}&timeoutSeconds=30&labelSelector=n");
        listeners.spawn(async move {
            let response = door
                .oneshot(http::Request::get(path).body(Body::empty()).unwrap())
                .await
                .unwrap();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .count()
        });
    }
    for i in 0..500 {
        post(
            &cluster,
            MAPS,
            &json!({"metadata": {"name": format!("m{i}"), "labels": {"n": i.to_string()}}}),
        )
        .await;
    }
    let heard = listeners.join_all().await;
    assert_eq!(heard, vec![500; 100]);
}

#[tokio::test(start_paused = true)]
async fn a_stock_reflector_keeps_up_through_compaction() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let cluster = Cluster::builder().history_per_resource(4).start();
        let (reader, writer) = reflector::store::<ConfigMap>();
        let stream = watcher(Api::<ConfigMap>::namespaced(cluster.client(), "default"), config).default_backoff();
        let task = tokio::spawn(reflector(writer, stream).for_each(|_| async {}));
        reader.wait_until_ready().await.unwrap();
        for i in 0..50 {
            post(&cluster, MAPS, &json!({"metadata": {"name": format!("m{i}")}})).await;
        }
        delete(&cluster, &format!("{MAPS}/m7"), &Value::Null).await;
        let caught_up = || {
            reader
                .state()
                .iter()
                .filter(|m| m.metadata.name.as_deref().unwrap().starts_with('m'))
                .count()
                == 49
        };
        while !caught_up() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_of_a_revision_of_the_future_are_waited_for() {
    let cluster = settled().await;
    let watch = "watch=true&timeoutSeconds=10&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let next = cluster.store().revision() + 1;
    let write = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        post(&cluster, MAPS, &json!({"metadata": {"name": "late"}})).await
    };
    let path = format!("{MAPS}?{watch}&resourceVersion={next}&fieldSelector=metadata.name%3Dlate");
    let (seen, _) = tokio::join!(get(&cluster, &path), write);
    assert!(seen.text.contains("\"name\":\"late\""), "{}", seen.text);
    let never = get(&cluster, &format!("{MAPS}?{watch}&resourceVersion=99999999")).await;
    let event: Value = serde_json::from_str(never.text.trim()).unwrap();
    assert_eq!((never.code, &event["type"]), (200, &json!("ERROR")));
    assert_eq!(
        (&event["object"]["code"], &event["object"]["reason"]),
        (&json!(504), &json!("Timeout"))
    );
}
