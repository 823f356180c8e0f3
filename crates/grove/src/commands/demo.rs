//! `grove demo`: what there is of Grove, running on the embedded cluster, nothing else needed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use grove_api::topology::{DEFAULT_TOPOLOGY_NAME, TopologyLevel};
use grove_api::{ClusterTopology, ClusterTopologySpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};

use crate::commands::cluster::Nodes;
use crate::embedded::{self, Embedded};
use crate::exit;
use crate::racks::LEVELS;

/// Everything happens in this process; what takes longer does not happen.
const STEP_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End when the story is told
    #[arg(long)]
    once: bool,
    /// How many nodes
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    nodes: u16,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = embedded::address)]
    listen: SocketAddr,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let runtime = match exit::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return exit::usage(Err(error)),
    };
    match runtime.block_on(tell(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the demo did not come to its end: {}", exit::one_line(error));
            exit::FINDING.into()
        }
    }
}

async fn tell(args: &Args) -> Result<()> {
    let begun = Instant::now();
    let nodes = Nodes::Count(args.nodes.into()).specs()?;
    let embedded = Embedded::start(nodes, args.listen, embedded::default_kubeconfig()).await?;
    let client = embedded.cluster.client();
    println!("cluster   listens on https://{}", embedded.listener.address());
    install(&client).await?;
    println!("API       {} kinds of Grove are served", grove_api::crds::YAML.len());
    topology(&client).await?;
    show_nodes(&client).await?;
    println!("workloads are checked and stored, and not started yet: the controllers are still being built");
    println!("ready     after {:.1} s", begun.elapsed().as_secs_f64());
    if args.once {
        return Ok(());
    }
    println!();
    println!("Look around:");
    println!();
    println!("    export KUBECONFIG={}", embedded.kubeconfig().display());
    println!("    kubectl get nodes -L topology.kubernetes.io/zone,topology.kubernetes.io/rack");
    println!("    kubectl get clustertopology {DEFAULT_TOPOLOGY_NAME} -o yaml");
    println!();
    println!("Ctrl-C ends it.");
    exit::told_to_stop().await
}

/// Creates our CRDs and waits until each is established.
async fn install(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (file, yaml) in grove_api::crds::YAML {
        let definition: CustomResourceDefinition = serde_saphyr::from_str(yaml).with_context(|| file.to_owned())?;
        api.create(&PostParams::default(), &definition)
            .await
            .with_context(|| file.to_owned())?;
        let name = definition.name_any();
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(STEP_MAX, established)
            .await
            .with_context(|| format!("{name} is not established"))??;
    }
    Ok(())
}

/// Names the levels of the nodes.
async fn topology(client: &Client) -> Result<()> {
    let level = |(domain, key): (&str, &str)| -> Result<TopologyLevel> {
        let domain = domain
            .parse()
            .ok()
            .with_context(|| format!("{domain} is no domain word"))?;
        Ok(TopologyLevel {
            domain,
            key: key.to_owned(),
        })
    };
    let levels = LEVELS.into_iter().map(level).collect::<Result<_>>()?;
    let topology = ClusterTopology::new(DEFAULT_TOPOLOGY_NAME, ClusterTopologySpec { levels });
    Api::all(client.clone())
        .create(&PostParams::default(), &topology)
        .await?;
    println!(
        "topology  {DEFAULT_TOPOLOGY_NAME}: {}",
        LEVELS.map(|(word, _)| word).join(" > ")
    );
    Ok(())
}

/// One line a block, one `■` a host, a space between racks.
async fn show_nodes(client: &Client) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    // By length first: z2b1 comes before z10b1.
    let mut blocks: BTreeMap<(usize, String), BTreeMap<String, usize>> = BTreeMap::new();
    for node in &nodes {
        let label = |level: usize| node.labels().get(LEVELS[level].1).cloned().unwrap_or_default();
        let block = label(1);
        *blocks
            .entry((block.len(), block))
            .or_default()
            .entry(label(2))
            .or_default() += 1;
    }
    println!("nodes     {}, eight GPUs each", nodes.items.len());
    for ((_, block), racks) in blocks.iter().take(8) {
        let racks: Vec<String> = racks.values().map(|hosts| "■".repeat(*hosts)).collect();
        println!("          {block:<6} {}", racks.join(" "));
    }
    if blocks.len() > 8 {
        println!("          and {} more blocks", blocks.len() - 8);
    }
    Ok(())
}
