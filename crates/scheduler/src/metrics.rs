//! What a scheduler tells about itself: who waits and why, how long decisions and binds take.
//!
//! Labels come from closed sets; no gang, pod, node or namespace has a series of its own. The counts are taken by whoever
//! runs the loop, between two decisions.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::core::Census;

/// From a tenth of a millisecond to six seconds.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 3.0, 11))
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReason {
    state: &'static str,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

/// The metrics of one scheduler. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    queue: Family<ByState, Gauge>,
    gangs: Family<ByReason, Gauge>,
    oldest_pending: Gauge,
    placements: Family<ByResult, Histogram, fn() -> Histogram>,
    binds: Family<ByResult, Histogram, fn() -> Histogram>,
    evictions: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            queue: Family::default(),
            gangs: Family::default(),
            oldest_pending: Gauge::default(),
            placements: Family::new_with_constructor(seconds),
            binds: Family::new_with_constructor(seconds),
            evictions: Counter::default(),
        }
    }
}

impl Metrics {
    /// Puts them where they are asked for.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "grove_scheduler_queue_depth",
            "Gangs and single pods that are ready to be tried, parked until something helps, or backing off",
            self.queue.clone(),
        );
        registry.register(
            "grove_gangs",
            "Gangs by what the scheduler last said of them",
            self.gangs.clone(),
        );
        registry.register_with_unit(
            "grove_oldest_pending_gang",
            "Age of the oldest gang that is not placed",
            Unit::Seconds,
            self.oldest_pending.clone(),
        );
        registry.register_with_unit(
            "grove_placement_duration",
            "One decision: a try to place a gang, or finding out why it does not fit",
            Unit::Seconds,
            self.placements.clone(),
        );
        registry.register_with_unit(
            "grove_bind_duration",
            "From sending a bind to its answer, repetitions included",
            Unit::Seconds,
            self.binds.clone(),
        );
        registry.register(
            "grove_preemption_evictions",
            "Pods that were asked to make room for a gang of higher priority",
            self.evictions.clone(),
        );
    }

    pub(crate) fn decided(&self, result: &'static str, took: Duration) {
        let series = self.placements.get_or_create(&ByResult { result });
        series.observe(took.as_secs_f64());
    }

    pub(crate) fn bind_ended(&self, result: &'static str, took: Duration) {
        let series = self.binds.get_or_create(&ByResult { result });
        series.observe(took.as_secs_f64());
    }

    pub(crate) fn evicts(&self) {
        self.evictions.inc();
    }

    /// Shows who waits, and nobody who does not any more.
    pub(crate) fn show(&self, census: &Census) {
        for (state, units) in [
            ("ready", census.ready),
            ("parked", census.parked),
            ("backoff", census.backing_off),
        ] {
            self.queue.get_or_create(&ByState { state }).set(count(units));
        }
        self.gangs.clear();
        for ((state, reason), gangs) in &census.gangs {
            let (state, reason) = (*state, reason.clone());
            self.gangs.get_or_create(&ByReason { state, reason }).set(count(*gangs));
        }
        self.oldest_pending.set(census.oldest_pending_s);
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn what_is_shown_is_what_a_scrape_reads() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        let mut census = Census {
            ready: 1,
            parked: 2,
            oldest_pending_s: 9,
            ..Census::default()
        };
        census.gangs.insert(("pending", "TooLarge".to_owned()), 2);
        metrics.show(&census);
        metrics.decided("placed", Duration::from_millis(2));
        metrics.evicts();
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "grove_scheduler_queue_depth{state=\"parked\"} 2",
            "grove_scheduler_queue_depth{state=\"backoff\"} 0",
            "grove_gangs{state=\"pending\",reason=\"TooLarge\"} 2",
            "grove_oldest_pending_gang_seconds 9",
            "grove_placement_duration_seconds_count{result=\"placed\"} 1",
            "grove_preemption_evictions_total 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        census.gangs.clear();
        metrics.show(&census);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(!text.contains("TooLarge"), "{text}");
    }
}
