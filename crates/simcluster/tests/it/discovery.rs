//! Discovery and health.

use kube::discovery::Discovery;
use serde_json::json;

use crate::definitions::install;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_stock_client_discovers_every_group() {
    let cluster = cluster();
    install(&cluster).await;
    for discovery in [
        Discovery::new(cluster.client()).run().await.unwrap(),
        Discovery::new(cluster.client()).run_aggregated().await.unwrap(),
    ] {
        let groups: Vec<&str> = discovery.groups().map(|group| group.name()).collect();
        for group in ["", "demo.test", "coordination.k8s.io", "policy", "resource.k8s.io"] {
            assert!(groups.contains(&group), "{group} is missing in {groups:?}");
        }
        let group = discovery.get("demo.test").unwrap();
        let (kind, capabilities) = group.recommended_kind("Widget").unwrap();
        assert_eq!(kind.plural, "widgets");
        assert!(
            capabilities
                .subresources
                .iter()
                .any(|(sub, _)| sub.plural.ends_with("scale"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_aggregated_document_can_be_cached() {
    let cluster = cluster();
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let first = send(
        &cluster,
        http::Request::get("/apis")
            .header("accept", accept)
            .body(Vec::new())
            .unwrap(),
    )
    .await;
    assert_eq!(
        first.headers["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let etag = first.headers["etag"].to_str().unwrap();
    let again = http::Request::get("/apis")
        .header("accept", accept)
        .header("if-none-match", etag);
    assert_eq!(send(&cluster, again.body(Vec::new()).unwrap()).await.code, 304);
}

#[tokio::test(start_paused = true)]
async fn health_and_version_are_told() {
    let cluster = cluster();
    for path in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(get(&cluster, path).await.text, "ok");
    }
    assert_eq!(get(&cluster, "/version").await.body["minor"], "36");
    let resources = get(&cluster, "/api/v1").await.body;
    let names: Vec<_> = resources["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].clone())
        .collect();
    for name in [
        "pods",
        "pods/binding",
        "pods/eviction",
        "pods/status",
        "namespaces/finalize",
        "serviceaccounts/token",
    ] {
        assert!(names.contains(&json!(name)), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn openapi_tells_that_a_kind_can_be_patched_and_validated() {
    let cluster = cluster();
    install(&cluster).await;
    let index = get(&cluster, "/openapi/v3").await.body;
    let url = index["paths"]["apis/demo.test/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let document = get(&cluster, url).await.body;
    let patch = &document["paths"]["/apis/demo.test/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Widget");
    let parameters: Vec<_> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].clone())
        .collect();
    assert!(parameters.contains(&json!("fieldValidation")));
    assert!(document["components"]["schemas"].get("test.demo.v1.Widget").is_some());
    assert!(index["paths"].get("api/v1").is_some());
    assert_eq!(get(&cluster, "/openapi/v3/apis/none/v1").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn people_find_their_way_and_can_read_the_answers() {
    let cluster = cluster();
    let paths = get(&cluster, "/").await.body["paths"].clone();
    for path in ["/api/v1", "/apis/policy/v1", "/openapi/v2", "/readyz"] {
        assert!(paths.as_array().unwrap().contains(&json!(path)), "{path}");
    }
    for (agent, query, lines) in [
        ("kubectl/v1", "", 1),
        ("kubectl/v1", "?pretty=true", 10),
        ("curl/8.0", "", 10),
        ("curl/8.0", "?pretty=false", 1),
    ] {
        let request = http::Request::get(format!("/api/v1/namespaces/default{query}")).header("user-agent", agent);
        let body = cluster
            .server()
            .serve(
                request.body(bytes::Bytes::new()).unwrap(),
                &grove_simcluster::User::admin(),
            )
            .await
            .into_body();
        let text = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        let found = String::from_utf8_lossy(&text).lines().count();
        assert!(
            found >= lines && (lines > 1 || found == 1),
            "{agent} {query}: {found} lines"
        );
    }
}
