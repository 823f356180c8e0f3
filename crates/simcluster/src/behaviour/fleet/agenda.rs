//! What will happen on the fleet's nodes, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::Key;

/// Longest time that anything is put off.
const DELAY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What a kubelet does for a pod without interruption. A node that goes down, a deletion, another pod of that name:
/// each begins another run, and what was due in the earlier one does not happen any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run(pub(super) u64);

/// Something that will happen.
#[derive(Clone, Debug)]
pub(super) enum Due {
    /// A kubelet's next step for a pod.
    Step { pod: Key, run: Run, step: Step },
    /// The control plane gives up the node that went down then.
    NodeLost { node: String, since: Instant },
    /// The pod may not stay any longer on the node that went down then.
    Evict { pod: Key, uid: String, since: Instant },
    /// The pod's node is gone.
    Collect { pod: Key, uid: String },
}

/// What a kubelet does next for a pod.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Starts this init container, or (one past the last) the containers.
    Start { init: usize },
    /// An init container has ended.
    InitEnds { init: usize, code: i64 },
    /// The containers are ready.
    Ready,
    /// Starts a crashed container again.
    Restart { container: String },
    /// The containers have ended.
    Stop,
}

/// Everything that is due, in order of time and then of arrival.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    due: BTreeMap<(Instant, u64), Due>,
    sequence: u64,
}

impl Agenda {
    pub(super) fn after(&mut self, delay: Duration, due: Due) {
        self.sequence += 1;
        // What is further away than anybody waits must not overflow the clock.
        let at = Instant::now() + delay.min(DELAY_MAX);
        self.due.insert((at, self.sequence), due);
    }

    /// When the next thing is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    pub(super) fn pop(&mut self) -> Option<Due> {
        self.due.pop_first().map(|(_, due)| due)
    }
}
