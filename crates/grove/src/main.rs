//! The `grove` binary: arguments and wiring, nearly no logic.
//!
//! One module per command under [`commands`]. Exit codes are a contract: 0 success, 1 a finding, 2 a usage or
//! configuration error, 3 no answer (see [`exit`]).

mod admission;
mod api_writes;
mod busy;
mod client;
mod commands;
mod controllers;
mod embedded;
mod exit;
mod fence;
mod follow;
mod http;
mod leading;
mod lease;
mod logging;
mod look;
mod metrics;
mod node_file;
mod output;
mod profile;
mod racks;
mod rate_limit;
mod target;
mod traces;
mod words;

use std::alloc::System;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use stats_alloc::StatsAlloc;

/// The system's allocator, which counts: `grove bench` shows that the warm paths take no memory. A count is one atomic
/// addition.
#[global_allocator]
static ALLOCATOR: StatsAlloc<System> = StatsAlloc::system();

/// Topology-aware gang scheduling for AI inference on Kubernetes.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure how fast and how well gangs are placed
    Bench(commands::bench::Args),
    /// Start a cluster inside this process with operator, scheduler, a map for the browser and four workloads; nothing
    /// else is needed
    Demo(commands::demo::Args),
    /// Run the embedded cluster alone, for kubectl and others
    Cluster(commands::cluster::Args),
    /// Before an uninstall: stop the operator, take its webhooks away and lift Grove's finalizers
    Cleanup(commands::cleanup::Args),
    /// Print the script by which a shell completes commands and options
    Completion(commands::completion::Args),
    /// Print all CustomResourceDefinitions as YAML
    Crds(commands::crds::Args),
    /// Print the accounts and roles of the operator and the scheduler as YAML: the least that each must be allowed
    Rbac(commands::rbac::Args),
    /// Say why the gangs of a PodCliqueSet, or one gang, wait; or where they run, and how well
    Explain(commands::explain::Args),
    /// Print the manual page, or write all of them
    Man(commands::man::Args),
    /// Run the operator: it turns PodCliqueSets into running gangs, and answers the API server about them
    Operator(commands::operator::Args),
    /// Say where the gangs of PodCliqueSets would go, and why some would not: nodes, topologies and workloads from files
    Plan(commands::plan::Args),
    /// Print a page of the docs
    #[command(hide = true)]
    Reference(commands::reference::Args),
    /// Run the scheduler: it binds gangs whole, inside the domains that they require, or says why it cannot
    Scheduler(commands::scheduler::Args),
    /// Show each PodCliqueSet on a line: how much of it runs, where, how well, and why not
    Status(commands::status::Args),
    /// Wait until PodCliques are ready; the init container that keeps a start order
    WaitFor(commands::wait_for::Args),
    /// Topologies of a cluster: which there are, who uses them, and whether the nodes' labels are right
    Topology(commands::topology::Args),
}

/// What the program is called, but by `kubectl`.
const NAME: &str = "grove";
/// Under this name `kubectl` finds it, and calls it for `kubectl grove`.
const PLUGIN: &str = "kubectl-grove";

/// Commands and options, for whoever prints them.
fn command() -> clap::Command {
    Cli::command()
}

/// What whoever called this program types for it.
pub(crate) fn called() -> &'static str {
    let path = std::env::args_os().next();
    let name = path.as_deref().and_then(|path| Path::new(path).file_stem());
    match name.is_some_and(|name| name == PLUGIN) {
        true => "kubectl grove",
        false => NAME,
    }
}

fn main() -> ExitCode {
    let matches = command().bin_name(called()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Bench(args) => commands::bench::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Cleanup(args) => commands::cleanup::run(&args),
        Command::Completion(args) => commands::completion::run(&args),
        Command::Crds(args) => commands::crds::run(&args),
        Command::Rbac(args) => commands::rbac::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Man(args) => commands::man::run(&args),
        Command::Operator(args) => commands::operator::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Reference(args) => commands::reference::run(&args),
        Command::Scheduler(args) => commands::scheduler::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::WaitFor(args) => commands::wait_for::run(&args),
        Command::Topology(args) => commands::topology::run(&args),
    }
}
