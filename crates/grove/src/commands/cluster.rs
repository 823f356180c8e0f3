//! `grove cluster`: the embedded cluster alone, for kubectl and others.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use grove_simcluster::store::ResourceName;
use grove_simcluster::{DataDir, NodeSpec, TaskEnded};

use crate::embedded::{self, Embedded, Wanted};
use crate::exit;
use crate::node_file;
use crate::racks::{NODES_MAX, Racks};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes, or a file: `{zones: 2, blocks: 2, racks: 4, hosts: 4, gpusPerHost: 8}`, or Node objects as
    /// `kubectl get nodes -o yaml` prints them
    ///
    /// [default: 64; none besides those that the cluster of --data has]
    #[arg(long, value_name = "N|FILE")]
    nodes: Option<Nodes>,
    /// The address to listen on; port 0 takes a free one
    ///
    /// [default: 127.0.0.1:0; with --data where it listened before]
    #[arg(long, value_name = "ADDR", value_parser = embedded::address)]
    listen: Option<SocketAddr>,
    /// Where to write the kubeconfig; it is removed at the end, unless there is a --data
    #[arg(long, value_name = "OUT")]
    kubeconfig: Option<PathBuf>,
    /// Keep the cluster in this directory, and go on with the one that is there
    ///
    /// Every answer waits until what it tells is on the disk. Objects, nodes, tokens and the kubeconfig
    /// (DIR/kubeconfig) stay good across restarts; one process at a time can use the directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// How many nodes a new cluster has, if nobody says.
const NODES_DEFAULT: usize = 64;

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
    let data = args.data.as_deref().map(DataDir::open).transpose();
    let data = data.context("--data")?;
    let is_new = data.as_ref().is_none_or(DataDir::is_new);
    let nodes = match &args.nodes {
        Some(nodes) => nodes.specs()?,
        None if is_new => Nodes::Count(NODES_DEFAULT).specs()?,
        None => Vec::new(),
    };
    let wanted = Wanted {
        nodes,
        listen: args.listen,
        kubeconfig: args.kubeconfig.clone(),
        data,
    };
    let embedded = Embedded::start(wanted).await?;
    embedded.cluster.fleet().caught_up().await;
    let count = embedded.cluster.store().count(&ResourceName::new("", "nodes"));
    println!(
        "A cluster of {count} GPU nodes listens on https://{}",
        embedded.listener.address()
    );
    println!();
    println!("    export KUBECONFIG={}", embedded.kubeconfig().display());
    println!("    kubectl get nodes -L topology.kubernetes.io/zone,topology.kubernetes.io/rack");
    println!();
    match &args.data {
        Some(dir) => println!(
            "Ctrl-C ends it; `grove cluster --data {}` goes on with it.",
            dir.display()
        ),
        None => println!("Ctrl-C ends it."),
    }
    tokio::select! {
        told = exit::told_to_stop() => told.map(|()| None),
        ended = embedded.cluster.failed() => Ok(Some(ended)),
    }
}
