//! `grove bench`: how fast and how well the parts of Grove work, on instances that anyone can run again.

mod cases;
mod placement;
mod plan;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::exit::{Failure, one_line};
use crate::output::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// How to print: table for people, json or yaml for programs
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    output: Format,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Place single gangs of many sizes on a cluster that is 35 % empty, 25 % full and mixed for the rest
    Placement {
        /// Hosts of 8 GPUs, 16 a rack, 16 racks a block
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(256..=200_000))]
        nodes: u32,
    },
    /// Place the queues of a folder of gang-case files, beside the answers in them
    Cases {
        /// The folder
        folder: PathBuf,
    },
    /// Place the gangs of a trace as they come and go, beside schedulers that place host by host
    Trace {
        /// The folder with nodes.csv and pods.csv of the trace "openb"; without one, days of that kind are made up
        folder: Option<PathBuf>,
        /// How much of all GPU-time is asked for
        #[arg(long, default_value_t = 1.0, value_parser = load)]
        load: f64,
    },
    /// Plan made-up workloads on a made-up cluster, step by step
    Plan {
        /// Nodes of 8 GPUs, 20 a rack, 10 racks a block
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        nodes: u32,
        /// PodCliqueSets of three or four pods
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        sets: u32,
        /// Measure nothing: write the objects to a file for grove plan, and print how to call it
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let printed = match &args.command {
        Command::Placement { nodes } => output::print(args.output, &placement::measure(*nodes as usize), |lines, _| {
            placement::table(lines)
        }),
        Command::Cases { folder } => cases::measure(folder)
            .map_err(|error| Failure::Usage(one_line(error)))
            .and_then(|lines| output::print(args.output, &lines, |lines, _| cases::table(lines))),
        Command::Trace { folder, load } => trace::measure(folder.as_deref(), *load)
            .map_err(|error| Failure::Usage(one_line(error)))
            .and_then(|lines| output::print(args.output, &lines, |lines, _| trace::table(lines))),
        Command::Plan { nodes, sets, write } => plan(args.output, (*nodes as usize, *sets as usize), write.as_deref()),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=4.0).contains(&load) {
        Ok(load)
    } else {
        Err("a load is between 0.01 and 4: 1 asks for all GPUs all of the time".to_owned())
    }
}

fn plan(format: Format, (nodes, sets): (usize, usize), write: Option<&Path>) -> Result<(), Failure> {
    match write {
        Some(file) => output::print(format, &plan::write(nodes, sets, file)?, |said, _| said.clone()),
        None => output::print(format, &plan::measure(nodes, sets)?, |line, _| plan::table(line)),
    }
}
