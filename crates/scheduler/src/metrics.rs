//! What a scheduler tells about itself: who waits and why, how well gangs lie, how much room is left, how long decisions
//! and binds take.
//!
//! Labels come from closed sets; no gang, pod, node or namespace has a series of its own. Everybody is counted by whoever
//! runs the loop, between two decisions; a scrape reads the last count as a whole, and how old it is by now.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grove_kubeplace::rooms::{SIZES, TopologyRoom};
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::core::Census;

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// From a tenth of a millisecond to six seconds.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 3.0, 11))
}

/// From a tenth of a second to three days: gangs wait for room.
fn long_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 4.0, 12))
}

/// From one domain to a quarter of a million.
fn domains() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 4.0, 10))
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByProfile {
    profile: String,
}

/// The metrics of one scheduler. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    counted: Counted,
    placements: Family<ByResult, Histogram, fn() -> Histogram>,
    visited: Family<ByResult, Histogram, fn() -> Histogram>,
    binds: Family<ByResult, Histogram, fn() -> Histogram>,
    waits: Family<ByProfile, Histogram, fn() -> Histogram>,
    evictions: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::with_clock(Arc::new(Timestamp::now))
    }
}

impl Metrics {
    /// For a scheduler that goes by this clock.
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            counted: Counted {
                census: Arc::default(),
                clock,
            },
            placements: Family::new_with_constructor(seconds),
            visited: Family::new_with_constructor(domains),
            binds: Family::new_with_constructor(seconds),
            waits: Family::new_with_constructor(long_seconds),
            evictions: Counter::default(),
        }
    }

    /// With a series of each, for whoever lists what there is: labels are told by series only.
    pub fn with_a_series_each() -> Self {
        let metrics = Self::default();
        let mut census = Census::default();
        census.gangs.insert(("pending", "Queued".to_owned()), 0);
        census.pending_since.insert("Queued".to_owned(), Timestamp::UNIX_EPOCH);
        census.preferred.insert("rack".to_owned(), (1, 1));
        census.rooms.push(TopologyRoom {
            name: "t".to_owned(),
            slots: vec![("rack".to_owned(), Default::default())],
            ..TopologyRoom::default()
        });
        metrics.show(census);
        metrics.decided("placed", Duration::ZERO, Some(0));
        metrics.bind_ended("bound", Duration::ZERO);
        metrics.waited("default-scheduler", Duration::ZERO);
        metrics
    }

    /// Puts them where they are asked for.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.counted.clone()));
        registry.register_with_unit(
            "grove_placement_duration",
            "One decision: a try to place a gang, or finding out why it does not fit",
            Unit::Seconds,
            self.placements.clone(),
        );
        registry.register(
            "grove_placement_domains_visited",
            "Domains that were weighed for one decision: how much work it was, whatever the machine",
            self.visited.clone(),
        );
        registry.register_with_unit(
            "grove_bind_duration",
            "From sending a bind to its answer, repetitions included",
            Unit::Seconds,
            self.binds.clone(),
        );
        registry.register_with_unit(
            "grove_gang_wait",
            "From the creation of a PodGang until it was first said to be placed whole, by scheduler profile",
            Unit::Seconds,
            self.waits.clone(),
        );
        registry.register(
            "grove_preemption_evictions",
            "Pods that were asked to make room for a gang of higher priority",
            self.evictions.clone(),
        );
    }

    pub(crate) fn decided(&self, result: &'static str, took: Duration, visited: Option<u64>) {
        let series = self.placements.get_or_create(&ByResult { result });
        series.observe(took.as_secs_f64());
        if let Some(visited) = visited {
            self.visited.get_or_create(&ByResult { result }).observe(visited as f64);
        }
    }

    pub(crate) fn bind_ended(&self, result: &'static str, took: Duration) {
        let series = self.binds.get_or_create(&ByResult { result });
        series.observe(took.as_secs_f64());
    }

    pub(crate) fn waited(&self, profile: &str, wait: Duration) {
        let profile = profile.to_owned();
        let series = self.waits.get_or_create(&ByProfile { profile });
        series.observe(wait.as_secs_f64());
    }

    pub(crate) fn evicts(&self) {
        self.evictions.inc();
    }

    /// Shows who waits, and nobody who does not any more.
    pub(crate) fn show(&self, census: Census) {
        *self.counted.census.lock().unwrap_or_else(PoisonError::into_inner) = Some(census);
    }
}

