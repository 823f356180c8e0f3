//! `grove topology`: which topologies there are, who uses them, whether the nodes' labels are right, and which topology
//! they suggest. Reads only; what is found out is decided in [`grove_topology::survey`].

mod check;
mod discover;
mod list;
mod read;
mod tree;
mod usage;

use std::process::ExitCode;

use jiff::Timestamp;

use crate::client::Cluster;
use crate::exit::{self, Failure};
use crate::output::Format;
use crate::target::Target;
use read::Seen;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    target: Target,
    /// The TopologyDomain that the operator was told to use
    #[arg(long, value_name = "NAME", global = true)]
    topology_domain_name: Option<String>,
    /// How to print: table for people, json or yaml for programs
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    output: Format,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// All topologies: levels, nodes, sets that use them
    List,
    /// The domains of a topology, each with those inside it
    Tree {
        /// Name of the topology
        #[arg(default_value = grove_api::topology::DEFAULT_TOPOLOGY_NAME)]
        name: String,
        /// Show levels down to this one
        #[arg(long, value_name = "LEVEL")]
        depth: Option<String>,
    },
    /// Which PodCliqueSets use which topology, those that use the default included
    Usage,
    /// What is wrong with the nodes' labels and with constraints; exit code 1 if something is
    Check {
        /// Warnings count too
        #[arg(long)]
        strict: bool,
    },
    /// A ClusterTopology that the nodes' labels suggest, as YAML; how it came about goes to stderr
    Discover {
        /// Name of the proposed topology
        #[arg(long, default_value = "discovered")]
        name: String,
    },
}

pub(crate) fn run(args: &Args) -> ExitCode {
    exit::answer(answer(args))
}

async fn answer(args: &Args) -> Result<ExitCode, Failure> {
    let cluster = Cluster::reach(&args.target).await?;
    let seen = Seen::read(&cluster, args.topology_domain_name.clone(), Timestamp::now()).await?;
    match &args.command {
        Command::List => list::print(&seen, args.output),
        Command::Tree { name, depth } => tree::print(&seen, (name, depth.as_deref()), args.output),
        Command::Usage => usage::print(&seen, args.output),
        Command::Check { strict } => check::print(&seen, *strict, args.output),
        Command::Discover { name } => discover::print(&seen, name, args.output),
    }
}
