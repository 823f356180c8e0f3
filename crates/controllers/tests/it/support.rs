//! An embedded cluster with Grove's kinds and a running operator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use grove_api::config::{self, OperatorConfiguration, Overrides};
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, crds};
use grove_controllers::{Operator, Settings, StartError};
use grove_simcluster::{Cluster, NodeSpec, User};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) const NAMESPACE: &str = "default";
/// Virtual time after which something that should happen has not.
const PATIENCE: Duration = Duration::from_secs(600);

/// The user that the operator is.
pub(crate) const OPERATOR: &str = "system:serviceaccount:grove-system:grove-operator";
/// The operator's configuration where a test does not care.
const PLAIN: &str = "scheduler: {profiles: [{name: default-scheduler, default: true}]}\n";

/// A cluster with an operator.
pub(crate) struct World {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: Client,
    operator: Option<(CancellationToken, JoinHandle<()>)>,
}

pub(crate) fn configuration(text: &str) -> OperatorConfiguration {
    let head = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n";
    config::parse(format!("{head}{text}").as_bytes(), &Overrides::default())
        .expect("the configuration of a test is valid")
        .configuration
}

impl World {
    /// A cluster with this many nodes, each with room for ten pods of the tests' workloads, and an operator.
    pub(crate) async fn new(nodes: usize) -> Self {
        let nodes = (0..nodes).map(|i| NodeSpec::new(&format!("n{i:03}")).capacity("cpu", "1"));
        let mut world = Self::without_operator(1, nodes).await;
        world.start_operator();
        world
    }

    /// A cluster with these nodes and Grove's kinds.
    pub(crate) async fn without_operator(seed: u64, nodes: impl IntoIterator<Item = NodeSpec>) -> Self {
        let cluster = Cluster::builder().seed(seed).nodes(nodes).start();
        let client = cluster.client();
        let definitions = Api::all(client.clone());
        for definition in crds::all() {
            definitions
                .create(&PostParams::default(), &definition)
                .await
                .expect("a definition");
        }
        let world = Self {
            cluster: Arc::new(cluster),
            client,
            operator: None,
        };
        world
            .eventually("the kinds are served", async |world| {
                world.all::<PodCliqueSet>().list(&ListParams::default()).await.is_ok()
            })
            .await;
        world
    }

    /// The same cluster, for another operator.
    pub(crate) fn beside(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            client: self.client.clone(),
            operator: None,
        }
    }

    pub(crate) fn operator_client(&self) -> Client {
        self.cluster.client_as(User::named(OPERATOR, &[]))
    }

    pub(crate) fn settings(&self, configuration: &OperatorConfiguration) -> Settings {
        let clock = self.cluster.clock();
        Settings {
            scheduler: configuration.scheduler.clone(),
            topology: configuration.topology_aware_scheduling.clone(),
            wait_image: "grove".into(),
            workers: 8,
            clock: Arc::new(move || clock.now()),
        }
    }

    pub(crate) fn start_operator(&mut self) {
        self.run_operator(self.settings(&configuration(PLAIN)));
    }

    /// Starts an operator as its process does; the one before, if there is one, has ended.
    pub(crate) async fn launch(&mut self, text: &str) -> Result<(), StartError> {
        self.stop_operator().await;
        let settings = self.settings(&configuration(text));
        let settings = grove_controllers::start(&self.operator_client(), settings).await?;
        self.run_operator(settings);
        Ok(())
    }

    pub(crate) async fn stop_operator(&mut self) {
        if let Some((stop, task)) = self.operator.take() {
            stop.cancel();
            task.await.expect("an operator that ends well");
        }
    }

    fn run_operator(&mut self, settings: Settings) {
        let operator = Operator::new(self.operator_client(), settings);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move { operator.run(stopped).await });
        self.operator = Some((stop, task));
    }

    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn create_set(&self, manifest: &str) -> PodCliqueSet {
        let set: PodCliqueSet = serde_saphyr::from_str(manifest).expect("a PodCliqueSet");
        self.all()
            .create(&PostParams::default(), &set)
            .await
            .expect("a set that is taken")
    }

    /// Everything of a kind, by name.
    pub(crate) async fn list<K>(&self) -> BTreeMap<String, K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let found = self.all::<K>().list(&ListParams::default()).await.expect("a list");
        found
            .items
            .into_iter()
            .map(|object| (object.name_any(), object))
            .collect()
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.list::<Pod>().await.into_values().collect()
    }

    pub(crate) async fn ready(&self) -> usize {
        self.pods().await.iter().filter(|pod| is_ready(pod)).count()
    }

    /// Waits until something holds, in virtual time.
    pub(crate) async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self).await {
            if begin.elapsed() > PATIENCE {
                self.print().await;
                panic!("not within {PATIENCE:?}: {what}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn print(&self) {
        for (name, set) in self.list::<PodCliqueSet>().await {
            eprintln!("set {name}: {:?}", set.status);
        }
        for (name, group) in self.list::<PodCliqueScalingGroup>().await {
            eprintln!("group {name}: {:?}", group.status);
        }
        for (name, clique) in self.list::<PodClique>().await {
            eprintln!("clique {name}: {:?}", clique.status);
        }
        for (name, gang) in self.list::<PodGang>().await {
            eprintln!("gang {name}: {:?}", gang.status.map(|status| status.phase));
        }
        for pod in self.pods().await {
            let spec = pod.spec.clone().unwrap_or_default();
            eprintln!(
                "pod {}: {:?} {:?}",
                pod.name_any(),
                spec.node_name,
                spec.scheduling_gates
            );
        }
    }
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition.status == "True")
}
