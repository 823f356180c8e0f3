//! An embedded cluster with Grove's kinds, a running operator, and whoever places gangs for it.

mod evidence;
mod placer;
mod restart;
mod waiter;
pub(crate) mod workloads;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grove_api::config::OperatorConfiguration;
use grove_api::rights::Home;
use grove_api::{
    ClusterTopology, PodClique, PodCliqueScalingGroup, PodCliqueSet, PodCliqueSetStatus, PodCliqueStatus, PodGang,
};
use grove_controllers::{Operator, Settings, StartError};
use grove_scenarios::OFF;
use grove_scenarios::embedded::{comes_to_rest, comes_true, install_kinds};
use grove_simcluster::{Cluster, FleetOptions, NodeSpec, User};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

pub(crate) use grove_scenarios::embedded::{Kind, is_ready};
use placer::Running;
pub(crate) use placer::{Placer, by_both_profiles};
use waiter::Waiter;

pub(crate) const NAMESPACE: &str = "default";
pub(crate) const OPERATOR: &str = "system:serviceaccount:grove-system:grove-operator";
/// Where the operator lives, and what it keeps there.
pub(crate) const HOME: Home<'_> = Home {
    namespace: "grove-system",
    secret: "certs",
    lease: "leader",
};
/// Virtual time after which something that should happen has not. A watch that a fault has frozen is given up after five
/// minutes, and the next one may be frozen too.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);
/// Virtual time without a write after which nothing more is under way: more than any step of a fake kubelet takes.
const QUIET: Duration = Duration::from_secs(3);

/// Whether tests that choose a part of their cases, or a small size, take all of it.
pub(crate) fn is_exhaustive() -> bool {
    std::env::var_os("GROVE_EXHAUSTIVE").is_some()
}

/// A cluster with an operator, and with somebody who places gangs.
pub(crate) struct World {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: Client,
    placer: Placer,
    operator: Option<Running>,
    /// What the operator was last started with.
    settings: Option<Settings>,
    /// What places gangs, where that is not the cluster itself.
    scheduler: Option<Running>,
    nodes: Cell<usize>,
}

/// Whatever a scenario is about, in it the operator stays within its rights, and where it comes to rest the next one
/// finds nothing to do.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let undone = self.left_undone();
            assert!(undone.is_empty(), "at rest, but a restart writes {undone:#?}");
            let beyond = self.beyond_rights();
            assert!(beyond.is_empty(), "crates/api/src/rights.rs does not grant {beyond:?}");
        }
    }
}

impl World {
    /// A cluster with this many nodes, each with room for ten pods, that binds pod by pod to the first node that fits.
    pub(crate) async fn plain(nodes: usize) -> Self {
        Self::roomy(nodes, 10).await
    }

    /// The same with room for another number of pods on each node.
    pub(crate) async fn roomy(nodes: usize, room: usize) -> Self {
        Self::roomy_by(Placer::Cluster, nodes, room).await
    }

    /// The same, with somebody else to place gangs.
    pub(crate) async fn roomy_by(placer: Placer, nodes: usize, room: usize) -> Self {
        let world = Self::start(placer, FleetOptions::default()).await;
        world.add_nodes(nodes, room);
        world
    }

    /// A cluster with this many places for pods, one on each node, whose gangs our scheduler binds.
    pub(crate) async fn with_places(places: usize) -> Self {
        Self::with_fleet(places, FleetOptions::default()).await
    }

    pub(crate) async fn with_fleet(places: usize, fleet: FleetOptions) -> Self {
        let world = Self::start(Placer::Scheduler, fleet).await;
        world.grow_to(places);
        world
    }

    /// The same as [`World::with_places`], with somebody else to place gangs.
    pub(crate) async fn placed_by(placer: Placer, places: usize) -> Self {
        let world = Self::start(placer, FleetOptions::default()).await;
        world.grow_to(places);
        world
    }

    async fn start(placer: Placer, fleet: FleetOptions) -> Self {
        let mut world = Self::furnish(placer, Cluster::builder().seed(1), fleet).await;
        world.start_operator();
        world
    }

    /// A cluster with these nodes and Grove's kinds, for tests that start operators themselves.
    pub(crate) async fn without_operator(seed: u64, nodes: impl IntoIterator<Item = NodeSpec>) -> Self {
        let builder = Cluster::builder().seed(seed).nodes(nodes);
        Self::furnish(Placer::Cluster, builder, FleetOptions::default()).await
    }

    /// The same, with somebody else to place gangs.
    pub(crate) async fn stage(placer: Placer, nodes: impl IntoIterator<Item = NodeSpec>) -> Self {
        let builder = Cluster::builder().seed(1).nodes(nodes);
        Self::furnish(placer, builder, FleetOptions::default()).await
    }

