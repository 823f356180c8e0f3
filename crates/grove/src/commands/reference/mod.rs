//! `grove reference cli|metrics`: pages of the docs that only this program can write: its commands, and the metrics that
//! its registries hold. `cargo xtask gen` asks for them.

mod cli;
mod metrics;

use std::process::ExitCode;

use crate::exit;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    page: Page,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Page {
    Cli,
    Metrics,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let text = match args.page {
        Page::Cli => Ok(cli::page(crate::command())),
        Page::Metrics => metrics::page(),
    };
    exit::usage(text.and_then(|text| Ok(output::write(text.trim_end())?)))
}

/// A text in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
