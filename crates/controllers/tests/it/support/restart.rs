//! What an operator that starts at the end of a scenario would still write: what the one before it has overlooked.

use std::sync::Arc;
use std::time::Duration;

use grove_controllers::{Operator, Settings};
use grove_simcluster::{Cluster, User};
use tokio_util::sync::CancellationToken;

use super::{QUIET, World};

/// The next operator, by a name of its own: what it does is not the scenario's.
const NEXT: &str = "the-next-operator";
/// Virtual time that it has: more than any write waits.
const MINUTE: Duration = Duration::from_secs(60);

impl World {
    /// What the next operator would write. Nothing is asked where no operator runs, nor before things are at rest.
    pub(super) fn left_undone(&self) -> Vec<String> {
        match &self.settings {
            Some(settings) if self.operator.is_some() && self.is_at_rest() => next(&self.cluster, settings),
            _ => vec![],
        }
    }

    fn is_at_rest(&self) -> bool {
        let now = self.cluster.clock().now();
        let writes = self.history().writes();
        let last = writes.iter().map(|write| write.time).max();
        last.is_none_or(|last| now.duration_since(last).unsigned_abs() >= QUIET)
    }
}

/// Starts an operator while everything else stands still, time included, and returns what it writes.
fn next(cluster: &Arc<Cluster>, settings: &Settings) -> Vec<String> {
    let now = cluster.clock().now();
    let settings = Settings {
        clock: Arc::new(move || now),
        ..settings.clone()
    };
    let cluster = cluster.clone();
    // The runtime of the test is busy with ending it.
    let run = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let begin = cluster.store().revision();
            let operator = Operator::new(cluster.client_as(User::named(NEXT, &[])), settings);
            let stop = CancellationToken::new();
            let run = operator.run(stop.clone());
            let end = async {
                tokio::time::sleep(MINUTE).await;
                stop.cancel();
            };
            tokio::join!(run, end);
            let history = cluster.history().expect("histories of tests are recorded");
            let writes = history.writes().by_user(NEXT).after(begin);
            let word = |write: &grove_simcluster::history::Write| {
                let (resource, key) = (&write.resource.plural, &write.key);
                format!(
                    "{resource}/{} {}: {}",
                    write.subresource,
                    key.name,
                    write.after().unwrap_or_default()
                )
            };
            writes.iter().map(word).collect()
        })
    });
    run.join().expect("an operator that starts")
}
