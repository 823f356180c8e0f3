//! A whole cluster: store, server, behaviours and doors under one handle.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::authorization;
use crate::behaviour::{self, Fleet, FleetOptions, NodeSpec};
use crate::clock::Clock;
use crate::disk::{DataDir, DataError};
use crate::door::{Authority, Door, ListenError, Listener};
use crate::facts::Facts;
use crate::fault::Faults;
use crate::history::History;
use crate::network::Network;
use crate::server::Server;
use crate::store::{NotKept, ResourceName, Store};
use crate::user::User;
use crate::vitals::TaskEnded;

/// Changes of one resource that are kept for watchers, if nobody says otherwise.
const HISTORY_DEFAULT: usize = 16 * 1024;

/// The time at which clusters start, if nobody says otherwise: tests must not depend on the day they run.
const START_DEFAULT: &str = "2026-01-01T00:00:00Z";

/// Settings of a cluster that is about to start.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) seed: u64,
    pub(crate) start: Timestamp,
    pub(crate) history_per_resource: usize,
    record_history: bool,
    rbac: bool,
    pub(crate) nodes: Vec<NodeSpec>,
    options: behaviour::Options,
    pub(crate) signing_key: Option<Vec<u8>>,
}

impl Default for Builder {
    fn default() -> Self {
        let start = START_DEFAULT.parse().expect("a constant timestamp");
        let options = behaviour::Options {
            fleet: FleetOptions::default(),
            binder: true,
            endpoints: false,
            autoscaling: false,
        };
        Self {
            seed: 0,
            start,
            history_per_resource: HISTORY_DEFAULT,
            record_history: false,
            rbac: false,
            nodes: Vec::new(),
            options,
            signing_key: None,
        }
    }
}

impl Builder {
    /// Decides every uid and generated name.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The time that the cluster's clock shows at its start.
    pub fn start_time(mut self, start: Timestamp) -> Self {
        self.start = start;
        self
    }

    /// How many changes of each resource a watch can go back.
    pub fn history_per_resource(mut self, changes: usize) -> Self {
        self.history_per_resource = changes;
        self
    }

    /// Whether every write and request is kept for tests to look at; it grows without bound.
    pub fn record_history(mut self, on: bool) -> Self {
        self.record_history = on;
        self
    }

    /// Whether users may do only what stored roles allow them, as in a real cluster. They may do everything, unless this
    /// is set; the administrator may in any case.
    pub fn rbac(mut self, on: bool) -> Self {
        self.rbac = on;
        self
    }

    /// The nodes that the cluster starts with.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = NodeSpec>) -> Self {
        self.nodes.extend(nodes);
        self
    }

    /// How fast nodes run pods.
    pub fn fleet(mut self, options: FleetOptions) -> Self {
        self.options.fleet = options;
        self
    }

    /// Whether pods of `default-scheduler` are bound to the first node that fits; they are, unless somebody else shall.
    pub fn binder(mut self, on: bool) -> Self {
        self.options.binder = on;
        self
    }

    /// The key that tokens are signed with: 32 bytes that nobody else knows. Without it the key follows from the seed.
    pub fn signing_key(mut self, key: &[u8; 32]) -> Self {
        self.signing_key = Some(key.to_vec());
        self
    }

    /// Whether Services get Endpoints and EndpointSlices of the pods behind them. They do not, unless this is set: with
    /// thousands of pods behind a Service it is most of the work.
    pub fn endpoints(mut self, on: bool) -> Self {
        self.options.endpoints = on;
        self
    }

    /// Whether HorizontalPodAutoscalers scale what they name, by metrics that people set: a pod's annotation
    /// `usage.simcluster.internal/cpu: 300m`, an autoscaler's `metric.simcluster.internal/queue: "30"`. They do not, unless
    /// this is set.
    pub fn autoscaling(mut self, on: bool) -> Self {
        self.options.autoscaling = on;
        self
    }

    /// Starts the cluster. Must be called inside a tokio runtime.
    pub fn start(self) -> Cluster {
        let cluster = self.over(Arc::new(Store::new(self.history_per_resource)));
        bootstrap(&cluster.server);
        self.nodes.into_iter().for_each(|node| cluster.fleet.add(node));
        cluster
    }

    /// Starts the cluster that a directory holds, or a new one in it: then every answer waits until what it tells is
    /// kept there. Nodes that the directory has already stay as they are. Must be called inside a tokio runtime.
    pub async fn open(self, dir: DataDir) -> Result<Cluster, DataError> {
        crate::facts::open(self, dir).await
    }

    /// A cluster over a store, with all that it does by itself.
    pub(crate) fn over(&self, store: Arc<Store>) -> Cluster {
        let mut server = Server::new(store, Clock::starting_at(self.start), self.seed);
        if let Some(key) = &self.signing_key {
            server = server.signing_with(key);
        }
        if self.record_history {
            server = server.recording();
        }
        if self.rbac {
            server = server.with_rbac();
        }
        let server = Arc::new(server);
        let mut tasks = JoinSet::new();
        let fleet = behaviour::start(&server, self.options.clone(), &mut tasks);
        Cluster {
            server,
            fleet,
            _tasks: tasks,
            facts: Facts::default(),
        }
    }
}

