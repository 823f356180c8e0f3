//! The same server through TLS and a socket.

use std::net::SocketAddr;

use futures::TryStreamExt;
use grove_simcluster::door::Listener;
use grove_simcluster::{Cluster, User};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::support::*;

async fn open(cluster: &Cluster) -> Listener {
    cluster.server().trust_token("secret", User::admin());
    cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap()
}

async fn client(listener: &Listener, token: &str) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(&listener.kubeconfig(token)).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_kubeconfig_is_all_that_a_client_needs() {
    let cluster = cluster();
    let listener = open(&cluster).await;
    let api: Api<ConfigMap> = Api::namespaced(client(&listener, "secret").await, "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    let made = api.create(&PostParams::default(), &map).await.unwrap();
    let inside: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    assert_eq!(inside.get("m").await.unwrap(), made, "two doors, one store");
    let version = made.metadata.resource_version.unwrap();
    let mut events = Box::pin(api.watch(&WatchParams::default().timeout(60), &version).await.unwrap());
    inside.delete("m", &DeleteParams::default()).await.unwrap();
    let deleted = loop {
        match events.try_next().await.unwrap().expect("the watch goes on") {
            WatchEvent::Deleted(object) => break object,
            _ => continue,
        }
    };
    assert_eq!(deleted.metadata.name.as_deref(), Some("m"));
}

#[tokio::test]
async fn credentials_decide_who_asks() {
    let cluster = cluster();
    let listener = open(&cluster).await;
    let stranger: Api<ConfigMap> = Api::namespaced(client(&listener, "guess").await, "default");
    let refused = stranger.get("m").await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 401 && status.message == "Unauthorized"));
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let issued = post(&cluster, path, &json!({})).await.body;
    let token = issued["status"]["token"].as_str().unwrap();
    let account = client(&listener, token).await;
    let reviews: Api<SelfSubjectReview> = Api::all(account);
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:default:default"));
}

#[tokio::test]
async fn a_taken_address_is_an_error_that_names_it() {
    let cluster = cluster();
    let listener = open(&cluster).await;
    let again = cluster.listen(listener.address()).await.unwrap_err();
    assert_eq!(again.to_string(), format!("cannot listen on {}", listener.address()));
}

/// Whoever sends too much is told so, and not cut off while it still sends.
#[tokio::test]
async fn a_body_of_ten_mebibytes_gets_an_answer() {
    let cluster = cluster();
    let listener = open(&cluster).await;
    let api: Api<ConfigMap> = Api::namespaced(client(&listener, "secret").await, "default");
    let large = json!({"metadata": {"name": "m"}, "data": {"x": "y".repeat(10 * 1024 * 1024)}});
    let refused = api
        .create(&PostParams::default(), &serde_json::from_value(large).unwrap())
        .await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 413),
        "{refused:?}"
    );
}
