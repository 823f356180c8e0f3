//! What processes of which only one may work have in common: they lead, and they stop when told to.

use std::future::Future;
use std::time::Duration;

use grove_api::config::LeaderElection;
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::client::Cluster;
use crate::exit::Failure;
use crate::lease::{Candidate, Terms};
use crate::metrics::Metrics;

const RELEASE_MAX: Duration = Duration::from_secs(2);

/// Does what only one replica may do, for as long as this is the one.
pub(crate) async fn lead(
    (election, cluster): (&LeaderElection, &Cluster),
    metrics: &Metrics,
    stop: &CancellationToken,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    if !election.enabled {
        tracing::info!("leader election is disabled; leading");
        metrics.set_leader(true);
        let ended = work.await;
        metrics.set_leader(false);
        return ended;
    }
    let terms = Terms::new(election, &cluster.namespace, identity(Timestamp::now()));
    let candidate = Candidate::new(cluster.lease_client.clone(), terms, Timestamp::now);
    let Some(mut leadership) = stop.run_until_cancelled(candidate.elected()).await else {
        return Ok(());
    };
    metrics.set_leader(true);
    let lost = tokio::select! {
        biased;
        lost = leadership.hold(&cluster.fence) => Err(lost),
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
pub(crate) fn stop_on_signal() -> Result<CancellationToken, Failure> {
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
