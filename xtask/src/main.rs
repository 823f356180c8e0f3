//! Every chore of the repository. `cargo xtask --help` lists them; each is a module of its own.

mod kit;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Chores of the Grove repository", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// The real control plane that the end-to-end tests run on
    Kit(kit::Args),
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Kit(args) => kit::run(args),
    }
}