    async fn furnish(placer: Placer, builder: grove_simcluster::Builder, fleet: FleetOptions) -> Self {
        let waiter = Waiter::default();
        let fleet = FleetOptions {
            init_runner: Some(waiter.runner()),
            ..fleet
        };
        let cluster = builder.record_history(true).fleet(fleet).start();
        let client = cluster.client();
        waiter.connect(client.clone());
        install_kinds(&client).await;
        let world = Self {
            cluster: Arc::new(cluster),
            client,
            placer,
            operator: None,
            settings: None,
            scheduler: None,
            nodes: Cell::new(0),
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
            placer: self.placer,
            operator: None,
            settings: None,
            scheduler: None,
            nodes: self.nodes.clone(),
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
            pins: self.placer == Placer::Operator,
            workers: 8,
            clock: Arc::new(move || clock.now()),
        }
    }

    /// What a text configures here.
    pub(crate) fn configuration(&self, text: &str) -> OperatorConfiguration {
        grove_scenarios::configuration(text, &self.placer.profile())
    }

    /// Starts an operator that cares for no topology.
    pub(crate) fn start_operator(&mut self) {
        let configuration = self.configuration(OFF);
        self.run_operator(self.settings(&configuration));
        self.start_placer(&configuration);
    }

    /// Starts an operator as its process does; the one before, if there is one, has ended.
    pub(crate) async fn launch(&mut self, text: &str) -> Result<(), StartError> {
        self.stop_operator().await;
        self.stop_placer().await;
        let configuration = self.configuration(text);
        let settings = grove_controllers::settle(&self.operator_client(), self.settings(&configuration)).await?;
        grove_controllers::start(&self.operator_client(), &settings).await?;
        self.run_operator(settings);
        self.start_placer(&configuration);
        Ok(())
    }

    pub(crate) fn run_operator(&mut self, settings: Settings) {
        self.settings = Some(settings.clone());
        let operator = Operator::new(self.operator_client(), settings);
        self.operator = Some(Running::start(|stop| async move { operator.run(stop).await }));
    }

    /// Stops the operator as a signal does.
    pub(crate) async fn stop_operator(&mut self) {
        for running in [self.operator.take(), self.placer_of_operator()].into_iter().flatten() {
            running.stop().await;
        }
    }

    /// Ends the operator where it stands, as a crash does.
    pub(crate) async fn crash_operator(&mut self) {
        for running in [self.operator.take(), self.placer_of_operator()].into_iter().flatten() {
            running.crash().await;
        }
    }

    /// Ends the operator where it stands; whoever places gangs lives on.
    pub(crate) async fn crash_workload_operator(&mut self) {
        if let Some(running) = self.operator.take() {
            running.crash().await;
        }
    }

    /// Adds nodes with room for so many pods each.
    pub(crate) fn add_nodes(&self, nodes: usize, room: usize) {
        for _ in 0..nodes {
            let name = format!("n{:03}", self.nodes.get());
            let node = NodeSpec::new(&name)
                .capacity("pods", &room.to_string())
                .capacity("nvidia.com/gpu", "8");
            self.cluster.fleet().add(node);
            self.nodes.set(self.nodes.get() + 1);
        }
    }

    /// Adds nodes with room for one pod until there are so many.
    pub(crate) fn grow_to(&self, places: usize) {
        self.add_nodes(places.saturating_sub(self.nodes.get()), 1);
    }

    pub(crate) async fn cordon(&self, node: &str, on: bool) {
        let patch = json!({"spec": {"unschedulable": on}});
        let nodes = Api::<Node>::all(self.client.clone());
        let patched = nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("a node");
    }

    pub(crate) async fn cordon_all(&self, on: bool) {
        for node in 0..self.nodes.get() {
            self.cordon(&format!("n{node:03}"), on).await;
        }
    }

    pub(crate) fn all<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn create<K: Kind + serde::Serialize>(&self, object: &K) -> K {
        self.all()
            .create(&PostParams::default(), object)
            .await
            .expect("an object that is taken")
    }

    pub(crate) async fn create_set(&self, manifest: &str) -> PodCliqueSet {
        let set: PodCliqueSet = serde_saphyr::from_str(manifest).expect("a PodCliqueSet");
        self.create(&set).await
    }

    pub(crate) async fn get<K: Kind>(&self, name: &str) -> K {
        self.all()
            .get(name)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) async fn set_status(&self, name: &str) -> PodCliqueSetStatus {
        self.get::<PodCliqueSet>(name).await.status.expect("a status")
    }

    pub(crate) async fn clique_status(&self, name: &str) -> PodCliqueStatus {
        self.get::<PodClique>(name).await.status.expect("a status")
    }

    /// Waits until an update of the set `w` has ended.
    pub(crate) async fn update_ends(&self) {
        self.eventually("the update ends", async |world| {
            let progress = world.set_status("w").await.update_progress;
            progress.is_some_and(|progress| progress.update_ended_at.is_some())
        })
        .await;
    }

