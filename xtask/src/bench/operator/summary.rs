//! What the rounds of the operator's measurements come to, as the page tells it.

use super::super::results::{Axis, Bound, Line, Number, Plot, Section, exponent, median};
use super::growth::Growth;
use super::latency::Latency;
use super::throughput::Throughput;

const BARE: &str = "bare client";
/// What is promised for one large set.
const RATIO_MAX: f64 = 1.2;
const REQUESTS_PER_POD_MAX: f64 = 2.2;
const LARGE: [&str; 2] = ["1 x 1000", "1 x 5000"];
const EXPONENT_MAX: f64 = 1.05;
const RSS_WITH_NONE_MIB_MAX: f64 = 60.0;
const KIB_PER_POD_MAX: f64 = 3.0;

pub(super) fn operator(lives: &[Throughput], latencies: &[Latency], growths: &[Growth]) -> Vec<Section> {
    vec![
        times(lives),
        requests(lives),
        cost(lives),
        small_sets(latencies),
        growth(growths),
    ]
}

/// The rounds of each case, in the order of the first round.
fn by_case(lives: &[Throughput]) -> Vec<(&'static str, Vec<&Throughput>)> {
    let mut cases: Vec<(&'static str, Vec<&Throughput>)> = Vec::new();
    for life in lives {
        match cases.iter_mut().find(|(name, _)| *name == life.case) {
            Some((_, rounds)) => rounds.push(life),
            None => cases.push((life.case, vec![life])),
        }
    }
    cases
}

fn each<'a, T>(rounds: &'a [&'a T], of: impl Fn(&T) -> f64 + 'a) -> impl Iterator<Item = f64> + 'a {
    rounds.iter().map(move |round| of(round))
}

fn times(lives: &[Throughput]) -> Section {
    let mut numbers = Vec::new();
    for (name, rounds) in by_case(lives) {
        let is_large = LARGE.contains(&name);
        numbers.push(
            Number::new(format!("{name}: create"), "s", each(&rounds, |round| round.ungated_s))
                .against(BARE, each(&rounds, |round| round.bare_ungated_s))
                .bound(is_large.then_some(Bound::RatioAtMost(RATIO_MAX))),
        );
        for (index, act) in rounds[0].acts.iter().enumerate() {
            numbers.push(
                Number::new(
                    format!("{name}: {} {} pods", act.act, act.pods),
                    "s",
                    each(&rounds, move |round| round.acts[index].seconds),
                )
                .against(BARE, each(&rounds, move |round| round.acts[index].bare_s)),
            );
        }
    }
    Section {
        title: "Sets: create, update, scale, delete".to_owned(),
        text: "PodCliqueSets (sets × pods; `500 replicas x 2` is one set) on a real kube-apiserver and etcd without nodes: from \
               the first request until the last pod is there and its gate is off. Update changes the image of the clique: no \
               pod runs, so all are replaced at once. Scale doubles the replicas. Delete ends when the sets and all that \
               belonged to them are gone; the garbage collector's part is played by the bare client on both sides, because \
               Kubernetes' own sends 20 requests a second. The bare client makes the same objects, knows them beforehand, and \
               sends 32 requests at once."
            .to_owned(),
        numbers,
        plots: Vec::new(),
    }
}

fn requests(lives: &[Throughput]) -> Section {
    let mut numbers = Vec::new();
    for (name, rounds) in by_case(lives) {
        let first = rounds[0];
        let allowed = match LARGE.contains(&name) {
            true => REQUESTS_PER_POD_MAX,
            false => first.requests_allowed as f64 / first.pods as f64,
        };
        numbers.push(
            Number::new(
                format!("{name}: create, all verbs"),
                "a pod",
                each(&rounds, |round| round.requests_per_pod),
            )
            .bound(Bound::AtMost(allowed)),
        );
        for verb in first.requests_by_verb.keys() {
            let per_pod = move |round: &Throughput| {
                let count = round.requests_by_verb.get(verb).copied().unwrap_or(0);
                count as f64 / round.pods as f64
            };
            numbers.push(Number::new(
                format!("{name}: create, {verb}"),
                "a pod",
                each(&rounds, per_pod),
            ));
        }
        for (index, act) in first.acts.iter().enumerate() {
            let per_pod = move |round: &Throughput| round.acts[index].requests_per_pod;
            let verbs: Vec<&str> = act.requests.keys().map(String::as_str).collect();
            numbers.push(Number::new(
                format!("{name}: {} ({})", act.act, verbs.join(", ")),
                "a pod",
                each(&rounds, per_pod),
            ));
        }
        numbers.push(
            Number::new(
                format!("{name}: at rest, in five seconds"),
                "requests",
                each(&rounds, |round| round.requests_at_rest as f64),
            )
            .bound(Bound::AtMost(0.0)),
        );
    }
    Section {
        title: "Requests".to_owned(),
        text: "What the operator asks the API server for, as that counts it, for each pod that is made or deleted. Watches, the \
               lists that they begin with, and Leases are not counted; nor is what the measurement asks for itself."
            .to_owned(),
        numbers,
        plots: Vec::new(),
    }
}