/// What a scrape reads of the last count. Before the first one there is nothing to read: a replica that does not lead
/// knows of nobody.
#[derive(Clone)]
struct Counted {
    census: Arc<Mutex<Option<Census>>>,
    clock: Clock,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let census = self.census.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(census) = census else { return Ok(()) };
        let mut gauges = Gauges(&mut encoder);
        gangs(&mut gauges, &census, (self.clock)())?;
        quality(&mut gauges, &census)?;
        rooms(&mut gauges, &census.rooms)
    }
}

fn gangs(gauges: &mut Gauges<'_, '_>, census: &Census, now: Timestamp) -> fmt::Result {
    let units = [
        ("ready", census.ready),
        ("parked", census.parked),
        ("backoff", census.backing_off),
    ];
    gauges.show(
        "grove_scheduler_queue_depth",
        "Gangs and single pods that are ready to be tried, parked until something helps, or backing off",
        units.map(|(state, units)| ([("state", state.to_owned())], units as f64)),
    )?;
    let gangs = census.gangs.iter();
    gauges.show(
        "grove_gangs",
        "Gangs by what the scheduler last said of them",
        gangs.map(|((state, reason), gangs)| {
            let labels = [("state", (*state).to_owned()), ("reason", reason.clone())];
            (labels, *gangs as f64)
        }),
    )?;
    let age = |since: Timestamp| now.duration_since(since).as_secs_f64().max(0.0);
    let pending = census.pending_since.iter();
    gauges.show(
        "grove_oldest_pending_gang_seconds",
        "Age of the oldest gang that is not placed, by the reason that it was last given",
        pending.map(|(reason, since)| ([("reason", reason.clone())], age(*since))),
    )
}

fn quality(gauges: &mut Gauges<'_, '_>, census: &Census) -> fmt::Result {
    let preferred = census.preferred.iter().filter(|(_, (_, all))| *all > 0);
    gauges.show(
        "grove_preferred_met_ratio",
        "Of the scopes of placed gangs that prefer a level, the share that lies in one domain of it",
        preferred.map(|(level, (met, all))| ([("level", level.clone())], *met as f64 / *all as f64)),
    )?;
    // A level that nobody breaks is told too: zero is the news that is hoped for.
    let levels = census.rooms.iter().flat_map(|room| &room.slots).map(|(word, _)| word);
    let levels: std::collections::BTreeSet<&String> = levels.chain(census.violated.keys()).collect();
    gauges.show(
        "grove_required_violations",
        "Scopes of placed gangs that require a level and lie in several domains of it: the constraint came after the pods",
        levels.into_iter().map(|level| {
            let violations = census.violated.get(level).copied().unwrap_or(0);
            ([("level", level.clone())], violations as f64)
        }),
    )
}

