//! The embedded cluster with all of Grove on it, each a process of its own: thousands of nodes that run whatever is bound
//! to them, and sets of gangs that fill them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use grove_api::topology::DEFAULT_TOPOLOGY_NAME;
use grove_api::{ClusterTopology, PodCliqueSet};
use grove_workload::observed::PodFields;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use tempfile::TempDir;

use super::bare::WORKERS;
use super::metrics::sum;
use super::operator::install;
use super::process::Measured;

/// How the nodes of an embedded cluster are labelled, and who places.
const CONFIG: &str = "topologyAwareScheduling:\n  enabled: true\n  levels:\n  \
                      - {domain: zone, key: topology.kubernetes.io/zone}\n  \
                      - {domain: block, key: topology.kubernetes.io/block}\n  \
                      - {domain: rack, key: topology.kubernetes.io/rack}\n  \
                      - {domain: host, key: kubernetes.io/hostname}\n\
                      scheduler:\n  profiles:\n  - {name: grove-scheduler, default: true}\n";

/// Two leaders without GPUs and six workers with one each: 12,500 such gangs fill 10,000 hosts to 94 %.
pub(super) const GANG_PODS: usize = 8;
const LEADERS: usize = 2;
/// Where the sets are.
pub(super) const NAMESPACE: &str = "default";

const PAGE: u32 = 500;
const PAUSE: Duration = Duration::from_millis(500);
/// Nothing is expected to stand still for so long.
const STANDSTILL_MAX: Duration = Duration::from_secs(300);

/// How much is on the cluster, and how often it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) nodes: usize,
    pub(super) sets: usize,
    pub(super) replicas: usize,
    pub(super) rounds: usize,
}

impl Sizes {
    pub(super) fn pods(&self) -> usize {
        self.sets * self.replicas * GANG_PODS
    }
}

pub(super) struct Embedded {
    pub(super) client: Client,
    pub(super) cluster: Measured,
    grove: PathBuf,
    folder: TempDir,
}

