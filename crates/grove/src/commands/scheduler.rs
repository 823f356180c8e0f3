//! `grove scheduler`: binds gangs whole, for pods that name `grove-scheduler`. Ends when told to.
//!
//! It goes by the operator's configuration file, so that both mean the same topologies; without one, by its defaults.
//! Replicas share a Lease of the scheduler's own: one of them binds.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use grove_api::config::{self, ConfigError, LeaderElection, Loaded, OperatorConfiguration, Overrides};
use grove_api::rights;
use grove_scheduler::{Policy, Scheduler, Settings};
use tokio::sync::watch;

use super::operator::{complain, load, reach};
use crate::exit::{self, Failure};
use crate::http::{Servers, Stage};
use crate::leading::{lead, stop_on_signal};
use crate::logging;
use crate::metrics::Metrics;
use crate::traces::Traces;

/// The configuration of a scheduler that is given none.
const DEFAULTS: &[u8] = b"apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n";
const REQUESTS_MAX: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The OperatorConfiguration file; by default every setting has its default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The cluster to work on; by default that of the environment
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let runtime = match exit::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return exit::usage(Err(error)),
    };
    let configuration = match runtime.block_on(configuration(args)) {
        Ok(loaded) => loaded.configuration,
        Err(problems) => {
            complain(problems);
            return exit::USAGE.into();
        }
    };
    logging::init(configuration.log_level, configuration.log_format);
    match runtime.block_on(schedule(&configuration, args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            failure.exit_code()
        }
    }
}

async fn configuration(args: &Args) -> Result<Loaded, Vec<String>> {
    match &args.config {
        Some(path) => load(path, &Overrides::default()).await,
        None => {
            let told = |problems: Vec<ConfigError>| problems.iter().map(ConfigError::to_string).collect();
            config::parse(DEFAULTS, &Overrides::default()).map_err(told)
        }
    }
}

/// What a scheduler tells of itself.
pub(super) fn metrics(counts: &grove_scheduler::Metrics) -> Metrics {
    Metrics::of("scheduler", |registry| counts.register(registry))
}

/// Runs until a signal asks for the end, or until it cannot go on.
async fn schedule(configuration: &OperatorConfiguration, args: &Args) -> Result<(), Failure> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting the scheduler");
    let stop = stop_on_signal()?;
    let traces = Traces::start("grove-scheduler", |name| std::env::var(name).ok())?;
    let counts = grove_scheduler::Metrics::default();
    let metrics = metrics(&counts);
    let (stage, watched_stage) = watch::channel(Stage::Starting("the API server"));
    let servers = Servers::start(configuration, &metrics, watched_stage).await?;
    let reached = reach(configuration, args.kubeconfig.as_deref(), &metrics);
    let outcome = match stop.run_until_cancelled(reached).await {
        // Told to stop before there was anything to stop.
        None => Ok(()),
        Some(Err(failure)) => Err(failure),
        Some(Ok((cluster, _))) => {
            // A replica that does not lead is ready too: it takes over when the other one goes.
            stage.send_replace(Stage::Ready);
            let election = LeaderElection {
                // The operator has a Lease of its own.
                resource_name: rights::scheduler::LEASE.to_owned(),
                ..configuration.leader_election.clone()
            };
            let settings = Settings {
                metrics: counts,
                tracer: traces.tracer(),
                ..settings(configuration)
            };
            let scheduler = Scheduler::new(cluster.client.clone(), settings);
            let work = async {
                scheduler.run(stop.clone()).await;
                Ok(())
            };
            lead((&election, &cluster), &metrics, &stop, work).await
        }
    };
    stage.send_replace(Stage::Stopping);
    servers.stop(REQUESTS_MAX).await;
    traces.stop(REQUESTS_MAX).await;
    tracing::info!("stopped");
    outcome
}

/// What a scheduler goes by, under the operator's configuration.
pub(crate) fn settings(configuration: &OperatorConfiguration) -> Settings {
    Settings {
        policy: Policy::new(configuration),
        ..Settings::default()
    }
}
