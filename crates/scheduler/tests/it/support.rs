//! An embedded cluster with Grove's kinds, a running operator and a running scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use grove_api::config::{self, OperatorConfiguration, Overrides};
use grove_api::{PodCliqueSet, PodGang, rights};
use grove_controllers::Operator;
use grove_scenarios::audit::{Audit, Terms};
use grove_scenarios::embedded::{comes_to_rest, comes_true, install_kinds};
use grove_scenarios::rights::{granted, used};
use grove_scheduler::{Metrics, Policy, Scheduler, Settings};
use grove_simcluster::{Cluster, NodeSpec, User};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const OPERATOR: &str = "system:serviceaccount:grove-system:grove-operator";
pub(crate) const SCHEDULER: &str = "system:serviceaccount:grove-system:grove-scheduler";
/// Broad to narrow, the host last.
pub(crate) const LEVELS: [(&str, &str); 3] = [
    ("block", "topology.kubernetes.io/block"),
    ("rack", "topology.kubernetes.io/rack"),
    ("host", "kubernetes.io/hostname"),
];

/// Virtual time after which something that should happen has not.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Virtual time without a write after which nothing more is under way.
const QUIET: Duration = Duration::from_secs(6);

/// Which policies a test runs under.
#[derive(Clone, Copy, Default)]
pub(crate) struct Policies {
    pub(crate) spills: bool,
    /// The `default-scheduler` profile.
    pub(crate) pins: bool,
}

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
    policies: Policies,
    operator: CancellationToken,
    scheduler: Option<(CancellationToken, JoinHandle<()>)>,
}

/// `blocks` × `racks` × `hosts` nodes with eight GPUs each.
pub(crate) fn nodes(blocks: usize, racks: usize, hosts: usize) -> Vec<NodeSpec> {
    let mut nodes = Vec::new();
    for block in 1..=blocks {
        for rack in 1..=racks {
            for host in 1..=hosts {
                nodes.push(node(&format!("b{block}"), &format!("b{block}r{rack}"), host));
            }
        }
    }
    nodes
}

pub(crate) fn node(block: &str, rack: &str, host: usize) -> NodeSpec {
    NodeSpec::new(&format!("{rack}h{host}"))
        .label(LEVELS[0].1, block)
        .label(LEVELS[1].1, rack)
        .capacity("nvidia.com/gpu", "8")
}

/// Whatever a test is about, in it the scheduler stays within its rights, or the operator's where it is a part of that.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let role = match self.policies.pins {
            true => rights::cluster_role(),
            false => rights::scheduler::cluster_role(),
        };
        let granted = granted(role.rules.unwrap_or_default());
        let history = self.cluster.history().expect("histories of tests are recorded");
        let used = used(history, SCHEDULER);
        let beyond: Vec<_> = used.difference(&granted).collect();
        assert!(beyond.is_empty(), "its role does not grant {beyond:?}");
    }
}

impl World {
    /// A cluster with a scheduler that runs.
    pub(crate) async fn new(nodes: Vec<NodeSpec>) -> Self {
        Self::with(nodes, Policies::default()).await
    }

    pub(crate) async fn with(nodes: Vec<NodeSpec>, policies: Policies) -> Self {
        let mut world = Self::without_scheduler(nodes, policies).await;
        world.start_scheduler();
        world
    }

    pub(crate) async fn without_scheduler(nodes: Vec<NodeSpec>, policies: Policies) -> Self {
        Self::furnish(Cluster::builder().nodes(nodes), policies).await
    }

    /// A cluster in which pods of the default scheduler are bound, or not.
    pub(crate) async fn with_binder(nodes: Vec<NodeSpec>, policies: Policies, is_on: bool) -> Self {
        let mut world = Self::furnish(Cluster::builder().nodes(nodes).binder(is_on), policies).await;
        world.start_scheduler();
        world
    }

