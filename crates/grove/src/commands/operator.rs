//! `grove operator`: reads its configuration, finds the cluster, serves webhooks, becomes the leader, and ends when told
//! to.
//!
//! The order matters: a bad configuration ends the process before anything is written anywhere; sockets come before
//! the cluster, so that probes are answered while that is slow; every replica serves the webhooks, and everything that
//! only one may do comes after the election.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use grove_api::config::{self, ConfigError, FILE_BYTES_MAX, Loaded, OperatorConfiguration, Overrides};
use grove_controllers::Settings;
use jiff::Timestamp;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admission::{Serving, admission};
use crate::client::Cluster;
use crate::controllers;
use crate::exit::{self, Failure};
use crate::http::{self, Servers, Stage};
use crate::lease::{Candidate, Terms};
use crate::logging;
use crate::metrics::Metrics;

/// Kubernetes gives 30 s; a rollout should not need them. The parts together stay below 5 s.
const RELEASE_MAX: Duration = Duration::from_secs(2);
const REQUESTS_MAX: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The OperatorConfiguration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The cluster to work on; by default that of the environment
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Take the levels from this TopologyDomain and switch topology-aware scheduling on
    #[arg(long, value_name = "NAME")]
    topology_domain_name: Option<String>,
    /// The image that holds this program, for pods that wait for others before they start
    #[arg(long, value_name = "IMAGE", env = "GROVE_IMAGE", default_value = "grove")]
    image: String,
    /// Only judge the configuration, then exit
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain([format!(
                "cannot start the runtime: {error}; check the limits on threads and files"
            )]);
            return exit::NO_ANSWER.into();
        }
    };
    let loaded = match runtime.block_on(load(args)) {
        Ok(loaded) => loaded,
        Err(problems) => {
            complain(problems);
            return exit::USAGE.into();
        }
    };
    if args.check {
        complain(loaded.warnings.iter().map(|warning| format!("warning: {warning}")));
        // A reader that has gone away does not change the verdict.
        let _ = writeln!(std::io::stdout(), "configuration is valid");
        return ExitCode::SUCCESS;
    }
    let configuration = loaded.configuration;
    logging::init(configuration.log_level, configuration.log_format);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match runtime.block_on(operate(&configuration, args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            failure.exit_code()
        }
    }
}

fn complain(lines: impl IntoIterator<Item = impl AsRef<str>>) {
    for line in lines {
        let _ = writeln!(std::io::stderr(), "{}", line.as_ref());
    }
}

async fn load(args: &Args) -> Result<Loaded, Vec<String>> {
    let path = args.config.display();
    let mut content = Vec::new();
    let read = async {
        let file = tokio::fs::File::open(&args.config).await?;
        // One byte more than is allowed is enough to see that the file is too large.
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content).await
    };
    if let Err(error) = read.await {
        return Err(vec![format!(
            "cannot read configuration file {path}: {error}; check --config"
        )]);
    }
    let overrides = Overrides {
        topology_domain_name: args.topology_domain_name.clone(),
    };
    config::parse(&content, &overrides).map_err(|problems| problems.iter().map(ConfigError::to_string).collect())
}

/// Runs until a signal asks for the end, or until it cannot go on.
async fn operate(configuration: &OperatorConfiguration, args: &Args) -> Result<(), Failure> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
    let stop = stop_on_signal()?;
    let metrics = Metrics::new();
    let (stage, watched_stage) = watch::channel(Stage::Starting("the API server"));
    let servers = Servers::start(configuration, &metrics, watched_stage).await?;

    let address = configuration.server.webhooks.listener;
    let webhooks = http::listen("server.webhooks", address.bind_address.0, address.port).await?;

    let mut serving = None;
    let outcome = match stop.run_until_cancelled(reach(configuration, args)).await {
        // Told to stop before there was anything to stop.
        None => Ok(()),
        Some(Err(failure)) => Err(failure),
        Some(Ok((cluster, user))) => {
            stage.send_replace(Stage::Starting("the webhooks"));
            let serving = serving.insert(Serving::start(admission(configuration, &cluster, &user), webhooks));
            match stop.run_until_cancelled(serving.ready()).await {
                None => Ok(()),
                Some(Err(failure)) => Err(failure),
                Some(Ok(())) => {
                    // Replicas that do not lead are ready too: they serve the webhooks.
                    stage.send_replace(Stage::Ready);
                    let settings = controllers::settings(configuration, &args.image);
                    lead(configuration, &cluster, (settings, &metrics), &stop).await
                }
            }
        }
    };
    stage.send_replace(Stage::Stopping);
    let webhooks_stop = async {
        if let Some(serving) = serving {
            serving.stop(REQUESTS_MAX).await;
        }
    };
    tokio::join!(servers.stop(REQUESTS_MAX), webhooks_stop);
    tracing::info!("stopped");
    outcome
}

/// The cluster, and who we are to it.
async fn reach(configuration: &OperatorConfiguration, args: &Args) -> Result<(Cluster, String), Failure> {
    // The only provider in the binary; it can be installed already when commands share a process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::connect(args.kubeconfig.as_deref(), &configuration.runtime_client_connection).await?;
    let user = cluster.own_user().await?;
    tracing::info!(address = cluster.address, user, "reached the API server");
    Ok((cluster, user))
}

/// Does what only one replica may do, for as long as this is the one.
async fn lead(
    configuration: &OperatorConfiguration,
    cluster: &Cluster,
    (settings, metrics): (Settings, &Metrics),
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let election = &configuration.leader_election;
    let work = controllers::run(cluster.client.clone(), settings, stop.clone());
    if !election.enabled {
        tracing::info!("leader election is disabled; leading");
        metrics.set_leader(true);
        let ended = work.await;
        metrics.set_leader(false);
        return ended;
    }
    let terms = Terms::new(election, &cluster.namespace, identity(Timestamp::now()));
    let candidate = Candidate::new(cluster.client.clone(), terms, Timestamp::now);
    let Some(mut leadership) = stop.run_until_cancelled(candidate.elected()).await else {
        return Ok(());
    };
    metrics.set_leader(true);
    let lost = tokio::select! {
        lost = leadership.hold() => Err(lost),
        ended = work => Ok(ended),
    };
    metrics.set_leader(false);
    match lost {
        Ok(ended) => {
            leadership.release(RELEASE_MAX).await;
            ended
        }
        // Another process starts clean; what this one believes about the cluster may be out of date.
        Err(lost) => Err(Failure::NoAnswer(format!(
            "{lost}; ending, so that a fresh start can lead again"
        ))),
    }
}

/// A name that no other replica has, nor this one after a restart: in a pod the host name is the pod's.
fn identity(started_at: Timestamp) -> String {
    let host = gethostname::gethostname();
    format!(
        "{}_{}_{}",
        host.to_string_lossy(),
        std::process::id(),
        started_at.as_nanosecond()
    )
}

/// A token that SIGTERM or SIGINT cancels. From here on neither kills the process.
fn stop_on_signal() -> Result<CancellationToken, Failure> {
    let refused = |error| Failure::NoAnswer(format!("cannot listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
        stopped.cancel();
    });
    Ok(stop)
}
