//! Whoever collects traces: takes OTLP over HTTP, as any collector does, and keeps what it was sent.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A span, and the service that sent it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) service: String,
    pub(crate) span: Span,
}

impl Sent {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        text(&self.span.attributes, name)
    }
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let attribute = attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

type Kept = Arc<Mutex<Vec<Sent>>>;

/// It ends when dropped.
pub(crate) struct Collector {
    address: SocketAddr,
    kept: Kept,
    _serving: JoinSet<()>,
}

impl Collector {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, kept) = (listener.local_addr()?, Kept::default());
        let router = Router::new().route("/v1/traces", post(take)).with_state(kept.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(Self {
            address,
            kept,
            _serving: serving,
        })
    }

    /// What tells a process to send its traces here, and soon.
    pub(crate) fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.address)),
            ("OTEL_BSP_SCHEDULE_DELAY", "200".to_owned()),
        ]
    }

    pub(crate) fn spans(&self) -> Vec<Sent> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn take(State(kept): State<Kept>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    for of_service in request.resource_spans {
        let resource = of_service.resource.unwrap_or_default();
        let service = text(&resource.attributes, "service.name")
            .unwrap_or_default()
            .to_owned();
        let spans = of_service.scope_spans.into_iter().flat_map(|scope| scope.spans);
        kept.extend(spans.map(|span| Sent {
            service: service.clone(),
            span,
        }));
    }
    StatusCode::OK
}
