//! Everything together on the embedded cluster: sets become gangs, gangs find their racks, pods run. A client that makes
//! the same writes, places known, does it on a cluster of its own.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use grove_api::PodCliqueSet;
use kube::api::{Api, PostParams};

use super::bare::{self, Copies, WORKERS, create_namespace};
use super::embedded::{Embedded, GANG_PODS, NAMESPACE, Sizes, set_of_gangs};
use super::follow::Follower;
use super::metrics::{quantile, sum};
use super::process::Usage;
use super::results::{Axis, Bound, Line, Number, Plot, Section};

/// Where the set is that the bare client copies.
const SAMPLE: &str = "sample";
/// Sets that the bare client writes at once.
const SETS: usize = 2;
const BARE: &str = "bare client";
/// The time of one placement in the live scheduler, of 99 in 100.
const PLACED_MS_MAX: f64 = 1.0;

const FULL: Sizes = Sizes {
    nodes: 10_000,
    sets: 500,
    replicas: 25,
    rounds: 2,
};
const QUICK: Sizes = Sizes {
    nodes: 64,
    sets: 2,
    replicas: 3,
    rounds: 1,
};

/// What it came to.
#[derive(Clone, Debug)]
struct Run {
    bound_s: f64,
    available_s: f64,
    /// Seconds, and pods bound by then.
    curve: Vec<(f64, f64)>,
    operator: Usage,
    scheduler: Usage,
    cluster: Usage,
    placements: f64,
    placed_p99_ms: f64,
    /// Until the bare client had bound as many.
    bare_s: f64,
}

/// Points of a curve that are drawn.
const DRAWN_MAX: usize = 200;

pub(super) async fn part(grove: &Path, is_quick: bool) -> Result<Vec<Section>> {
    let sizes = if is_quick { QUICK } else { FULL };
    let mut runs = Vec::new();
    for round in 1..=sizes.rounds {
        eprintln!(
            "end to end: {} pods on {} nodes, round {round} of {}",
            sizes.pods(),
            sizes.nodes,
            sizes.rounds
        );
        let (mut run, copies) = by_grove(grove, sizes).await?;
        eprintln!("end to end: {:.0} s; the same by the bare client", run.available_s);
        run.bare_s = by_bare_client(grove, sizes, &copies).await?;
        runs.push(run);
    }
    Ok(vec![summary(sizes, &runs)])
}

async fn by_grove(grove: &Path, sizes: Sizes) -> Result<(Run, Copies)> {
    let embedded = Embedded::start(grove, sizes.nodes).await?;
    let (operator, scheduler) = (embedded.operator().await?, embedded.scheduler().await?);
    let begun = Instant::now();
    embedded.create_sets(sizes.sets, sizes.replicas).await?;
    let curve = embedded.all_bound(&scheduler, sizes.pods(), begun).await?;
    embedded.all_available(sizes.sets * sizes.replicas).await?;
    let told = scheduler.metrics().await?;
    let placed = ("result", "placed");
    let run = Run {
        bound_s: curve.last().map_or(f64::NAN, |(seconds, _)| *seconds),
        available_s: begun.elapsed().as_secs_f64(),
        curve,
        operator: operator.usage()?,
        scheduler: scheduler.usage()?,
        cluster: embedded.cluster.usage()?,
        placements: sum(&told, "grove_placement_duration_seconds_count", placed),
        placed_p99_ms: quantile(&told, "grove_placement_duration_seconds", placed, 0.99) * 1e3,
        bare_s: f64::NAN,
    };
    Ok((run, sample(&embedded, sizes).await?))
}

/// One set more, as what the bare client writes.
async fn sample(embedded: &Embedded, sizes: Sizes) -> Result<Copies> {
    let client = &embedded.client;
    create_namespace(client, SAMPLE).await?;
    let mut follower = Follower::open(client, SAMPLE).await?;
    let sets = Api::<PodCliqueSet>::namespaced(client.clone(), SAMPLE);
    sets.create(&PostParams::default(), &set_of_gangs("sample", sizes.replicas)?)
        .await?;
    follower.all(sizes.replicas * GANG_PODS).await?;
    Copies::take(client, SAMPLE).await
}

