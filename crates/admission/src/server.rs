//! The webhook server: HTTPS on a socket, or on any stream that somebody accepted.
//!
//! Whoever reaches the port may try to hold it up, so everything that a peer can do has an end: the handshake, the first
//! word, the head and the body of a request, how much of them is held in memory, and how many connections one address has.
//!
//! The certificate comes from a watch channel and is looked up at every handshake: a renewed one serves the next
//! connection while those that are open go on with theirs. Whether there is a certificate at all is the handshake's
//! concern; rules are the webhooks'.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{self, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::BytesMut;
use futures::StreamExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{Id, JoinSet};
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
/// The API server sends a request at once, on a new connection too; whoever does not is somebody else.
const HEAD_MAX: Duration = Duration::from_secs(10);
const BODY_MAX: Duration = Duration::from_secs(5);
/// Bodies that are held in memory, all together. What has not come yet holds no room, so that whoever sends slowly keeps
/// nobody waiting.
const BODIES_BYTES_MAX: usize = 256 << 20;
/// Requests that are answered at a time. More wait, first come, first served.
const REQUESTS_MAX: usize = 32;
const CONNECTIONS_MAX: usize = 1_024;
/// Of one address. An API server keeps one or two connections; further ones are closed at once.
const CONNECTIONS_OF_ONE_MAX: usize = 64;
/// Every connection ends with this; the API server opens another one when it needs one.
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
    #[error("nothing was asked within {} s", HEAD_MAX.as_secs())]
    Silent,
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
        let mut peers: HashMap<Id, IpAddr> = HashMap::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = connections.join_next_with_id() => {
                    peers.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
                    continue;
                }
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a webhook connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let has = peers.values().filter(|other| **other == peer.ip()).count();
            if has >= CONNECTIONS_OF_ONE_MAX {
                tracing::warn!(%peer, has, "too many webhook connections of one address; closed");
                continue;
            }
            let (server, stop) = (self.clone(), stop.clone());
            let task = connections.spawn(async move {
                if let Err(error) = server.serve_stream(stream, stop).await {
                    tracing::debug!(%peer, %error, "webhook connection");
                }
            });
            peers.insert(task.id(), peer.ip());
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
        let mut stream = BufReader::new(stream);
        tokio::select! {
            word = stream.fill_buf() => drop(word.map_err(|error| ConnectionError::Http(error.into()))?),
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(HEAD_MAX) => return Err(ConnectionError::Silent),
        }
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
    let room = Arc::new(Room {
        bytes: Semaphore::new(BODIES_BYTES_MAX),
        requests: Semaphore::new(REQUESTS_MAX),
    });
    let in_turn = middleware::from_fn(move |request, next| in_turn(room.clone(), request, next));
    let limit = DefaultBodyLimit::max(BODY_BYTES_MAX);
    router.layer(limit).layer(in_turn).with_state(webhooks)
}

/// What all requests share.
struct Room {
    bytes: Semaphore,
    requests: Semaphore,
}

/// Reads the body, and hands the request on once it is whole and has its turn.
async fn in_turn(room: Arc<Room>, request: extract::Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_MAX, read(&room.bytes, body)).await;
    let (body, _held) = match read {
        Ok(Ok(read)) => read,
        Ok(Err(refused)) => return refused,
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    let _turn = room.requests.acquire().await;
    next.run(extract::Request::from_parts(head, body.into())).await
}

/// A body, and the room that it holds.
async fn read(room: &Semaphore, body: Body) -> Result<(Bytes, SemaphorePermit<'_>), Response> {
    let mut chunks = body.into_data_stream();
    let mut whole = BytesMut::new();
    let full = |_| StatusCode::SERVICE_UNAVAILABLE.into_response();
    let mut held = room.acquire_many(0).await.map_err(full)?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()).into_response())?;
        if whole.len() + chunk.len() > BODY_BYTES_MAX {
            let words = format!("the body is longer than {BODY_BYTES_MAX} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, words).into_response());
        }
        let more = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        held.merge(room.acquire_many(more).await.map_err(full)?);
        whole.extend_from_slice(&chunk);
    }
    Ok((whole.freeze(), held))
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