    pub(crate) async fn delete<K: Kind>(&self, name: &str) {
        self.all::<K>()
            .delete(name, &DeleteParams::default())
            .await
            .expect("an object");
    }

    /// Everything of a kind, by name.
    pub(crate) async fn list<K: Kind>(&self) -> BTreeMap<String, K> {
        let found = self.all::<K>().list(&ListParams::default()).await.expect("a list");
        found
            .items
            .into_iter()
            .map(|object| (object.name_any(), object))
            .collect()
    }

    pub(crate) async fn merge<K: Kind>(&self, name: &str, patch: Value) -> K {
        let api = self.all::<K>();
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) async fn merge_status<K: Kind>(&self, name: &str, status: Value) {
        let api = self.all::<K>();
        let patch = Patch::Merge(json!({"status": status}));
        let patched = api.patch_status(name, &PatchParams::default(), &patch).await;
        patched.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Asks for a number of replicas the way an autoscaler does.
    pub(crate) async fn scale<K: Kind>(&self, name: &str, replicas: i32) {
        let patch = json!({"spec": {"replicas": replicas}});
        let api = self.all::<K>();
        let scaled = api
            .patch_scale(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        scaled.expect("a scale");
    }

    /// Changes the image of cliques of the set `w`, all at once.
    pub(crate) async fn set_image(&self, cliques: &[&str], image: &str) {
        self.edit_set("w", |set| {
            for clique in &mut set.spec.template.cliques {
                if cliques.contains(&clique.name.as_str()) {
                    clique.spec.pod_spec.containers[0].image = Some(image.to_owned());
                }
            }
        })
        .await;
    }

    pub(crate) async fn edit_set(&self, name: &str, edit: impl Fn(&mut PodCliqueSet)) {
        loop {
            let mut set = self.get::<PodCliqueSet>(name).await;
            edit(&mut set);
            match self.all().replace(name, &PostParams::default(), &set).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.list::<Pod>().await.into_values().collect()
    }

    /// Pods that stay, of cliques whose name begins so.
    pub(crate) async fn pods_of(&self, prefix: &str) -> Vec<Pod> {
        let mut pods = self.pods().await;
        pods.retain(|pod| pod.name_any().starts_with(prefix) && pod.metadata.deletion_timestamp.is_none());
        pods
    }

    pub(crate) async fn uids_of(&self, prefix: &str) -> BTreeSet<String> {
        let pods = self.pods_of(prefix).await;
        pods.iter().filter_map(ResourceExt::uid).collect()
    }

    pub(crate) async fn images_of(&self, prefix: &str) -> BTreeSet<String> {
        let image = |pod: &Pod| pod.spec.as_ref()?.containers[0].image.clone();
        self.pods_of(prefix).await.iter().filter_map(image).collect()
    }

    pub(crate) async fn all_run(&self, prefix: &str, image: &str) {
        let images = self.images_of(prefix).await;
        assert_eq!(images, BTreeSet::from([image.to_owned()]), "{prefix}");
    }

    pub(crate) async fn ready(&self) -> usize {
        self.pods().await.iter().filter(|pod| is_ready(pod)).count()
    }

    /// Pods that have no node.
    pub(crate) async fn pending(&self) -> usize {
        let is_pending = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
        self.pods().await.iter().filter(is_pending).count()
    }

    /// Takes one pod of a clique away, and its place with it. The name of the place.
    pub(crate) async fn lose_pod(&self, clique: &str) -> String {
        let pods = self.pods_of(clique).await;
        let pod = pods.iter().find(|pod| is_ready(pod)).expect("a pod that is ready");
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let node = node.expect("a pod on a node");
        self.cordon(&node, true).await;
        self.delete::<Pod>(&pod.name_any()).await;
        node
    }

    /// Waits until nothing is written any more, in virtual time.
    pub(crate) async fn settle(&self) {
        if !comes_to_rest(&self.cluster, QUIET, PATIENCE).await {
            self.print().await;
            panic!("does not come to rest within {PATIENCE:?}");
        }
    }

    /// Lets time pass, and things come to rest.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.settle().await;
    }

    /// Waits until something holds, in virtual time.
    pub(crate) async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        if !comes_true(&self.cluster, PATIENCE, async || holds(self).await).await {
            self.print().await;
            panic!("not within {PATIENCE:?}: {what}");
        }
    }

    async fn print(&self) {
        let topologies = Api::<ClusterTopology>::all(self.client.clone());
        for topology in topologies.list(&ListParams::default()).await.expect("a list") {
            eprintln!("topology {}: {:?}", topology.name_any(), topology.status);
        }
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
            let (name, ready) = (pod.name_any(), is_ready(&pod));
            eprintln!(
                "pod {name}: {:?} {:?} ready {ready}",
                spec.node_name, spec.scheduling_gates
            );
        }
    }
}