/// A running cluster; dropping it ends everything it does.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) server: Arc<Server>,
    pub(crate) fleet: Fleet,
    /// The behaviours; they end when this is dropped.
    _tasks: JoinSet<()>,
    /// After the tasks: what they have written is kept too.
    pub(crate) facts: Facts,
}

impl Cluster {
    /// Settings for a new cluster.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client in this process, as the administrator.
    pub fn client(&self) -> kube::Client {
        self.client_as(User::admin())
    }

    /// A client in this process, as somebody else.
    pub fn client_as(&self, user: User) -> kube::Client {
        Door::new(self.server.clone(), user).client()
    }

    /// Opens the cluster to other processes. Port 0 takes a free port.
    pub async fn listen(&self, address: SocketAddr) -> Result<Listener, ListenError> {
        let authority = self.facts.authority();
        let authority = match authority {
            Some(authority) => authority,
            None => {
                let made = Authority::new().map_err(|source| ListenError::Certificate { address, source })?;
                self.facts.keep_authority(&made).await?;
                made
            }
        };
        Listener::open(self.server.clone(), address, &authority).await
    }

    /// What was remembered under this name, by this cluster or, if it lives in a directory, before a restart.
    pub fn remembered(&self, name: &str) -> Option<String> {
        self.facts.text(name)
    }

    /// Remembers a text about the cluster that is no object of it.
    pub async fn remember(&self, name: &str, text: &str) -> Result<(), NotKept> {
        self.facts.keep(name, text.as_bytes()).await
    }

    /// The fake nodes.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The API server.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// How the cluster reaches webhooks: names that lead to servers in this process or to sockets.
    pub fn network(&self) -> &Network {
        &self.server.network
    }

    /// The store, for tests that look behind the API or assert on the history of writes.
    pub fn store(&self) -> &Arc<Store> {
        &self.server.store
    }

    /// The cluster's clock.
    pub fn clock(&self) -> Clock {
        self.server.clock.clone()
    }

    /// What goes wrong on the way between clients and the server: nothing, until somebody asks for it here.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Waits for the end of one of the cluster's own tasks, which is a failure: whoever runs a cluster for others ends
    /// with this error.
    pub fn failed(&self) -> impl Future<Output = TaskEnded> + Send + use<> {
        self.server.vitals.ended()
    }

    /// All writes and requests so far; nothing, unless [`Builder::record_history`] was set.
    pub fn history(&self) -> Option<&History> {
        self.server.history.as_deref()
    }
}

/// What every cluster has from its first moment on.
fn bootstrap(server: &Arc<Server>) {
    let create = |group: &str, plural: &str, namespace: &str, object: Value| {
        let made = server
            .create_internal(&User::admin(), &ResourceName::new(group, plural), namespace, object)
            .now_or_never()
            .expect("a new cluster has no webhooks to wait for");
        // The behaviours run already: on several threads one may have furnished a namespace before we do.
        let is_there = made.as_ref().map_or_else(|error| error.code == 409, |_| true);
        debug_assert!(is_there, "{made:?}");
    };
    for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        create("", "namespaces", "", json!({"metadata": {"name": namespace}}));
        create(
            "",
            "serviceaccounts",
            namespace,
            json!({"metadata": {"name": "default"}}),
        );
    }
    for (name, value) in [
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    ] {
        create(
            "scheduling.k8s.io",
            "priorityclasses",
            "",
            json!({"metadata": {"name": name}, "value": value}),
        );
    }
    if server.rbac {
        for (plural, object) in authorization::bootstrap::objects() {
            create(authorization::GROUP, plural, "", object);
        }
    }
    let ports = json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]);
    let spec = json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "ports": ports});
    create(
        "",
        "services",
        "default",
        json!({"metadata": {"name": "kubernetes"}, "spec": spec}),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The behaviours may furnish a namespace while the cluster is still being put together.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_cluster_starts_on_several_threads() {
        for seed in 0..200 {
            let cluster = Cluster::builder().seed(seed).start();
            let accounts = ResourceName::new("", "serviceaccounts");
            assert!(!cluster.store().list(&accounts, Some("default")).items.is_empty());
        }
    }
}
