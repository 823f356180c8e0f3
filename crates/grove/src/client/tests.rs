//! The client as the operator and the scheduler get it, against a server on a loopback port.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;

use super::*;

/// The requests that arrived, in order.
type Arrived = Arc<Mutex<Vec<(Method, String)>>>;

fn too_late() -> Response {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 504, "reason": "Timeout",
        "message": "request did not complete within the allotted timeout"});
    (StatusCode::GATEWAY_TIMEOUT, Json(status)).into_response()
}

/// A cluster whose API server answers everything with 504, and what arrived there.
async fn late_cluster() -> (Cluster, Arrived) {
    let arrived = Arrived::default();
    let arriving = arrived.clone();
    let router = Router::new().fallback(move |request: Request| {
        let one = (request.method().clone(), request.uri().path().to_owned());
        arriving.lock().unwrap().push(one);
        async { too_late() }
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let kubeconfig = NamedTempFile::new().unwrap();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    std::fs::write(kubeconfig.path(), text.to_string()).unwrap();
    let connection = ClientConnection::default();
    let cluster = Cluster::connect(&Target::of(Some(kubeconfig.path())), &connection, &ApiWrites::default()).await;
    (cluster.unwrap_or_else(|_| panic!("no client")), arrived)
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not an answer: {other:?}"),
    }
}

/// Whether it was carried out nobody knows, so only whoever decided it may send it again.
#[tokio::test]
async fn a_write_that_times_out_is_sent_once() {
    let (cluster, arrived) = late_cluster().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let leases: Api<Lease> = Api::default_namespaced(cluster.lease_client.clone());
    let (writing, patching) = (PostParams::default(), PatchParams::default());
    assert_eq!(code(pods.create(&writing, &Pod::default()).await), 504);
    let binding = json!({"target": {"name": "n"}});
    let bound = pods
        .create_subresource::<_, Value>("binding", "p", &writing, &binding)
        .await;
    assert_eq!(code(bound), 504);
    assert_eq!(code(pods.patch("p", &patching, &Patch::Merge(json!({}))).await), 504);
    assert_eq!(code(leases.replace("l", &writing, &Lease::default()).await), 504);
    assert_eq!(code(leases.create(&writing, &Lease::default()).await), 504);
    let arrived = std::mem::take(&mut *arrived.lock().unwrap());
    let pods = "/api/v1/namespaces/default/pods";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let once = [
        (Method::POST, pods.to_owned()),
        (Method::POST, format!("{pods}/p/binding")),
        (Method::PATCH, format!("{pods}/p")),
        (Method::PUT, format!("{leases}/l")),
        (Method::POST, leases.to_owned()),
    ];
    assert_eq!(arrived, once);
}

/// A leader has a clock of its own for its Lease; everybody else asks again.
#[tokio::test]
async fn a_read_that_times_out_is_asked_again_save_that_of_the_lease() {
    let (cluster, arrived) = late_cluster().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    assert_eq!(code(pods.get("p").await), 504);
    assert!(arrived.lock().unwrap().len() > 1);
    arrived.lock().unwrap().clear();
    let leases: Api<Lease> = Api::default_namespaced(cluster.lease_client.clone());
    assert_eq!(code(leases.get("l").await), 504);
    assert_eq!(arrived.lock().unwrap().len(), 1);
}