fn cost(lives: &[Throughput]) -> Section {
    let mut numbers = Vec::new();
    for (name, rounds) in by_case(lives) {
        let cpu = |seconds: f64, pods: usize| seconds * 1_000.0 / pods as f64;
        let create = each(&rounds, move |round| cpu(round.cpu_s, round.pods));
        numbers.push(Number::new(format!("{name}: create, CPU for 1,000 pods"), "s", create));
        for (index, act) in rounds[0].acts.iter().enumerate() {
            let of_act = move |round: &Throughput| cpu(round.acts[index].cpu_s, round.acts[index].pods);
            let what = format!("{name}: {}, CPU for 1,000 pods", act.act);
            numbers.push(Number::new(what, "s", each(&rounds, of_act)));
        }
        for (what, of) in [
            ("at rest", (|round| round.rest_rss_mib) as fn(&Throughput) -> f64),
            ("at its peak", |round| round.peak_rss_mib),
        ] {
            let what = format!("{name}: created, memory {what}");
            numbers.push(Number::new(what, "MiB", each(&rounds, of)));
        }
    }
    Section {
        title: "CPU and memory".to_owned(),
        text: "CPU seconds of the operator's process, and its resident memory after the sets were created.".to_owned(),
        numbers,
        plots: Vec::new(),
    }
}

fn small_sets(latencies: &[Latency]) -> Section {
    let all: Vec<&Latency> = latencies.iter().collect();
    let number = |what: &str, ours: fn(&Latency) -> f64, bare: fn(&Latency) -> f64| {
        Number::new(format!("a set of 8 pods, {what}"), "ms", each(&all, ours)).against(BARE, each(&all, bare))
    };
    Section {
        title: "One small set at a time".to_owned(),
        text: format!(
            "From the creation of a set until its last gate is off, {} times in each run; the bare client, which makes the same \
             writes in the same order of dependence, takes turns with the operator.",
            latencies.first().map_or(0, |latency| latency.pairs)
        ),
        numbers: vec![
            number("p50", |round| round.operator_p50_ms, |round| round.bare_p50_ms),
            number("p99", |round| round.operator_p99_ms, |round| round.bare_p99_ms),
        ],
        plots: Vec::new(),
    }
}

fn growth(growths: &[Growth]) -> Section {
    let sizes: std::collections::BTreeSet<usize> = growths.iter().map(|growth| growth.pods).collect();
    let of_size = |size: usize| growths.iter().filter(move |growth| growth.pods == size);
    let points = |of: fn(&Growth) -> f64| -> Vec<(f64, f64)> {
        let point = |size: &usize| (*size as f64, median(of_size(*size).map(of).collect()));
        sizes.iter().map(point).collect()
    };
    let cpu: fn(&Growth) -> f64 = |growth| growth.cost.cpu_s;
    let wall: fn(&Growth) -> f64 = |growth| growth.cost.seconds;
    let asked: fn(&Growth) -> f64 = |growth| growth.cost.requests.values().sum::<u64>() as f64;
    let (smallest, largest) = (sizes.first().copied().unwrap_or(0), sizes.last().copied().unwrap_or(0));
    let fitted = |what: &str, of| {
        let what = format!("exponent of {what}, {smallest} to {largest} pods");
        Number::new(what, "", [exponent(&points(of))]).bound(Bound::AtMost(EXPONENT_MAX))
    };
    let kib = |growth: &Growth| {
        let more = growth.rss_with_all_mib - growth.rss_with_none_mib;
        more * 1024.0 / growth.pods as f64
    };
    let mut numbers = vec![
        fitted("CPU seconds", cpu),
        fitted("time", wall),
        fitted("requests", asked),
        Number::new(
            "memory with no pods, after a start",
            "MiB",
            growths.iter().map(|growth| growth.rss_with_none_mib),
        )
        .bound(Bound::AtMost(RSS_WITH_NONE_MIB_MAX)),
    ];
    for size in &sizes {
        let what = format!("memory with {size} pods, after a restart");
        numbers.push(Number::new(
            what,
            "MiB",
            of_size(*size).map(|growth| growth.rss_with_all_mib),
        ));
    }
    let what = format!("memory for each of {largest} pods, after a restart");
    numbers.push(Number::new(what, "KiB", of_size(largest).map(kib)).bound(Bound::AtMost(KIB_PER_POD_MAX)));
    let line = |name: &str, of| Line {
        name: name.to_owned(),
        points: points(of),
    };
    Section {
        title: "Growth".to_owned(),
        text: "One set of ever more pods: how time, CPU and requests of its creation grow (the exponent of the power law that \
               fits the medians best; 1 is in step with the pods), and what an operator holds in memory that starts when the \
               pods are there."
            .to_owned(),
        numbers,
        plots: vec![Plot {
            title: "Creating one set".to_owned(),
            x: Axis::log("pods"),
            y: Axis::log("seconds"),
            lines: vec![line("time", wall), line("CPU of the operator", cpu)],
        }],
    }
}
