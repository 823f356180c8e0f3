//! One cluster under test, seen as raw HTTP: what was sent and what came back, nothing interpreted.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use http::{HeaderMap, Request, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;

/// A watch ends by its `timeoutSeconds`; this only keeps a test from hanging when it does not.
const WATCH_LIMIT: Duration = Duration::from_secs(20);

/// Who writes, where a request does not say it: the server takes field managers from it.
const AGENT: &str = "conformance/1.0";

#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    client: Client,
}

/// A request as a case describes it, with everything filled in.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The object that ends a watch when an event tells of it.
    pub(crate) last: Option<String>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) media_type: String,
    pub(crate) warnings: Vec<String>,
    /// One document, or the events of a watch.
    pub(crate) body: Value,
}

impl Target {
    pub(crate) fn new(name: &'static str, client: Client) -> Self {
        Self { name, client }
    }

    pub(crate) async fn send(&self, sent: &Sent) -> Result<Answer> {
        let mut request = Request::builder().method(sent.method.as_str()).uri(&sent.path);
        let has = |name: &str| sent.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !has("user-agent") {
            request = request.header(header::USER_AGENT, AGENT);
        }
        for (name, value) in &sent.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(sent.body.clone()))?;
        let response = self
            .client
            .send(request)
            .await
            .with_context(|| format!("{} {} on {}", sent.method, sent.path, self.name))?;
        let (parts, body) = response.into_parts();
        let is_watch = sent.path.contains("watch=") && parts.status.is_success();
        let body = if is_watch {
            events(body, sent.last.as_deref()).await
        } else {
            document(body).await?
        };
        Ok(Answer {
            code: parts.status.as_u16(),
            media_type: text(&parts.headers, header::CONTENT_TYPE.as_str()),
            warnings: warnings(&parts.headers),
            body,
        })
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn warnings(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::WARNING).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned)
        .collect()
}

/// JSON as it is, and any other text as a string.
async fn document(body: Body) -> Result<Value> {
    let bytes = body.collect().await?.to_bytes();
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

/// Every event until the stream ends or tells of the last object, and a mark if neither happens.
async fn events(body: Body, last: Option<&str>) -> Value {
    let mut received = Vec::new();
    let mut events = Vec::new();
    let mut stream = body.into_data_stream();
    let all = async {
        while let Some(Ok(chunk)) = stream.next().await {
            received.extend_from_slice(&chunk);
            while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = received.drain(..=end).collect();
                events.push(event(&line));
            }
            let told = events.last().map(|event| &event["object"]["metadata"]["name"]);
            if told.is_some_and(|name| last.is_some_and(|last| name == last)) {
                return;
            }
        }
    };
    let ended = timeout(WATCH_LIMIT, all).await.is_ok();
    if !received.is_empty() {
        events.push(event(&received));
    }
    if !ended {
        events.push(json!("the watch did not end"));
    }
    events.into()
}

fn event(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|_| json!(String::from_utf8_lossy(line)))
}
