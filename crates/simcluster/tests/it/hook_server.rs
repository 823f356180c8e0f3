//! A webhook for tests: real TLS and HTTP, on a pipe or on a socket, whose answers the test decides.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use grove_simcluster::Cluster;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::support::*;

/// What a hook answers: path and `request` in, `response` without the uid out.
pub(crate) type Answers = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

/// A running webhook; it ends with the test's runtime.
#[derive(Clone)]
pub(crate) struct HookServer {
    /// Paths and requests in the order in which they came.
    pub(crate) seen: Arc<Mutex<Vec<(String, Value)>>>,
    pub(crate) authority: String,
    pub(crate) ca_bundle: String,
}

impl HookServer {
    /// On a pipe, for virtual time.
    pub(crate) fn on_pipe(
        cluster: &Cluster,
        authority: &str,
        answers: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        let (server, acceptor) = Self::new(authority);
        let mut listener = cluster.network().listen(authority);
        let (seen, answers): (_, Answers) = (server.seen.clone(), Arc::new(answers));
        tokio::spawn(async move {
            while let Some(stream) = listener.accept().await {
                tokio::spawn(serve(stream, acceptor.clone(), seen.clone(), answers.clone()));
            }
        });
        server
    }

    /// On a socket of its own.
    pub(crate) async fn on_socket(answers: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (server, acceptor) = Self::new(&listener.local_addr().unwrap().to_string());
        let (seen, answers): (_, Answers) = (server.seen.clone(), Arc::new(answers));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acceptor.clone(), seen.clone(), answers.clone()));
            }
        });
        server
    }

    fn new(authority: &str) -> (Self, TlsAcceptor) {
        let host = authority.rsplit_once(':').unwrap().0;
        let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let server = Self {
            seen: Arc::default(),
            authority: authority.to_owned(),
            ca_bundle: STANDARD.encode(made.cert.pem()),
        };
        (server, TlsAcceptor::from(Arc::new(config)))
    }

    /// `clientConfig` that reaches this server by URL.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.authority), "caBundle": self.ca_bundle})
    }

    /// The requests that came, and forgets them.
    pub(crate) fn take(&self) -> Vec<Value> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        seen.into_iter().map(|(_, request)| request).collect()
    }
}

async fn serve<S>(stream: S, acceptor: TlsAcceptor, seen: Arc<Mutex<Vec<(String, Value)>>>, answers: Answers)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // A client that does not trust us goes away during the handshake.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let (seen, answers) = (seen.clone(), answers.clone());
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await?.to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            let request = review["request"].clone();
            seen.lock().unwrap().push((path.clone(), request.clone()));
            if path == "/slow" {
                tokio::time::sleep(Duration::from_secs(3600)).await;
            }
            let mut response = answers(&path, &request);
            if response["uid"].is_null() {
                response["uid"] = request["uid"].clone();
            }
            let answer = json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(answer.to_string()))))
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

pub(crate) fn allow() -> Value {
    json!({"allowed": true})
}

pub(crate) fn patch_with(operations: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

/// A webhook for writes of configmaps, with `changes` over the usual fields.
pub(crate) fn webhook(name: &str, client_config: Value, changes: Value) -> Value {
    let rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let mut hook = json!({"name": name, "clientConfig": client_config, "rules": [rule], "sideEffects": "None",
                          "admissionReviewVersions": ["v1"]});
    for (field, value) in changes.as_object().unwrap() {
        hook[field] = value.clone();
    }
    hook
}

/// Stores a configuration; `kind` is `mutating` or `validating`.
pub(crate) async fn configure(cluster: &Cluster, kind: &str, name: &str, webhooks: Value) {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
    let made = post(
        cluster,
        &path,
        &json!({"metadata": {"name": name}, "webhooks": webhooks}),
    )
    .await;
    assert_eq!(made.code, 201, "{}", made.text);
}
