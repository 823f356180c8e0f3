//! `cargo xtask test`: every check and every test, in tiers, cheapest first.
//!
//! Every cargo command here is for the whole workspace and picks targets by their names: a command for a few packages
//! gives their dependencies other features, and half of the workspace would be compiled once more.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::{bench, generate, root, tidy, tools};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs these tiers only, in the order of the full run.
    #[arg(value_enum)]
    tiers: Vec<Tier>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// rustfmt.
    Format,
    /// Generated files are current.
    Gen,
    /// Direction and purity of crates, sizes of files, links of documents.
    Tidy,
    /// clippy, warnings denied.
    Lint,
    /// Unit, property and command-line tests.
    Unit,
    /// The documentation builds without warnings.
    Docs,
    /// Licences, sources and duplicates of dependencies.
    Deny,
    /// On a real control plane.
    E2e,
}

/// Tests that ran, as the test binaries counted them.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    passed: usize,
    failed: usize,
    ignored: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |tier: &Tier| args.tiers.is_empty() || args.tiers.contains(tier);
    let mut ran: Vec<(Tier, Duration)> = Vec::new();
    let mut total = Count::default();
    for tier in Tier::value_variants().iter().copied().filter(wanted) {
        println!("==> {}", name(tier));
        let begun = Instant::now();
        let outcome = tier_of(tier, &mut total);
        ran.push((tier, begun.elapsed()));
        if let Err(error) = outcome {
            summarize(&ran, total);
            return Err(error.context(format!("tier {} failed", name(tier))));
        }
    }
    summarize(&ran, total);
    ensure!(
        total.ignored == 0,
        "{} tests were ignored: a test runs or does not exist",
        total.ignored
    );
    Ok(())
}

fn tier_of(tier: Tier, total: &mut Count) -> Result<()> {
    match tier {
        Tier::Format => cargo(&["fmt", "--all", "--check"], &[]),
        Tier::Gen => generate::check_all(),
        Tier::Tidy => tidy::run(),
        Tier::Lint => cargo(
            &[
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
            &[],
        ),
        Tier::Unit => {
            let tests = ["test", "--workspace", "--no-fail-fast"];
            counted(
                &[
                    &tests[..],
                    &["--lib", "--bins", "--examples", "--test", "it", "--test", "allocations"],
                ]
                .concat(),
                total,
            )?;
            counted(&[&tests[..], &["--doc"]].concat(), total)
        }
        // With the examples, dependencies have the features that they have in the other tiers.
        Tier::Docs => cargo(
            &[
                "doc",
                "--quiet",
                "--workspace",
                "--no-deps",
                "--lib",
                "--bins",
                "--examples",
            ],
            &[("RUSTDOCFLAGS", "-D warnings")],
        ),
        Tier::Deny => deny(),
        Tier::E2e => {
            let suites = suites()?;
            let named = suites.iter().flat_map(|suite| ["--test", suite]);
            let tests = ["test", "--workspace", "--no-fail-fast"];
            counted(&tests.into_iter().chain(named).collect::<Vec<_>>(), total)?;
            bench::try_everything()
        }
    }
}

/// The suites that run on a real control plane: what is in the folder.
fn suites() -> Result<Vec<String>> {
    let mut suites = Vec::new();
    for entry in root().join("e2e/tests").read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists() {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            suites.push(stem.context("a test's name is not text")?.to_owned());
        }
    }
    suites.sort();
    Ok(suites)
}

fn name(tier: Tier) -> String {
    tier.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

fn summarize(ran: &[(Tier, Duration)], total: Count) {
    println!();
    for (tier, time) in ran {
        println!("{:>8.1} s  {}", time.as_secs_f64(), name(*tier));
    }
    println!(
        "tests: {} passed, {} failed, {} ignored",
        total.passed, total.failed, total.ignored
    );
}

fn cargo(args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    let mut command = grove_e2e::cargo();
    command.current_dir(root()).args(args).envs(env.iter().copied());
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo {} failed", args.join(" "));
    Ok(())
}

fn deny() -> Result<()> {
    // Advisories need a database that cannot be fetched everywhere; the other checks need nothing but the lock file.
    let mut deny = Command::new(tools::cargo_deny()?);
    deny.current_dir(root()).args([
        "--workspace",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    ensure!(deny.status()?.success(), "cargo-deny found something: see above");
    Ok(())
}

/// Runs tests, shows what they print, and adds up what they count.
fn counted(args: &[&str], total: &mut Count) -> Result<()> {
    let mut command = grove_e2e::cargo();
    command.current_dir(root()).args(args).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        if let Some(count) = count_in(&line) {
            total.passed += count.passed;
            total.failed += count.failed;
            total.ignored += count.ignored;
        }
    }
    if !child.wait()?.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

/// `test result: ok. 5 passed; 0 failed; 0 ignored; …`
fn count_in(line: &str) -> Option<Count> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut count = Count::default();
    for part in counts.split("; ") {
        match part.split_once(' ')? {
            (number, "passed") => count.passed = number.parse().ok()?,
            (number, "failed") => count.failed = number.parse().ok()?,
            (number, "ignored") => count.ignored = number.parse().ok()?,
            _ => {}
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_line_of_a_test_binary() {
        let line = "test result: FAILED. 6 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 6.75s";
        let count = count_in(line).expect("it is such a line");
        assert_eq!((count.passed, count.failed, count.ignored), (6, 1, 2));
        assert!(count_in("test duration::reads ... ok").is_none());
    }
}
