//! What the operator tells about itself: how much there is to look at, how long that takes, how long pods were gated.
//!
//! Labels come from closed sets; no object has a series of its own. What waits is counted when somebody asks.

use std::sync::Arc;
use std::time::Duration;

use grove_api::config::ProfileName;
use grove_runtime::{Looks, Outcome, Queue};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::key::Key;

/// From a hundredth of a second to an hour and more: scaled gangs wait for their base.
fn long_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 4.0, 11))
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByProfile {
    profile: &'static str,
}

/// The metrics of one operator. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    looks: Looks,
    gates: Family<ByProfile, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            looks: Looks::default(),
            gates: Family::new_with_constructor(long_seconds),
        }
    }
}

impl Metrics {
    /// With a series of each, for whoever lists what there is: labels are told by series only.
    pub fn with_a_series_each() -> Self {
        let metrics = Self::default();
        metrics.follow(&Arc::default());
        metrics
            .looks
            .looked(Key::CONTROLLERS[0], &Outcome::Settled, Duration::ZERO);
        metrics.gate_lifted(ProfileName::DefaultScheduler, Duration::ZERO);
        metrics
    }

    /// Puts them where they are asked for.
    pub fn register(&self, registry: &mut Registry) {
        self.looks.register(registry);
        registry.register_with_unit(
            "grove_gate_wait",
            "From the creation of a pod until its gate was lifted, by scheduler profile",
            Unit::Seconds,
            self.gates.clone(),
        );
    }

    /// What every controller of the process tells alike.
    pub fn looks(&self) -> &Looks {
        &self.looks
    }

    /// The queue that is counted from now on.
    pub(crate) fn follow(&self, queue: &Arc<Queue<Key>>) {
        self.looks.follow(queue, &Key::CONTROLLERS, Key::controller);
    }

    pub(crate) fn gate_lifted(&self, profile: ProfileName, wait: Duration) {
        let profile = profile.as_str();
        let series = self.gates.get_or_create(&ByProfile { profile });
        series.observe(wait.as_secs_f64());
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
        let queue = Arc::new(Queue::default());
        metrics.follow(&queue);
        queue.add(Key::Clique(ObjectKey::new("ns", "a")));
        queue.add(Key::Clique(ObjectKey::new("ns", "b")));
        metrics
            .looks()
            .looked("podgang", &Outcome::Failed("x".to_owned()), Duration::from_millis(3));
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