/// Seconds until every pod was made, released and bound.
async fn by_bare_client(grove: &Path, sizes: Sizes, copies: &Copies) -> Result<f64> {
    let embedded = Embedded::start(grove, sizes.nodes).await?;
    let client = &embedded.client;
    let nodes = &embedded.node_names().await?;
    let per_set = sizes.replicas * GANG_PODS;
    let write = |set: usize| async move {
        let copies = copies.renamed(&format!("s{set}"));
        let objects: Vec<_> = copies.steps.iter().flatten().cloned().collect();
        bare::create(client, NAMESPACE, &objects).await?;
        bare::lift_gates(client, NAMESPACE, copies.pods().collect()).await?;
        // Ten pods on each node.
        let node = |index: usize| nodes.get((set * per_set + index) / 10 % nodes.len().max(1));
        let places = copies
            .pods()
            .enumerate()
            .filter_map(|(index, pod)| Some((pod, node(index)?.clone())));
        bare::bind(client, NAMESPACE, places, WORKERS).await
    };
    let begun = Instant::now();
    let writes = stream::iter(0..sizes.sets).map(write).buffer_unordered(SETS);
    writes.try_collect::<()>().await?;
    let seconds = begun.elapsed().as_secs_f64();
    let (_, bound) = embedded.read_pods().await?;
    let all = (bound == sizes.pods()).then_some(seconds);
    all.with_context(|| format!("the bare client has bound {bound} of {} pods", sizes.pods()))
}

fn summary(sizes: Sizes, runs: &[Run]) -> Section {
    let pods = sizes.pods();
    let each = |of: fn(&Run) -> f64| runs.iter().map(of);
    let rate = |of: fn(&Run) -> f64| runs.iter().map(move |run| pods as f64 / of(run));
    let is_promised = sizes.nodes == FULL.nodes;
    let placements = runs.iter().map(|run| run.placements).sum::<f64>();
    let mut numbers = vec![
        Number::new("until the last pod is bound", "s", each(|run| run.bound_s)).against(BARE, each(|run| run.bare_s)),
        Number::new("until every gang is available", "s", each(|run| run.available_s)),
        Number::new("pods bound in a second", "pods/s", rate(|run| run.bound_s)).against(BARE, rate(|run| run.bare_s)),
        Number::new(
            format!("one placement in the live scheduler, p99 of {placements} (bound of its bucket)"),
            "ms",
            each(|run| run.placed_p99_ms),
        )
        .bound(is_promised.then_some(Bound::AtMost(PLACED_MS_MAX))),
    ];
    type Used = fn(&Run) -> Usage;
    let programs: [(&str, Used); 3] = [
        ("grove operator", |run| run.operator),
        ("grove scheduler", |run| run.scheduler),
        ("grove cluster", |run| run.cluster),
    ];
    for (program, of) in programs {
        let each = |value: fn(Usage) -> f64| runs.iter().map(move |run| value(of(run)));
        numbers.extend([
            Number::new(format!("{program}: CPU"), "s", each(|usage| usage.cpu_s)),
            Number::new(
                format!("{program}: memory at the end"),
                "MiB",
                each(|usage| usage.rss_mib),
            ),
            Number::new(
                format!("{program}: memory at its peak"),
                "MiB",
                each(|usage| usage.peak_rss_mib),
            ),
        ]);
    }
    let line = |(index, run): (usize, &Run)| Line {
        name: format!("round {}", index + 1),
        points: thinned(&run.curve),
    };
    Section {
        title: format!("{pods} pods in gangs on {} nodes", sizes.nodes),
        text: format!(
            "{} PodCliqueSets of {} replicas, each replica a gang of two leaders without GPUs and six workers with one, which \
             must share a rack; operator, scheduler and the embedded cluster are a process each, on one machine. The bare client \
             makes the same objects on another such cluster, lifts the gates and binds to places that it knows.",
            sizes.sets, sizes.replicas
        ),
        numbers,
        plots: vec![Plot {
            title: "Pods bound".to_owned(),
            x: Axis::linear("seconds"),
            y: Axis::linear("pods"),
            lines: runs.iter().enumerate().map(line).collect(),
        }],
    }
}

/// Fewer points, the last one among them.
fn thinned(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = curve.len().div_ceil(DRAWN_MAX).max(1);
    let mut points: Vec<(f64, f64)> = curve.iter().rev().step_by(step).copied().collect();
    points.reverse();
    points
}