    async fn furnish(builder: grove_simcluster::Builder, policies: Policies) -> Self {
        let cluster = builder.seed(1).record_history(true).start();
        let client = cluster.client();
        install_kinds(&client).await;
        let clock = cluster.clock();
        let world = Self {
            cluster,
            client,
            metrics: Metrics::with_clock(Arc::new(move || clock.now())),
            policies,
            operator: CancellationToken::new(),
            scheduler: None,
        };
        let is_served = async |world: &Self| world.all::<PodCliqueSet>().list(&ListParams::default()).await.is_ok();
        world.eventually("the kinds are served", is_served).await;
        world.start_operator().await;
        world
    }

    async fn start_operator(&self) {
        let client = self.cluster.client_as(User::named(OPERATOR, &[]));
        let configuration = configuration(self.policies);
        let clock = self.cluster.clock();
        let settings = grove_controllers::Settings {
            scheduler: configuration.scheduler.clone(),
            topology: configuration.topology_aware_scheduling.clone(),
            wait_image: "grove".into(),
            workers: 8,
            pins: self.policies.pins,
            clock: Arc::new(move || clock.now()),
        };
        let started = grove_controllers::start(&client, &settings).await;
        started.expect("an operator that starts");
        let stop = self.operator.clone();
        tokio::spawn(async move { Operator::new(client, settings).run(stop).await });
    }

    fn policy(&self) -> Policy {
        let configuration = configuration(self.policies);
        match self.policies.pins {
            true => Policy::pinning(&configuration),
            false => Policy::new(&configuration),
        }
    }

    pub(crate) fn start_scheduler(&mut self) {
        let clock = self.cluster.clock();
        let settings = Settings {
            policy: self.policy(),
            clock: Arc::new(move || clock.now()),
            metrics: self.metrics.clone(),
            ..Settings::default()
        };
        let scheduler = Scheduler::new(self.cluster.client_as(User::named(SCHEDULER, &[])), settings);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move { scheduler.run(stopped).await });
        self.scheduler = Some((stop, task));
    }

    /// Ends the scheduler where it stands, as a crash does.
    pub(crate) async fn crash_scheduler(&mut self) {
        if let Some((_, task)) = self.scheduler.take() {
            task.abort();
            let _ = task.await;
        }
    }

    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create<K>(&self, manifest: &str) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let object: K = serde_saphyr::from_str(manifest).expect("a manifest");
        self.all()
            .create(&PostParams::default(), &object)
            .await
            .expect("an object that is taken")
    }

    /// Binds a pod as a scheduler does.
    pub(crate) async fn bind(&self, pod: &str, node: &str) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        self.all::<Pod>()
            .create_subresource::<_, Value>("binding", pod, &PostParams::default(), &binding)
            .await
            .expect("a pod that can be bound");
    }

    pub(crate) async fn list<K>(&self) -> BTreeMap<String, K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let list = self.all::<K>().list(&ListParams::default()).await.expect("a list");
        list.into_iter().map(|object| (object.name_any(), object)).collect()
    }

    pub(crate) async fn gang(&self, name: &str) -> PodGang {
        self.all()
            .get(name)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// `Scheduled` of a gang: status, reason and message.
    pub(crate) async fn scheduled(&self, name: &str) -> Option<(String, String, String)> {
        let status = self.list::<PodGang>().await.remove(name)?.status?;
        let found = status
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == "Scheduled")?;
        Some((found.status, found.reason, found.message))
    }

    pub(crate) async fn await_scheduled(&self, name: &str, (status, reason): (&str, &str)) {
        let what = format!("gang {name} is {status} {reason}");
        self.eventually(&what, async |world| {
            let said = world.scheduled(name).await;
            said.is_some_and(|said| said.0 == status && said.1 == reason)
        })
        .await;
    }

    /// Nodes of the pods whose name begins so.
    pub(crate) async fn nodes_of(&self, prefix: &str) -> Vec<Option<String>> {
        let pods = self.list::<Pod>().await.into_iter();
        let pods = pods.filter(|(name, pod)| name.starts_with(prefix) && pod.metadata.deletion_timestamp.is_none());
        pods.map(|(_, pod)| pod.spec.and_then(|spec| spec.node_name)).collect()
    }

    /// Racks of the bound pods whose name begins so: the names of nodes begin with their rack's.
    pub(crate) async fn racks_of(&self, prefix: &str) -> Vec<String> {
        let nodes = self.nodes_of(prefix).await.into_iter().flatten();
        let mut racks: Vec<String> = nodes
            .filter_map(|node| Some(node.split_once('h')?.0.to_owned()))
            .collect();
        racks.sort();
        racks.dedup();
        racks
    }

    pub(crate) async fn unbound(&self) -> usize {
        self.nodes_of("").await.iter().filter(|node| node.is_none()).count()
    }

    /// Reason and note of the scheduler's Events about an object.
    pub(crate) async fn events_of(&self, name: &str) -> Vec<(String, String)> {
        let events = self.list::<Event>().await.into_values();
        let ours = events.filter(|event| {
            event.reporting_instance.as_deref() == Some("grove-scheduler")
                && event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(name)
        });
        ours.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
            .collect()
    }

    /// Waits until nothing is written any more, in virtual time.
    pub(crate) async fn settle(&self) {
        let rests = comes_to_rest(&self.cluster, QUIET, PATIENCE).await;
        assert!(rests, "does not come to rest within {PATIENCE:?}");
    }

    /// Waits until something holds, in virtual time.
    pub(crate) async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        if !comes_true(&self.cluster, PATIENCE, async || holds(self).await).await {
            self.print().await;
            panic!("not within {PATIENCE:?}: {what}");
        }
    }

    async fn print(&self) {
        for (name, gang) in self.list::<PodGang>().await {
            eprintln!("gang {name}: {:?}", gang.status);
        }
        for (name, pod) in self.list::<Pod>().await {
            let spec = pod.spec.unwrap_or_default();
            eprintln!("pod {name}: {:?} {:?}", spec.node_name, spec.scheduling_gates);
        }
    }

    /// Judges every moment since the beginning.
    pub(crate) fn audit(&self) -> Audit {
        let history = self.cluster.history().expect("histories of tests are recorded");
        let terms = Terms {
            spills: self.policies.spills,
            ..Terms::calm(self.policy().grace)
        };
        Audit::of_history(history, terms)
    }
}

