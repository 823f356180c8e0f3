//! Tokens: how long they are good, for whom, and as long as what exists.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use grove_simcluster::Cluster;
use serde_json::{Value, json};

use crate::support::*;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn token(cluster: &Cluster, account: &str, spec: Value) -> String {
    let made = post(cluster, &format!("{ACCOUNTS}/{account}/token"), &json!({"spec": spec})).await;
    assert_eq!(made.code, 201, "{}", made.text);
    made.body["status"]["token"].as_str().unwrap().to_owned()
}

async fn review(cluster: &Cluster, token: &str, audiences: &[&str]) -> Value {
    let asked = post(
        cluster,
        REVIEWS,
        &json!({"spec": {"token": token, "audiences": audiences}}),
    )
    .await;
    asked.body["status"].clone()
}

fn is_good(cluster: &Cluster, token: &str) -> bool {
    cluster.server().authenticate(token).is_some()
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_at_its_time() {
    let cluster = cluster();
    let token = token(&cluster, "default", json!({"expirationSeconds": 600})).await;
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert!(is_good(&cluster, &token));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_good(&cluster, &token));
    let status = review(&cluster, &token, &[]).await;
    assert_eq!(
        status["error"],
        "[invalid bearer token, service account token has expired]"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_for_others_opens_nothing_here() {
    let cluster = cluster();
    let token = token(&cluster, "default", json!({"audiences": ["vault", "mesh"]})).await;
    assert!(!is_good(&cluster, &token));
    let status = review(&cluster, &token, &["mesh", "other"]).await;
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["mesh"]))
    );
    assert_eq!(review(&cluster, &token, &["other"]).await.get("authenticated"), None);
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_with_what_it_is_bound_to() {
    let cluster = cluster();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    post(&cluster, pods, &pod).await;
    post(&cluster, ACCOUNTS, &json!({"metadata": {"name": "a"}})).await;
    let reference = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}});
    let of_pod = token(&cluster, "default", reference).await;
    let of_account = token(&cluster, "a", json!({})).await;
    let user = cluster.server().authenticate(&of_pod).unwrap();
    assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
    assert!(is_good(&cluster, &of_account));
    let now = json!({"gracePeriodSeconds": 0});
    delete(&cluster, &format!("{pods}/p"), &now).await;
    delete(&cluster, &format!("{ACCOUNTS}/a"), &Value::Null).await;
    assert!(!is_good(&cluster, &of_pod) && !is_good(&cluster, &of_account));
    // Another pod and another account of the same names are others.
    post(&cluster, pods, &pod).await;
    post(&cluster, ACCOUNTS, &json!({"metadata": {"name": "a"}})).await;
    assert!(!is_good(&cluster, &of_pod) && !is_good(&cluster, &of_account));
}

fn token_secret(name: &str, account: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token",
    })
}

#[tokio::test(start_paused = true)]
async fn a_secret_gets_its_token_and_goes_with_the_account() {
    let cluster = cluster();
    let made = post(&cluster, ACCOUNTS, &json!({"metadata": {"name": "a"}})).await.body;
    assert_eq!(post(&cluster, SECRETS, &token_secret("s", "a")).await.code, 201);
    let is_filled = |answer: &Answer| answer.body["data"]["token"].is_string();
    let secret = until(&cluster, &format!("{SECRETS}/s"), is_filled).await.body;
    let data = |field: &str| STANDARD.decode(secret["data"][field].as_str().unwrap()).unwrap();
    assert_eq!(data("namespace"), b"default");
    assert!(secret["data"]["ca.crt"].is_string());
    let uid = &secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
    assert_eq!(*uid, made["metadata"]["uid"]);
    let token = String::from_utf8(data("token")).unwrap();
    let user = cluster.server().authenticate(&token).unwrap();
    assert_eq!(user.name, "system:serviceaccount:default:a");
    delete(&cluster, &format!("{ACCOUNTS}/a"), &Value::Null).await;
    until_gone(&cluster, &format!("{SECRETS}/s")).await;
    assert!(!is_good(&cluster, &token));
    // Nobody's token is nobody's.
    assert_eq!(post(&cluster, SECRETS, &token_secret("t", "")).await.code, 422);
    assert_eq!(post(&cluster, SECRETS, &token_secret("t", "nope")).await.code, 201);
    until_gone(&cluster, &format!("{SECRETS}/t")).await;
}
