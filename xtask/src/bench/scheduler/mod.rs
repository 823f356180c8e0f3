//! `cargo xtask bench scheduler`: gangs on a real control plane, bound by `grove scheduler`, beside what others make of the
//! same nodes and pods in the same run: kube-scheduler, which knows no gangs, and a bare client, which decides nothing.

mod rate;
mod stage;
mod summary;
mod sweep;
mod wait;

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::results::Section;
use super::{Manner, Output};
use stage::Stage;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) manner: Manner,
    /// Runs only cases whose name contains this: rate-1000, rate-5000, idle, hopeless, large
    #[arg(long, default_value = "")]
    pub(super) only: String,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    divide: usize,
    rounds: usize,
    pairs: usize,
}

impl Sizes {
    const FULL: Self = Self {
        divide: 1,
        rounds: 3,
        pairs: 50,
    };
    const QUICK: Self = Self {
        divide: 10,
        rounds: 1,
        pairs: 5,
    };
}

/// What a case came to. The names are read by others; what a case does not measure is null.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    case: &'static str,
    nodes: usize,
    gangs: usize,
    pods: usize,
    /// From the first bind to the last; of one gang, from its creation.
    bound_s: Option<f64>,
    pods_per_s: Option<f64>,
    bare_bind_pods_per_s: Option<f64>,
    kube_scheduler_pods_per_s: Option<f64>,
    ratio_bare: Option<f64>,
    ratio_kube_scheduler: Option<f64>,
    /// From the creation of a gang of eight until all of it is bound.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// The same by the bare client: the API server's own time.
    bare_p50_ms: Option<f64>,
    bare_p99_ms: Option<f64>,
    /// Of `grove scheduler`, its start included.
    cpu_s: f64,
    peak_rss_mib: f64,
    kube_scheduler_cpu_s: Option<f64>,
    kube_scheduler_peak_rss_mib: Option<f64>,
    /// What the numbers above are made of, where rounds were run.
    #[serde(skip)]
    rounds: Vec<rate::Round>,
}

impl Row {
    fn of(case: &'static str, nodes: usize, (gangs, pods): (usize, usize), (cpu_s, peak_rss_mib): (f64, f64)) -> Self {
        Self {
            case,
            nodes,
            gangs,
            pods,
            cpu_s,
            peak_rss_mib,
            ..Self::default()
        }
    }
}

/// Everything about the scheduler.
pub(super) async fn part(grove: &Path, is_quick: bool) -> Result<Vec<Section>> {
    let (sizes, swept) = match is_quick {
        true => (Sizes::QUICK, sweep::Sizes::QUICK),
        false => (Sizes::FULL, sweep::Sizes::FULL),
    };
    let rows = measure(grove, "", sizes).await?;
    let (swept, used) = sweep::measure(grove, swept).await?;
    Ok(summary::scheduler(&rows, &swept, &used))
}

pub(super) fn run(args: &Args) -> Result<()> {
    let grove = args.manner.grove()?;
    let sizes = if args.manner.quick { Sizes::QUICK } else { Sizes::FULL };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let rows = runtime.block_on(measure(&grove, &args.only, sizes))?;
    print(args.manner.output, &rows)
}

async fn measure(grove: &Path, only: &str, sizes: Sizes) -> Result<Vec<Row>> {
    let is_wanted = |case: &str| case.contains(only);
    let mut rows = Vec::new();
    let (small, large) = (1_000 / sizes.divide, 5_000 / sizes.divide);
    if ["rate-1000", "idle", "hopeless"].into_iter().any(is_wanted) {
        let stage = Stage::start(grove, small).await?;
        if is_wanted("rate-1000") {
            rows.push(rate::measure(&stage, 400 / sizes.divide, sizes.rounds).await?);
        }
        if is_wanted("idle") {
            rows.push(wait::measure_idle(&stage, sizes.pairs).await?);
        }
        if is_wanted("hopeless") {
            rows.push(wait::measure_beside_hopeless(&stage, 1_000 / sizes.divide, sizes.pairs).await?);
        }
    }
    if ["rate-5000", "large"].into_iter().any(is_wanted) {
        let stage = Stage::start(grove, large).await?;
        if is_wanted("rate-5000") {
            rows.push(rate::measure(&stage, 1_000 / sizes.divide, sizes.rounds).await?);
        }
        if is_wanted("large") {
            rows.push(wait::measure_large(&stage, 1_000 / sizes.divide).await?);
        }
    }
    Ok(rows)
}

fn print(output: Output, rows: &[Row]) -> Result<()> {
    if output == Output::Json {
        println!("{}", serde_json::to_string_pretty(rows)?);
        return Ok(());
    }
    let heads = [
        "nodes", "gangs", "pods", "bound s", "pods/s", "bare", "kube", "/bare", "/kube", "p50 ms", "p99 ms",
        "bare p50", "cpu s", "rss MiB", "kube cpu", "kube rss",
    ];
    println!("{:<22}{}", "case", heads.map(|head| format!("{head:>9}")).concat());
    for row in rows {
        let cell = |value: Option<f64>| match value {
            Some(value) if value >= 100.0 => format!("{value:>9.0}"),
            Some(value) => format!("{value:>9.2}"),
            None => format!("{:>9}", "-"),
        };
        let cells = [
            row.bound_s,
            row.pods_per_s,
            row.bare_bind_pods_per_s,
            row.kube_scheduler_pods_per_s,
            row.ratio_bare,
            row.ratio_kube_scheduler,
            row.p50_ms,
            row.p99_ms,
            row.bare_p50_ms,
            Some(row.cpu_s),
            Some(row.peak_rss_mib),
            row.kube_scheduler_cpu_s,
            row.kube_scheduler_peak_rss_mib,
        ];
        let counts = [row.nodes, row.gangs, row.pods].map(|count| format!("{count:>9}"));
        println!("{:<22}{}{}", row.case, counts.concat(), cells.map(cell).concat());
    }
    Ok(())
}
