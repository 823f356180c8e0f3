//! Ten thousand hosts with a thousand gangs on them, written straight into the store of an embedded cluster: it is the
//! page that is tried here, not who places.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use grove_api::ClusterTopology;
use grove_e2e::eventually;
use grove_simcluster::store::{Expect, Key, ResourceName};
use grove_simcluster::{Cluster, NodeSpec};
use grove_web::Page;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::PostParams;
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const HOSTS: usize = 10_000;
pub(crate) const GANGS: usize = 1_000;
/// Hosts that each gang has to itself.
const PODS: usize = 4;
const REGISTER_MAX: Duration = Duration::from_secs(120);
const RACK: usize = 16;
const BLOCK: usize = 16 * RACK;
const ZONE: usize = 8 * BLOCK;

const LEVELS: [(&str, &str); 4] = [
    ("zone", "topology.kubernetes.io/zone"),
    ("block", "topology.kubernetes.io/block"),
    ("rack", "topology.kubernetes.io/rack"),
    ("host", "kubernetes.io/hostname"),
];

pub(crate) struct City {
    pub(crate) page: String,
    cluster: Cluster,
    address: SocketAddr,
    server: Server,
}

/// One life of the page's server.
struct Server {
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl City {
    pub(crate) async fn start(hosts: usize, gangs: usize) -> Result<Self> {
        let cluster = Cluster::builder().nodes((0..hosts).map(host)).start();
        install(&cluster).await?;
        for number in 0..gangs {
            settle(&cluster, number, &name_of(number))?;
        }
        let nodes = ResourceName::new("", "nodes");
        let settled = eventually("every host has registered", REGISTER_MAX, async || {
            let count = cluster.store().count(&nodes);
            (count == hosts)
                .then_some(())
                .ok_or(format!("{count} of {hosts} hosts"))
        });
        settled.await?;
        let (server, address) = serve(&cluster, (Ipv4Addr::LOCALHOST, 0).into()).await?;
        Ok(Self {
            page: format!("http://{address}"),
            cluster,
            address,
            server,
        })
    }

    /// One more gang, on hosts that nobody has.
    pub(crate) fn grow(&self, number: usize) -> Result<()> {
        settle(&self.cluster, number, &name_of(number))
    }

    /// Ends the server and its streams, does something, and starts another one at the same address.
    pub(crate) async fn restart_page<T>(mut self, meanwhile: impl AsyncFnOnce() -> Result<T>) -> Result<(Self, T)> {
        drop(self.server.stop);
        self.server.task.await?;
        let done = meanwhile().await?;
        // It comes before all others in the order in which gangs are seen, so the new server numbers them otherwise.
        settle(&self.cluster, 10, "a-first")?;
        (self.server, _) = serve(&self.cluster, self.address).await?;
        Ok((self, done))
    }
}

async fn serve(cluster: &Cluster, address: SocketAddr) -> Result<(Server, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let served = Page::new(cluster.client(), stop.clone());
    let task = tokio::spawn(async move { served.serve(listener).await });
    let stop = stop.drop_guard();
    Ok((Server { task, stop }, address))
}

fn name_of(number: usize) -> String {
    format!("model-{}-{number}", number % 40)
}

/// Names of the domains of a host, the broadest first, and its own last.
fn names(index: usize) -> [String; 4] {
    let zone = format!("z{}", index / ZONE + 1);
    let block = format!("{zone}b{}", index % ZONE / BLOCK + 1);
    let rack = format!("{block}r{}", index % BLOCK / RACK + 1);
    let host = format!("{rack}h{}", index % RACK + 1);
    [zone, block, rack, host]
}

fn host(index: usize) -> NodeSpec {
    let names = names(index);
    let node = NodeSpec::new(&names[3]).capacity("nvidia.com/gpu", "8");
    let labels = LEVELS.iter().zip(&names).take(3);
    labels.fold(node, |node, ((_, key), name)| node.label(key, name))
}

async fn install(cluster: &Cluster) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    for plural in ["clustertopologies", "podgangs"] {
        let mut known = grove_api::crds::YAML.iter();
        let (_, yaml) = known.find(|(file, _)| file.contains(plural)).context("it is ours")?;
        let definition: CustomResourceDefinition = serde_saphyr::from_str(yaml)?;
        definitions.create(&PostParams::default(), &definition).await?;
        let name = definition.name_any();
        await_condition(definitions.clone(), &name, conditions::is_crd_established()).await?;
    }
    let levels: Vec<Value> = LEVELS
        .iter()
        .map(|(word, key)| json!({"domain": word, "key": key}))
        .collect();
    let topology = json!({"metadata": {"name": "grove-topology"}, "spec": {"levels": levels}});
    let topologies: Api<ClusterTopology> = Api::all(cluster.client());
    topologies
        .create(&PostParams::default(), &serde_json::from_value(topology)?)
        .await?;
    Ok(())
}

/// Puts a gang and its pods on hosts, five hosts on from the gang before it.
fn settle(cluster: &Cluster, number: usize, name: &str) -> Result<()> {
    let set = format!("model-{}", number % 40);
    let first = number * (PODS + 1);
    let [_, _, rack, _] = names(first);
    let gang = json!({
        "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
        "metadata": {"name": name, "namespace": "default", "labels": {"app.kubernetes.io/part-of": set}},
        "spec": {"podgroups": [], "topologyRef": "grove-topology"},
        "status": {"phase": "Running", "placement": [{"scope": name, "level": "rack", "domains": [rack]}]},
    });
    put(cluster, ("scheduler.grove.io", "podgangs"), name, gang)?;
    for pod in 0..PODS {
        let pod_name = format!("{name}-{pod}");
        let limits = json!({"nvidia.com/gpu": "8"});
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod_name, "namespace": "default", "labels": {"grove.io/podgang": name}},
            "spec": {"nodeName": names(first + pod)[3],
                "containers": [{"name": "main", "image": "i", "resources": {"limits": limits, "requests": limits}}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        put(cluster, ("", "pods"), &pod_name, object)?;
    }
    Ok(())
}

fn put(cluster: &Cluster, (group, plural): (&str, &str), name: &str, mut object: Value) -> Result<()> {
    let (resource, key) = (ResourceName::new(group, plural), Key::new("default", name));
    let stored = cluster.store().put(&resource, &key, Expect::Absent, &mut object);
    stored.ok().with_context(|| format!("{name} is there already"))?;
    Ok(())
}
