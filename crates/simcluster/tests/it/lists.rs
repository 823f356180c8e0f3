//! Lists: selectors, pages, revisions.

use serde_json::{Value, json};

use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn filled() -> grove_simcluster::Cluster {
    let cluster = cluster();
    for i in 0..5 {
        let object =
            json!({"metadata": {"name": format!("m{i}"), "labels": {"app": if i % 2 == 0 { "even" } else { "odd" }}}});
        assert_eq!(post(&cluster, MAPS, &object).await.code, 201);
    }
    cluster
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .filter(|name| name.starts_with('m'))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn selectors_narrow_lists() {
    let cluster = filled().await;
    let list = get(&cluster, &format!("{MAPS}?labelSelector=app%3Deven")).await.body;
    assert_eq!(names(&list), ["m0", "m2", "m4"]);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    assert!(
        list["items"][0].get("kind").is_none(),
        "items of built-in lists have no kind"
    );
    let list = get(&cluster, &format!("{MAPS}?fieldSelector=metadata.name%3Dm1"))
        .await
        .body;
    assert_eq!(names(&list), ["m1"]);
    let bad = get(&cluster, &format!("{MAPS}?fieldSelector=zz%3D1")).await;
    assert_eq!(
        (bad.code, bad.message()),
        (
            400,
            "\"zz\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )
    );
    let bad = get(&cluster, "/api/v1/pods?fieldSelector=zz%3D1").await;
    assert_eq!(bad.message(), "field label not supported: zz");
    let bad = get(&cluster, &format!("{MAPS}?labelSelector=a%3Db%3Dc")).await;
    assert_eq!(
        (bad.code, bad.message()),
        (400, "found '=', expected: ',' or 'end of string'")
    );
    assert_eq!(get(&cluster, "/api/v1/namespaces/nope/configmaps").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_revision() {
    let cluster = filled().await;
    let first = get(&cluster, &format!("{MAPS}?limit=2&labelSelector=app")).await.body;
    assert_eq!(names(&first), ["m0", "m1"]);
    assert!(
        first["metadata"].get("remainingItemCount").is_none(),
        "not counted with a selector"
    );
    let all = get(&cluster, "/api/v1/configmaps?limit=2").await.body;
    assert!(all["metadata"]["remainingItemCount"].as_u64().unwrap() >= 3);
    // A later object does not appear in the pages that follow.
    post(
        &cluster,
        MAPS,
        &json!({"metadata": {"name": "m11", "labels": {"app": "x"}}}),
    )
    .await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = get(&cluster, &format!("{MAPS}?limit=9&labelSelector=app&continue={token}"))
        .await
        .body;
    assert_eq!(names(&second), ["m2", "m3", "m4"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    cluster.store().compact(cluster.store().revision());
    let expired = get(&cluster, &format!("{MAPS}?limit=9&labelSelector=app&continue={token}")).await;
    assert_eq!((expired.code, expired.reason()), (410, "Expired"));
    let again = expired.body["metadata"]["continue"].as_str().unwrap();
    let rest = get(&cluster, &format!("{MAPS}?limit=9&labelSelector=app&continue={again}"))
        .await
        .body;
    assert_eq!(names(&rest), ["m11", "m2", "m3", "m4"], "inconsistent, but the rest");
    let bad = get(&cluster, &format!("{MAPS}?continue=xx")).await;
    assert!(
        bad.message()
            .starts_with("invalid continue token: continue key is not valid"),
        "{}",
        bad.message()
    );
    let both = get(&cluster, &format!("{MAPS}?continue={token}&resourceVersion=7")).await;
    assert_eq!(
        both.message(),
        "specifying resource version is not allowed when using continue"
    );
}

#[tokio::test(start_paused = true)]
async fn revisions_are_exact_newer_or_any() {
    let cluster = filled().await;
    let revision = cluster.store().revision();
    post(&cluster, MAPS, &json!({"metadata": {"name": "m9"}})).await;
    let exact = get(
        &cluster,
        &format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact"),
    )
    .await
    .body;
    assert_eq!(
        (names(&exact).len(), &exact["metadata"]["resourceVersion"]),
        (5, &json!(revision.to_string()))
    );
    let newer = get(&cluster, &format!("{MAPS}?resourceVersion={revision}")).await.body;
    assert_eq!(names(&newer).len(), 6);
    let cached = get(&cluster, &format!("{MAPS}?resourceVersion=0&limit=1")).await.body;
    assert_eq!(names(&cached).len(), 6, "the limit is ignored at revision 0");
    let future = get(&cluster, &format!("{MAPS}?resourceVersion=99999999")).await;
    assert_eq!((future.code, future.reason()), (504, "Timeout"));
    assert!(
        future
            .message()
            .starts_with("Timeout: Too large resource version: 99999999, current: ")
    );
    let cases = [
        (
            "resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersion=5&resourceVersionMatch=Bad",
            422,
            "Unsupported value: \"Bad\"",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch \"exact\" is forbidden",
        ),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        (
            "resourceVersion=abc",
            400,
            "strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        ("limit=x", 400, "invalid syntax"),
    ];
    for (query, code, text) in cases {
        let answer = get(&cluster, &format!("{MAPS}?{query}")).await;
        assert_eq!(answer.code, code, "{query}");
        assert!(answer.message().contains(text), "{query}: {}", answer.message());
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_and_yaml_can_be_asked_for() {
    let cluster = filled().await;
    let accept = |value: &str, path: &str| {
        http::Request::get(path)
            .header("accept", value)
            .body(Vec::new())
            .unwrap()
    };
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = send(&cluster, accept(partial, MAPS)).await.body;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][1]["kind"], "PartialObjectMetadata");
    let yaml = send(&cluster, accept("application/yaml", &format!("{MAPS}/m0"))).await;
    assert!(yaml.text.contains("kind: ConfigMap"), "{}", yaml.text);
    assert_eq!(send(&cluster, accept("application/cbor", MAPS)).await.code, 406);
    assert_eq!(send(&cluster, accept("application/cbor", "/healthz")).await.text, "ok");
}

#[tokio::test(start_paused = true)]
async fn a_revision_of_the_future_is_waited_for_and_no_longer() {
    let cluster = settled().await;
    let start = tokio::time::Instant::now();
    let next = cluster.store().revision() + 1;
    let path = format!("{MAPS}?resourceVersion={next}");
    let write = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        post(&cluster, MAPS, &json!({"metadata": {"name": "late"}})).await
    };
    let (listed, _) = tokio::join!(get(&cluster, &path), write);
    assert_eq!(
        (listed.code, start.elapsed().as_millis()),
        (200, 700),
        "{}",
        listed.text
    );
    let never = get(&cluster, &format!("{MAPS}?resourceVersion=99999999")).await;
    assert_eq!((never.code, never.reason()), (504, "Timeout"));
    assert_eq!(start.elapsed().as_millis(), 3700);
}
