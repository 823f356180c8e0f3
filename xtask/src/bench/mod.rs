//! `cargo xtask bench`: measurements on a real control plane. What a number is worth, the bare client beside it says: it
//! makes the same writes in the same run and decides nothing.

mod bare;
mod follow;
mod latency;
mod operator;
mod process;
mod scheduler;
mod throughput;

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Subcommand, ValueEnum};
use grove_e2e::{binary, binary_for_test};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
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
    /// The program that is measured.
    fn grove(&self) -> Result<PathBuf> {
        match &self.grove {
            Some(grove) => Ok(grove.clone()),
            None if self.quick => Ok(binary_for_test("grove")?),
            None => Ok(binary("grove", "release")?),
        }
    }
}

/// Who reads the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (What::Operator(operator::Args { manner, .. }) | What::Scheduler(scheduler::Args { manner, .. })) = &args.what;
    if cfg!(debug_assertions) && !manner.quick {
        return run_optimised();
    }
    match &args.what {
        What::Operator(args) => operator::run(args),
        What::Scheduler(args) => scheduler::run(args),
    }
}

/// Runs everything in small, so that a measurement works on the day that somebody wants to know.
pub(crate) fn run_quick() -> Result<()> {
    let manner = Manner {
        output: Output::Table,
        quick: true,
        grove: None,
    };
    let only = String::new();
    operator::run(&operator::Args {
        manner: manner.clone(),
        only: only.clone(),
    })?;
    scheduler::run(&scheduler::Args { manner, only })
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
