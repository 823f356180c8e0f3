//! The embedded cluster speaks of webhooks as a real kube-apiserver does: one hook, two servers, equal answers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use grove_e2e::{ControlPlane, Identity, eventually};
use grove_simcluster::Cluster;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const LIMIT: Duration = Duration::from_secs(30);

/// What is asked of both servers: which sort of hook, where it listens, and whether its failure counts.
struct Case {
    name: &'static str,
    is_mutating: bool,
    place: Place,
    policy: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// At the hook, under this path.
    Path(&'static str),
    /// Where nobody listens.
    Nobody,
    /// At the hook, judged by another authority.
    Stranger,
    /// A service that does not exist.
    NoService,
}

const fn case(name: &'static str, is_mutating: bool, place: Place) -> Case {
    Case {
        name,
        is_mutating,
        place,
        policy: "Fail",
    }
}

const CASES: [Case; 15] = [
    case("denied", false, Place::Path("/denied")),
    case("denied-by-mutating", true, Place::Path("/denied")),
    case("denied-silently", false, Place::Path("/silent")),
    case("denied-with-causes", false, Place::Path("/causes")),
    case("denied-with-success", false, Place::Path("/success")),
    case("down", false, Place::Nobody),
    case("wrong-authority", false, Place::Stranger),
    case("no-service", false, Place::NoService),
    case("bad-uid", false, Place::Path("/uid")),
    case("bad-patch", true, Place::Path("/patch")),
    case("patch-without-type", true, Place::Path("/typeless")),
    case("patch-by-validating", false, Place::Path("/typed")),
    case("error", false, Place::Path("/error")),
    case("slow", false, Place::Path("/slow")),
    Case {
        name: "ignored",
        is_mutating: false,
        place: Place::Nobody,
        policy: "Ignore",
    },
];

fn answer(path: &str, uid: &Value) -> Value {
    let denied = |status: Value| json!({"uid": uid, "allowed": false, "status": status});
    let patch =
        |operations: Value| json!({"uid": uid, "allowed": true, "patch": STANDARD.encode(operations.to_string())});
    match path {
        "/denied" => denied(json!({"code": 403, "reason": "Forbidden", "message": "no way"})),
        "/causes" => denied(
            json!({"code": 422, "reason": "Invalid", "message": "bad data", "details": {
            "name": "x", "causes": [{"reason": "FieldValueInvalid", "message": "too small", "field": "data.a"}]}}),
        ),
        "/success" => denied(json!({"code": 200, "status": "Success"})),
        "/silent" => json!({"uid": uid, "allowed": false}),
        "/uid" => json!({"uid": "x", "allowed": true}),
        "/patch" => {
            let mut bad = patch(json!([{"op": "remove", "path": "/nope/x"}]));
            bad["patchType"] = json!("JSONPatch");
            bad
        }
        "/typeless" | "/typed" => patch(json!([{"op": "add", "path": "/data/b", "value": "1"}])),
        _ => json!({"uid": uid, "allowed": true}),
    }
}

/// The ways of a webhook that converts, right and wrong ones.
const WAYS: [&str; 10] = [
    "right", "refused", "silent", "short", "version", "kind", "name", "labels", "metadata", "uid",
];

/// What a webhook of this way answers: `size` becomes `width`, and back.
fn converted(way: &str, request: &Value) -> Value {
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let (from, to) = if wanted.ends_with("v2") {
        ("size", "width")
    } else {
        ("width", "size")
    };
    let convert = |object: &Value| {
        let mut object = object.clone();
        if let Some(number) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
            object["spec"][to] = number;
        }
        object["apiVersion"] = json!(if way == "version" { "other.test/v9" } else { wanted });
        object["metadata"]["annotations"] = json!({"way": way});
        object["metadata"]["generation"] = json!(77);
        match way {
            "kind" => object["kind"] = json!("Other"),
            "name" => object["metadata"]["name"] = json!("other"),
            "labels" => object["metadata"]["labels"] = json!({"a": 1}),
            "metadata" => object["metadata"] = Value::Null,
            _ => {}
        }
        object
    };
    let objects = request["objects"].as_array().into_iter().flatten().map(convert);
    let mut objects: Vec<Value> = objects.collect();
    let result = match way {
        "refused" => json!({"status": "Failure", "message": "not today"}),
        "silent" => json!({"status": "Failure"}),
        _ => json!({"status": "Success"}),
    };
    if way == "short" {
        objects.pop();
    }
    let uid = if way == "uid" {
        json!("x")
    } else {
        request["uid"].clone()
    };
    json!({"uid": uid, "result": result, "convertedObjects": objects})
}

