//! `grove plan`: where the gangs of PodCliqueSets would go, without any cluster.
//!
//! ```text
//! files ─▶ grove-plan ─▶ Answer ─ show ─▶ table, JSON, YAML
//! ```
//! Nothing but the files is read, and nothing is written.

mod show;
#[cfg(test)]
mod tests;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use grove_api::config::Packing;
use grove_plan::Input;

use crate::exit::{self, Failure};
use crate::output::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Nodes, topologies, running pods, priority classes and PodCliqueSets, as YAML or JSON; - is the standard input
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// How to print: table for people, json or yaml for programs
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Levels of the default topology where no file has one, broad to narrow: zone=KEY,block=KEY,…
    #[arg(long, value_name = "WORD=KEY,…", value_delimiter = ',')]
    levels: Vec<String>,
    /// The TopologyDomain that the operator was told to use
    #[arg(long, value_name = "NAME")]
    topology_domain_name: Option<String>,
    /// Which hosts to take among equally few domains: FewestHosts, or SpareHosts to fill hosts that are broken into
    #[arg(long, value_name = "WORD", value_parser = packing, default_value = Packing::FewestHosts.as_str())]
    packing: Packing,
}

fn packing(word: &str) -> Result<Packing, String> {
    Packing::from_word(word).ok_or_else(|| {
        let words: Vec<&str> = Packing::ALL.iter().map(|known| known.as_str()).collect();
        format!("it must be {}", words.join(" or "))
    })
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

/// How long the steps of a plan took, and what came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) read: Duration,
    pub(super) expand: Duration,
    pub(super) place: Duration,
    pub(super) gangs: usize,
    pub(super) placed: usize,
    pub(super) pods: usize,
}

impl Timed {
    /// The shorter time of each step.
    pub(super) fn least(self, other: Timed) -> Timed {
        Timed {
            read: self.read.min(other.read),
            expand: self.expand.min(other.expand),
            place: self.place.min(other.place),
            ..self
        }
    }
}

/// Plans what a text holds, for measurements.
pub(super) fn timed(text: &str, levels: &[String]) -> Result<Timed, Failure> {
    let start = Instant::now();
    let mut input = Input::new(None);
    input.add(text, "made up")?;
    input.complete(levels)?;
    let read = start.elapsed();
    let planned = grove_plan::gangs(&input)?;
    let expand = start.elapsed() - read;
    let summary = grove_plan::place(&input, &planned, Packing::FewestHosts).summary;
    Ok(Timed {
        read,
        expand,
        place: start.elapsed() - read - expand,
        gangs: summary.gangs,
        placed: summary.placed,
        pods: summary.pods,
    })
}

/// The text of a file; `-` is the standard input.
fn text(file: &Path) -> Result<String, Failure> {
    let read = || {
        if file == Path::new("-") {
            let mut text = String::new();
            return std::io::stdin().read_to_string(&mut text).map(|_| text);
        }
        std::fs::read_to_string(file)
    };
    read().map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))
}

/// Exit code 1 says that something is not placed.
fn answer(args: &Args) -> Result<ExitCode, Failure> {
    let mut input = Input::new(args.topology_domain_name.clone());
    for file in &args.files {
        input.add(&text(file)?, &file.display().to_string())?;
    }
    input.complete(&args.levels)?;
    for note in &input.notes {
        eprintln!("{note}");
    }
    let planned = grove_plan::gangs(&input)?;
    let answer = grove_plan::place(&input, &planned, args.packing);
    output::print(args.output, &answer, show::table)?;
    Ok(if answer.is_all_placed() {
        ExitCode::SUCCESS
    } else {
        exit::FINDING.into()
    })
}
