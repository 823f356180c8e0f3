//! `grove cluster`: the embedded cluster alone, for kubectl and others.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use grove_simcluster::{NodeSpec, TaskEnded};

use crate::embedded::{self, Embedded};
use crate::exit;
use crate::node_file;
use crate::racks::{NODES_MAX, Racks};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes, or a file: `{zones: 2, blocks: 2, racks: 4, hosts: 4, gpusPerHost: 8}`, or Node objects as
    /// `kubectl get nodes -o yaml` prints them
    #[arg(long, value_name = "N|FILE", default_value = "64")]
    nodes: Nodes,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = embedded::address)]
    listen: SocketAddr,
    /// Where to write the kubeconfig; it is removed at the end
    #[arg(long, value_name = "OUT")]
    kubeconfig: Option<PathBuf>,
}

/// The value of `--nodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Nodes {
    Count(usize),
    File(PathBuf),
}

impl FromStr for Nodes {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::File(text.into()), Self::Count))
    }
}

impl Nodes {
    /// The nodes that are asked for.
    pub(crate) fn specs(&self) -> Result<Vec<NodeSpec>> {
        match self {
            Self::Count(count) => {
                ensure!(
                    *count <= NODES_MAX,
                    "--nodes: at most {NODES_MAX} nodes fit here, not {count}"
                );
                Ok(Racks::holding(*count).nodes().take(*count).collect())
            }
            Self::File(path) => {
                let shown = path.display();
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("--nodes {shown}: neither a number nor a file that can be read"))?;
                node_file::parse(&text).with_context(|| format!("--nodes {shown}"))
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match exit::runtime().and_then(|runtime| runtime.block_on(serve(args))) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(ended)) => {
            eprintln!("{ended}");
            exit::NO_ANSWER.into()
        }
        Err(error) => exit::usage(Err(error)),
    }
}

/// Runs the cluster until somebody ends it, or until it ends by itself, which it should not.
async fn serve(args: &Args) -> Result<Option<TaskEnded>> {
    let nodes = args.nodes.specs()?;
    let count = nodes.len();
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(embedded::default_kubeconfig);
    let embedded = Embedded::start(nodes, args.listen, kubeconfig).await?;
    println!(
        "A cluster of {count} GPU nodes listens on https://{}",
        embedded.listener.address()
    );
    println!();
    println!("    export KUBECONFIG={}", embedded.kubeconfig().display());
    println!("    kubectl get nodes -L topology.kubernetes.io/zone,topology.kubernetes.io/rack");
    println!();
    println!("Ctrl-C ends it.");
    tokio::select! {
        told = exit::told_to_stop() => told.map(|()| None),
        ended = embedded.cluster.failed() => Ok(Some(ended)),
    }
}