/// A kind with two versions that differ in a field.
fn definition(way: &str, hook: &Hook) -> Value {
    let group = format!("{way}.conversion.test");
    let version = |name: &str, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "integer"}}});
        json!({"name": name, "served": true, "storage": name == "v1",
               "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let url = format!("https://127.0.0.1:{}/convert/{way}", hook.port);
    let webhook = json!({"clientConfig": {"url": url, "caBundle": hook.ca}, "conversionReviewVersions": ["v1"]});
    json!({"metadata": {"name": format!("boxes.{group}")}, "spec": {
        "group": group, "scope": "Cluster", "names": {"plural": "boxes", "kind": "Box"},
        "versions": [version("v1", "size"), version("v2", "width")],
        "conversion": {"strategy": "Webhook", "webhook": webhook}}})
}

/// What a server says to one request, without what differs from server to server.
async fn said(client: &Client, method: &str, path: &str, body: Value) -> Result<Value> {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header(
        "content-type",
        match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        },
    );
    let body = if body.is_null() {
        Vec::new()
    } else {
        serde_json::to_vec(&body)?
    };
    let shown = |object: &Value| {
        json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "spec": object["spec"],
               "name": object["metadata"]["name"], "labels": object["metadata"]["labels"],
               "annotations": object["metadata"]["annotations"], "generation": object["metadata"]["generation"]})
    };
    match client.request::<Value>(request.body(body)?).await {
        Ok(object) => match object["items"].as_array() {
            Some(items) => Ok(items.iter().map(shown).collect()),
            None => Ok(shown(&object)),
        },
        Err(kube::Error::Api(status)) => {
            let text = serde_json::to_value(&status)?.to_string();
            let uid = text.split("response.uid=\\\"").nth(1).and_then(|rest| rest.get(..36));
            Ok(serde_json::from_str(
                &uid.map_or(text.clone(), |uid| text.replace(uid, "UID")),
            )?)
        }
        Err(other) => Err(other.into()),
    }
}

/// All that a server says about objects that are converted this way.
async fn conversation(client: &Client, way: &str) -> Result<Vec<Value>> {
    let (old, new) = (
        format!("/apis/{way}.conversion.test/v1/boxes"),
        format!("/apis/{way}.conversion.test/v2/boxes"),
    );
    let a_box = |version: &str, name: &str, field: &str| {
        json!({"apiVersion": format!("{way}.conversion.test/{version}"), "kind": "Box", "metadata": {"name": name},
               "spec": {field: 3}})
    };
    let mut transcript = Vec::new();
    for (method, path, body) in [
        ("POST", old.clone(), a_box("v1", "a", "size")),
        ("GET", format!("{old}/a"), Value::Null),
        ("GET", format!("{new}/a"), Value::Null),
        ("GET", new.clone(), Value::Null),
        ("POST", new.clone(), a_box("v2", "b", "width")),
        ("GET", format!("{old}/b"), Value::Null),
        ("PATCH", format!("{new}/a"), json!({"spec": {"width": 5}})),
        ("GET", format!("{old}/a"), Value::Null),
        ("DELETE", format!("{new}/a"), Value::Null),
        ("GET", format!("{old}/a"), Value::Null),
    ] {
        transcript.push(said(client, method, &path, body).await?);
    }
    for name in ["a", "b"] {
        said(client, "DELETE", &format!("{old}/{name}"), Value::Null).await?;
    }
    Ok(transcript)
}

