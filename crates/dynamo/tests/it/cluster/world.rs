//! An embedded cluster with everything that a graph needs: nodes in racks, an operator, a scheduler, and the controller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use grove_api::config::SchedulerProfile;
use grove_api::dynamo::Component;
use grove_api::{DynamoGraphDeployment, DynamoGraphDeploymentStatus, rights};
use grove_controllers::{Operator, Settings};
use grove_dynamo::controller::{self, Controller};
use grove_dynamo::translate::Surroundings;
use grove_scenarios::audit::{Audit, Terms};
use grove_scenarios::embedded::{Kind, Running, comes_to_rest, comes_true, install_kinds, is_ready};
use grove_scenarios::{BLOCK, CAPACITY, RACK, ZONE, configuration, levels};
use grove_scheduler::{Policy, Scheduler};
use grove_simcluster::{Cluster, NodeSpec, User};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "default";
/// The controller's own name here, so that what it asks is told from what the operator asks.
pub(crate) const CONTROLLER: &str = "system:serviceaccount:grove-system:grove-dynamo";
const OPERATOR: &str = "system:serviceaccount:grove-system:grove-operator";
/// Virtual time after which something that should happen has not.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Virtual time without a write after which nothing more is under way.
const QUIET: Duration = Duration::from_secs(3);
pub(crate) struct World {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: Client,
    controller: Option<Running>,
    _others: Vec<Running>,
}

/// Whatever a test is about, in it the controller stays within its rights.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let beyond = self.beyond_rights();
            assert!(beyond.is_empty(), "crates/api/src/rights.rs does not grant {beyond:?}");
        }
    }
}

/// One zone: two blocks of two racks, each of four nodes with eight GPUs.
fn nodes() -> Vec<NodeSpec> {
    let node = |index: usize| {
        let (rack, block) = (index / 4, index / 8);
        let node = NodeSpec::new(&format!("n{index:02}"))
            .label(ZONE, "z")
            .label(BLOCK, &format!("b{block}"))
            .label(RACK, &format!("r{rack}"));
        CAPACITY
            .into_iter()
            .fold(node, |node, (resource, amount)| node.capacity(resource, amount))
    };
    (0..16).map(node).collect()
}

impl World {
    /// Everything, with a topology of zones, blocks, racks and hosts.
    pub(crate) async fn start() -> Self {
        let cluster = Cluster::builder().seed(1).nodes(nodes()).record_history(true).start();
        let client = cluster.client();
        install_kinds(&client).await;
        let mut world = Self {
            cluster: Arc::new(cluster),
            client,
            controller: None,
            _others: Vec::new(),
        };
        world
            .eventually("the kinds are served", async |world| {
                world
                    .all::<DynamoGraphDeployment>()
                    .list(&ListParams::default())
                    .await
                    .is_ok()
            })
            .await;
        world.start_grove().await;
        world.start_controller();
        world
    }

    async fn start_grove(&mut self) {
        let configuration = configuration(&levels(&["zone", "block", "rack", "host"]), &SchedulerProfile::Grove);
        let clock = self.cluster.clock();
        let settings = Settings {
            scheduler: configuration.scheduler.clone(),
            topology: configuration.topology_aware_scheduling.clone(),
            wait_image: "grove".to_owned(),
            pins: false,
            workers: 8,
            clock: Arc::new(move || clock.now()),
        };
        let operator = self.cluster.client_as(User::named(OPERATOR, &[]));
        grove_controllers::start(&operator, &settings)
            .await
            .expect("an operator that starts");
        let operator = Operator::new(operator, settings);
        let clock = self.cluster.clock();
        let settings = grove_scheduler::Settings {
            policy: Policy::new(&configuration),
            clock: Arc::new(move || clock.now()),
            ..grove_scheduler::Settings::default()
        };
        let scheduler = Scheduler::new(self.cluster.client_as(User::named("scheduler", &[])), settings);
        self._others
            .push(Running::start(|stop| async move { operator.run(stop).await }));
        self._others
            .push(Running::start(|stop| async move { scheduler.run(stop).await }));
    }

    pub(crate) fn start_controller(&mut self) {
        let clock = self.cluster.clock();
        let settings = controller::Settings {
            around: Surroundings::default(),
            workers: 4,
            clock: Arc::new(move || clock.now()),
        };
        let controller = Controller::new(self.cluster.client_as(User::named(CONTROLLER, &[])), settings);
        self.controller = Some(Running::start(|stop| async move { controller.run(stop).await }));
    }

    /// Stops the controller as a signal does.
    pub(crate) async fn stop_controller(&mut self) {
        if let Some(running) = self.controller.take() {
            running.end().await;
        }
    }

    /// Ends the controller where it stands, as a crash does.
    pub(crate) async fn crash_controller(&mut self) {
        if let Some(running) = self.controller.take() {
            running.crash().await;
        }
    }

    pub(crate) fn all<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn create<K: Kind + Serialize>(&self, object: &K) -> K {
        let mut object = object.clone();
        let meta = object.meta();
        *object.meta_mut() = ObjectMeta {
            name: meta.name.clone(),
            annotations: meta.annotations.clone(),
            labels: meta.labels.clone(),
            ..ObjectMeta::default()
        };
        self.all()
            .create(&PostParams::default(), &object)
            .await
            .expect("an object that is taken")
    }

