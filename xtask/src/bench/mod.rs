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
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Subcommand, ValueEnum};

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

/// Who reads the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if cfg!(debug_assertions) {
        return run_optimised();
    }
    match &args.what {
        What::Operator(args) => operator::run(args),
        What::Scheduler(args) => scheduler::run(args),
    }
}

/// Runs the same command as an optimised program: a bare client that is slow makes whatever is beside it look fast.
fn run_optimised() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--release", "--package", "xtask", "--"]);
    let status = cargo
        .args(env::args_os().skip(1))
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the measurement failed");
    Ok(())
}
