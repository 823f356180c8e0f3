//! `grove demo`: operator, scheduler and the page on the embedded cluster, nothing else needed.

mod grant;
mod story;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use grove_api::ClusterTopology;
use grove_api::config::{self, Overrides};
use grove_api::rights::Home;
use grove_api::topology::DEFAULT_TOPOLOGY_NAME;
use grove_scheduler::Scheduler;
use grove_simcluster::{NodeSpec, User};
use grove_web::Page;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admission::{self, Serving};
use crate::commands::cluster::Nodes;
use crate::commands::scheduler;
use crate::embedded::{self, Embedded, Wanted};
use crate::exit::{self, Failure};
use crate::racks::{LEVELS, NODES_MAX, Racks};
use crate::{client, controllers};
use story::Story;

const OPERATOR: &str = "system:serviceaccount:kube-system:grove-operator";
const NAMESPACE: &str = "kube-system";
const PAGE_PORT: u16 = 8080;
const STOP_MAX: Duration = Duration::from_secs(2);
/// Everything happens in this process; what takes longer does not happen.
const STEP_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End when the story is told
    #[arg(long)]
    once: bool,
    /// How many nodes: 32 at least, rounded up to a multiple of 16
    #[arg(long, value_name = "N", default_value = "64", value_parser = nodes)]
    nodes: usize,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = embedded::address)]
    listen: SocketAddr,
}

/// A group that is to grow must not find itself in half a block, and with one block the graph finds no room: better said
/// at once than after half a minute.
const NODES_MIN: usize = 32;
const NODES_STEP: usize = 16;

fn nodes(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Err(_) => Err("not a number of nodes".to_owned()),
        Ok(few) if few < NODES_MIN => Err(format!(
            "the workloads of the demo need {NODES_MIN} nodes; grove cluster --nodes {few} starts a cluster without them"
        )),
        Ok(many) if many > NODES_MAX => Err(format!("at most {NODES_MAX} nodes fit here")),
        Ok(nodes) => Ok(nodes.next_multiple_of(NODES_STEP)),
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let runtime = match exit::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return exit::usage(Err(error)),
    };
    match runtime.block_on(show(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the demo did not come to its end: {}", exit::one_line(error));
            exit::FINDING.into()
        }
    }
}

async fn show(args: &Args) -> Result<()> {
    // From the first moment on: whoever ends it early leaves no credentials behind either.
    let (embedded, running) = tokio::select! {
        told = tell(args) => told?,
        stopped = exit::told_to_stop() => return match args.once {
            true => Err(anyhow!("told to stop")),
            false => stopped,
        },
    };
    let told = match args.once {
        true => Ok(()),
        false => {
            look_around(&running.page_address, &embedded);
            tokio::select! {
                told = exit::told_to_stop() => told,
                ended = embedded.cluster.failed() => Err(ended.into()),
            }
        }
    };
    running.stop().await;
    told
}

/// Starts everything and tells the story to its end.
async fn tell(args: &Args) -> Result<(Embedded, Running)> {
    let begun = Instant::now();
    let nodes = Nodes::Count(args.nodes).specs()?;
    let shape = shape(&nodes);
    let wanted = Wanted {
        nodes,
        listen: Some(args.listen),
        ..Wanted::default()
    };
    let embedded = Embedded::start(wanted).await?;
    let client = embedded.cluster.client();
    let rack = Racks::holding(args.nodes).hosts;
    let story = Story::new(client.clone(), begun, STEP_MAX, rack);
    story.tell("cluster", &shape);
    install(&client).await?;
    let (kinds, address) = (grove_api::crds::YAML.len(), embedded.listener.address());
    story.tell(
        "API",
        &format!("{kinds} kinds of Grove are served at https://{address}"),
    );
    let running = start(&embedded).await?;
    let topology = topology(&client).await?;
    story.tell("operator", "runs, and its webhooks answer; so does the scheduler");
    story.tell("topology", &format!("{DEFAULT_TOPOLOGY_NAME}: {topology}"));
    story.tell("ready", &format!("the map is at {}", running.page_address));
    story.run().await?;
    Ok((embedded, running))
}

fn look_around(page: &str, embedded: &Embedded) {
    println!();
    println!("Open the map:  {page}");
    println!();
    println!("Look around, in another terminal:");
    println!();
    println!("    export KUBECONFIG={}", embedded.kubeconfig().display());
    println!("    {} status", program());
    println!("    kubectl get dynamographdeployments,podcliquesets,podgangs,pods -o wide");
    println!("    kubectl get nodes -L topology.kubernetes.io/zone,topology.kubernetes.io/rack");
    println!("    kubectl scale podcliquescalinggroup qwen-elastic-0-server --replicas 5");
    println!("    kubectl delete podcliqueset moe-giant");
    println!();
    println!("Ctrl-C ends it.");
}

