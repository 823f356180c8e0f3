//! One HTTPS request to a webhook, and what goes wrong with it in the API server's words.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::super::{BODY_BYTES_MAX, Server};
use crate::clock::Clock;
use crate::store::{Key, ResourceName};

/// A server that is asked, and how far it is trusted.
#[derive(Debug)]
pub(crate) struct Remote {
    target: Target,
    /// What its certificate is judged by, or why that cannot be done.
    tls: Result<Arc<ClientConfig>, String>,
    timeout: Duration,
}

/// Where it is.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Url(String),
    Service {
        namespace: String,
        name: String,
        port: u64,
        path: String,
    },
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// It cannot be asked with this configuration.
    Client(String),
    /// It was asked in vain.
    Call(String),
}

/// What an answer must call itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) kind: &'static str,
    pub(crate) api_version: &'static str,
}

impl Remote {
    /// Reads a `clientConfig`.
    pub(crate) fn parse(client: &Value, timeout: Duration, clock: Clock) -> Self {
        let bundle = STANDARD.decode(client["caBundle"].as_str().unwrap_or_default());
        Self {
            target: Target::parse(client),
            tls: trust(&bundle.unwrap_or_default(), clock),
            timeout,
        }
    }
}

impl Target {
    fn parse(client: &Value) -> Self {
        let service = &client["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
        match client["url"].as_str() {
            Some(url) => Self::Url(url.to_owned()),
            None => Self::Service {
                namespace: text("namespace"),
                name: text("name"),
                port: service["port"].as_u64().unwrap_or(443),
                path: text("path"),
            },
        }
    }
}

/// Certificates expire by the cluster's clock.
#[derive(Debug)]
struct ClusterTime(Clock);

impl TimeProvider for ClusterTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = Duration::try_from(self.0.now().duration_since(jiff::Timestamp::UNIX_EPOCH));
        since.ok().map(UnixTime::since_unix_epoch)
    }
}

/// TLS that trusts the authorities of a `caBundle`.
fn trust(bundle: &[u8], clock: Clock) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(|error| format!("unable to load root certificates: {error}"))?;
    }
    if roots.is_empty() && !bundle.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(ClusterTime(clock)))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Sends a review and reads what is answered. `name` is what faults know the server by.
pub(crate) async fn post(
    server: &Server,
    name: &str,
    remote: &Remote,
    review: &Value,
    expected: Expected,
) -> Result<Value, NoAnswer> {
    let tls = remote.tls.clone().map_err(NoAnswer::Client)?;
    let url = url_of(remote);
    let not_posted = |why: String| NoAnswer::Call(format!("Post {url:?}: {why}"));
    let uri: Uri = url.parse().map_err(|error| not_posted(format!("{error}")))?;
    if let Target::Service { namespace, name, .. } = &remote.target {
        check_service(server, &uri, namespace, name).map_err(not_posted)?;
    }
    if server.faults.webhook_down(name) {
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        return Err(not_posted(format!("dial tcp {authority}: connect: connection refused")));
    }
    let exchange = exchange(server, &uri, tls, review.to_string());
    let answer = match timeout(remote.timeout, exchange).await {
        Ok(answer) => answer.map_err(not_posted)?,
        Err(_) => return Err(not_posted("context deadline exceeded".to_owned())),
    };
    match answer.status().is_success() {
        true => read(answer.body(), expected).map_err(NoAnswer::Call),
        false => Err(NoAnswer::Call(refusal(&answer))),
    }
}

fn url_of(remote: &Remote) -> String {
    let base = match &remote.target {
        Target::Url(url) => url.clone(),
        Target::Service {
            namespace,
            name,
            port,
            path,
        } => format!("https://{name}.{namespace}.svc:{port}{path}"),
    };
    format!("{base}?timeout={}s", remote.timeout.as_secs())
}

/// A Service leads somewhere only if somebody opened its name on the cluster's network.
fn check_service(server: &Server, uri: &Uri, namespace: &str, name: &str) -> Result<(), String> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if server.network.knows(authority) {
        return Ok(());
    }
    let services = ResourceName::new("", "services");
    match server.store.get(&services, &Key::new(namespace, name)) {
        None => Err(format!("service {name:?} not found")),
        Some(_) => Err(format!("no endpoints available for service {name:?}")),
    }
}

async fn exchange(server: &Server, uri: &Uri, tls: Arc<ClientConfig>, body: String) -> Result<Response<Bytes>, String> {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(443);
    let stream = server.network.connect(host, port).await;
    let stream = stream.map_err(|error| format!("dial tcp {host}:{port}: {}", dial_words(&error)))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(bare).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(tls).connect(name, stream).await;
    let stream = stream.map_err(|error| tls_words(&error))?;
    let request = Request::post(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header("host", uri.authority().map_or("", |authority| authority.as_str()))
        .header("accept", "application/json, */*")
        .header("content-type", "application/json")
        .header("user-agent", "kube-apiserver-admission")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let ended = |error: hyper::Error| match error.is_incomplete_message() {
        true => "EOF".to_owned(),
        false => error.to_string(),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ended)?;
    let answer = async move {
        let response = sender.send_request(request).await.map_err(ended)?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Response::from_parts(parts, body))
    };
    tokio::pin!(answer);
    // The connection moves the bytes; if it ends first, the answer is complete or will never be.
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}

fn dial_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        _ => error.to_string(),
    }
}

fn tls_words(error: &io::Error) -> String {
    use rustls::{CertificateError, Error};
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    match cause {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        Some(Error::InvalidCertificate(why)) => format!("tls: failed to verify certificate: x509: {why}"),
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => error.to_string(),
    }
}

/// Reads the body of an answer that claims to be good.
fn read(body: &[u8], expected: Expected) -> Result<Value, String> {
    let answer: Value = serde_json::from_slice(body)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    let text = |field: &str| answer[field].as_str().unwrap_or_default();
    let excerpt = || String::from_utf8_lossy(body).trim().to_owned();
    match (text("kind"), text("apiVersion")) {
        ("", _) => Err(format!("Object 'Kind' is missing in '{}'", excerpt())),
        (_, "") => Err(format!("Object 'apiVersion' is missing in '{}'", excerpt())),
        (kind, version) if kind == expected.kind && version == expected.api_version => Ok(answer),
        (kind, version) => Err(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:110\""
        )),
    }
}

/// What an answer with an error code means.
fn refusal(response: &Response<Bytes>) -> String {
    let body = response.body();
    if let Ok(answer) = serde_json::from_slice::<Value>(body)
        && answer["kind"] == "Status"
        && let Some(message) = answer["message"].as_str()
    {
        return message.to_owned();
    }
    let media_type = response.headers().get("content-type").map(|value| value.as_bytes());
    let told = match media_type.is_none_or(|media_type| media_type.starts_with(b"text/")) {
        true => String::from_utf8_lossy(body).trim().to_owned(),
        false => "unknown".to_owned(),
    };
    match response.status().as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => told,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        500.. => format!("an error on the server ({told:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}
