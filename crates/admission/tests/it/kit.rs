//! A webhook server on a free port of loopback, the cluster that it reads from, and a client that trusts it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use grove_admission::certificates::{Certificates, Change, Lifetimes, Material, carry_out};
use grove_admission::{Lookup, Policy, Server, Webhook, Webhooks};
use grove_api::config::{self, OperatorConfiguration, Overrides};
use grove_simcluster::Cluster;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

pub(crate) const OPERATOR: &str = "system:serviceaccount:grove-system:grove-operator";
pub(crate) const ROBOT: &str = "system:serviceaccount:ops:robot";

/// No condition of these tests takes longer, even on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn names() -> Vec<String> {
    vec!["127.0.0.1".to_owned()]
}

/// Certificates of a new authority.
pub(crate) fn made() -> Material {
    carry_out(
        Change::Everything,
        None,
        &names(),
        Timestamp::now(),
        &Lifetimes::default(),
    )
    .expect("good names make good certificates")
}

pub(crate) fn configuration(text: &str) -> OperatorConfiguration {
    let head = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n";
    config::parse(format!("{head}{text}").as_bytes(), &Overrides::default())
        .expect("the configuration of a test is valid")
        .configuration
}

/// Topologies on, authorizer on.
pub(crate) const FULL: &str = "\
authorizer: {enabled: true, exemptServiceAccountUserNames: [\"system:serviceaccount:ops:robot\"]}
topologyAwareScheduling:
  enabled: true
  defaultPackDomain: rack
  levels: [{domain: rack, key: example.com/rack}, {domain: host, key: kubernetes.io/hostname}]
";

pub(crate) async fn install(cluster: &Cluster) -> Result<()> {
    let api = Api::all(cluster.client());
    for definition in grove_api::crds::all() {
        let name = definition
            .metadata
            .name
            .clone()
            .context("every definition has a name")?;
        api.create(&PostParams::default(), &definition).await?;
        await_condition(api.clone(), &name, conditions::is_crd_established()).await?;
    }
    Ok(())
}

/// A running server; it stops when this is dropped.
pub(crate) struct Served {
    pub(crate) cluster: Cluster,
    server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) certificates: watch::Sender<Option<Certificates>>,
    pub(crate) material: Material,
    pub(crate) stop: CancellationToken,
    pub(crate) task: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server in front of a cluster with our kinds, for tests that store objects. Installing them takes seconds.
pub(crate) async fn serve_with_kinds(configuration_text: &str) -> Result<Served> {
    let served = serve(configuration_text).await?;
    install(&served.cluster).await?;
    Ok(served)
}

/// A server in front of an empty cluster.
pub(crate) async fn serve(configuration_text: &str) -> Result<Served> {
    let cluster = Cluster::builder().start();
    let policy = Policy::new(&configuration(configuration_text), OPERATOR);
    let material = made();
    let (certificates, current) = watch::channel(Some(material.certificates()?));
    let server = Server::new(Webhooks::new(policy, Lookup::new(cluster.client())), current)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (server, stop) = (server.clone(), stop.clone());
        async move { server.serve(listener, stop).await }
    });
    Ok(Served {
        cluster,
        server,
        address,
        certificates,
        material,
        stop,
        task,
    })
}

impl Served {
    /// A connection of somebody who trusts what the material says.
    pub(crate) async fn connect(&self, trusted: &Material) -> Result<Connection> {
        Connection::over(secured(trusted, TcpStream::connect(self.address).await?).await?).await
    }

    /// A connection without a socket, so that time can stand still.
    pub(crate) async fn open(&self) -> Result<TlsStream<DuplexStream>> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (server, stop) = (self.server.clone(), self.stop.clone());
        tokio::spawn(async move { server.serve_stream(far, stop).await });
        secured(&self.material, near).await
    }

    /// The response to one review.
    pub(crate) async fn ask(&self, webhook: Webhook, request: Value) -> Result<Value> {
        self.connect(&self.material).await?.ask(webhook, request).await
    }
}

/// The stream of a client that trusts what the material says.
async fn secured<S: AsyncRead + AsyncWrite + Unpin>(trusted: &Material, stream: S) -> Result<TlsStream<S>> {
    let mut roots = rustls::RootCertStore::empty();
    let bundle = trusted.data()["ca.crt"].0.clone();
    for authority in CertificateDer::pem_slice_iter(&bundle) {
        roots.add(authority?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1")?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

pub(crate) struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    pub(crate) async fn over<S>(stream: S) -> Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    pub(crate) async fn post(&mut self, webhook: Webhook, body: Vec<u8>) -> Result<(u16, String)> {
        let request = hyper::Request::post(webhook.path())
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let response = self.0.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.to_vec())?))
    }

    pub(crate) async fn ask(&mut self, webhook: Webhook, request: Value) -> Result<Value> {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let (status, body) = self.post(webhook, review.to_string().into_bytes()).await?;
        anyhow::ensure!(status == 200, "{status}: {body}");
        Ok(serde_json::from_str::<Value>(&body)?["response"].take())
    }
}

/// A request to write an object of ours, by somebody.
pub(crate) fn request(operation: &str, resource: &str, old: Value, new: Value) -> Value {
    let shown = if new.is_null() { &old } else { &new };
    json!({
        "uid": "u1",
        "kind": {"group": "grove.io", "version": "v1alpha1", "kind": shown["kind"].as_str().unwrap_or("Thing")},
        "resource": {"group": "grove.io", "version": "v1alpha1", "resource": resource},
        "name": shown["metadata"]["name"].as_str().unwrap_or_default(),
        "namespace": shown["metadata"]["namespace"].as_str().unwrap_or_default(),
        "operation": operation, "userInfo": {"username": "ann"}, "object": new, "oldObject": old,
    })
}

/// Field and reason of every cause, in order.
pub(crate) fn causes(response: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = response["status"]["details"]["causes"].as_array();
    let mut causes: Vec<_> = causes
        .into_iter()
        .flatten()
        .map(|cause| (text(&cause["field"]), text(&cause["reason"])))
        .collect();
    causes.sort();
    causes
}

pub(crate) fn message(response: &Value) -> &str {
    response["status"]["message"].as_str().unwrap_or_default()
}