async fn install_kinds(client: &Client, hook: &Hook) -> Result<()> {
    for way in WAYS {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let made = said(client, "POST", definitions, definition(way, hook)).await?;
        ensure!(made["code"].is_null(), "{made}");
        eventually(way, LIMIT, async || -> Result<()> {
            for version in ["v1", "v2"] {
                let list = said(
                    client,
                    "GET",
                    &format!("/apis/{way}.conversion.test/{version}/boxes"),
                    Value::Null,
                )
                .await?;
                ensure!(list.is_array(), "{list}");
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn both_servers_convert_alike() -> Result<()> {
    let plane = ControlPlane::builder()
        .controller_manager(false)
        .scheduler(false)
        .start()
        .await?;
    let real = plane.client(Identity::Admin).await?;
    let cluster = Cluster::builder().seed(1).start();
    let ours = cluster.client();
    let hook = start_hook().await?;
    install_kinds(&real, &hook).await?;
    install_kinds(&ours, &hook).await?;
    let mut differences = Vec::new();
    for way in WAYS {
        let (theirs, own) = (conversation(&real, way).await?, conversation(&ours, way).await?);
        for (i, (theirs, own)) in theirs.iter().zip(&own).enumerate() {
            if theirs != own {
                differences.push(format!("{way}, request {}:\n  real {theirs}\n  ours {own}", i + 1));
            }
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

struct Hook {
    port: u16,
    ca: String,
}

async fn start_hook() -> Result<Hook> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    // Authorities of different names: of two with one name Go tells more about why the other one is not it.
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = format!("hook on port {port}");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let signing_key = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&signing_key)?;
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, acceptor.clone()));
        }
    });
    let ca = STANDARD.encode(certificate.pem());
    Ok(Hook { port, ca })
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(|request: Request<Incoming>| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        if path == "/slow" {
            tokio::time::sleep(LIMIT).await;
        }
        let response = match path.strip_prefix("/convert/") {
            Some(way) => converted(way, &review["request"]),
            None => answer(&path, &review["request"]["uid"]),
        };
        let answer = json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
        let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
        if path == "/error" {
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            *response.body_mut() = Full::default();
        }
        Ok::<_, hyper::Error>(response)
    });
    // How the API server leaves is its business.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn configuration(case: &Case, hook: &Hook, stranger: &Hook) -> Value {
    let at = |port: u16, path: &str| format!("https://127.0.0.1:{port}{path}");
    let client = match case.place {
        Place::Path(path) => json!({"url": at(hook.port, path), "caBundle": hook.ca}),
        Place::Stranger => json!({"url": at(hook.port, "/"), "caBundle": stranger.ca}),
        // The discard port: nobody listens there, and nobody else will take it meanwhile.
        Place::Nobody => json!({"url": at(9, "/"), "caBundle": hook.ca}),
        Place::NoService => {
            json!({"service": {"namespace": "default", "name": "nosvc", "path": "/x"}, "caBundle": hook.ca})
        }
    };
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    // Time enough for a busy machine, but where it is to run out.
    let seconds = match case.place {
        Place::Path("/slow") => 1,
        _ => 10,
    };
    let webhook = json!({
        "name": format!("{}.hook.test", case.name), "clientConfig": client, "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": case.policy, "timeoutSeconds": seconds,
        "objectSelector": {"matchLabels": {"case": case.name}},
    });
    json!({"metadata": {"name": case.name}, "webhooks": [webhook]})
}

async fn configure(client: &Client, case: &Case, configuration: Value) -> Result<()> {
    let how = PostParams::default();
    match case.is_mutating {
        true => {
            let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
            api.create(&how, &serde_json::from_value(configuration)?).await?;
        }
        false => {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
            api.create(&how, &serde_json::from_value(configuration)?).await?;
        }
    }
    Ok(())
}

/// What a server says to a write that the case's hook looks at.
async fn outcome(client: &Client, case: &Case) -> Result<Value> {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": case.name, "labels": {"case": case.name}}, "data": {"a": "1"}}))?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let request = Request::post("/api/v1/namespaces/default/configmaps").body(serde_json::to_vec(&map)?)?;
    let said = client.request::<Value>(request).await;
    match said {
        Ok(made) => {
            maps.delete(case.name, &DeleteParams::default()).await?;
            Ok(made["data"].clone())
        }
        Err(kube::Error::Api(status)) => {
            let mut said = serde_json::to_value(&status)?;
            // The uid of a review is drawn anew each time.
            let text = said.to_string();
            if let Some(uid) = text.split("response.uid=\\\"").nth(1).and_then(|rest| rest.get(..36)) {
                said = serde_json::from_str(&text.replace(uid, "UID"))?;
            }
            Ok(said)
        }
        Err(other) => Err(other.into()),
    }
}

#[tokio::test]
async fn both_servers_say_the_same_about_hooks() -> Result<()> {
    let plane = ControlPlane::builder()
        .controller_manager(false)
        .scheduler(false)
        .start()
        .await?;
    let real = plane.client(Identity::Admin).await?;
    let cluster = Cluster::builder().seed(1).start();
    let ours = cluster.client();
    let (hook, stranger) = (start_hook().await?, start_hook().await?);
    for case in &CASES {
        let configuration = configuration(case, &hook, &stranger);
        configure(&real, case, configuration.clone()).await?;
        configure(&ours, case, configuration).await?;
    }
    let mut differences = Vec::new();
    for case in &CASES {
        // A real server takes a moment to notice a configuration.
        let compared = eventually(case.name, LIMIT, async || -> Result<()> {
            let wanted = outcome(&ours, case).await.context(case.name)?;
            let said = outcome(&real, case).await?;
            ensure!(said == wanted, "{}:\n  real {said}\n  ours {wanted}", case.name);
            Ok(())
        });
        differences.extend(compared.await.err().map(|error| error.to_string()));
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}
