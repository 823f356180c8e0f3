//! Whatever is sent, an error comes back, in the words of Kubernetes, and the server lives on.

use http::Request;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn raw(cluster: &grove_simcluster::Cluster, method: &str, path: &str, media: &str, body: &[u8]) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media);
    send(cluster, request.body(body.to_vec()).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn broken_bodies_are_told_apart() {
    let cluster = cluster();
    let truncated = raw(&cluster, "POST", MAPS, "application/json", b"{\"metadata\":").await;
    assert_eq!(
        truncated.message(),
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({\"metadata\":)"
    );
    let wrong_type = json!({"metadata": {"name": "p"}, "spec": {"containers": "x"}});
    let answer = post(&cluster, "/api/v1/namespaces/default/pods", &wrong_type).await;
    assert_eq!(answer.code, 400);
    assert!(
        answer
            .message()
            .starts_with("Pod in version \"v1\" cannot be handled as a Pod: json: ")
    );
    assert_eq!(raw(&cluster, "POST", MAPS, "text/csv", b"a,b").await.code, 415);
    let large = vec![b' '; 4 * 1024 * 1024];
    let answer = raw(&cluster, "POST", MAPS, "application/json", &large).await;
    assert_eq!(
        (answer.code, answer.message()),
        (413, "Request entity too large: limit is 3145728")
    );
    let deep = "[".repeat(100_000);
    assert_eq!(
        raw(&cluster, "POST", MAPS, "application/json", deep.as_bytes())
            .await
            .code,
        400
    );
    assert_eq!(
        raw(&cluster, "POST", MAPS, "application/yaml", deep.as_bytes())
            .await
            .code,
        400
    );
    let text = "x".repeat(1_100_000);
    let answer = post(
        &cluster,
        MAPS,
        &json!({"metadata": {"name": "big"}, "data": {"a": text}}),
    )
    .await;
    assert_eq!(
        (answer.code, &answer.body["details"]["causes"][0]["field"]),
        (422, &json!("[]"))
    );
    let other_kind = post(
        &cluster,
        MAPS,
        &json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}}),
    )
    .await;
    assert_eq!(other_kind.code, 400);
    assert!(
        other_kind
            .message()
            .starts_with("Secret in version \"v1\" cannot be handled as a ConfigMap")
    );
    let yaml = raw(
        &cluster,
        "POST",
        MAPS,
        "application/yaml",
        b"metadata:\n  name: yam\ndata: {a: b}\n",
    )
    .await;
    assert_eq!((yaml.code, &yaml.body["data"]["a"]), (201, &json!("b")));
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_and_methods_are_told_apart() {
    let cluster = cluster();
    assert_eq!(
        get(&cluster, "/apis/none.test/v1/things").await.text,
        "404 page not found\n"
    );
    let unknown = get(&cluster, "/api/v1/things").await;
    assert_eq!(unknown.message(), "the server could not find the requested resource");
    assert_eq!(
        raw(&cluster, "POST", "/api/v1/pods", "application/json", b"{}")
            .await
            .code,
        405
    );
    assert_eq!(raw(&cluster, "PUT", MAPS, "application/json", b"{}").await.code, 405);
    assert_eq!(get(&cluster, "/api/v1/namespaces/default/nodes").await.code, 404);
    assert_eq!(get(&cluster, "/nowhere").await.code, 404);
}

fn small_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/.\\PC]{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            Just("metadata"),
            Just("spec"),
            Just("status"),
            Just("name"),
            Just("labels"),
            Just("finalizers"),
            Just("ownerReferences"),
            Just("containers"),
            Just("data"),
            Just("target"),
            Just("deleteOptions"),
            Just("schedulingGates"),
            Just("conditions"),
            Just("apiVersion"),
            Just("kind"),
            Just("resourceVersion"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..5).prop_map(|map| json!(map)),
        ]
    })
}

const PLACES: [&str; 12] = [
    MAPS,
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/p",
    "/api/v1/namespaces/default/pods/p/status",
    "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/pods/p/eviction",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/finalize",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
];
const MEDIA: [&str; 3] = [
    "application/json",
    "application/merge-patch+json",
    "application/json-patch+json",
];
const METHODS: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];
const PARAMETERS: [&str; 6] = [
    "labelSelector",
    "fieldSelector",
    "continue",
    "limit",
    "resourceVersion",
    "timeoutSeconds",
];

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// No body in any place makes the server panic or answer with anything but a proper answer.
    #[test]
    fn no_body_breaks_the_server(requests in prop::collection::vec((small_json(), 0..12usize, 0..4usize, 0..3usize), 24)) {
        paused().block_on(async {
            let cluster = cluster();
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            post(&cluster, "/api/v1/namespaces/default/pods", &pod).await;
            for (body, place, method, media) in requests {
                let body = body.to_string();
                let answer = raw(&cluster, METHODS[method], PLACES[place], MEDIA[media], body.as_bytes()).await;
                assert!((200..600).contains(&answer.code), "{} {} {body}", METHODS[method], PLACES[place]);
            }
            assert_eq!(get(&cluster, "/healthz").await.code, 200);
        });
    }

    #[test]
    fn no_query_breaks_the_server(queries in prop::collection::vec(("[a-z%=&0-9(),!<>A-Z+]{0,40}", 0..6usize), 24)) {
        paused().block_on(async {
            let cluster = cluster();
            for (query, parameter) in queries {
                let Ok(request) = Request::get(format!("{MAPS}?{}={query}", PARAMETERS[parameter])).body(Vec::new()) else { continue };
                let answer = send(&cluster, request).await;
                assert!([200, 400, 410, 422, 504].contains(&answer.code), "{query}: {}", answer.code);
            }
        });
    }
}

/// A field of bytes in protobuf's encoding.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 128, "longer fields need a longer length");
    [&[number << 3 | 2, length], content].concat()
}

#[tokio::test(start_paused = true)]
async fn bodies_in_protobuf_are_read() {
    let cluster = cluster();
    let media = "application/vnd.kubernetes.protobuf";
    let metadata = field(1, &field(1, b"proto"));
    let data = field(2, &[field(1, b"a"), field(2, b"b")].concat());
    let kind = field(1, &[field(1, b"v1"), field(2, b"ConfigMap")].concat());
    let object = field(2, &[metadata, data].concat());
    let body = [&b"k8s\0"[..], &kind, &object].concat();
    let made = raw(&cluster, "POST", MAPS, media, &body).await;
    assert_eq!(
        (made.code, &made.body["data"]),
        (201, &json!({"a": "b"})),
        "{}",
        made.text
    );
    let answer = raw(&cluster, "POST", MAPS, media, &body[4..]).await;
    assert_eq!(answer.code, 400);
    assert!(answer.message().contains("expected prefix"), "{}", answer.message());
}

#[tokio::test(start_paused = true)]
async fn a_field_that_stands_twice_is_told() {
    let cluster = cluster();
    let body = br#"{"metadata": {"name": "twice"}, "data": {"a": "1", "a": "2"}}"#;
    let strict = format!("{MAPS}?fieldValidation=Strict");
    let refused = raw(&cluster, "POST", &strict, "application/json", body).await;
    assert_eq!(refused.code, 400);
    assert!(
        refused
            .message()
            .ends_with("strict decoding error: duplicate field \"data.a\""),
        "{}",
        refused.message()
    );
    let made = raw(&cluster, "POST", MAPS, "application/json", body).await;
    assert_eq!((made.code, &made.body["data"]["a"]), (201, &json!("2")));
    assert_eq!(made.warnings(), ["299 - \"duplicate field \\\"data.a\\\"\""]);
}
