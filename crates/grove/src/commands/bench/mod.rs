//! `grove bench`: how fast and how well the parts of Grove work, on instances that anyone can run again.

mod cases;
mod placement;

use std::path::PathBuf;
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
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let printed = match &args.command {
        Command::Placement { nodes } => output::print(args.output, &placement::measure(*nodes as usize), |lines| {
            placement::table(lines)
        }),
        Command::Cases { folder } => cases::measure(folder)
            .map_err(|error| Failure::Usage(one_line(error)))
            .and_then(|lines| output::print(args.output, &lines, |lines| cases::table(lines))),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}
