//! Every chore of the project: `cargo xtask --help`.

mod api_reference;
mod bench;
mod bugs;
mod dist;
mod files;
mod fuzz;
mod generate;
mod kit;
mod tidy;
mod tiers;
mod tools;
mod traceability;

use std::path::Path;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Parser, Subcommand};

/// Chores of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Writes what is generated from the source: the CRDs in the chart, the table of rules and tests, the reference.
    Gen(generate::Args),
    /// Checks the rules that no compiler knows: direction and purity of crates, sizes of files, links of documents.
    Tidy,
    /// Runs every check and every test; this is what CI runs.
    Test(tiers::Args),
    /// Measures, beside something that is as fast as can be.
    Bench(bench::Args),
    /// Compares the placement engine with brute force on many small cases.
    Exact {
        /// How many
        #[arg(default_value_t = 200_000)]
        cases: u64,
    },
    /// Plays all of Grove with faults on embedded clusters, and judges every run; `campaign --help` has more.
    #[command(disable_help_flag = true)]
    Campaign {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Puts known bugs into a copy of the source, one after another, and counts which ones the tests catch.
    Bugs(bugs::Args),
    /// Sends every way in what nobody would, as libFuzzer makes it up; needs a nightly compiler and `cargo-fuzz`.
    Fuzz(fuzz::Args),
    /// Makes what is shipped: an image with one static program, the chart, and the program with its manual, as archives.
    Dist(dist::Args),
    /// Builds, starts and stops the real control plane for tests.
    Kit(kit::Args),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().chore {
        Chore::Gen(args) => generate::run(&args),
        Chore::Tidy => tidy::run(),
        Chore::Test(args) => tiers::run(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::Bugs(args) => bugs::run(&args),
        Chore::Dist(args) => dist::run(&args),
        Chore::Fuzz(args) => fuzz::run(&args),
        Chore::Exact { cases } => exact(cases),
        Chore::Campaign { args } => campaign(&args),
        Chore::Kit(args) => return kit::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The comparison is an example of the engine's crate, which has the generator and the judge at hand.
fn exact(cases: u64) -> anyhow::Result<()> {
    let cases = cases.to_string();
    let args = [
        "run",
        "--release",
        "--package",
        "grove-placement",
        "--example",
        "exact",
        "--",
        &cases,
    ];
    let status = grove_e2e::cargo().current_dir(root()).args(args).status()?;
    ensure!(status.success(), "the engine differs from brute force; see above");
    Ok(())
}

/// The campaign is an example of its crate, optimised: it plays thousands of clusters.
fn campaign(args: &[String]) -> anyhow::Result<()> {
    let run = [
        "run",
        "--release",
        "--package",
        "grove-campaign",
        "--example",
        "campaign",
        "--",
    ];
    let status = grove_e2e::cargo().current_dir(root()).args(run).args(args).status()?;
    ensure!(status.success(), "a run broke a rule; see above");
    Ok(())
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate is a folder of the repository")
}
