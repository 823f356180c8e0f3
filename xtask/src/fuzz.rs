//! Coverage-guided fuzzing of every way in (`crates/hostile`), by libFuzzer.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::root;

/// Longer inputs are slower, and find the same.
const INPUT_BYTES_MAX: u32 = 65_536;
/// An input that takes longer than this, or more memory, is a finding.
const SECONDS_MAX: u32 = 10;
const MEMORY_MIB_MAX: u32 = 2_048;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Targets by name; all of them without any
    targets: Vec<String>,
    /// How often each is run
    #[arg(long, default_value_t = 1_000_000)]
    runs: u64,
    /// The longest that each is run, in seconds
    #[arg(long, default_value_t = 3_600)]
    seconds: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let corpus = root().join("crates/hostile/corpus");
    let known = names(&corpus)?;
    let unknown: Vec<&String> = args.targets.iter().filter(|name| !known.contains(name)).collect();
    ensure!(
        unknown.is_empty(),
        "no such target: {unknown:?}; there are {}",
        known.join(", ")
    );
    let chosen = known
        .iter()
        .filter(|name| args.targets.is_empty() || args.targets.contains(name));
    for target in chosen {
        // What libFuzzer finds on its way is kept beside what is compiled; what is worth it is copied to the corpus by hand.
        let found = root().join("target/fuzz").join(target);
        fs::create_dir_all(&found)?;
        let status = Command::new("rustup")
            .args(["run", "nightly", "cargo", "fuzz", "run", target.as_str()])
            .arg(&found)
            .arg(corpus.join(target))
            .arg("--")
            .arg(format!("-runs={}", args.runs))
            .arg(format!("-max_total_time={}", args.seconds))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-timeout={SECONDS_MAX}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
            .arg("-print_final_stats=1")
            // The compiler that runs this chore is not the one that is needed.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO")
            .current_dir(root())
            .status()
            .context("rustup is missing; `rustup toolchain install nightly` and `cargo install cargo-fuzz` bring what is needed")?;
        ensure!(
            status.success(),
            "{target}: see above; the input is in fuzz/artifacts/{target}"
        );
    }
    Ok(())
}

/// A target for each folder of the corpus.
fn names(corpus: &std::path::Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(corpus)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
