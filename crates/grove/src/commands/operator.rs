//! `grove operator`: reads its configuration, finds the cluster, serves webhooks, becomes the leader, and ends when told
//! to.
//!
//! The order matters: a bad configuration ends the process before anything is written anywhere; sockets come before
//! the cluster, so that probes are answered while that is slow; every replica serves the webhooks, and everything that
//! only one may do comes after the election. Outside a cluster that includes registering the webhooks: each replica has
//! an address of its own there.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use grove_api::config::{self, ConfigError, FILE_BYTES_MAX, Loaded, OperatorConfiguration, Overrides, ProfileName};
use grove_controllers::Settings;
use grove_web::Page;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::{Serving, admission};
use crate::client::Cluster;
use crate::controllers::{self, Telemetry};
use crate::exit::{self, Failure};
use crate::http::{self, Servers, Stage};
use crate::leading::{lead, stop_on_signal};
use crate::logging;
use crate::metrics::Metrics;
use crate::target::Target;
use crate::traces::Traces;

/// Kubernetes gives 30 s; a rollout should not need them. With the release of the lease it stays below 5 s.
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
    let overrides = Overrides {
        topology_domain_name: args.topology_domain_name.clone(),
    };
    let loaded = match runtime.block_on(load(&args.config, &overrides)) {
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

pub(super) fn complain(lines: impl IntoIterator<Item = impl AsRef<str>>) {
    for line in lines {
        let _ = writeln!(std::io::stderr(), "{}", line.as_ref());
    }
}

/// Reads the configuration file; all that is wrong with it, otherwise.
pub(super) async fn load(path: &Path, overrides: &Overrides) -> Result<Loaded, Vec<String>> {
    let mut content = Vec::new();
    let read = async {
        let file = tokio::fs::File::open(path).await?;
        // One byte more than is allowed is enough to see that the file is too large.
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content).await
    };
    if let Err(error) = read.await {
        return Err(vec![format!(
            "cannot read configuration file {}: {error}; check --config",
            path.display()
        )]);
    }
    config::parse(&content, overrides).map_err(|problems| problems.iter().map(ConfigError::to_string).collect())
}

/// What an operator tells of itself; one that places gangs tells of that too.
pub(super) fn metrics(telemetry: &Telemetry, places: bool) -> Metrics {
    Metrics::of("operator", |registry| {
        telemetry.operator.metrics.register(registry);
        telemetry.admission.register(registry);
        if places {
            telemetry.placing.register(registry);
        }
    })
}

/// Runs until a signal asks for the end, or until it cannot go on.
async fn operate(configuration: &OperatorConfiguration, args: &Args) -> Result<(), Failure> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
    let stop = stop_on_signal()?;
    let traces = Traces::start("grove-operator", |name| std::env::var(name).ok())?;
    let mut telemetry = Telemetry::default();
    telemetry.operator.tracer = traces.tracer();
    let metrics = metrics(&telemetry, configuration.scheduler.has(ProfileName::DefaultScheduler));
    let (stage, watched_stage) = watch::channel(Stage::Starting("the API server"));
    let servers = Servers::start(configuration, &metrics, watched_stage).await?;

    let address = configuration.server.webhooks.listener;
    let webhooks = http::listen("server.webhooks", address.bind_address.0, address.port).await?;

    let page = match configuration.ui.enabled {
        true => Some(http::listen("ui", Some(Ipv4Addr::LOCALHOST.into()), configuration.ui.port).await?),
        false => None,
    };

    let mut serving = None;
    let mut reading = JoinSet::new();
    let outcome = match stop.run_until_cancelled(settle(configuration, args, &metrics)).await {
        // Told to stop before there was anything to stop.
        None => Ok(()),
        Some(Err(failure)) => Err(failure),
        Some(Ok((cluster, user, settings))) => {
            if let Some(listener) = page {
                // Every replica has a page: it reads only.
                let page = Page::new(cluster.client.clone(), stop.clone());
                reading.spawn(async move { page.serve(listener).await });
            }
            stage.send_replace(Stage::Starting("the webhooks"));
            let admission = admission(configuration, &settings.topology, (&cluster, &user));
            let stands_by = configuration.leader_election.enabled && !cluster.is_inside;
            let answering = grove_admission::Telemetry {
                metrics: telemetry.admission.clone(),
                tracer: traces.tracer(),
                ..grove_admission::Telemetry::default()
            };
            let serving = serving.insert(match stands_by {
                true => Serving::stand_by(admission, webhooks, answering),
                false => Serving::start(admission, webhooks, answering),
            });
            match stop.run_until_cancelled(serving.ready()).await {
                None => Ok(()),
                Some(Err(failure)) => Err(failure),
                Some(Ok(())) => {
                    // Replicas that do not lead are ready too: they serve the webhooks, or stand by to.
                    stage.send_replace(Stage::Ready);
                    let work = async {
                        match stop.run_until_cancelled(serving.lead()).await {
                            Some(Ok(())) => {
                                let what = (configuration, settings, telemetry);
                                controllers::run(cluster.client.clone(), what, stop.clone()).await
                            }
                            ended => ended.unwrap_or(Ok(())),
                        }
                    };
                    lead((&configuration.leader_election, &cluster), &metrics, &stop, work).await
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
    // What ended may not have been the signal.
    stop.cancel();
    let page_stop = tokio::time::timeout(REQUESTS_MAX, reading.join_next());
    let (_, _, page_stop) = tokio::join!(servers.stop(REQUESTS_MAX), webhooks_stop, page_stop);
    if page_stop.is_err() {
        tracing::warn!("the page was still being read; ended it");
    }
    traces.stop(REQUESTS_MAX).await;
    tracing::info!("stopped");
    outcome
}

/// The cluster, and who we are to it.
pub(super) async fn reach(
    configuration: &OperatorConfiguration,
    kubeconfig: Option<&Path>,
    metrics: &Metrics,
) -> Result<(Cluster, String), Failure> {
    // The only provider in the binary; it can be installed already when commands share a process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let target = Target::of(kubeconfig);
    let cluster = Cluster::connect(&target, &configuration.runtime_client_connection, &metrics.writes).await?;
    let user = cluster.own_user().await?;
    tracing::info!(address = cluster.address, user, "reached the API server");
    Ok((cluster, user))
}

/// The same, with the settings that are in force there.
async fn settle(
    configuration: &OperatorConfiguration,
    args: &Args,
    metrics: &Metrics,
) -> Result<(Cluster, String, Settings), Failure> {
    let (cluster, user) = reach(configuration, args.kubeconfig.as_deref(), metrics).await?;
    let settings = controllers::settings(configuration, &args.image);
    let settings = grove_controllers::settle(&cluster.client, settings).await?;
    Ok((cluster, user, settings))
}
