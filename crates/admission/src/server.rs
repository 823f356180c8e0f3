//! The webhook server: HTTPS on a socket, or on any stream that somebody accepted.
//!
//! The certificate comes from a watch channel and is looked up at every handshake: a renewed one serves the next
//! connection while those that are open go on with theirs. Whether there is a certificate at all is the handshake's
//! concern; rules are the webhooks'.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::certificates::Current;
use crate::conversion;
use crate::review::{Answer, Request};
use crate::webhooks::{Webhook, Webhooks};

/// A review carries an object twice, and etcd takes 1.5 MiB of each; JSON of a request may be twice as long.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Below the 10 s that the API server waits, so that it is our sentence that its user reads.
const ANSWER_MAX: Duration = Duration::from_secs(9);
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// A socket that cannot accept (too many open files) is tried again after this.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Why a connection did not get to its first request, or broke.
#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
    #[error("the TLS handshake took longer than {} s", HANDSHAKE_MAX.as_secs())]
    Slow,
    #[error("the connection broke: {0}")]
    Http(Box<dyn std::error::Error + Send + Sync>),
}

/// Serves webhooks; cheap to clone.
#[derive(Clone)]
pub struct Server {
    tls: TlsAcceptor,
    router: Router,
}

impl Server {
    pub fn new(webhooks: Webhooks, certificates: Current) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(InForce(certificates)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            tls: TlsAcceptor::from(Arc::new(config)),
            router: router(webhooks),
        })
    }

    /// Serves every connection of `listener` until `stop`; then takes no more, and lets requests in flight finish.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a webhook connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let (server, stop) = (self.clone(), stop.clone());
            connections.spawn(async move {
                if let Err(error) = server.serve_stream(stream, stop).await {
                    tracing::debug!(%peer, %error, "webhook connection");
                }
            });
        }
        while connections.join_next().await.is_some() {}
    }

    /// Serves one accepted stream until the peer is done, or until `stop` and the requests in flight are answered.
    pub async fn serve_stream<S>(&self, stream: S, stop: CancellationToken) -> Result<(), ConnectionError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = tokio::time::timeout(HANDSHAKE_MAX, self.tls.accept(stream)).await;
        let stream = handshake
            .map_err(|_| ConnectionError::Slow)?
            .map_err(ConnectionError::Handshake)?;
        let builder = Builder::new(TokioExecutor::new());
        let service = TowerToHyperService::new(self.router.clone());
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        served.map_err(ConnectionError::Http)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Presents the certificate that is in force when a connection begins.
#[derive(Debug)]
struct InForce(Current);

impl ResolvesServerCert for InForce {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.0.borrow();
        current.as_ref().map(|certificates| certificates.serving.clone())
    }
}

fn router(webhooks: Webhooks) -> Router {
    let mut router = Router::new();
    for webhook in Webhook::ALL {
        let answer = move |State(webhooks): State<Webhooks>, body: Bytes| answer(webhook, webhooks, body);
        router = router.route(webhook.path(), post(answer));
    }
    router = router.route(conversion::PATH, post(convert));
    router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(webhooks)
}

async fn convert(body: Bytes) -> Response {
    match conversion::answer(&body) {
        Ok(review) => axum::Json(review).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error).into_response(),
    }
}

async fn answer(webhook: Webhook, webhooks: Webhooks, body: Bytes) -> Response {
    let request = match Request::parse(&body) {
        Ok(request) => request,
        // Without a uid there is no review that could be answered.
        Err(error) => return (StatusCode::BAD_REQUEST, error).into_response(),
    };
    let answer = tokio::time::timeout(ANSWER_MAX, webhooks.answer(webhook, &request)).await;
    let answer = answer.unwrap_or_else(|_| {
        let secs = ANSWER_MAX.as_secs();
        let subject = request.subject();
        Answer::unavailable(format!(
            "cannot judge {subject}: the API server did not answer within {secs} s; try again"
        ))
    });
    tracing::debug!(
        ?webhook,
        object = request.subject(),
        user = request.user_info.username,
        admitted = answer.is_admitted(),
        "answered"
    );
    axum::Json(answer.to_review(&request)).into_response()
}