/// What to type for this program, which need not be in the `PATH`.
fn program() -> String {
    let path = std::env::current_exe().ok();
    path.map_or_else(|| crate::NAME.to_owned(), |path| path.display().to_string())
}

/// "64 hosts with 8 GPUs each, in 2 zones, 4 blocks and 16 racks"
fn shape(nodes: &[NodeSpec]) -> String {
    let count = |level: usize| {
        let (word, key) = LEVELS[level];
        let values: BTreeSet<&String> = nodes.iter().filter_map(|node| node.labels.get(key)).collect();
        match values.len() {
            1 => format!("1 {word}"),
            many => format!("{many} {word}s"),
        }
    };
    let hosts = nodes.len();
    format!(
        "{hosts} hosts with 8 GPUs each, in {}, {} and {}",
        count(0),
        count(1),
        count(2)
    )
}

/// The operator, the scheduler and the page in this process.
struct Running {
    page_address: String,
    page: JoinHandle<()>,
    webhooks: Serving,
    controllers: JoinHandle<Result<(), Failure>>,
    scheduler: JoinHandle<()>,
    stop: CancellationToken,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.webhooks.stop(STOP_MAX).await;
        if tokio::time::timeout(STOP_MAX, self.page).await.is_err() {
            eprintln!("the page was still being read; ended it");
        }
        if tokio::time::timeout(STOP_MAX, self.controllers).await.is_err() {
            eprintln!("the operator was still writing; ended it");
        }
        if tokio::time::timeout(STOP_MAX, self.scheduler).await.is_err() {
            eprintln!("the scheduler was still writing; ended it");
        }
    }
}

/// Starts webhooks, controllers, the scheduler and the page as `grove operator` and `grove scheduler` do, under names of
/// their own and with their rights.
async fn start(embedded: &Embedded) -> Result<Running> {
    let loaded = config::parse(include_bytes!("operator.yaml"), &Overrides::default());
    let mut configuration = loaded.map_err(|errors| anyhow!("{}", errors[0]))?.configuration;
    let home = Home {
        namespace: NAMESPACE,
        secret: &configuration.server.webhooks.secret_name,
        lease: &configuration.leader_election.resource_name,
    };
    grant::grant(&embedded.cluster.client(), &home).await?;
    let client = embedded.cluster.client_as(User::controller("grove-operator"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    configuration.server.webhooks.listener.port = listener.local_addr()?.port();
    let cluster = client::Cluster {
        client: client.clone(),
        lease_client: client.clone(),
        fence: crate::fence::Fence::open(),
        address: embedded.listener.address().to_string(),
        namespace: NAMESPACE.to_owned(),
        is_inside: false,
    };
    let topology = &configuration.topology_aware_scheduling;
    let admission = admission::admission(&configuration, topology, (&cluster, OPERATOR));
    let mut webhooks = Serving::start(admission, listener, grove_admission::Telemetry::default());
    let ready = tokio::time::timeout(STEP_MAX, webhooks.ready()).await;
    ready.context("the webhooks do not serve")??;
    let stop = CancellationToken::new();
    let settings = controllers::settings(&configuration, "grove");
    let (operated, stopped) = (configuration.clone(), stop.clone());
    let controllers = tokio::spawn(async move {
        let telemetry = controllers::Telemetry::default();
        controllers::run(client, (&operated, settings, telemetry), stopped).await
    });
    let client = embedded.cluster.client_as(User::controller("grove-scheduler"));
    let scheduler = Scheduler::new(client, scheduler::settings(&configuration));
    let stopped = stop.clone();
    let scheduler = tokio::spawn(async move { scheduler.run(stopped).await });
    let listener = page_listener().await?;
    let page_address = format!("http://{}", listener.local_addr()?);
    let page = Page::new(embedded.cluster.client(), stop.clone());
    let page = tokio::spawn(async move { page.serve(listener).await });
    Ok(Running {
        page_address,
        page,
        webhooks,
        controllers,
        scheduler,
        stop,
    })
}

/// A socket for the page, of this host only: at the port that people expect, or a free one.
async fn page_listener() -> Result<TcpListener> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, PAGE_PORT)).await {
        Ok(listener) => Ok(listener),
        Err(_) => Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?),
    }
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

/// Waits for the topology that the operator makes from its configuration; returns its levels, broad to narrow.
async fn topology(client: &Client) -> Result<String> {
    let topologies = Api::<ClusterTopology>::all(client.clone());
    let exists = await_condition(topologies, DEFAULT_TOPOLOGY_NAME, |found: Option<&ClusterTopology>| {
        found.is_some()
    });
    let topology = tokio::time::timeout(STEP_MAX, exists)
        .await
        .context("there is no topology")??;
    let levels = topology.map(|topology| topology.spec.levels).unwrap_or_default();
    let words: Vec<&str> = levels.iter().map(|level| level.domain.as_str()).collect();
    Ok(words.join(" > "))
}
