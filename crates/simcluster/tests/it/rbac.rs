//! Rights: what stored roles allow, what they do not, and who may give them away.

use grove_simcluster::{Cluster, User};
use http::Request;
use serde_json::{Value, json};

use crate::support::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A cluster that evaluates rights, with all that it has from the start.
async fn guarded() -> Cluster {
    let cluster = Cluster::builder().seed(1).rbac(true).start();
    let is_made = |answer: &Answer| answer.body["rules"].as_array().is_some_and(|rules| rules.len() > 20);
    until(&cluster, &format!("{RBAC}/clusterroles/admin"), is_made).await;
    cluster
}

/// A request of the administrator in the name of somebody else.
async fn send_as(cluster: &Cluster, user: &str, method: &str, path: &str, body: &Value) -> Answer {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("impersonate-user", user);
    if method == "PATCH" {
        request = request.header("content-type", "application/merge-patch+json");
    }
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    send(cluster, request.body(body).unwrap()).await
}

async fn get_as(cluster: &Cluster, user: &str, path: &str) -> Answer {
    send_as(cluster, user, "GET", path, &Value::Null).await
}

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, role: (&str, &str), subject: Value) -> Value {
    json!({"metadata": {"name": name}, "subjects": [subject],
           "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1}})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

async fn grant(cluster: &Cluster, plural: &str, object: Value) {
    let made = post(cluster, &format!("{RBAC}/{plural}"), &object).await;
    assert_eq!(made.code, 201, "{}", made.text);
}

/// Gives bob a role in the namespace `default`.
async fn give_bob(cluster: &Cluster, rules: Value) {
    grant(cluster, "namespaces/default/roles", role("r", rules)).await;
    let bound = binding("b", ("Role", "r"), user("bob"));
    grant(cluster, "namespaces/default/rolebindings", bound).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_may_do_what_no_role_allows() {
    let cluster = guarded().await;
    assert_eq!(get(&cluster, PODS).await.code, 200, "the administrator may");
    let refused = get_as(&cluster, "bob", PODS).await;
    assert_eq!((refused.code, refused.reason()), (403, "Forbidden"));
    assert_eq!(
        refused.message(),
        "pods is forbidden: User \"bob\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(refused.body["details"], json!({"kind": "pods"}));
    let refused = get_as(&cluster, "bob", "/api/v1/nodes/n1").await;
    assert_eq!(
        refused.message(),
        "nodes \"n1\" is forbidden: User \"bob\" cannot get resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let refused = get_as(&cluster, "bob", "/metrics").await;
    assert_eq!(
        refused.message(),
        "forbidden: User \"bob\" cannot get path \"/metrics\""
    );
    for path in ["/api", "/apis", "/version", "/healthz", "/openapi/v3"] {
        assert_eq!(get_as(&cluster, "bob", path).await.code, 200, "{path}");
    }
    give_bob(
        &cluster,
        json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]),
    )
    .await;
    assert_eq!(get_as(&cluster, "bob", PODS).await.code, 200);
    assert_eq!(
        get_as(&cluster, "bob", "/api/v1/namespaces/kube-system/pods")
            .await
            .code,
        403
    );
    assert_eq!(get_as(&cluster, "bob", "/api/v1/pods").await.code, 403);
    delete(
        &cluster,
        &format!("{RBAC}/namespaces/default/rolebindings/b"),
        &Value::Null,
    )
    .await;
    assert_eq!(get_as(&cluster, "bob", PODS).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn roles_that_every_cluster_has_are_made_of_parts() {
    let cluster = guarded().await;
    let viewer = binding(
        "v",
        ("ClusterRole", "view"),
        json!({"kind": "ServiceAccount", "name": "default"}),
    );
    grant(&cluster, "namespaces/default/rolebindings", viewer).await;
    let account = "system:serviceaccount:default:default";
    assert_eq!(get_as(&cluster, account, PODS).await.code, 200);
    assert_eq!(
        get_as(&cluster, account, "/api/v1/namespaces/default/secrets")
            .await
            .code,
        403
    );
    let widgets = json!([{"verbs": ["get"], "apiGroups": ["demo.test"], "resources": ["widgets"]}]);
    let mut part = role("widget-viewer", widgets);
    part["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    grant(&cluster, "clusterroles", part).await;
    let has = |answer: &Answer| answer.text.contains("demo.test");
    for whole in ["view", "edit", "admin"] {
        until(&cluster, &format!("{RBAC}/clusterroles/{whole}"), has).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reviews_tell_who_may_and_why() {
    let cluster = guarded().await;
    give_bob(
        &cluster,
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]),
    )
    .await;
    let review = "/apis/authorization.k8s.io/v1";
    let wanted = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let own = json!({"spec": {"resourceAttributes": wanted}});
    let answer = send_as(
        &cluster,
        "bob",
        "POST",
        &format!("{review}/selfsubjectaccessreviews"),
        &own,
    )
    .await;
    let reason = "RBAC: allowed by RoleBinding \"b/default\" of Role \"r\" to User \"bob\"";
    assert_eq!(
        answer.body["status"],
        json!({"allowed": true, "reason": reason}),
        "{}",
        answer.text
    );
    let of_others = json!({"spec": {"resourceAttributes": wanted, "user": "eve", "groups": ["system:authenticated"]}});
    let answer = post(&cluster, &format!("{review}/subjectaccessreviews"), &of_others).await;
    assert_eq!(answer.body["status"], json!({"allowed": false}));
    let local = format!("{review}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(
        post(&cluster, &local, &of_others).await.body["status"],
        json!({"allowed": false})
    );
    let refused = send_as(&cluster, "bob", "POST", &local, &of_others).await;
    assert_eq!(refused.code, 403, "who may ask about others is a right too");
    let rules = json!({"spec": {"namespace": "default"}});
    let answer = send_as(
        &cluster,
        "bob",
        "POST",
        &format!("{review}/selfsubjectrulesreviews"),
        &rules,
    )
    .await;
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let told = answer.body["status"]["resourceRules"].as_array().unwrap();
    assert!(told.contains(&rule), "{}", answer.text);
    let none = json!({"spec": {"resourceAttributes": wanted, "user": "eve"}});
    let elsewhere = format!("{review}/namespaces/kube-system/localsubjectaccessreviews");
    assert_eq!(post(&cluster, &elsewhere, &none).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn nobody_gives_away_what_they_do_not_have() {
    let cluster = guarded().await;
    let roles = json!({"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"],
                       "resources": ["roles", "rolebindings"]});
    let mut some = json!([{"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"]},
                          {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    some[0] = json!({"verbs": ["create", "update", "patch", "get"], "apiGroups": ["rbac.authorization.k8s.io"],
                     "resources": ["roles", "rolebindings"]});
    give_bob(&cluster, some).await;
    let path = format!("{RBAC}/namespaces/default/roles");
    let mine = role(
        "mine",
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]),
    );
    let made = send_as(&cluster, "bob", "POST", &path, &mine).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let more = role(
        "more",
        json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}]),
    );
    let refused = send_as(&cluster, "bob", "POST", &path, &more).await;
    assert_eq!(
        refused.message(),
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\"]}"
    );
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let grab = binding("grab", ("ClusterRole", "cluster-admin"), user("bob"));
    let refused = send_as(&cluster, "bob", "POST", &bindings, &grab).await;
    assert!(refused.message().contains("is attempting to grant"), "{}", refused.text);
    let nothing = binding("nothing", ("Role", "nope"), user("bob"));
    let missing = send_as(&cluster, "bob", "POST", &bindings, &nothing).await;
    assert_eq!(
        missing.message(),
        "rolebindings.rbac.authorization.k8s.io \"nope\" not found"
    );
    // Who may bind and escalate, may.
    let path_of_r = format!("{path}/r");
    patch(&cluster, &path_of_r, "merge-patch+json", &json!({"rules": [roles]})).await;
    assert_eq!(send_as(&cluster, "bob", "POST", &path, &more).await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn only_who_may_pretends_to_be_another() {
    let cluster = guarded().await;
    let bob = |headers: &[(&'static str, &'static str)]| {
        let mut request = Request::get(PODS);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Vec::new()).unwrap()
    };
    let anonymous = send(&cluster, bob(&[("impersonate-user", "system:anonymous")])).await;
    assert!(
        anonymous.message().contains("User \"system:anonymous\" cannot list"),
        "{}",
        anonymous.text
    );
    let nobody = send(&cluster, bob(&[("impersonate-group", "g")])).await;
    assert_eq!(nobody.code, 400);
    cluster
        .server()
        .trust_token("bobs", User::named("bob", &["system:authenticated"]));
    let as_eve = [("authorization", "Bearer bobs"), ("impersonate-user", "eve")];
    let refused = send(&cluster, bob(&as_eve)).await;
    assert_eq!(
        refused.message(),
        "pods is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the \
         namespace \"default\""
    );
    let may = json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["eve"]}]);
    grant(&cluster, "clusterroles", role("i", may)).await;
    grant(
        &cluster,
        "clusterrolebindings",
        binding("i", ("ClusterRole", "i"), user("bob")),
    )
    .await;
    let heard = send(&cluster, bob(&as_eve)).await;
    assert!(heard.message().contains("User \"eve\" cannot list"), "{}", heard.text);
    let with_group = [as_eve[0], as_eve[1], ("impersonate-group", "system:masters")];
    assert_eq!(send(&cluster, bob(&with_group)).await.code, 403);
}
