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

    /// Whatever comes, the answer is a success or says what is wrong, in a Status or (for paths of no API) as text.
    #[test]
    fn no_bytes_break_the_server(requests in prop::collection::vec(
        (
            0..6usize, "(/api|/apis|/openapi|/version)?(/[a-z0-9.%]{0,9}){0,6}", "[a-zA-Z%=&0-9()!,]{0,30}",
            prop::option::of("[a-z/+.;=*, -]{0,30}"), prop::collection::vec(any::<u8>(), 0..80), 0..PLACES.len() * 2,
        ), 24))
    {
        let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        let kinds = ["application/json", "application/vnd.kubernetes.protobuf", "application/apply-patch+yaml"];
        paused().block_on(async {
            let cluster = cluster();
            for (method, path, query, header, body, place) in requests {
                let path = PLACES.get(place).map_or(path, |place| (*place).to_owned());
                let media = header.clone().unwrap_or_else(|| kinds[body.len() % 3].to_owned());
                let body = if body.len() % 2 == 0 { [&b"k8s\0"[..], &body].concat() } else { body };
                let request = Request::builder().method(methods[method]).uri(format!("{path}?{query}"))
                    .header("content-type", media).header("accept", header.unwrap_or_default());
                let Ok(request) = request.body(body) else { continue };
                let shown = format!("{request:?}");
                let answer = send(&cluster, request).await;
                let told = answer.body["kind"] == "Status" || answer.headers["content-type"].to_str().unwrap().starts_with("text/plain");
                assert!((200..300).contains(&answer.code) || (answer.code >= 300 && told), "{shown}: {} {}", answer.code, answer.text);
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

fn nested(levels: usize, open: &str, close: &str) -> String {
    format!("{}1{}", open.repeat(levels), close.repeat(levels))
}

/// What is stored can be read again: the server adds levels of its own (who owns which field) to what a client sends.
#[tokio::test(start_paused = true)]
async fn whatever_is_stored_can_be_read_again() {
    let cluster = cluster();
    let path = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let mut codes = std::collections::BTreeSet::new();
    for levels in 100..=130 {
        let deep = nested(levels, "{\"a\":", "}");
        let body = format!("{{\"metadata\":{{\"name\":\"r{levels}\"}},\"revision\":1,\"data\":{deep}}}");
        let made = raw(&cluster, "POST", path, "application/json", body.as_bytes()).await;
        codes.insert(made.code);
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let media = "application/merge-patch+json";
        let one = format!("{path}/r{levels}");
        let patched = raw(&cluster, "PATCH", &one, media, patch.to_string().as_bytes()).await;
        let expected = if made.code == 201 { 200 } else { 404 };
        assert_eq!(patched.code, expected, "{levels} levels: {}", patched.text);
    }
    assert_eq!(codes, [201, 400].into());
}

/// Ten thousand levels must not reach the end of the stack, in a body of whatever kind.
#[tokio::test(start_paused = true)]
async fn deep_json_is_refused_everywhere() {
    let cluster = cluster();
    post(&cluster, MAPS, &json!({"metadata": {"name": "m"}})).await;
    let (one, merge, list) = (
        format!("{MAPS}/m"),
        "application/merge-patch+json",
        "application/json-patch+json",
    );
    for deep in [nested(10_000, "{\"a\":", "}"), nested(10_000, "[", "]")] {
        let inside = format!("{{\"metadata\":{{\"name\":\"x\",\"labels\":{deep}}}}}");
        let operation = format!("[{{\"op\":\"add\",\"path\":\"/data\",\"value\":{deep}}}]");
        for (method, path, media, body) in [
            ("POST", MAPS, "application/json", deep.as_str()),
            ("POST", MAPS, "application/json", &inside),
            ("POST", MAPS, "application/yaml", &inside),
            ("PUT", &one, "application/json", &inside),
            ("PATCH", &one, merge, &deep),
            ("PATCH", &one, merge, &inside),
            ("PATCH", &one, "application/strategic-merge-patch+json", &inside),
            ("PATCH", &one, list, &operation),
            (
                "PATCH",
                &format!("{one}?fieldManager=f"),
                "application/apply-patch+yaml",
                &inside,
            ),
            ("DELETE", &one, "application/json", &deep),
            (
                "POST",
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                "application/json",
                &deep,
            ),
        ] {
            let answer = raw(&cluster, method, path, media, body.as_bytes()).await;
            assert!(
                (400..500).contains(&answer.code),
                "{method} {media}: {} {}",
                answer.code,
                answer.text
            );
            assert_eq!(answer.body["kind"], "Status", "{method} {media}: {}", answer.text);
        }
    }
    assert_eq!(
        get(&cluster, &one).await.code,
        200,
        "nothing happened to what is stored"
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_too_large_or_cut_off_are_refused() {
    let cluster = cluster();
    let large = json!({"metadata": {"name": "m"}, "data": {"x": "y".repeat(10 * 1024 * 1024)}}).to_string();
    let answer = raw(&cluster, "POST", MAPS, "application/json", large.as_bytes()).await;
    assert_eq!((answer.code, answer.reason()), (413, "RequestEntityTooLarge"));
    assert_eq!(answer.message(), "Request entity too large: limit is 3145728");
    let whole = json!({"metadata": {"name": "m", "labels": {"a": "b"}}, "data": {"x": "y"}}).to_string();
    for cut in 0..whole.len() {
        let answer = raw(&cluster, "POST", MAPS, "application/json", &whole.as_bytes()[..cut]).await;
        assert_eq!(
            (answer.code, answer.reason()),
            (400, "BadRequest"),
            "{cut}: {}",
            answer.text
        );
    }
    let mut text = whole.into_bytes();
    let at = text.iter().position(|byte| *byte == b'y').unwrap();
    text[at] = 0xff;
    let answer = raw(&cluster, "POST", MAPS, "application/json", &text).await;
    assert_eq!(answer.code, 400, "{}", answer.text);
}

#[tokio::test(start_paused = true)]
async fn absurd_selectors_and_numbers_are_refused() {
    let cluster = cluster();
    let huge = vec!["a=b"; 15_000].join(",");
    assert_eq!(get(&cluster, &format!("{MAPS}?labelSelector={huge}")).await.code, 200);
    let open = "(".repeat(5000);
    let long = format!("labelSelector={}%3Db", "a".repeat(5000));
    for query in [
        format!("labelSelector=a+in+{open}").as_str(),
        "labelSelector=a+in+(b",
        "labelSelector=!!a",
        "labelSelector=a%3Eb",
        "labelSelector=%ff%fe",
        "labelSelector=a==b==c",
        &long,
        "fieldSelector=metadata.name",
        "fieldSelector=spec.nothing%3Dx",
        "limit=99999999999999999999",
        "limit=-x",
        "continue=%00%ff",
        "continue=e30",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6e30sInN0YXJ0IjpbXX0x",
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersion=99999999999999999999999",
        "timeoutSeconds=x&watch=1",
    ] {
        let answer = get(&cluster, &format!("{MAPS}?{query}")).await;
        let shown = &query[..query.len().min(60)];
        assert!((400..=504).contains(&answer.code), "{shown}: {}", answer.code);
        assert_eq!(answer.body["kind"], "Status", "{shown}: {}", answer.text);
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

/// Deep enough to be refused, in words that tell why.
#[tokio::test(start_paused = true)]
async fn what_is_too_deep_is_told() {
    let cluster = cluster();
    for levels in [128, 10_001] {
        let deep = nested(levels, "{\"a\":", "}");
        let refused = raw(&cluster, "POST", MAPS, "application/json", deep.as_bytes()).await;
        assert!(
            refused.message().contains("invalid character '{' exceeded max depth"),
            "{levels}: {}",
            refused.message()
        );
    }
}

/// A field of a wrong type is an error, and never left out: the rest would be acted on.
#[tokio::test(start_paused = true)]
async fn parts_of_wrong_types_are_refused() {
    let cluster = cluster();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    post(&cluster, pods, &pod).await;
    post(&cluster, MAPS, &json!({"metadata": {"name": "m"}})).await;
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let review = "/apis/authentication.k8s.io/v1/tokenreviews";
    for (method, path, body) in [
        ("DELETE", format!("{MAPS}/m"), json!({"gracePeriodSeconds": "x"})),
        ("DELETE", format!("{MAPS}/m"), json!({"preconditions": {"uid": 5}})),
        ("DELETE", format!("{MAPS}/m"), json!({"dryRun": "All"})),
        ("DELETE", MAPS.to_owned(), json!({"propagationPolicy": 1})),
        ("DELETE", format!("{MAPS}/m"), json!([])),
        (
            "POST",
            format!("{pods}/p/binding"),
            json!({"metadata": {"name": "p"}, "target": {"name": 5}}),
        ),
        (
            "POST",
            format!("{pods}/p/binding"),
            json!({"metadata": {"name": "p"}, "target": "n"}),
        ),
        (
            "POST",
            format!("{pods}/p/eviction"),
            json!({"metadata": {"name": "p"}, "deleteOptions": "x"}),
        ),
        (
            "POST",
            format!("{pods}/p/eviction"),
            json!({"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": "x"}}),
        ),
        ("POST", token.to_owned(), json!({"spec": {"expirationSeconds": "600"}})),
        ("POST", token.to_owned(), json!({"spec": {"audiences": "a"}})),
        ("POST", review.to_owned(), json!({"spec": {"token": 5}})),
    ] {
        let answer = raw(&cluster, method, &path, "application/json", body.to_string().as_bytes()).await;
        assert_eq!(
            (answer.code, answer.reason()),
            (400, "BadRequest"),
            "{path} {body}: {}",
            answer.text
        );
    }
    assert_eq!(
        get(&cluster, &format!("{MAPS}/m")).await.code,
        200,
        "nothing was deleted"
    );
    let pod = get(&cluster, &format!("{pods}/p")).await.body;
    assert!(pod["spec"].get("nodeName").is_none() && pod["metadata"].get("deletionTimestamp").is_none());
}
