//! How much the cluster holds and how fast it writes.
//!
//! `cargo bench -p grove-simcluster` prints a table, and fails if the memory is not enough or an event is lost; the
//! arguments `nodes=N pods=N` change the size. Rates are printed and not judged: they are the machine's too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use grove_simcluster::door::Door;
use grove_simcluster::store::ResourceName;
use grove_simcluster::{Cluster, NodeSpec, User};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, PostParams};
use kube::client::Body;
use serde_json::json;
use tower::ServiceExt;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// All of 10,000 nodes and 100,000 pods, with the history that watchers can go back.
const MEMORY_MIB_MAX: u64 = 1536;

fn main() -> anyhow::Result<()> {
    let argument = |name: &str, default: usize| {
        let prefix = format!("{name}=");
        std::env::args()
            .find_map(|text| text.strip_prefix(&prefix)?.parse().ok())
            .unwrap_or(default)
    };
    let (nodes, pods) = (argument("nodes", 10_000), argument("pods", 100_000));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(nodes, pods))
}

async fn run(nodes: usize, pods: usize) -> anyhow::Result<()> {
    let before = resident_mib();
    let cluster = Cluster::builder().binder(false).start();
    let door = Door::new(cluster.server().clone(), User::admin());
    register(&cluster, &door, nodes).await?;
    let start = Start::now();
    for i in 0..pods {
        let body = pod(i).to_string().into_bytes();
        let response = send(&door, Request::post(PODS).body(Body::from(body))?).await?;
        anyhow::ensure!(response == 201, "pod {i}: {response}");
    }
    report("pods created in process", pods, start);
    // The cluster has seen them all, too.
    anyhow::ensure!(send(&door, Request::get("/readyz").body(Body::empty())?).await? == 200);
    let (held, stored) = (resident_mib().saturating_sub(before), cluster.store());
    println!(
        "{:<44}{held:>8} MiB",
        format!("memory of {nodes} nodes and {pods} pods")
    );
    anyhow::ensure!(stored.count(&ResourceName::new("", "nodes")) == nodes);
    anyhow::ensure!(stored.count(&ResourceName::new("", "pods")) == pods);
    anyhow::ensure!(held < MEMORY_MIB_MAX, "that is not below {MEMORY_MIB_MAX} MiB");

    let client: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let start = Start::now();
    let extra = pods.min(10_000);
    for i in 0..extra {
        client
            .create(&PostParams::default(), &serde_json::from_value(pod(pods + i))?)
            .await?;
    }
    report("pods created by kube::Client in process", extra, start);

    let start = Start::now();
    let listed = client.list(&Default::default()).await?.items.len();
    report("pods listed by kube::Client", listed, start);
    listen(&cluster).await?;
    over_https(&cluster, extra).await
}

/// Makes the nodes and waits until they are there and nothing is left to do about them.
async fn register(cluster: &Cluster, door: &Door, nodes: usize) -> anyhow::Result<()> {
    let start = Start::now();
    let mut writes = cluster.store().tap();
    for i in 0..nodes {
        let node = NodeSpec::new(&format!("n{i}"));
        let node = node.label("rack", &format!("r{}", i / 16));
        cluster.fleet().add(node.capacity("nvidia.com/gpu", "8"));
    }
    let names = ResourceName::new("", "nodes");
    while cluster.store().count(&names) < nodes {
        anyhow::ensure!(writes.recv().await.is_some(), "the store is gone");
    }
    anyhow::ensure!(send(door, Request::get("/readyz").body(Body::empty())?).await? == 200);
    report("nodes registered", nodes, start);
    Ok(())
}

/// Sends a request; returns the code of its answer.
async fn send(door: &Door, request: Request<Body>) -> anyhow::Result<u16> {
    let response = door.clone().oneshot(request).await;
    let response = response.map_err(|error| anyhow::anyhow!("the door failed: {error}"))?;
    Ok(response.status().as_u16())
}

