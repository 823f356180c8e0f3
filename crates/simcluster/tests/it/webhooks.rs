//! Admission webhooks, over TLS on pipes in virtual time and once on a socket.

use std::sync::Arc;
use std::time::Duration;

use grove_simcluster::door::Door;
use grove_simcluster::store::{Expect, Key, ResourceName};
use grove_simcluster::{Cluster, User};
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::hook_server::*;
use crate::support::*;

const HOOK: &str = "hook.test:443";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

/// A cluster with one validating webhook for configmaps.
async fn guarded(
    changes: Value,
    answers: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
) -> (Cluster, HookServer) {
    let cluster = cluster();
    // What the cluster writes by itself when it starts is none of these tests' business.
    for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
        until(&cluster, &path, |answer| answer.code == 200).await;
    }
    let server = HookServer::on_pipe(&cluster, HOOK, answers);
    let hook = webhook("v.hook.test", server.client_config("/"), changes);
    configure(&cluster, "validating", "v", json!([hook])).await;
    (cluster, server)
}

#[tokio::test(start_paused = true)]
async fn mutating_hooks_patch_in_the_order_of_their_names() {
    let cluster = cluster();
    let server = HookServer::on_pipe(&cluster, HOOK, |path, request| {
        let before = request["object"]["data"]["trace"].as_str().unwrap_or_default();
        patch_with(json!([{"op": "add", "path": "/data/trace", "value": format!("{before}{path}")}]))
    });
    for name in ["b", "a"] {
        let hooks = [1, 2].map(|i| {
            webhook(
                &format!("{name}{i}.hook.test"),
                server.client_config(&format!("/{name}{i}")),
                json!({}),
            )
        });
        configure(&cluster, "mutating", name, json!(hooks)).await;
    }
    let made = post(&cluster, MAPS, &map("m")).await;
    assert_eq!(made.body["data"], json!({"a": "1", "trace": "/a1/a2/b1/b2"}));
    let seen = server.take();
    assert_eq!(seen[0]["operation"], "CREATE");
    assert!(seen[0]["oldObject"].is_null() && seen[0]["object"]["metadata"]["uid"].is_string());
    assert_eq!(seen[0]["object"]["kind"], "ConfigMap");
    assert_eq!(seen[0]["options"]["kind"], "CreateOptions");
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_makes_is_defaulted_and_validated() {
    let cluster = cluster();
    let server = HookServer::on_pipe(&cluster, HOOK, |path, _| match path {
        "/extend" => {
            patch_with(json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "s"}}]))
        }
        _ => patch_with(json!([{"op": "replace", "path": "/data/a", "value": "2"}])),
    });
    let rule =
        |plural: &str| json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [plural]}]);
    let pods = webhook(
        "p.hook.test",
        server.client_config("/extend"),
        json!({"rules": rule("pods"), "objectSelector": {"matchLabels": {"side": "car"}}}),
    );
    let frozen = webhook(
        "m.hook.test",
        server.client_config("/change"),
        json!({"rules": rule("configmaps")}),
    );
    configure(&cluster, "mutating", "m", json!([pods, frozen])).await;
    let pod = json!({"metadata": {"name": "p", "labels": {"side": "car"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = post(&cluster, "/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(
        made.body["spec"]["containers"][1]["imagePullPolicy"], "Always",
        "{}",
        made.text
    );
    // A hook may not change what a user may not change, and the error is the user's.
    let mut fixed = map("m");
    fixed["immutable"] = json!(true);
    assert_eq!(post(&cluster, MAPS, &fixed).await.body["data"]["a"], "2");
    let stored = get(&cluster, &format!("{MAPS}/m")).await.body;
    let mut by_user = stored.clone();
    by_user["data"]["a"] = json!("3");
    // The hook puts back what the user changed, so this write is none.
    assert_eq!(put(&cluster, &format!("{MAPS}/m"), &by_user).await.code, 200);
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/m";
    delete(&cluster, path, &Value::Null).await;
    let refused = put(&cluster, &format!("{MAPS}/m"), &by_user).await;
    let other = HookServer::on_pipe(&cluster, "other.test:443", |_, _| {
        patch_with(json!([{"op": "replace", "path": "/data/a", "value": "3"}]))
    });
    configure(
        &cluster,
        "mutating",
        "n",
        json!([webhook("n.hook.test", other.client_config("/"), json!({}))]),
    )
    .await;
    let by_hook = put(&cluster, &format!("{MAPS}/m"), &stored).await;
    assert_eq!(refused.code, 422);
    assert_eq!(by_hook.body, refused.body);
}

#[tokio::test(start_paused = true)]
async fn a_denial_carries_the_hooks_code_reason_message_and_causes() {
    let causes = json!({"causes": [{"reason": "FieldValueInvalid", "message": "bad", "field": "data.a"}]});
    let told = causes.clone();
    let (cluster, _) = guarded(json!({}), move |_, request| match request["name"].as_str() {
        Some("silent") => json!({"allowed": false}),
        _ => json!({"allowed": false, "warnings": ["look out"],
                    "status": {"code": 422, "reason": "Invalid", "message": "no way", "details": told}}),
    })
    .await;
    let denied = post(&cluster, MAPS, &map("m")).await;
    assert_eq!((denied.code, denied.reason()), (422, "Invalid"));
    assert_eq!(
        denied.message(),
        "admission webhook \"v.hook.test\" denied the request: no way"
    );
    assert_eq!(denied.body["details"], causes);
    assert_eq!(denied.warnings(), ["299 - \"look out\""]);
    let denied = post(&cluster, MAPS, &map("silent")).await;
    assert_eq!((denied.code, denied.reason()), (400, ""));
    assert_eq!(
        denied.message(),
        "admission webhook \"v.hook.test\" denied the request without explanation"
    );
    assert_eq!(get(&cluster, &format!("{MAPS}/m")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_down_stops_writes_only_if_it_says_so() {
    let cluster = cluster();
    let server = HookServer::on_pipe(&cluster, HOOK, |_, _| allow());
    drop(cluster.network().listen("down.test:443"));
    let config = json!({"url": "https://down.test:443/x", "caBundle": server.ca_bundle});
    let ignored = webhook("i.hook.test", config.clone(), json!({"failurePolicy": "Ignore"}));
    configure(&cluster, "validating", "i", json!([ignored])).await;
    assert_eq!(post(&cluster, MAPS, &map("m")).await.code, 201);
    configure(
        &cluster,
        "validating",
        "v",
        json!([webhook("v.hook.test", config, json!({}))]),
    )
    .await;
    let failed = post(&cluster, MAPS, &map("n")).await;
    let why = "failed calling webhook \"v.hook.test\": failed to call webhook: Post \"https://down.test:443/x?timeout=10s\": dial tcp down.test:443: connect: connection refused";
    assert_eq!((failed.code, failed.reason()), (500, "InternalError"));
    assert_eq!(failed.message(), format!("Internal error occurred: {why}"));
    assert_eq!(failed.body["details"], json!({"causes": [{"message": why}]}));
    // Configurations are beyond the reach of hooks: the broken one can be removed.
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
    assert_eq!(delete(&cluster, path, &Value::Null).await.code, 200);
    assert_eq!(post(&cluster, MAPS, &map("n")).await.code, 201);
}

/// The fault "webhook down": the server is there, and calls do not reach it.
#[tokio::test(start_paused = true)]
async fn a_fault_keeps_calls_from_a_hook_that_is_well() {
    let (cluster, _) = guarded(json!({}), |_, _| allow()).await;
    assert_eq!(post(&cluster, MAPS, &map("a")).await.code, 201);
    cluster.faults().set_webhook_down("v.hook.test", true);
    let failed = post(&cluster, MAPS, &map("b")).await;
    assert_eq!((failed.code, failed.reason()), (500, "InternalError"));
    assert!(
        failed.message().ends_with("connect: connection refused"),
        "{}",
        failed.text
    );
    cluster.faults().set_webhook_down("v.hook.test", false);
    assert_eq!(post(&cluster, MAPS, &map("b")).await.code, 201);

    let (cluster, _) = guarded(json!({"failurePolicy": "Ignore"}), |_, _| json!({"allowed": false})).await;
    assert_eq!(post(&cluster, MAPS, &map("a")).await.code, 400);
    cluster.faults().set_webhook_down("v.hook.test", true);
    assert_eq!(post(&cluster, MAPS, &map("a")).await.code, 201, "nobody was asked");
}

#[tokio::test(start_paused = true)]
async fn a_slow_hook_takes_exactly_its_timeout() {
    let cluster = cluster();
    let server = HookServer::on_pipe(&cluster, HOOK, |_, _| allow());
    let slow = webhook(
        "s.hook.test",
        server.client_config("/slow"),
        json!({"timeoutSeconds": 7}),
    );
    configure(&cluster, "validating", "s", json!([slow])).await;
    let start = Instant::now();
    let failed = post(&cluster, MAPS, &map("m")).await;
    assert_eq!(start.elapsed(), Duration::from_secs(7));
    let why = "failed to call webhook: Post \"https://hook.test:443/slow?timeout=7s\": context deadline exceeded";
    assert!(failed.message().ends_with(why), "{}", failed.text);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_another_authority_is_refused() {
    let cluster = cluster();
    let server = HookServer::on_pipe(&cluster, HOOK, |_, _| allow());
    let stranger = HookServer::on_pipe(&cluster, "other.test:443", |_, _| allow());
    let mut config = server.client_config("/");
    config["caBundle"] = json!(stranger.ca_bundle);
    configure(
        &cluster,
        "validating",
        "v",
        json!([webhook("v.hook.test", config, json!({}))]),
    )
    .await;
    let failed = post(&cluster, MAPS, &map("m")).await;
    let why = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(failed.message().ends_with(why), "{}", failed.text);
    assert!(
        server.take().is_empty(),
        "no request goes to a server that is not trusted"
    );
}

#[tokio::test(start_paused = true)]
async fn selectors_choose_objects_and_namespaces() {
    let selectors = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                           "objectSelector": {"matchLabels": {"watch": "me"}}});
    let (cluster, server) = guarded(selectors, |_, _| allow()).await;
    post(&cluster, "/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await;
    let labelled = |name: &str| json!({"metadata": {"name": name, "labels": {"watch": "me"}}});
    post(&cluster, "/api/v1/namespaces/other/configmaps", &labelled("elsewhere")).await;
    post(&cluster, MAPS, &map("plain")).await;
    assert!(server.take().is_empty());
    post(&cluster, MAPS, &labelled("m")).await;
    // A label that is taken away was there before: the old object counts too.
    put(&cluster, &format!("{MAPS}/m"), &map("m")).await;
    let seen: Vec<Value> = server
        .take()
        .iter()
        .map(|request| request["operation"].clone())
        .collect();
    assert_eq!(seen, ["CREATE", "UPDATE"]);
}

#[tokio::test(start_paused = true)]
async fn conditions_decide_by_objects_and_users() {
    let expression = "!(request.userInfo.username == 'kubernetes-admin' && object.data.a == '1')";
    let conditions = json!({"matchConditions": [{"name": "not-us", "expression": expression}]});
    let (cluster, server) = guarded(conditions, |_, _| allow()).await;
    post(&cluster, MAPS, &map("m")).await;
    assert!(server.take().is_empty());
    let mut other = map("n");
    other["data"]["a"] = json!("2");
    post(&cluster, MAPS, &other).await;
    assert_eq!(server.take().len(), 1);
    let failed = post(&cluster, MAPS, &json!({"metadata": {"name": "o"}})).await;
    assert_eq!((failed.code, failed.reason()), (403, "Forbidden"));
    let why = format!("configmaps \"o\" is forbidden: expression '{expression}' resulted in error: no such key: data");
    assert_eq!(failed.message(), why);
}

#[tokio::test(start_paused = true)]
async fn hooks_learn_who_asks() {
    let (cluster, server) = guarded(json!({}), |_, _| allow()).await;
    let issued = post(
        &cluster,
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        &json!({}),
    )
    .await
    .body;
    let token = issued["status"]["token"].as_str().unwrap();
    let request = Request::post(MAPS).header("authorization", format!("Bearer {token}"));
    send(&cluster, request.body(map("m").to_string().into_bytes()).unwrap()).await;
    let user = server.take()[0]["userInfo"].clone();
    assert_eq!(user["username"], "system:serviceaccount:default:default");
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ];
    assert_eq!(user["groups"], json!(groups));
    assert!(user["uid"].is_string() && user["extra"]["authentication.kubernetes.io/credential-id"][0].is_string());
    let door = Door::new(cluster.server().clone(), User::named("bob", &["devs"]));
    let request = Request::post(MAPS)
        .body(Body::from(map("n").to_string().into_bytes()))
        .unwrap();
    door.oneshot(request).await.unwrap();
    assert_eq!(
        server.take()[0]["userInfo"],
        json!({"username": "bob", "groups": ["devs"]})
    );
}

#[tokio::test(start_paused = true)]
async fn hooks_that_want_to_know_of_later_changes_are_asked_again() {
    // The maps that every namespace gets are there: nobody else asks.
    let cluster = settled().await;
    let server = HookServer::on_pipe(&cluster, HOOK, |path, request| {
        match (path, &request["object"]["data"]["b"]) {
            ("/add", Value::Null) => patch_with(json!([{"op": "add", "path": "/data/b", "value": "1"}])),
            _ => allow(),
        }
    });
    let hook = |name: &str, path: &str, policy: &str| {
        webhook(name, server.client_config(path), json!({"reinvocationPolicy": policy}))
    };
    let hooks = json!([
        hook("a.hook.test", "/first", "IfNeeded"),
        hook("b.hook.test", "/never", "Never"),
        hook("c.hook.test", "/add", "IfNeeded"),
        hook("d.hook.test", "/last", "IfNeeded"),
    ]);
    configure(&cluster, "mutating", "m", hooks).await;
    assert_eq!(post(&cluster, MAPS, &map("m")).await.body["data"]["b"], "1");
    let seen: Vec<String> = server.seen.lock().unwrap().drain(..).map(|(path, _)| path).collect();
    assert_eq!(seen, ["/first", "/never", "/add", "/last", "/first"]);
    // Nobody changes anything: nobody is asked again.
    let mut whole = map("n");
    whole["data"]["b"] = json!("2");
    post(&cluster, MAPS, &whole).await;
    assert_eq!(server.take().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_a_hook_adds_gets_what_every_container_gets() {
    let cluster = cluster();
    let server = HookServer::on_pipe(&cluster, HOOK, |_, _| {
        patch_with(json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "s"}}]))
    });
    let rule = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    let hook = webhook("p.hook.test", server.client_config("/"), json!({"rules": rule}));
    configure(&cluster, "mutating", "m", json!([hook])).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = post(&cluster, "/api/v1/namespaces/default/pods", &pod).await;
    let spec = &made.body["spec"];
    let mounts = |i: usize| spec["containers"][i]["volumeMounts"][0]["name"].clone();
    assert!(mounts(0).is_string(), "{}", made.text);
    assert_eq!(mounts(0), mounts(1));
    assert_eq!(spec["volumes"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_reaches_only_hooks_without_side_effects() {
    let (cluster, server) = guarded(json!({}), |_, _| allow()).await;
    let made = post(&cluster, &format!("{MAPS}?dryRun=All"), &map("m")).await;
    assert_eq!((made.code, server.take()[0]["dryRun"].clone()), (201, json!(true)));
    // Such a hook is not accepted any more, but an old cluster may have one.
    let loud = webhook("w.hook.test", server.client_config("/"), json!({"sideEffects": "Some"}));
    let resource = ResourceName::new("admissionregistration.k8s.io", "validatingwebhookconfigurations");
    let mut stored = json!({"metadata": {"name": "w"}, "webhooks": [loud]});
    let put = cluster
        .store()
        .put(&resource, &Key::new("", "w"), Expect::Absent, &mut stored);
    put.unwrap();
    let refused = post(&cluster, &format!("{MAPS}?dryRun=All"), &map("m")).await;
    assert_eq!((refused.code, refused.reason()), (400, "BadRequest"));
    assert_eq!(
        refused.message(),
        "admission webhook \"w.hook.test\" does not support dry run"
    );
}

#[tokio::test(start_paused = true)]
async fn deletions_show_what_goes() {
    let (cluster, server) = guarded(json!({}), |_, request| {
        match request["oldObject"]["data"]["a"].as_str() {
            Some("keep") => {
                json!({"allowed": false, "status": {"message": "kept", "code": 403, "reason": "Forbidden"}})
            }
            _ => json!({"allowed": true, "warnings": ["gone"]}),
        }
    })
    .await;
    let mut keep = map("keep");
    keep["data"]["a"] = json!("keep");
    post(&cluster, MAPS, &keep).await;
    post(&cluster, MAPS, &map("m")).await;
    server.take();
    let refused = delete(&cluster, &format!("{MAPS}/keep"), &Value::Null).await;
    assert_eq!(
        (refused.code, refused.message()),
        (403, "admission webhook \"v.hook.test\" denied the request: kept")
    );
    let options = json!({"propagationPolicy": "Background"});
    assert_eq!(
        delete(&cluster, &format!("{MAPS}/m"), &options).await.warnings(),
        ["299 - \"gone\""]
    );
    let seen = server.take();
    assert!(seen[1]["object"].is_null());
    assert_eq!(
        (&seen[1]["name"], &seen[1]["oldObject"]["metadata"]["name"]),
        (&json!("m"), &json!("m"))
    );
    assert_eq!(
        (&seen[1]["options"]["kind"], &seen[1]["options"]["propagationPolicy"]),
        (&json!("DeleteOptions"), &json!("Background"))
    );
}

#[tokio::test(start_paused = true)]
async fn subresources_are_asked_for_by_name() {
    let cluster = Cluster::builder().seed(1).binder(false).start();
    let server = HookServer::on_pipe(
        &cluster,
        "hooks.default.svc:443",
        |_, request| match request["subResource"].as_str() {
            Some("binding") => json!({"allowed": false, "status": {"message": "not there"}}),
            _ => allow(),
        },
    );
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods/binding", "*/status", "pods/eviction"]}]);
    let config =
        json!({"service": {"namespace": "default", "name": "hooks", "path": "/x"}, "caBundle": server.ca_bundle});
    configure(
        &cluster,
        "validating",
        "v",
        json!([webhook("v.hook.test", config, json!({"rules": rules}))]),
    )
    .await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(post(&cluster, pods, &pod).await.code, 201);
    assert!(server.take().is_empty(), "the pod itself is not asked for");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let refused = post(&cluster, &format!("{pods}/p/binding"), &binding).await;
    assert_eq!(
        refused.message(),
        "admission webhook \"v.hook.test\" denied the request: not there"
    );
    patch(
        &cluster,
        &format!("{pods}/p/status"),
        "merge-patch+json",
        &json!({"status": {"phase": "Failed"}}),
    )
    .await;
    post(
        &cluster,
        &format!("{pods}/p/eviction"),
        &json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
    )
    .await;
    let seen: Vec<Value> = server
        .take()
        .iter()
        .map(|request| {
            json!([
                request["operation"],
                request["kind"]["kind"],
                request["resource"]["resource"],
                request["subResource"]
            ])
        })
        .collect();
    let expected = [
        json!(["CREATE", "Binding", "pods", "binding"]),
        json!(["UPDATE", "Pod", "pods", "status"]),
        json!(["CREATE", "Eviction", "pods", "eviction"]),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_leads_nowhere_is_told() {
    let cluster = cluster();
    let config = json!({"service": {"namespace": "default", "name": "nosvc", "path": "/x"}});
    configure(
        &cluster,
        "mutating",
        "v",
        json!([webhook("v.hook.test", config, json!({}))]),
    )
    .await;
    let failed = post(&cluster, MAPS, &map("m")).await;
    let why =
        "failed to call webhook: Post \"https://nosvc.default.svc:443/x?timeout=10s\": service \"nosvc\" not found";
    assert!(failed.message().ends_with(why), "{}", failed.text);
}

/// The cluster's own deletions are asked about in the name of its controllers, and go on once they are allowed.
#[tokio::test(start_paused = true)]
async fn garbage_and_namespaces_pass_admission() {
    let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let gate = open.clone();
    let rules = json!({"rules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    let (cluster, server) = guarded(rules, move |_, request| {
        let name = request["name"].as_str().unwrap_or_default();
        json!({"allowed": name == "owner" || gate.load(std::sync::atomic::Ordering::SeqCst)})
    })
    .await;
    let owner = post(&cluster, MAPS, &map("owner")).await.body;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let mut dependent = map("dependent");
    dependent["metadata"]["ownerReferences"] = json!([reference]);
    post(&cluster, MAPS, &dependent).await;
    delete(
        &cluster,
        &format!("{MAPS}/owner"),
        &json!({"propagationPolicy": "Background"}),
    )
    .await;
    post(&cluster, "/api/v1/namespaces", &json!({"metadata": {"name": "ending"}})).await;
    post(&cluster, "/api/v1/namespaces/ending/configmaps", &map("m")).await;
    delete(&cluster, "/api/v1/namespaces/ending", &Value::Null).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        get(&cluster, &format!("{MAPS}/dependent")).await.code,
        200,
        "refused deletions do not happen"
    );
    open.store(true, std::sync::atomic::Ordering::SeqCst);
    until_gone(&cluster, &format!("{MAPS}/dependent")).await;
    until_gone(&cluster, "/api/v1/namespaces/ending").await;
    let users = |name: &str| {
        let all = server.seen.lock().unwrap().clone();
        let of = all.into_iter().filter(|(_, request)| request["name"] == name);
        of.map(|(_, request)| request["userInfo"]["username"].clone())
            .collect::<Vec<Value>>()
    };
    let controller = |name: &str| json!(format!("system:serviceaccount:kube-system:{name}"));
    assert!(
        users("dependent")
            .iter()
            .all(|user| *user == controller("generic-garbage-collector"))
    );
    assert!(
        users("m").len() > 1
            && users("m")
                .iter()
                .all(|user| *user == controller("namespace-controller"))
    );
}

#[tokio::test]
async fn a_hook_may_be_behind_a_socket() {
    let cluster = cluster();
    let server = HookServer::on_socket(|_, _| json!({"allowed": true, "warnings": ["by wire"]})).await;
    configure(
        &cluster,
        "validating",
        "v",
        json!([webhook("v.hook.test", server.client_config("/"), json!({}))]),
    )
    .await;
    let made = post(&cluster, MAPS, &map("m")).await;
    assert_eq!((made.code, made.warnings()), (201, vec!["299 - \"by wire\""]));
}
