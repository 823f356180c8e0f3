//! The page over HTTP: files, the map as JSON, and its changes as server-sent events. Reads only, and only from this
//! host: who may open a port of this pod (`kubectl port-forward`), the cluster's own authentication decides.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::{Stream, StreamExt as _};
use grove_runtime::ObjectKey;
use kube::Client;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::assets;
use crate::feeds::{self, Shared};
use crate::model::Map;

/// Between two messages; bursts are joined.
const PAUSE: Duration = Duration::from_millis(250);
/// A reader that is further behind gets the whole map again.
const BEHIND_MAX: usize = 64;
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Nothing from elsewhere, nothing inline, in nobody's frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(&str, &str); 5] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

type Reader = broadcast::Receiver<Arc<str>>;

/// The page of one cluster. Clones are the same page.
#[derive(Clone)]
pub struct Page {
    client: Client,
    shared: Arc<Shared>,
    messages: broadcast::Sender<Arc<str>>,
    synced: Arc<watch::Sender<bool>>,
    stop: CancellationToken,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

impl Page {
    /// A page that ends with `stop`, the streams of its readers included.
    pub fn new(client: Client, stop: CancellationToken) -> Self {
        Self {
            client,
            stop,
            shared: Arc::default(),
            messages: broadcast::Sender::new(BEHIND_MAX),
            synced: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Follows the cluster and serves the page on a socket, which must be one of this host only, until it is stopped.
    pub async fn serve(&self, listener: TcpListener) {
        let stopped = self.stop.clone().cancelled_owned();
        let served = axum::serve(listener, self.router()).with_graceful_shutdown(stopped);
        tokio::select! {
            () = feeds::follow(&self.client, &self.shared, &self.synced) => {}
            () = self.tell_changes() => {}
            // axum never gives up on a listener: a failed accept is retried there.
            _ = served => {}
        }
    }

    /// Waits until everything has been seen once.
    async fn ready(&self) {
        // The sender is ours.
        let _ = self.synced.subscribe().wait_for(|is_synced| *is_synced).await;
    }

    async fn tell_changes(&self) {
        self.ready().await;
        loop {
            self.shared.changed.notified().await;
            tokio::time::sleep(PAUSE).await;
            self.tell(&mut self.shared.map());
        }
    }

    /// Tells all readers what has changed. Whoever holds the map meanwhile misses nothing.
    fn tell(&self, map: &mut Map) {
        let change = map.take_change();
        if !change.is_empty() && self.messages.receiver_count() > 0 {
            // Nobody listens any more: then nobody misses it.
            let _ = self.messages.send(text(&change));
        }
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/api/map", get(map))
            .route("/api/events", get(events))
            .route("/api/gangs/{namespace}/{name}/pods", get(pods))
            .with_state(self.clone())
            .fallback(get(file))
            .layer(middleware::from_fn(guard))
    }
}

fn text(value: &impl Serialize) -> Arc<str> {
    let text = serde_json::to_string(value).expect("our types have text keys only, so they are JSON");
    text.into()
}

/// Refuses whoever was led here by a foreign name, and adds the headers that every answer has.
async fn guard(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut response = match is_this_host(host) {
        true => next.run(request).await,
        false => (
            StatusCode::MISDIRECTED_REQUEST,
            "this page is for this host only: open it as http://localhost with its port\n",
        )
            .into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether a `Host` header names the loopback. A page of somebody else's can make its own name lead here and would then
/// be allowed to read.
fn is_this_host(host: &str) -> bool {
    let port = |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let names = ["localhost", "127.0.0.1", "[::1]"];
    names.iter().any(|name| host.strip_prefix(name).is_some_and(port))
}

async fn file(request: Request) -> Response {
    assets::answer(request.uri().path(), request.headers())
}

async fn map(State(page): State<Page>) -> Response {
    page.ready().await;
    let snapshot = page.shared.map().snapshot();
    Json(snapshot).into_response()
}

async fn pods(State(page): State<Page>, Path((namespace, name)): Path<(String, String)>) -> Response {
    let pods = page.shared.map().pods_of(&ObjectKey::new(namespace, name));
    match pods {
        Some(pods) => Json(pods).into_response(),
        None => (StatusCode::NOT_FOUND, "there is no such gang (any more)\n").into_response(),
    }
}

/// The whole map, then every change of it; the whole map again for a reader that fell behind.
async fn events(State(page): State<Page>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    page.ready().await;
    let stop = page.stop.clone();
    let stream = futures::stream::unfold((page, None::<Reader>), |(page, reader)| async move {
        let Some(mut reader) = reader else {
            let (reader, event) = page.subscribe();
            return Some((Ok(event), (page, Some(reader))));
        };
        let event = match reader.recv().await {
            Ok(change) => Event::default().event("change").data(&*change),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                let (fresh, event) = page.subscribe();
                reader = fresh;
                event
            }
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        Some((Ok(event), (page, Some(reader))))
    });
    let stream = stream.take_until(stop.cancelled_owned());
    Sse::new(stream).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("beat"))
}

impl Page {
    fn subscribe(&self) -> (Reader, Event) {
        let (reader, snapshot) = {
            let mut map = self.shared.map();
            // What is in the snapshot need not be told again.
            self.tell(&mut map);
            (self.messages.subscribe(), map.snapshot())
        };
        (reader, Event::default().event("map").data(&*text(&snapshot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_host_are_answered() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:9"] {
            assert!(is_this_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "localhost:x",
            "10.0.0.1",
        ] {
            assert!(!is_this_host(host), "{host}");
        }
    }
}
