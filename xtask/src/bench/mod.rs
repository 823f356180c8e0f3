//! `cargo xtask bench`: measurements on a real control plane and on the embedded one. What a number is worth, the bare
//! client beside it says: it makes the same writes in the same run and decides nothing.

mod admission;
mod bare;
mod embedded;
mod end_to_end;
mod follow;
mod metrics;
mod operator;
mod page;
mod placement;
mod process;
mod results;
mod scheduler;
mod start;

use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fmt, fs};

use anyhow::{Context, Result, ensure};
use clap::{Subcommand, ValueEnum};
use grove_e2e::{binary, binary_for_test};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::root;
use results::{Machine, Outcome, Section};

/// Without a subcommand: measures every part, keeps the results in docs/benchmarks, and makes docs/benchmarks.md of them.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    whole: Whole,
}

/// Everything, for the page.
#[derive(Clone, Debug, Default, clap::Args)]
struct Whole {
    /// Measures this part only; the page has what was kept of the others
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<Part>,
    /// Measures nothing: makes the page of what was kept
    #[arg(long, conflicts_with_all = ["only", "quick", "grove", "trace"])]
    page: bool,
    /// Small sizes, and programs that are not optimised: whether the measurement works, not what comes out. Results and page go
    /// to a folder that is removed at the end
    #[arg(long)]
    quick: bool,
    /// Measures this program instead of building one, such as that of another release
    #[arg(long, value_name = "FILE")]
    grove: Option<PathBuf>,
    /// The folder with nodes.csv and pods.csv of the trace "openb", for the part placement; without one, days of that kind are
    /// made up
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
}

/// What is measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    /// Sets become pods, change and go, beside a bare client on a real control plane
    Operator,
    /// Gangs are bound, beside kube-scheduler and a bare client on a real control plane
    Scheduler,
    /// Single gangs and days of a cluster, by the placement engine alone
    Placement,
    /// Webhooks, one review at a time and a thousand a second
    Admission,
    /// A start beside 10,000 nodes and 50,000 pods on an embedded cluster
    Start,
    /// 100,000 pods in gangs on 10,000 nodes of an embedded cluster
    EndToEnd,
}

impl Part {
    fn title(self) -> &'static str {
        match self {
            Self::Operator => "Operator",
            Self::Scheduler => "Scheduler",
            Self::Placement => "Placement",
            Self::Admission => "Admission",
            Self::Start => "Start",
            Self::EndToEnd => "End to end",
        }
    }

    async fn sections(self, grove: &Path, whole: &Whole) -> Result<Vec<Section>> {
        match self {
            Self::Operator => operator::part(grove, whole.quick).await,
            Self::Scheduler => scheduler::part(grove, whole.quick).await,
            Self::Placement => placement::part(grove, whole.quick, whole.trace.as_deref()).await,
            Self::Admission => admission::part(grove, whole.quick).await,
            Self::Start => start::part(grove, whole.quick).await,
            Self::EndToEnd => end_to_end::part(grove, whole.quick).await,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

#[derive(Debug, Subcommand)]
enum What {
    /// The workload operator: how fast sets become pods, with how many requests, and at what cost
    Operator(operator::Args),
    /// The gang scheduler: how fast gangs are bound, beside kube-scheduler and a bare client, and at what cost
    Scheduler(scheduler::Args),
}

/// How anything is measured.
#[derive(Clone, Debug, clap::Args)]
struct Manner {
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Small sizes, and programs that are not optimised: whether the measurement works, not what comes out
    #[arg(long)]
    quick: bool,
    /// Measures this program instead of building one, such as that of another release
    #[arg(long, value_name = "FILE")]
    grove: Option<PathBuf>,
}

impl Manner {
    fn grove(&self) -> Result<PathBuf> {
        measured_program(self.grove.as_ref(), self.quick)
    }
}

/// The program that is measured.
fn measured_program(named: Option<&PathBuf>, is_quick: bool) -> Result<PathBuf> {
    match named {
        Some(grove) => Ok(grove.clone()),
        None if is_quick => Ok(binary_for_test("grove")?),
        None => Ok(binary("grove", "release")?),
    }
}

/// Who reads the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let is_for_real = match &args.what {
        Some(What::Operator(operator::Args { manner, .. }) | What::Scheduler(scheduler::Args { manner, .. })) => {
            !manner.quick
        }
        None => !args.whole.quick && !args.whole.page,
    };
    if cfg!(debug_assertions) && is_for_real {
        return run_optimised();
    }
    match &args.what {
        Some(What::Operator(args)) => operator::run(args),
        Some(What::Scheduler(args)) => scheduler::run(args),
        None if args.whole.quick => run_quick(&args.whole),
        None => run_whole(&args.whole, &root().join("docs")),
    }
}

/// Runs everything in small, so that a measurement works on the day that somebody wants to know.
pub(crate) fn try_everything() -> Result<()> {
    run_quick(&Whole {
        quick: true,
        ..Whole::default()
    })
}

/// Numbers that mean nothing are published nowhere.
fn run_quick(whole: &Whole) -> Result<()> {
    let docs = tempfile::tempdir()?;
    run_whole(whole, docs.path())?;
    print!("{}", fs::read_to_string(docs.path().join(page::PAGE))?);
    Ok(())
}

/// Measures, keeps each part as soon as it is done, and makes the page. A part that fails does not cost the others.
fn run_whole(whole: &Whole, docs: &Path) -> Result<()> {
    let folder = docs.join(page::FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut failed = Vec::new();
    if !whole.page {
        let grove = measured_program(whole.grove.as_ref(), whole.quick)?;
        let runtime = Runtime::new().context("cannot start the runtime")?;
        for part in Part::value_variants()
            .iter()
            .filter(|part| whole.only.is_none_or(|only| only == **part))
        {
            let (machine, begun) = (Machine::this(), Instant::now());
            match runtime.block_on(part.sections(&grove, whole)) {
                Ok(sections) => Outcome {
                    part: *part,
                    is_quick: whole.quick,
                    took_s: begun.elapsed().as_secs_f64(),
                    machine,
                    sections,
                }
                .keep(&folder)?,
                Err(error) => failed.push(format!("{part}: {error:#}")),
            }
            eprintln!("{part}: {:.0} s", begun.elapsed().as_secs_f64());
        }
    }
    let page = page::write(docs).map(|page| eprintln!("wrote {}", page.display()));
    ensure!(failed.is_empty(), "not everything was measured: {}", failed.join("; "));
    page
}

/// Runs the same command as an optimised program: a bare client that is slow makes whatever is beside it look fast.
fn run_optimised() -> Result<()> {
    let mut cargo = grove_e2e::cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "xtask", "--"]);
    let status = cargo
        .args(env::args_os().skip(1))
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the measurement failed");
    Ok(())
}
