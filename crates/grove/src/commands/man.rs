//! `grove man`: the manual, as `man` reads it: a page for `grove` and one for each command, made from what `--help` says.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap_mangen::Man;

use crate::exit;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "To read it at once:  grove man | man -l -")]
pub(crate) struct Args {
    /// Write every page into this folder, which exists, instead of the first to stdout
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    exit::usage(write(args))
}

fn write(args: &Args) -> Result<()> {
    match &args.into {
        Some(folder) => clap_mangen::generate_to(crate::command(), folder)
            .with_context(|| format!("cannot write the manual into {}", folder.display())),
        None => {
            let mut page = Vec::new();
            Man::new(crate::command()).render(&mut page)?;
            Ok(output::write(&String::from_utf8_lossy(&page))?)
        }
    }
}
