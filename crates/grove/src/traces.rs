//! Traces, for whoever collects them: the steps that operator and scheduler tell of become OpenTelemetry spans, sent as
//! OTLP over HTTP.
//!
//! On where the environment names a collector, in the words of the OpenTelemetry specification
//! (`OTEL_EXPORTER_OTLP_ENDPOINT` and its kin); else nothing is set up and no step is told. Spans are handed to a thread of
//! the SDK that sends them in batches: a collector that is slow or gone holds nobody up, it only misses spans.

use std::sync::Arc;
use std::time::Duration;

use grove_runtime::trace::{Context, Origin, Recorder, Step, Tracer};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context as Surroundings, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;

use crate::exit::Failure;

/// Whoever sets one of these wants traces.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// And whoever sets this to `true` does not, whatever else is set.
const DISABLED: &str = "OTEL_SDK_DISABLED";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// The most that one request to the collector may take.
const SEND_MAX: Duration = Duration::from_secs(10);

/// The traces of one process; by default none.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    provider: Option<SdkTracerProvider>,
}

impl Traces {
    /// As the environment wants it. `service` names the process where nobody else does.
    pub(crate) fn start(service: &'static str, env: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let Some((variable, endpoint)) = endpoint(&env) else {
            return Ok(Self::default());
        };
        let refused = |error: &dyn std::fmt::Display| {
            Failure::Usage(format!("{variable}={endpoint}: cannot send traces there: {error}"))
        };
        let client = OnRuntime {
            client: HyperClient::new(connector().map_err(|error| refused(&error))?, SEND_MAX, None),
            runtime: Handle::current(),
        };
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
        let exporter = exporter.map_err(|error| refused(&error))?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_attribute(version);
        let resource = match env(SERVICE_NAME) {
            Some(_) => resource,
            None => resource.with_service_name(service),
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        tracing::info!(endpoint, "sending traces");
        Ok(Self {
            provider: Some(provider),
        })
    }

    pub(crate) fn tracer(&self) -> Tracer {
        match &self.provider {
            Some(provider) => Tracer::new(Arc::new(Spans(provider.tracer("grove")))),
            None => Tracer::default(),
        }
    }

    /// Sends what has not been sent, but not for longer than `patience`.
    pub(crate) async fn stop(self, patience: Duration) {
        let Some(provider) = self.provider else { return };
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(patience)).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("the collector did not take the last spans; dropped them");
        }
    }
}

/// The variable that names a collector, and what it says.
fn endpoint(env: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    if env(DISABLED).is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return None;
    }
    let mut named = ENDPOINTS.into_iter().filter_map(|name| Some((name, env(name)?)));
    named.find(|(_, endpoint)| !endpoint.is_empty())
}

type Connector = HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>;

/// Trusts whom the system trusts; `SSL_CERT_FILE` says who that is where there is no system around.
fn connector() -> std::io::Result<Connector> {
    let provider = rustls::crypto::ring::default_provider();
    let builder = HttpsConnectorBuilder::new();
    let plain_or_tls = match builder.with_provider_and_native_roots(provider.clone()) {
        Ok(builder) => builder,
        // Nobody to trust: then only plain connections work, as they do inside most clusters.
        Err(_) => {
            let nobody = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
                .with_safe_default_protocol_versions()
                .map_err(std::io::Error::other)?
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            HttpsConnectorBuilder::new().with_tls_config(nobody)
        }
    };
    Ok(plain_or_tls.https_or_http().enable_http1().build())
}

/// A client that works on the runtime, whichever thread asks: the SDK sends from a thread of its own.
#[derive(Debug)]
struct OnRuntime {
    client: HyperClient<Connector>,
    runtime: Handle,
}

#[async_trait::async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        self.runtime
            .spawn(async move { client.send_bytes(request).await })
            .await?
    }
}

/// Turns steps into spans.
struct Spans(SdkTracer);

impl Recorder for Spans {
    fn record(&self, step: Step) -> Context {
        let attributes = step.attributes.into_iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, value));
        let builder = SpanBuilder::from_name(step.name)
            .with_start_time(step.begun)
            .with_attributes(attributes);
        let (builder, around) = match step.origin {
            Origin::Root => (builder, Surroundings::new()),
            Origin::Within(context) => (builder, Surroundings::new().with_remote_span_context(remote(context))),
            Origin::After(context) => {
                let link = Link::with_context(remote(context));
                (builder.with_links(vec![link]), Surroundings::new())
            }
        };
        let mut span = self.0.build_with_context(builder, &around);
        if let Some(error) = step.error {
            span.set_status(Status::error(error));
        }
        let context = span.span_context().clone();
        span.end_with_timestamp(step.ended.into());
        Context {
            trace: u128::from_be_bytes(context.trace_id().to_bytes()),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            is_sampled: context.is_sampled(),
        }
    }
}

fn remote(context: Context) -> SpanContext {
    let flags = match context.is_sampled {
        true => TraceFlags::SAMPLED,
        false => TraceFlags::default(),
    };
    SpanContext::new(
        TraceId::from(context.trace),
        SpanId::from(context.span),
        flags,
        true,
        TraceState::NONE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_sent_where_the_environment_names_a_collector_and_not_otherwise() {
        let named = |env: &[(&str, &str)]| {
            let env = |name: &str| {
                env.iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, text)| (*text).to_owned())
            };
            endpoint(env).map(|(_, endpoint)| endpoint)
        };
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[(ENDPOINTS[1], "")]), None);
        assert_eq!(
            named(&[(ENDPOINTS[1], "http://a:4318")]).as_deref(),
            Some("http://a:4318")
        );
        let both = [(ENDPOINTS[1], "http://a"), (ENDPOINTS[0], "http://b/v1/traces")];
        assert_eq!(named(&both).as_deref(), Some("http://b/v1/traces"));
        assert_eq!(named(&[(ENDPOINTS[1], "http://a"), (DISABLED, "true")]), None);
    }

    #[test]
    fn nothing_is_told_where_nobody_collects() {
        let traces = Traces::start("grove-operator", |_| None).unwrap();
        assert!(!traces.tracer().is_on());
    }
}
