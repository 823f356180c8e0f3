//! The webhook server: HTTPS on a socket, or on any stream that somebody accepted.
//!
//! Whoever reaches the port may try to hold it up, so everything that a peer can do has an end: the handshake, the head and
//! the body of a request, and how many requests are held in memory at a time.
//!
//! The certificate comes from a watch channel and is looked up at every handshake: a renewed one serves the next
//! connection while those that are open go on with theirs. Whether there is a certificate at all is the handshake's
//! concern; rules are the webhooks'.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{self, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
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
/// The API server sends a request at once; whoever does not is somebody else.
const HEAD_MAX: Duration = Duration::from_secs(10);
const BODY_MAX: Duration = Duration::from_secs(5);
/// Requests that are read or answered at a time: they hold 256 MiB at most. More wait, first come, first served.
const REQUESTS_MAX: usize = 32;
const CONNECTIONS_MAX: usize = 1_024;
/// A connection that never asks anything ends with this; the API server opens another one when it needs one.
const LIFE_MAX: Duration = Duration::from_secs(300);
/// Requests in flight may finish when their connection is told to end.
const END_MAX: Duration = BODY_MAX.saturating_add(ANSWER_MAX);
/// One connection must not keep all others waiting.
const STREAMS_MAX: u32 = 16;
/// How often a peer that sends nothing is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);
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
    #[error("the connection did not end within {} s after it was told to", END_MAX.as_secs())]
    Endless,
}

/// Serves webhooks; cheap to clone.
#[derive(Clone)]
pub struct Server {
    tls: TlsAcceptor,
    router: Router,
    http: Builder<TokioExecutor>,
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
            http: http(),
        })
    }

    /// Serves every connection of `listener` until `stop`; then takes no more, and lets requests in flight finish. Beyond
    /// `CONNECTIONS_MAX` a connection waits until another one ends.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
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
        let service = TowerToHyperService::new(self.router.clone());
        let mut connection = std::pin::pin!(self.http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            served = connection.as_mut() => return served.map_err(ConnectionError::Http),
            () = stop.cancelled() => {}
            () = tokio::time::sleep(LIFE_MAX) => {}
        }
        connection.as_mut().graceful_shutdown();
        let served = tokio::time::timeout(END_MAX, connection).await;
        served
            .map_err(|_| ConnectionError::Endless)?
            .map_err(ConnectionError::Http)
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

fn http() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_concurrent_streams(STREAMS_MAX);
    http
}

fn router(webhooks: Webhooks) -> Router {
    let mut router = Router::new();
    for webhook in Webhook::ALL {
        let answer = move |State(webhooks): State<Webhooks>, body: Bytes| answer(webhook, webhooks, body);
        router = router.route(webhook.path(), post(answer));
    }
    router = router.route(conversion::PATH, post(convert));
    let room = Arc::new(Semaphore::new(REQUESTS_MAX));
    let in_turn = middleware::from_fn(move |request, next| in_turn(room.clone(), request, next));
    let limit = DefaultBodyLimit::max(BODY_BYTES_MAX);
    router.layer(limit).layer(in_turn).with_state(webhooks)
}

/// Reads the body when there is room for it, and hands the request on once it is whole.
async fn in_turn(room: Arc<Semaphore>, request: extract::Request, next: Next) -> Response {
    let _permit = room.acquire().await;
    let (head, body) = request.into_parts();
    match tokio::time::timeout(BODY_MAX, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => next.run(extract::Request::from_parts(head, body.into())).await,
        Ok(Err(error)) => (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()).into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

async fn convert(State(webhooks): State<Webhooks>, body: Bytes) -> Response {
    let begun = Instant::now();
    let (result, response) = match conversion::answer(&body) {
        Ok(review) => ("converted", axum::Json(review).into_response()),
        Err(error) => ("malformed", (StatusCode::BAD_REQUEST, error).into_response()),
    };
    let metrics = &webhooks.telemetry.metrics;
    metrics.answered(conversion::PATH, result, begun.elapsed());
    response
}

async fn answer(webhook: Webhook, webhooks: Webhooks, body: Bytes) -> Response {
    let telemetry = webhooks.telemetry.clone();
    let (begun, begun_at) = (Instant::now(), (telemetry.clock)());
    let request = match Request::parse(&body) {
        Ok(request) => request,
        // Without a uid there is no review that could be answered.
        Err(error) => {
            let metrics = &telemetry.metrics;
            metrics.answered(webhook.path(), "malformed", begun.elapsed());
            return (StatusCode::BAD_REQUEST, error).into_response();
        }
    };
    let answer = tokio::time::timeout(ANSWER_MAX, webhooks.answer(webhook, &request)).await;
    let answer = answer.unwrap_or_else(|_| {
        let secs = ANSWER_MAX.as_secs();
        let subject = request.subject();
        Answer::unavailable(format!(
            "cannot judge {subject}: the API server did not answer within {secs} s; try again"
        ))
    });
    let metrics = &telemetry.metrics;
    metrics.answered(webhook.path(), answer.result(), begun.elapsed());
    let answer = telemetry.answered(webhook, &request, answer, begun_at);
    tracing::debug!(
        ?webhook,
        object = request.subject(),
        user = request.user_info.username,
        admitted = answer.is_admitted(),
        "answered"
    );
    axum::Json(answer.to_review(&request)).into_response()
}