/// A hundred listeners hear every one of a thousand changes.
async fn listen(cluster: &Cluster) -> anyhow::Result<()> {
    let revision = cluster.store().revision();
    let mut listeners = tokio::task::JoinSet::new();
    let wanted = 1000;
    for _ in 0..100 {
        let door = Door::new(cluster.server().clone(), User::admin());
        let path = format!("{MAPS}?watch=true&resourceVersion={revision}");
        listeners.spawn(async move {
            let response = door.oneshot(Request::get(path).body(Body::empty())?).await;
            let mut body = response.map_err(|error| anyhow::anyhow!("{error}"))?.into_body();
            let mut heard = 0;
            while heard < wanted {
                let Some(Ok(frame)) = body.frame().await else {
                    anyhow::bail!("a watch ended after {heard} events")
                };
                heard += frame
                    .data_ref()
                    .map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
            }
            anyhow::Ok(heard)
        });
    }
    let start = Start::now();
    let door = Door::new(cluster.server().clone(), User::admin());
    for i in 0..wanted {
        let body = json!({"metadata": {"name": format!("m{i}")}}).to_string().into_bytes();
        let response = send(&door, Request::post(MAPS).body(Body::from(body))?).await?;
        anyhow::ensure!(response == 201, "config map {i}: {response}");
    }
    let mut heard = 0;
    for count in listeners.join_all().await {
        heard += count?;
    }
    anyhow::ensure!(heard == 100 * wanted, "{heard} events were heard of {}", 100 * wanted);
    report("events heard by 100 listeners", heard, start);
    Ok(())
}

/// The same writes through TLS and a socket, by eight clients at once.
async fn over_https(cluster: &Cluster, count: usize) -> anyhow::Result<()> {
    cluster.server().trust_token("bench", User::admin());
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&listener.kubeconfig("bench"))?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    let api: Arc<Api<ConfigMap>> = Arc::new(Api::namespaced(kube::Client::try_from(config)?, "default"));
    let start = Start::now();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let api = api.clone();
        writers.spawn(async move {
            for i in 0..count / 8 {
                let map = serde_json::from_value(json!({"metadata": {"name": format!("w{writer}-{i}")}}))?;
                api.create(&PostParams::default(), &map).await?;
            }
            anyhow::Ok(count / 8)
        });
    }
    let mut made = 0;
    for written in writers.join_all().await {
        made += written?;
    }
    report("config maps created over HTTPS", made, start);
    Ok(())
}

fn pod(i: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{i}"), "labels": {"app.kubernetes.io/part-of": "bench", "grove.io/podgang": format!("g{}", i / 8)}},
        "spec": {
            "schedulerName": "grove-scheduler",
            "schedulingGates": [{"name": "grove.io/podgang-pending-creation"}],
            "containers": [{"name": "main", "image": "registry.local/server:1", "env": [{"name": "RANK", "value": i.to_string()}],
                "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "16", "memory": "128Gi"}}}],
        },
    })
}

/// A moment on the wall clock and on the process's own.
struct Start {
    wall: Instant,
    cpu_secs: f64,
}

impl Start {
    fn now() -> Self {
        Self {
            wall: Instant::now(),
            cpu_secs: cpu_secs(),
        }
    }
}

/// On a busy machine the CPU time is the honest figure.
fn report(what: &str, count: usize, start: Start) {
    let (wall, cpu) = (start.wall.elapsed().as_secs_f64(), cpu_secs() - start.cpu_secs);
    println!(
        "{what:<44}{count:>8} in {wall:>6.2} s {:>8.0}/s   cpu {cpu:>6.2} s {:>8.0}/s",
        count as f64 / wall,
        count as f64 / cpu
    );
}

/// CPU time of all threads, as the kernel counts it in hundredths of a second.
fn cpu_secs() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// Memory that the process holds, as the kernel counts it.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}
