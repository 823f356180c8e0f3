//! The plain HTTP servers of a running command: health, metrics, profiles. Each has its own port, ends when told to,
//! and is bound before anything else starts, so that a port in use is found at once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use grove_api::config::OperatorConfiguration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::exit::Failure;
use crate::metrics::{self, Metrics};
use crate::profile;

/// Where the process is in its life; `/readyz` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not ready; says what it waits for.
    Starting(&'static str),
    Ready,
    Stopping,
}

/// Servers that run until they are stopped.
#[derive(Debug)]
pub(crate) struct Servers {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Servers {
    /// Binds and starts every server that the configuration switches on.
    pub(crate) async fn start(
        configuration: &OperatorConfiguration,
        metrics: &Metrics,
        stage: watch::Receiver<Stage>,
    ) -> Result<Self, Failure> {
        let mut servers = Self {
            tasks: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        let server = &configuration.server;
        let (health, metrics_at) = (server.health_probes, server.metrics);
        servers
            .add(
                "server.healthProbes",
                health.bind_address.0,
                health.port,
                health_router(stage),
            )
            .await?;
        let router = metrics_router(metrics.clone());
        servers
            .add("server.metrics", metrics_at.bind_address.0, metrics_at.port, router)
            .await?;
        let debugging = &configuration.debugging;
        if debugging.enable_profiling {
            let (host, port) = (debugging.pprof_bind_host, debugging.pprof_bind_port);
            servers.add("debugging", Some(host), port, profile::router()).await?;
        }
        Ok(servers)
    }

    async fn add(&mut self, what: &str, address: Option<IpAddr>, port: u16, router: Router) -> Result<(), Failure> {
        if port == 0 {
            return Ok(());
        }
        let listener = listen(what, address, port).await?;
        let stopped = self.stop.clone().cancelled_owned();
        self.tasks.spawn(async move {
            // axum never gives up on a listener: a failed accept is retried there.
            let _ = axum::serve(listener, router).with_graceful_shutdown(stopped).await;
        });
        Ok(())
    }

    /// Lets requests in flight finish, but not for longer than `patience`.
    pub(crate) async fn stop(mut self, patience: Duration) {
        self.stop.cancel();
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all_ended).await.is_err() {
            tracing::warn!("requests were still running; dropped them");
        }
    }
}

/// Opens a socket for the server that the configuration calls `what`.
pub(crate) async fn listen(what: &str, address: Option<IpAddr>, port: u16) -> Result<TcpListener, Failure> {
    let listener = bind(address, port).await.map_err(|error| {
        let on = address.map_or_else(|| "every address".into(), |address| address.to_string());
        Failure::Usage(format!(
            "{what}: cannot listen on port {port} of {on}: {error}; choose a free one"
        ))
    })?;
    tracing::info!(server = what, port, "listening");
    Ok(listener)
}

/// Every address means both families where the host has both.
async fn bind(address: Option<IpAddr>, port: u16) -> std::io::Result<TcpListener> {
    let any = |address: IpAddr| TcpListener::bind(SocketAddr::new(address, port));
    match address {
        Some(address) => any(address).await,
        None => match any(Ipv6Addr::UNSPECIFIED.into()).await {
            Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => any(Ipv4Addr::UNSPECIFIED.into()).await,
            bound => bound,
        },
    }
}

fn health_router(stage: watch::Receiver<Stage>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(stage)
}

async fn ready(State(stage): State<watch::Receiver<Stage>>) -> Response {
    let stage = *stage.borrow();
    match stage {
        Stage::Ready => "ok\n".into_response(),
        Stage::Starting(wait) => (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {wait}\n")).into_response(),
        Stage::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response(),
    }
}

fn metrics_router(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

async fn scrape(State(metrics): State<Metrics>) -> Response {
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