impl Embedded {
    /// A cluster with all of its nodes and Grove's kinds.
    pub(super) async fn start(grove: &Path, nodes: usize) -> Result<Self> {
        // An error means that a provider is installed already, which is all that is wanted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = TempDir::new()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let cluster = Measured::cluster(grove, nodes, &kubeconfig).await?;
        let mut config =
            Config::from_custom_kubeconfig(Kubeconfig::read_from(&kubeconfig)?, &KubeConfigOptions::default()).await?;
        // The way to loopback never leads through the proxy that the environment may name.
        config.proxy_url = None;
        let client = Client::try_from(config)?;
        let embedded = Self {
            client,
            cluster,
            grove: grove.to_owned(),
            folder,
        };
        until_all("nodes", nodes, async || -> Result<usize> {
            Ok(embedded.node_names().await?.len())
        })
        .await?;
        install(&embedded.client).await?;
        Ok(embedded)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// An operator that is ready. When this is the first one, its topology is there, too.
    pub(super) async fn operator(&self) -> Result<Measured> {
        let operator = Measured::operator(&self.grove, &self.kubeconfig(), CONFIG).await?;
        let topologies = Api::<ClusterTopology>::all(self.client.clone());
        let exists = |topology: Option<&ClusterTopology>| topology.is_some();
        await_condition(topologies, DEFAULT_TOPOLOGY_NAME, exists).await?;
        Ok(operator)
    }

    pub(super) async fn scheduler(&self) -> Result<Measured> {
        Measured::scheduler(&self.grove, &self.kubeconfig(), CONFIG).await
    }

    pub(super) async fn node_names(&self) -> Result<Vec<String>> {
        let nodes = Api::<Node>::all(self.client.clone());
        let mut names = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let found = nodes.list_metadata(&page).await?;
            names.extend(found.items.into_iter().filter_map(|node| node.metadata.name));
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(names),
            }
        }
    }

    /// Reads all pods, page by page; how many there are, and how many of them are bound.
    pub(super) async fn read_pods(&self) -> Result<(usize, usize)> {
        let pods = Api::<PodFields>::all(self.client.clone());
        let (mut all, mut bound) = (0, 0);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let found = pods.list(&page).await?;
            all += found.items.len();
            bound += found.items.iter().filter(|pod| pod.spec.node_name.is_some()).count();
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok((all, bound)),
            }
        }
    }

    /// Makes sets of gangs.
    pub(super) async fn create_sets(&self, sets: usize, replicas: usize) -> Result<()> {
        let api = Api::<PodCliqueSet>::namespaced(self.client.clone(), NAMESPACE);
        let create = |index: usize| {
            let api = &api;
            async move {
                let set = set_of_gangs(&format!("s{index}"), replicas)?;
                api.create(&PostParams::default(), &set).await?;
                anyhow::Ok(())
            }
        };
        let creates = stream::iter(0..sets).map(create).buffer_unordered(WORKERS);
        creates.try_collect().await
    }

    /// Waits until the scheduler has bound so many pods, and looks whether that is true. When so many were bound comes back,
    /// in seconds since `begun`.
    pub(super) async fn all_bound(&self, scheduler: &Measured, pods: usize, begun: Instant) -> Result<Vec<(f64, f64)>> {
        let mut curve = vec![(0.0, 0.0)];
        until_all("pods bound", pods, async || -> Result<usize> {
            let told = scheduler.metrics().await?;
            let bound = sum(&told, "grove_bind_duration_seconds_count", ("result", "bound"));
            curve.push((begun.elapsed().as_secs_f64(), bound));
            Ok(bound as usize)
        })
        .await?;
        let (_, bound) = self.read_pods().await?;
        ensure!(
            bound >= pods,
            "the scheduler tells of {pods} pods that it has bound, but {bound} are"
        );
        Ok(curve)
    }

    /// Waits until every replica of every set works.
    pub(super) async fn all_available(&self, replicas: usize) -> Result<()> {
        let sets = Api::<PodCliqueSet>::namespaced(self.client.clone(), NAMESPACE);
        until_all("replicas available", replicas, async || -> Result<usize> {
            let found = sets.list(&ListParams::default()).await?;
            let available = found.iter().filter_map(|set| set.status.as_ref());
            let available = available.map(|status| status.available_replicas.max(0) as usize);
            Ok(available.sum())
        })
        .await
    }
}

/// Looks again until all is done; gives up when nothing moves.
async fn until_all(what: &str, all: usize, mut done: impl AsyncFnMut() -> Result<usize>) -> Result<()> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let now = done().await?;
        if now >= all {
            return Ok(());
        }
        if now != last {
            (last, moved) = (now, Instant::now());
        }
        let secs = STANDSTILL_MAX.as_secs();
        ensure!(
            moved.elapsed() < STANDSTILL_MAX,
            "{now} of {all} {what}, and no more for {secs} s"
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// A set whose every replica is a gang that needs a rack.
pub(super) fn set_of_gangs(name: &str, replicas: usize) -> Result<PodCliqueSet> {
    let clique = |name: &str, pods: usize, limits: &str| {
        format!(
            "    - name: {name}\n      spec:\n        roleName: {name}\n        replicas: {pods}\n        \
             minAvailable: {pods}\n        podSpec:\n          containers:\n          - name: main\n            \
             image: registry.example/server:1\n            \
             resources: {{requests: {{cpu: '4', memory: 16Gi}}, limits: {{{limits}}}}}\n"
        )
    };
    let manifest = format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         template:\n    topologyConstraint: {{pack: {{required: rack}}}}\n    cliques:\n{}{}",
        clique("leader", LEADERS, ""),
        clique("worker", GANG_PODS - LEADERS, "nvidia.com/gpu: '1'")
    );
    serde_saphyr::from_str(&manifest).context("a manifest of ours")
}
