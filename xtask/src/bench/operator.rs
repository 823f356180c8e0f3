//! `cargo xtask bench operator`: each case on a control plane of its own, without controller manager, scheduler and
//! kubelets: whatever the API server is asked comes from the operator or from us.

use std::path::Path;

use anyhow::{Context, Result};
use grove_api::crds;
use grove_e2e::{ControlPlane, Identity};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};

use super::latency::{self, Latency};
use super::process::Measured;
use super::throughput::{self, Case, Throughput};
use super::{Manner, Output};

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
}

impl Sizes {
    const FULL: Self = Self { divide: 1, pairs: 100 };
    const QUICK: Self = Self { divide: 100, pairs: 3 };
}

pub(super) fn run(args: &Args) -> Result<()> {
    let grove = args.manner.grove()?;
    let sizes = if args.manner.quick { Sizes::QUICK } else { Sizes::FULL };
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
}

impl Stage {
    async fn start(grove: &Path) -> Result<Self> {
        let bare = ControlPlane::builder().controller_manager(false).kubelets(false);
        let plane = bare.start().await?;
        let client = plane.client(Identity::Admin).await?;
        install(&client).await?;
        let operator = Measured::operator(grove, &plane.kubeconfig(Identity::Admin)).await?;
        Ok(Self {
            operator,
            client,
            plane,
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
