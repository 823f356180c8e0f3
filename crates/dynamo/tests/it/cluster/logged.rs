//! What the controller writes into its log about constraints.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::topologies::{ALL, ENFORCED, LEVELS, change_topology, constrained};
use super::world::World;

/// What was logged since the beginning.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Takes everything that this thread logs, for as long as the guards live.
    ///
    /// While there is one subscriber, whether a place in the code is of interest is asked of the thread that comes there
    /// first, which may be another test's that takes nothing. Of two, both are asked; so a second one takes nothing too.
    fn start() -> (Self, (tracing::subscriber::DefaultGuard, tracing::Dispatch)) {
        let log = Self::default();
        let lines = tracing_subscriber::fmt()
            .with_writer({
                let log = log.clone();
                move || log.clone()
            })
            .with_ansi(false)
            .without_time()
            .with_max_level(tracing::Level::INFO)
            .finish();
        let second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        (log, (tracing::subscriber::set_default(lines), second))
    }

    /// Lines about constraints.
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().expect("nobody panicked").clone();
        let text = String::from_utf8(bytes).expect("text");
        let ours = text
            .lines()
            .filter(|line| line.contains("grove_dynamo") && line.contains("Topology"));
        ours.map(|line| line.trim().to_owned()).collect()
    }
}

// shows: DGD-28
#[tokio::test(start_paused = true)]
async fn constraints_are_logged_when_they_are_applied_and_when_they_stop_being_kept() {
    let (log, _guards) = Log::start();
    let world = World::start().await;
    constrained(&world).await;
    world.settle().await;
    let applied = "INFO grove_dynamo::controller::look: Topology constraints applied: deployment in one zone, Worker in one \
                   rack graph=default/g";
    assert_eq!(log.lines(), [applied]);

    change_topology(&world, &[LEVELS[0], LEVELS[2]]).await;
    world.says("g", ENFORCED, ("False", "TopologyLevelsUnavailable")).await;
    world.settle().await;
    let lost = "WARN grove_dynamo::controller::look: Topology constraints no longer enforced: Topology level 'rack' is no \
                longer available in the cluster topology graph=default/g";
    assert_eq!(log.lines(), [applied, lost]);

    change_topology(&world, &LEVELS).await;
    world.says("g", ENFORCED, ALL).await;
    world.settle().await;
    assert_eq!(log.lines().len(), 2, "what is well again is no news");
}
