//! Plain requests, for what a typed client cannot show: status codes, headers, exact bodies.

use std::time::Duration;

use grove_simcluster::door::Door;
use grove_simcluster::{Cluster, User};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tower::ServiceExt;

pub(crate) fn cluster() -> Cluster {
    Cluster::builder().seed(1).start()
}

/// A cluster that has done all that it does by itself. Virtual time passes only when nobody has anything left to do.
pub(crate) async fn settled() -> Cluster {
    let cluster = cluster();
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster
}

/// A complete answer.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers
            .get_all("warning")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect()
    }
}

/// Sends one request through the in-process door and reads the whole answer.
pub(crate) async fn send(cluster: &Cluster, request: Request<Vec<u8>>) -> Answer {
    let door = Door::new(cluster.server().clone(), User::admin());
    let response = door
        .oneshot(request.map(Body::from))
        .await
        .expect("a door always answers");
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body in process is whole").to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer {
        code: parts.status.as_u16(),
        headers: parts.headers,
        body,
        text,
    }
}

pub(crate) async fn get(cluster: &Cluster, path: &str) -> Answer {
    send(cluster, Request::get(path).body(Vec::new()).unwrap()).await
}

pub(crate) async fn post(cluster: &Cluster, path: &str, object: &Value) -> Answer {
    send(
        cluster,
        Request::post(path).body(object.to_string().into_bytes()).unwrap(),
    )
    .await
}

pub(crate) async fn put(cluster: &Cluster, path: &str, object: &Value) -> Answer {
    send(
        cluster,
        Request::put(path).body(object.to_string().into_bytes()).unwrap(),
    )
    .await
}

pub(crate) async fn delete(cluster: &Cluster, path: &str, options: &Value) -> Answer {
    let body = if options.is_null() {
        Vec::new()
    } else {
        options.to_string().into_bytes()
    };
    send(cluster, Request::delete(path).body(body).unwrap()).await
}

pub(crate) async fn patch(cluster: &Cluster, path: &str, kind: &str, patch: &Value) -> Answer {
    let request = Request::patch(path).header("content-type", format!("application/{kind}"));
    send(cluster, request.body(patch.to_string().into_bytes()).unwrap()).await
}

/// Waits until a GET answers with what `wanted` accepts; looks again after every write.
pub(crate) async fn until(cluster: &Cluster, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let mut writes = cluster.store().tap();
    loop {
        let answer = get(cluster, path).await;
        if wanted(&answer) {
            return answer;
        }
        let next = tokio::time::timeout(Duration::from_secs(3600), writes.recv()).await;
        assert!(
            next.is_ok(),
            "{path} never became what was wanted; last answer: {} {}",
            answer.code,
            answer.text
        );
    }
}

/// Waits until an object is gone.
pub(crate) async fn until_gone(cluster: &Cluster, path: &str) {
    until(cluster, path, |answer| answer.code == 404).await;
}