fn configuration(policies: Policies) -> OperatorConfiguration {
    let level = |(word, key): &(&str, &str)| format!("{{domain: {word}, key: {key}}}");
    let levels: Vec<String> = LEVELS.iter().map(level).collect();
    let scale_out = if policies.spills { "SpillOver" } else { "SameDomain" };
    let (profile, other) = match policies.pins {
        true => ("default-scheduler", "grove-scheduler"),
        false => ("grove-scheduler", "default-scheduler"),
    };
    let text = format!(
        "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\nscheduler: {{profiles: \
         [{{name: {profile}, default: true}}, {{name: {other}}}]}}\ntopologyAwareScheduling: {{enabled: true, scaleOut: {scale_out}, \
         levels: [{}]}}\n",
        levels.join(", ")
    );
    let loaded = config::parse(text.as_bytes(), &Overrides::default());
    loaded.expect("the configuration of a test is valid").configuration
}

/// A set with one clique of pods with so many GPUs each, packed at a level.
pub(crate) fn set(name: &str, pods: usize, gpus: usize, level: &str) -> String {
    format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: {name}}}\nspec:\n  replicas: 1\n  template:\n    \
         topologyConstraint: {{packDomain: {level}}}\n    cliques:\n{}",
        clique("a", pods, pods, gpus)
    )
}

pub(crate) fn clique(name: &str, pods: usize, minimum: usize, gpus: usize) -> String {
    format!(
        "    - name: {name}\n      spec:\n        roleName: {name}\n        replicas: {pods}\n        minAvailable: {minimum}\n        \
         podSpec:\n          containers:\n          - name: main\n            image: one\n            resources: \
         {{requests: {{nvidia.com/gpu: \"{gpus}\"}}, limits: {{nvidia.com/gpu: \"{gpus}\"}}}}\n"
    )
}