fn rooms(gauges: &mut Gauges<'_, '_>, rooms: &[TopologyRoom]) -> fmt::Result {
    let slots = rooms.iter().flat_map(|room| {
        let levels = room.slots.iter();
        levels.flat_map(|(level, slots)| {
            slots.iter().zip(SIZES).map(|(slots, hosts)| {
                let labels = [
                    ("topology", room.name.clone()),
                    ("level", level.clone()),
                    ("hosts", hosts.to_string()),
                ];
                (labels, *slots as f64)
            })
        })
    });
    gauges.show(
        "grove_topology_slots",
        "Gangs of this many whole hosts for which there is room in one domain of the level, each alone",
        slots,
    )?;
    let by_state = |read: fn(&TopologyRoom) -> Vec<(&'static str, u64)>| {
        rooms.iter().flat_map(move |room| {
            let labels = |state: &str| [("topology", room.name.clone()), ("state", state.to_owned())];
            let states = read(room).into_iter();
            states.map(move |(state, count)| (labels(state), count as f64))
        })
    };
    gauges.show(
        "grove_topology_gpus",
        "GPUs of a topology's nodes: used by pods, free, on nodes that take no pods, on nodes that lack a label",
        by_state(|room| {
            let gpus = room.gpus;
            vec![
                ("used", gpus.used),
                ("free", gpus.free),
                ("unavailable", gpus.unavailable),
                ("unlabelled", gpus.unlabelled),
            ]
        }),
    )?;
    gauges.show(
        "grove_topology_nodes",
        "Nodes of a topology: ready for pods, cordoned or in trouble (unavailable), lacking one of its labels",
        by_state(|room| {
            let hosts = room.hosts;
            vec![
                ("ready", hosts.ready),
                ("unavailable", hosts.unavailable),
                ("unlabelled", hosts.unlabelled),
            ]
        }),
    )
}

/// Writes gauges into a scrape.
struct Gauges<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Gauges<'_, '_> {
    fn show<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = ([(&'static str, String); N], f64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use grove_kubeplace::rooms::{Gpus, Hosts};
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn scrape(metrics: &Metrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    fn census() -> Census {
        let mut census = Census {
            ready: 1,
            parked: 2,
            ..Census::default()
        };
        census.gangs.insert(("pending", "TooLarge".to_owned()), 2);
        census
            .pending_since
            .insert("TooLarge".to_owned(), Timestamp::UNIX_EPOCH);
        census.preferred.insert("rack".to_owned(), (3, 4));
        census.rooms.push(TopologyRoom {
            name: "t".to_owned(),
            slots: vec![("rack".to_owned(), [7, 3, 1, 0, 0, 0, 0])],
            gpus: Gpus {
                used: 5,
                ..Gpus::default()
            },
            hosts: Hosts {
                unlabelled: 6,
                ..Hosts::default()
            },
        });
        census
    }

    #[test]
    fn what_is_shown_is_what_a_scrape_reads() {
        let metrics = Metrics::with_clock(Arc::new(|| Timestamp::from_second(9).unwrap()));
        assert!(!scrape(&metrics).contains("grove_gangs"), "nobody was counted yet");
        metrics.show(census());
        metrics.decided("placed", Duration::from_millis(2), Some(12));
        metrics.waited("grove-scheduler", Duration::from_secs(3));
        metrics.evicts();
        let text = scrape(&metrics);
        for line in [
            "grove_scheduler_queue_depth{state=\"parked\"} 2.0",
            "grove_scheduler_queue_depth{state=\"backoff\"} 0.0",
            "grove_gangs{state=\"pending\",reason=\"TooLarge\"} 2.0",
            "grove_oldest_pending_gang_seconds{reason=\"TooLarge\"} 9.0",
            "grove_placement_duration_seconds_count{result=\"placed\"} 1",
            "grove_placement_domains_visited_sum{result=\"placed\"} 12.0",
            "grove_gang_wait_seconds_sum{profile=\"grove-scheduler\"} 3.0",
            "grove_preemption_evictions_total 1",
            "grove_preferred_met_ratio{level=\"rack\"} 0.75",
            "grove_required_violations{level=\"rack\"} 0.0",
            "grove_topology_slots{topology=\"t\",level=\"rack\",hosts=\"4\"} 1.0",
            "grove_topology_gpus{topology=\"t\",state=\"used\"} 5.0",
            "grove_topology_nodes{topology=\"t\",state=\"unlabelled\"} 6.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let gone = Census {
            gangs: Default::default(),
            ..census()
        };
        metrics.show(gone);
        assert!(!scrape(&metrics).contains("grove_gangs{"));
    }
}
