//! What the operator tells about itself: how much there is to look at, how long that takes, how long pods were gated.
//!
//! Labels come from closed sets; no object has a series of its own. What waits is counted when somebody asks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grove_api::config::ProfileName;
use grove_runtime::{Outcome, Queue};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::key::Key;

/// From a tenth of a millisecond to twenty seconds.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 3.0, 12))
}

/// From a hundredth of a second to an hour and more: scaled gangs wait for their base.
fn long_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 4.0, 11))
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Look {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByProfile {
    profile: &'static str,
}

/// The metrics of one operator. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    waiting: Waiting,
    looks: Family<Look, Histogram, fn() -> Histogram>,
    gates: Family<ByProfile, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            waiting: Waiting::default(),
            looks: Family::new_with_constructor(seconds),
            gates: Family::new_with_constructor(long_seconds),
        }
    }
}

impl Metrics {
    /// With a series of each, for whoever lists what there is: labels are told by series only.
    pub fn with_a_series_each() -> Self {
        let metrics = Self::default();
        metrics.follow(&Arc::default());
        metrics.looked(Key::CONTROLLERS[0], &Outcome::Settled, Duration::ZERO);
        metrics.gate_lifted(ProfileName::DefaultScheduler, Duration::ZERO);
        metrics
    }

    /// Puts them where they are asked for.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.waiting.clone()));
        registry.register_with_unit(
            "grove_reconcile_duration",
            "One look at one thing, its writes included: settled, to be looked at again later, or failed",
            Unit::Seconds,
            self.looks.clone(),
        );
        registry.register_with_unit(
            "grove_gate_wait",
            "From the creation of a pod until its gate was lifted, by scheduler profile",
            Unit::Seconds,
            self.gates.clone(),
        );
    }

    /// The queue that is counted from now on.
    pub(crate) fn follow(&self, queue: &Arc<Queue<Key>>) {
        *self.waiting.queue() = Some(queue.clone());
    }

    pub(crate) fn looked(&self, controller: &'static str, outcome: &Outcome, took: Duration) {
        let result = match outcome {
            Outcome::Settled => "settled",
            Outcome::LookAgain(_) => "again",
            Outcome::Failed(_) => "failed",
        };
        let series = self.looks.get_or_create(&Look { controller, result });
        series.observe(took.as_secs_f64());
    }

    pub(crate) fn gate_lifted(&self, profile: ProfileName, wait: Duration) {
        let profile = profile.as_str();
        let series = self.gates.get_or_create(&ByProfile { profile });
        series.observe(wait.as_secs_f64());
    }
}

/// The queue, once there is one: a replica that does not lead has none.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Option<Arc<Queue<Key>>>>>);

impl Waiting {
    fn queue(&self) -> std::sync::MutexGuard<'_, Option<Arc<Queue<Key>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

impl Collector for Waiting {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(queue) = self.queue().clone() else {
            return Ok(());
        };
        let depths = queue.depths(Key::controller);
        let help = "Things that are due to be looked at and have to wait for a worker";
        let mut metric = encoder.encode_descriptor("grove_queue_depth", help, None, MetricType::Gauge)?;
        for controller in Key::CONTROLLERS {
            let depth = depths.get(controller).copied().unwrap_or(0);
            metric
                .encode_family(&ByController { controller })?
                .encode_gauge(&(depth as u64))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use grove_runtime::ObjectKey;
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn what_waits_and_what_was_looked_at_is_what_a_scrape_reads() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        let scrape = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        assert!(!scrape().contains("grove_queue_depth"), "nobody leads yet");
        let queue = Arc::new(Queue::default());
        metrics.follow(&queue);
        queue.add(Key::Clique(ObjectKey::new("ns", "a")));
        queue.add(Key::Clique(ObjectKey::new("ns", "b")));
        metrics.looked("podgang", &Outcome::Failed("x".to_owned()), Duration::from_millis(3));
        metrics.gate_lifted(ProfileName::KaiScheduler, Duration::from_secs(2));
        let text = scrape();
        for line in [
            "grove_queue_depth{controller=\"podclique\"} 2",
            "grove_queue_depth{controller=\"podgang\"} 0",
            "grove_reconcile_duration_seconds_count{controller=\"podgang\",result=\"failed\"} 1",
            "grove_gate_wait_seconds_sum{profile=\"kai-scheduler\"} 2.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
