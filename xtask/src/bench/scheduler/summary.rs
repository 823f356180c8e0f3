//! What the rounds of the scheduler's measurements come to, as the page tells it.

use super::super::results::{Axis, Bound, Line, Number, Plot, Section, median};
use super::Row;
use super::rate::Round;
use super::sweep::{Swept, Used};
use super::wait;

const BARE: &str = "bare client";
const KUBE: &str = "kube-scheduler";
const BARE_RATE_MIN: f64 = 0.8;
const KUBE_RATE_MIN: f64 = 1.0;
const KUBE_COST_MAX: f64 = 0.5;
const LARGE_GANG_MAX: f64 = 1.3;
/// Beyond what the API server takes itself.
const IDLE_MAX_MS: f64 = 50.0;
const BESIDE_HOPELESS_MAX_MS: f64 = 100.0;
/// Pods of the gang whose time is promised.
const LARGE_GANG: usize = 1_000;

pub(super) fn scheduler(rows: &[Row], swept: &[Swept], used: &[Used]) -> Vec<Section> {
    vec![rates(rows), waits(rows), gangs(swept, used)]
}

fn rates(rows: &[Row]) -> Section {
    let mut numbers = Vec::new();
    for row in rows.iter().filter(|row| !row.rounds.is_empty()) {
        let each = |of: fn(&Round) -> f64| row.rounds.iter().map(of);
        let named = |what: &str| format!("{} nodes, {} gangs of 8 in a rack: {what}", row.nodes, row.gangs);
        let rate = || Number::new(named("binds"), "pods/s", each(|round| round.pods_per_s));
        numbers.extend([
            rate()
                .against(BARE, each(|round| round.bare_pods_per_s))
                .bound(Bound::RatioAtLeast(BARE_RATE_MIN)),
            rate()
                .against(KUBE, each(|round| round.kube_pods_per_s))
                .bound(Bound::RatioAtLeast(KUBE_RATE_MIN)),
            Number::new(named("CPU"), "s", each(|round| round.cpu_s))
                .against(KUBE, each(|round| round.kube_cpu_s))
                .bound(Bound::RatioAtMost(KUBE_COST_MAX)),
            Number::new(named("peak memory"), "MiB", each(|round| round.peak_rss_mib))
                .against(KUBE, each(|round| round.kube_peak_rss_mib))
                .bound(Bound::RatioAtMost(KUBE_COST_MAX)),
        ]);
    }
    Section {
        title: "Many gangs at once".to_owned(),
        text: "Pods bound in a second between the first bind and the last, on a real kube-apiserver and etcd whose nodes are \
               objects only. The three take turns: the scheduler with gangs, kube-scheduler 1.36 with the same pods and \
               without gangs, and a client that decides nothing and sends 64 binds at once. CPU and memory are of the whole \
               process, its start included."
            .to_owned(),
        numbers,
        plots: Vec::new(),
    }
}

fn waits(rows: &[Row]) -> Section {
    let mut numbers = Vec::new();
    for row in rows.iter().filter(|row| row.rounds.is_empty()) {
        let named = |what: &str| format!("{}, {} nodes: {what}", row.case, row.nodes);
        let is_idle = row.case == wait::IDLE;
        let mut compare = |what: &str, ours: Option<f64>, bare: Option<f64>, bound: Option<Bound>| {
            if let (Some(ours), Some(bare)) = (ours, bare) {
                let number = Number::new(named(what), "ms", [ours]).against(BARE, [bare]);
                numbers.push(number.bound(bound));
            }
        };
        let beside = Bound::AtMost(BESIDE_HOPELESS_MAX_MS);
        compare("p50", row.p50_ms, row.bare_p50_ms, (!is_idle).then_some(beside));
        compare("p99", row.p99_ms, row.bare_p99_ms, None);
        if let (Some(ours), Some(bare), true) = (row.p50_ms, row.bare_p50_ms, is_idle) {
            let over = Number::new(named("p50 over the bare client"), "ms", [ours - bare]);
            numbers.push(over.bound(Bound::AtMost(IDLE_MAX_MS)));
        }
    }
    Section {
        title: "One gang at a time, pods included".to_owned(),
        text: "From the creation of the first of eight pods until all are bound: on a cluster where nothing else happens, and \
               beside gangs that wait for room that there is not."
            .to_owned(),
        numbers,
        plots: Vec::new(),
    }
}

fn gangs(swept: &[Swept], used: &[Used]) -> Section {
    let mut numbers = Vec::new();
    for Swept {
        nodes,
        pods,
        gangs,
        grove_ms,
        bare_ms,
    } in swept
    {
        for (index, percentile) in ["p50", "p99"].into_iter().enumerate() {
            let is_promised = *pods == LARGE_GANG && index == 0;
            numbers.push(
                Number::new(
                    format!("{nodes} nodes, gang of {pods}: {percentile} of {gangs}"),
                    "ms",
                    grove_ms.iter().map(|round| round[index]),
                )
                .against(BARE, bare_ms.iter().map(|round| round[index]))
                .bound(is_promised.then_some(Bound::RatioAtMost(LARGE_GANG_MAX))),
            );
        }
    }
    for Used { nodes, usage } in used {
        numbers.push(Number::new(
            format!("{nodes} nodes, all gangs: CPU"),
            "s",
            [usage.cpu_s],
        ));
        let what = format!("{nodes} nodes, all gangs: peak memory");
        numbers.push(Number::new(what, "MiB", [usage.peak_rss_mib]));
    }
    let clusters: std::collections::BTreeSet<usize> = swept.iter().map(|swept| swept.nodes).collect();
    let line = |nodes: usize, name: String, of: fn(&Swept) -> &Vec<[f64; 2]>| Line {
        name,
        points: swept
            .iter()
            .filter(|swept| swept.nodes == nodes)
            .map(|swept| {
                (
                    swept.pods as f64,
                    median(of(swept).iter().map(|round| round[0]).collect()),
                )
            })
            .collect(),
    };
    let lines = clusters.iter().flat_map(|nodes| {
        [
            line(*nodes, format!("{nodes} nodes"), |swept| &swept.grove_ms),
            line(*nodes, format!("{nodes} nodes, bare client"), |swept| &swept.bare_ms),
        ]
    });
    Section {
        title: "From a whole gang to its last bind".to_owned(),
        text: "The pods of a gang are there; then the PodGang is made, which makes it whole. Measured until the last pod is seen \
               bound. The bare client makes the same PodGang and binds to places that it knows, 64 at once."
            .to_owned(),
        numbers,
        plots: vec![Plot {
            title: "From a whole gang to its last bind, p50".to_owned(),
            x: Axis::log("pods of the gang"),
            y: Axis::log("ms"),
            lines: lines.collect(),
        }],
    }
}
