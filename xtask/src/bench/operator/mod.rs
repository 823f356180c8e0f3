//! `cargo xtask bench operator`: each case on a control plane of its own, without controller manager, scheduler and
//! kubelets: whatever the API server is asked comes from the operator or from us.

mod acts;
mod growth;
mod latency;
mod requests;
mod summary;
mod throughput;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use grove_api::crds;
use grove_e2e::{ControlPlane, Identity};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};

use super::process::Measured;
use super::results::Section;
use super::{Manner, Output};
use latency::Latency;
use throughput::{Case, Throughput};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) manner: Manner,
    /// Runs only cases whose name contains this; the pairs are called `latency`
    #[arg(long, default_value = "")]
    pub(super) only: String,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    divide: usize,
    /// Pairs of 8-pod sets, one by the operator and one by the bare client.
    pairs: usize,
    /// How often everything is measured for the page, and how many of the cases.
    rounds: usize,
    cases: usize,
    /// Pods of one set, for the growth.
    pods: &'static [usize],
}

impl Sizes {
    const FULL: Self = Self {
        divide: 1,
        pairs: 100,
        rounds: 3,
        cases: usize::MAX,
        pods: &[1_000, 2_000, 5_000, 10_000],
    };
    const QUICK: Self = Self {
        divide: 100,
        pairs: 3,
        rounds: 1,
        cases: 2,
        pods: &[5, 20],
    };

    fn of(is_quick: bool) -> Self {
        if is_quick { Self::QUICK } else { Self::FULL }
    }
}

/// Everything about the operator, several times.
pub(super) async fn part(grove: &Path, is_quick: bool) -> Result<Vec<Section>> {
    let sizes = Sizes::of(is_quick);
    let (mut lives, mut latencies, mut growths) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=sizes.rounds {
        for case in Case::all(sizes.divide).into_iter().take(sizes.cases) {
            eprintln!("operator: {}, round {round} of {}", case.name, sizes.rounds);
            lives.push(throughput::measure(Stage::start(grove).await?, &case).await?);
        }
        latencies.push(latency::measure(Stage::start(grove).await?, sizes.pairs).await?);
        for pods in sizes.pods {
            eprintln!("operator: one set of {pods} pods, round {round} of {}", sizes.rounds);
            growths.push(growth::measure(Stage::start(grove).await?, *pods).await?);
        }
    }
    Ok(summary::operator(&lives, &latencies, &growths))
}

pub(super) fn run(args: &Args) -> Result<()> {
    let grove = args.manner.grove()?;
    let sizes = Sizes::of(args.manner.quick);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut cases = Vec::new();
        for case in Case::all(sizes.divide) {
            if case.name.contains(&args.only) {
                let stage = Stage::start(&grove).await?;
                cases.push(throughput::measure(stage, &case).await?);
            }
        }
        let latency = match "latency".contains(&args.only) {
            true => Some(latency::measure(Stage::start(&grove).await?, sizes.pairs).await?),
            false => None,
        };
        print(args.manner.output, &cases, latency.as_ref())
    })
}

/// A control plane with Grove's kinds, and an operator that is ready.
pub(super) struct Stage {
    // Dropped in this order: the operator ends before the API server.
    pub(super) operator: Measured,
    pub(super) client: Client,
    pub(super) plane: ControlPlane,
    pub(super) grove: PathBuf,
}

impl Stage {
    async fn start(grove: &Path) -> Result<Self> {
        let bare = ControlPlane::builder().controller_manager(false).kubelets(false);
        let plane = bare.start().await?;
        let client = plane.client(Identity::Admin).await?;
        install(&client).await?;
        let operator = Measured::operator(grove, &plane.kubeconfig(Identity::Admin), "").await?;
        Ok(Self {
            operator,
            client,
            plane,
            grove: grove.to_owned(),
        })
    }
}

/// Makes Grove's kinds.
pub(super) async fn install(client: &Client) -> Result<()> {
    let definitions = Api::all(client.clone());
    for definition in crds::all() {
        let made = definitions.create(&PostParams::default(), &definition).await?;
        let name = made.metadata.name.unwrap_or_default();
        await_condition(definitions.clone(), &name, conditions::is_crd_established()).await?;
    }
    Ok(())
}

fn print(output: Output, cases: &[Throughput], latency: Option<&Latency>) -> Result<()> {
    if output == Output::Json {
        let latency = latency.map(serde_json::to_value).transpose()?;
        let all = cases.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<_> = all.into_iter().chain(latency).collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    if !cases.is_empty() {
        println!(
            "{:<16}{:>7}{:>9}{:>11}{:>11}{:>7}{:>7}{:>9}{:>9}{:>8}{:>10}",
            "case",
            "pods",
            "bare s",
            "created s",
            "ungated s",
            "ratio",
            "ratio",
            "requests",
            "allowed",
            "cpu s",
            "rss MiB"
        );
    }
    for case in cases {
        println!(
            "{:<16}{:>7}{:>9.2}{:>11.2}{:>11.2}{:>7.2}{:>7.2}{:>9}{:>9}{:>8.2}{:>10.1}",
            case.case,
            case.pods,
            case.bare_s,
            case.created_s,
            case.ungated_s,
            case.ratio_created,
            case.ratio_ungated,
            case.requests,
            case.requests_allowed,
            case.cpu_s,
            case.peak_rss_mib
        );
    }
    for (case, act) in cases
        .iter()
        .flat_map(|case| case.acts.iter().map(move |act| (case, act)))
    {
        println!(
            "{:<16}{:>7} pods to {:<7}{:>7.2} s, bare {:>7.2} s, ratio {:>5.2}, {:>5.2} requests a pod, cpu {:>6.2} s",
            case.case, act.pods, act.act, act.seconds, act.bare_s, act.ratio, act.requests_per_pod, act.cpu_s
        );
    }
    if let Some(latency) = latency {
        println!(
            "{} pairs of an 8-pod set, from create to the last gate lifted, ms: operator p50 {:.0} p99 {:.0}, bare p50 \
             {:.0} p99 {:.0}, more p50 {:.0} p99 {:.0}",
            latency.pairs,
            latency.operator_p50_ms,
            latency.operator_p99_ms,
            latency.bare_p50_ms,
            latency.bare_p99_ms,
            latency.more_p50_ms,
            latency.more_p99_ms
        );
    }
    Ok(())
}
