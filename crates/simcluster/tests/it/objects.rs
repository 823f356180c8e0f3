//! Create, read, update, patch.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn a_stock_client_reads_what_it_wrote() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let data = Some([("a".to_owned(), "1".to_owned())].into());
    let metadata = ObjectMeta {
        name: Some("m".into()),
        ..ObjectMeta::default()
    };
    let made = api
        .create(
            &PostParams::default(),
            &ConfigMap {
                data,
                metadata,
                ..ConfigMap::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(made, api.get("m").await.unwrap());
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    let patch = Patch::Merge(json!({"data": {"a": null, "b": "2"}}));
    let patched = api.patch("m", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data, Some([("b".to_owned(), "2".to_owned())].into()));
    let stale = api.replace("m", &PostParams::default(), &made).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"));
}

#[tokio::test(start_paused = true)]
async fn the_server_decides_names_uids_and_times() {
    let cluster = cluster();
    let sent = json!({"metadata": {"generateName": "m-", "uid": "mine", "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 7}});
    let made = post(&cluster, MAPS, &sent).await;
    assert_eq!(made.code, 201);
    let metadata = &made.body["metadata"];
    assert_eq!(metadata["name"].as_str().unwrap().len(), 7);
    assert_ne!(metadata["uid"], "mine");
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(metadata["generation"], 7, "nobody counts the changes of a config map");
    assert_eq!(
        (&made.body["kind"], &made.body["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
}

#[tokio::test(start_paused = true)]
async fn refused_creates_say_why() {
    let cluster = cluster();
    post(&cluster, MAPS, &json!({"metadata": {"name": "e1"}})).await;
    let cases = [
        (
            json!({"metadata": {"name": "e1"}}),
            409,
            "AlreadyExists",
            "configmaps \"e1\" already exists",
        ),
        (
            json!({"metadata": {"name": "x", "resourceVersion": "5"}}),
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ),
        (
            json!({"metadata": {"name": "x", "namespace": "other"}}),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"metadata": {}}),
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
    ];
    for (object, code, reason, message) in cases {
        let answer = post(&cluster, MAPS, &object).await;
        assert_eq!(
            (answer.code, answer.reason(), answer.message()),
            (code, reason, message)
        );
    }
    let answer = post(
        &cluster,
        "/api/v1/namespaces/nope/configmaps",
        &json!({"metadata": {"name": "x"}}),
    )
    .await;
    assert_eq!((answer.code, answer.message()), (404, "namespaces \"nope\" not found"));
}

#[tokio::test(start_paused = true)]
async fn updates_are_guarded_by_revision_name_and_uid() {
    let cluster = cluster();
    let made = post(&cluster, MAPS, &json!({"metadata": {"name": "e1"}, "data": {"a": "1"}}))
        .await
        .body;
    let path = format!("{MAPS}/e1");
    let same = put(&cluster, &path, &made).await;
    assert_eq!(
        (same.code, &same.body),
        (200, &made),
        "a write that changes nothing keeps the revision"
    );
    let answer = put(&cluster, &path, &json!({"metadata": {"name": "other"}})).await;
    assert_eq!(
        answer.message(),
        "the name of the object (other) does not match the name on the URL (e1)"
    );
    let mut stale = made.clone();
    stale["metadata"]["resourceVersion"] = json!("1");
    let answer = put(&cluster, &path, &stale).await;
    assert_eq!((answer.code, answer.reason()), (409, "Conflict"));
    let answer = put(&cluster, &path, &json!({"metadata": {"name": "e1", "uid": "zzz"}})).await;
    assert_eq!(answer.code, 409);
    assert!(
        answer.message().contains("UID in precondition: zzz"),
        "{}",
        answer.message()
    );
    let unguarded = put(
        &cluster,
        &path,
        &json!({"metadata": {"name": "e1"}, "data": {"a": "2"}}),
    )
    .await;
    assert_eq!((unguarded.code, &unguarded.body["data"]["a"]), (200, &json!("2")));
    assert_eq!(
        put(
            &cluster,
            &format!("{MAPS}/none"),
            &json!({"metadata": {"name": "none"}})
        )
        .await
        .code,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn some_kinds_must_be_updated_with_a_revision_and_some_are_created_by_put() {
    let cluster = cluster();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    assert_eq!(put(&cluster, &format!("{leases}/l"), &lease).await.code, 201);
    let answer = put(&cluster, &format!("{leases}/l"), &lease).await;
    assert_eq!(answer.code, 422);
    assert_eq!(
        answer.message(),
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

#[tokio::test(start_paused = true)]
async fn patches_are_json_or_merge() {
    let cluster = cluster();
    post(&cluster, MAPS, &json!({"metadata": {"name": "e1"}, "data": {"a": "1"}})).await;
    let path = format!("{MAPS}/e1");
    let ops = json!([{"op": "test", "path": "/metadata/finalizers", "value": null}, {"op": "add", "path": "/data/b", "value": "2"}]);
    let answer = patch(&cluster, &path, "json-patch+json", &ops).await;
    assert_eq!((answer.code, &answer.body["data"]), (200, &json!({"a": "1", "b": "2"})));
    let failing = json!([{"op": "test", "path": "/data/a", "value": "9"}]);
    let answer = patch(&cluster, &path, "json-patch+json", &failing).await;
    assert_eq!(
        (answer.code, answer.message()),
        (422, "the server rejected our request due to an error in our request")
    );
    assert_eq!(
        patch(&cluster, &path, "json-patch+json", &json!({"a": 1})).await.code,
        400
    );
    let answer = patch(&cluster, &path, "json", &json!({})).await;
    assert_eq!((answer.code, answer.message()), (415, "415: Unsupported Media Type"));
    let uid = patch(
        &cluster,
        &path,
        "merge-patch+json",
        &json!({"metadata": {"uid": "zzz"}}),
    )
    .await;
    assert_eq!((uid.code, uid.reason()), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_stores_nothing() {
    let cluster = cluster();
    let revision = cluster.store().revision();
    let made = post(
        &cluster,
        &format!("{MAPS}?dryRun=All"),
        &json!({"metadata": {"name": "d"}}),
    )
    .await;
    assert_eq!(made.code, 201);
    assert!(made.body["metadata"]["uid"].is_string() && made.body["metadata"].get("resourceVersion").is_none());
    assert_eq!(cluster.store().revision(), revision);
    assert_eq!(
        post(&cluster, &format!("{MAPS}?dryRun=Foo"), &json!({})).await.code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_warn_or_fail_and_are_never_stored() {
    let cluster = cluster();
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "bad": 1}], "zz": {}}});
    let pods = "/api/v1/namespaces/default/pods";
    let strict = post(&cluster, &format!("{pods}?fieldValidation=Strict"), &pod).await;
    assert_eq!(strict.code, 400);
    assert!(
        strict
            .message()
            .ends_with("strict decoding error: unknown field \"spec.containers[0].bad\", unknown field \"spec.zz\""),
        "{}",
        strict.message()
    );
    let warned = post(&cluster, pods, &pod).await;
    assert_eq!(warned.code, 201);
    assert_eq!(warned.warnings()[1], "299 - \"unknown field \\\"spec.zz\\\"\"");
    assert!(warned.body["spec"].get("zz").is_none());
}

#[tokio::test(start_paused = true)]
async fn immutable_fields_stay() {
    let cluster = cluster();
    post(
        &cluster,
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
    )
    .await;
    let secret = get(&cluster, "/api/v1/namespaces/default/secrets/s").await.body;
    assert_eq!(
        (&secret["type"], &secret["data"]["a"]),
        (&json!("Opaque"), &json!("Yg=="))
    );
    let answer = patch(
        &cluster,
        "/api/v1/namespaces/default/secrets/s",
        "merge-patch+json",
        &json!({"type": "x/y"}),
    )
    .await;
    assert_eq!(
        answer.message(),
        "Secret \"s\" is invalid: type: Invalid value: \"x/y\": field is immutable"
    );
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    post(&cluster, classes, &json!({"metadata": {"name": "c"}, "value": 5})).await;
    let answer = patch(
        &cluster,
        &format!("{classes}/c"),
        "merge-patch+json",
        &json!({"value": 6}),
    )
    .await;
    assert!(
        answer
            .message()
            .ends_with("value: Forbidden: may not be changed in an update."),
        "{}",
        answer.message()
    );
}

#[tokio::test(start_paused = true)]
async fn events_have_two_faces() {
    let cluster = cluster();
    let event = json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "hi",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R", "type": "Normal", "action": "A", "reportingController": "c", "reportingInstance": "i"});
    let made = post(&cluster, "/apis/events.k8s.io/v1/namespaces/default/events", &event).await;
    assert_eq!((made.code, &made.body["note"]), (201, &json!("hi")), "{}", made.text);
    let core = get(&cluster, "/api/v1/namespaces/default/events/e").await.body;
    assert_eq!(
        (&core["message"], &core["involvedObject"]["name"]),
        (&json!("hi"), &json!("p"))
    );
    let listed = get(
        &cluster,
        "/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dp",
    )
    .await
    .body;
    assert_eq!(listed["items"][0]["regarding"]["name"], "p");
}

#[tokio::test(start_paused = true)]
async fn who_am_i_and_tokens() {
    let cluster = cluster();
    let who = post(
        &cluster,
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &json!({}),
    )
    .await;
    assert_eq!(
        (who.code, &who.body["status"]["userInfo"]["username"]),
        (201, &json!("kubernetes-admin"))
    );
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let short = post(&cluster, path, &json!({"spec": {"expirationSeconds": 5}})).await;
    assert!(
        short
            .message()
            .ends_with("may not specify a duration less than 10 minutes"),
        "{}",
        short.message()
    );
    let issued = post(&cluster, path, &json!({"spec": {"expirationSeconds": 600}})).await;
    let token = issued.body["status"]["token"].as_str().unwrap();
    let request = || {
        http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("authorization", format!("Bearer {token}"))
            .body(b"{}".to_vec())
            .unwrap()
    };
    let who = send(&cluster, request()).await;
    assert_eq!(
        who.body["status"]["userInfo"]["username"],
        "system:serviceaccount:default:default"
    );
    tokio::time::advance(std::time::Duration::from_secs(601)).await;
    assert_eq!(send(&cluster, request()).await.code, 401, "tokens expire");
}

#[tokio::test(start_paused = true)]
async fn a_service_keeps_its_address_however_late_it_is_replaced() {
    let cluster = cluster();
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let made = post(&cluster, services, &service).await;
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let replaced = put(&cluster, &format!("{services}/s"), &service).await;
    assert_eq!(replaced.code, 200, "{}", replaced.message());
    assert_eq!(replaced.body["spec"]["clusterIP"], made.body["spec"]["clusterIP"]);
}

#[tokio::test(start_paused = true)]
async fn lease_times_carry_microseconds() {
    let cluster = cluster();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |time: &str| json!({"metadata": {"name": "l"}, "spec": {"renewTime": time}});
    let coarse = post(&cluster, leases, &lease("2026-11-15T20:00:00Z")).await;
    assert_eq!(coarse.code, 400);
    assert!(
        coarse
            .message()
            .contains("parsing time \"2026-11-15T20:00:00Z\" as \"2006-01-02T15:04:05.000000Z07:00\"")
    );
    let fine = post(&cluster, leases, &lease("2026-11-15T20:00:00.000000Z")).await;
    assert_eq!(
        (fine.code, &fine.body["spec"]["renewTime"]),
        (201, &json!("2026-11-15T20:00:00.000000Z"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_node_takes_pods_when_it_is_ready() {
    let cluster = cluster();
    let made = post(&cluster, "/api/v1/nodes", &json!({"metadata": {"name": "n"}}))
        .await
        .body;
    assert_eq!(
        made["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    patch(&cluster, "/api/v1/nodes/n/status", "merge-patch+json", &ready).await;
    until(&cluster, "/api/v1/nodes/n", |answer| {
        answer.body["spec"].get("taints").is_none()
    })
    .await;
}