    pub(crate) async fn get<K: Kind>(&self, name: &str) -> K {
        self.all()
            .get(name)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) async fn list<K: Kind>(&self) -> Vec<K> {
        self.all::<K>()
            .list(&ListParams::default())
            .await
            .expect("a list")
            .items
    }

    pub(crate) async fn delete<K: Kind>(&self, name: &str) {
        self.all::<K>()
            .delete(name, &DeleteParams::default())
            .await
            .expect("an object");
    }

    pub(crate) async fn merge<K: Kind>(&self, name: &str, patch: Value) -> K {
        let patched = self
            .all::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Scales something as an autoscaler does.
    pub(crate) async fn scale<K: Kind>(&self, name: &str, replicas: i32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let scaled = self.all::<K>().patch_scale(name, &PatchParams::default(), &patch).await;
        scaled.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Changes the components of a graph.
    pub(crate) async fn edit(&self, name: &str, change: impl Fn(&mut Vec<Component>)) {
        let mut components = self.get::<DynamoGraphDeployment>(name).await.spec.components;
        change(&mut components);
        self.merge::<DynamoGraphDeployment>(name, json!({"spec": {"components": components}}))
            .await;
    }

    pub(crate) async fn status(&self, name: &str) -> DynamoGraphDeploymentStatus {
        self.get::<DynamoGraphDeployment>(name).await.status.unwrap_or_default()
    }

    /// Status and reason of a condition.
    pub(crate) async fn condition(&self, name: &str, type_: &str) -> Option<(String, String)> {
        let conditions = self.status(name).await.conditions.into_iter();
        let mut found = conditions.filter(|condition| condition.type_ == type_);
        found.next().map(|condition| (condition.status, condition.reason))
    }

    /// Waits until a condition of a graph says this.
    pub(crate) async fn says(&self, name: &str, type_: &str, (status, reason): (&str, &str)) {
        let expected = Some((status.to_owned(), reason.to_owned()));
        self.eventually(&format!("{type_} of {name} is {status} {reason}"), async |world| {
            world.condition(name, type_).await == expected
        })
        .await;
    }

    pub(crate) async fn ready_pods(&self) -> Vec<Pod> {
        let mut pods = self.list::<Pod>().await;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod));
        pods
    }

    pub(crate) async fn pod_uids(&self, prefix: &str) -> BTreeSet<String> {
        let mut pods = self.list::<Pod>().await;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && pod.name_any().starts_with(prefix));
        pods.iter().filter_map(ResourceExt::uid).collect()
    }

    /// What the controller told people about a graph: type, reason, note.
    pub(crate) async fn told(&self, graph: &str) -> Vec<(String, String, String)> {
        let mut events = self.list::<Event>().await;
        events.retain(|event| {
            let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
            event.reporting_instance.as_deref() == Some("grove-dynamo") && about == Some(graph)
        });
        events.sort_by_key(|event| event.event_time.clone());
        let text = |text: Option<String>| text.unwrap_or_default();
        events
            .into_iter()
            .map(|event| (text(event.type_), text(event.reason), text(event.note)))
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
            for graph in self.list::<DynamoGraphDeployment>().await {
                eprintln!("{}: {:#?}", graph.name_any(), graph.status);
            }
            panic!("not within {PATIENCE:?}: {what}");
        }
    }

    /// Judges every moment since the beginning: gangs whole, constraints kept.
    pub(crate) fn audit(&self) -> Audit {
        let history = self.cluster.history().expect("histories of tests are recorded");
        Audit::of_history(history, Terms::calm(Policy::default().grace))
    }

    /// Requests of the controller that were meant to change something.
    pub(crate) fn writes(&self) -> usize {
        let history = self.cluster.history().expect("histories of tests are recorded");
        history
            .requests()
            .by_user(CONTROLLER)
            .only(|asked| asked.intent.verb.is_write())
            .count()
    }

    /// Requests of the controller about kinds whose names hold these letters.
    pub(crate) fn requests_about(&self, letters: &str) -> usize {
        let history = self.cluster.history().expect("histories of tests are recorded");
        let requests = history.requests().by_user(CONTROLLER);
        requests
            .only(|asked| asked.intent.resource.plural.contains(letters))
            .count()
    }

    fn beyond_rights(&self) -> BTreeSet<String> {
        let mut rules = rights::cluster_role().rules.unwrap_or_default();
        rules.extend(rights::dynamo_cluster_role().rules.unwrap_or_default());
        let history = self.cluster.history().expect("histories of tests are recorded");
        let beyond = history.requests().by_user(CONTROLLER).only(|asked| {
            let intent = &asked.intent;
            let plural = match intent.subresource.as_str() {
                "" => intent.resource.plural.to_string(),
                subresource => format!("{}/{subresource}", intent.resource.plural),
            };
            let verb = format!("{:?}", intent.verb).to_lowercase();
            !rights::allows(&rules, (&intent.resource.group, &plural), &verb, &intent.name)
        });
        let words = beyond
            .iter()
            .map(|asked| format!("{:?} {:?}", asked.intent.verb, asked.intent.resource));
        words.collect()
    }
}
