//! An embedded cluster with all of Grove on it, and the people who use it.
//!
//! What people do is done again until it is taken, as `kubectl` users do: their requests meet faults too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use grove_scenarios::embedded::{comes_to_rest, comes_true, install_kinds};
use grove_scenarios::{BLOCK, RACK, ZONE};
use grove_simcluster::{Cluster, NodeSpec};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process::{Levels, Process, Role, configuration};
use crate::scenario::{Kind, Step};
use crate::webhooks;

/// Where everything happens.
pub(crate) const NAMESPACE: &str = "default";
/// The levels that the operator begins with.
pub(crate) const LEVELS: Levels = &["zone", "block", "rack", "host"];
/// Virtual time without a write after which nothing more is under way.
const QUIET: Duration = Duration::from_secs(3);
/// How long people wait for a cluster to come to rest before they go on all the same.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long people try again.
const INSIST_MAX: Duration = Duration::from_secs(900);
/// What the names of fields, gates and finalizers of another controller begin with.
pub(crate) const FOREIGN: &str = "example.com/";
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_secs(1);

const RACKS: usize = 2;
const HOSTS: usize = 4;
/// GPUs of a node: room for two pods of four.
const GPUS: &str = "8";

/// Something that people could not do, however often they tried.
#[derive(Debug, thiserror::Error)]
#[error("{what} was not taken within {INSIST_MAX:?}: {why}")]
pub(crate) struct NotTaken {
    what: String,
    why: String,
}

/// A cluster and what runs on it.
pub(crate) struct World {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) processes: BTreeMap<Role, Process>,
    people: Client,
}

/// A node of a rack.
fn node(rack: usize, host: usize) -> NodeSpec {
    NodeSpec::new(&node_name(rack, host))
        .label(ZONE, "z")
        .label(BLOCK, "b")
        .label(RACK, &format!("r{rack}"))
        .capacity("cpu", "64")
        .capacity("memory", "512Gi")
        .capacity("nvidia.com/gpu", GPUS)
}

pub(crate) fn node_name(rack: usize, host: usize) -> String {
    format!("r{rack}h{host}")
}

fn nodes() -> impl Iterator<Item = (usize, usize)> {
    (0..RACKS).flat_map(|rack| (0..HOSTS).map(move |host| (rack, host)))
}

impl World {
    /// Starts everything, and waits until it is at rest.
    pub(crate) async fn start(seed: u64) -> Result<Self, NotTaken> {
        let nodes = nodes().map(|(rack, host)| node(rack, host));
        let cluster = Cluster::builder().seed(seed).nodes(nodes).record_history(true).start();
        let cluster = Arc::new(cluster);
        let people = cluster.client();
        install_kinds(&people).await;
        let is_served = async || {
            let listed = people.request::<Value>(get(&Kind::Graph.path())).await;
            listed.is_ok()
        };
        comes_true(&cluster, PATIENCE, is_served).await;
        let registered = webhooks::register(&cluster, &configuration(LEVELS)).await;
        registered.map_err(|error| NotTaken {
            what: "the registration of webhooks".to_owned(),
            why: error.to_string(),
        })?;
        let start = |role| (role, Process::start(cluster.clone(), role, LEVELS));
        let world = Self {
            processes: Role::ALL.map(start).into_iter().collect(),
            people,
            cluster,
        };
        world.rest().await;
        Ok(world)
    }

    /// Does what people do in one step.
    pub(crate) async fn take(&self, step: &Step) -> Result<(), NotTaken> {
        match step {
            Step::Create(object) => self.create(object).await?,
            Step::Patch(kind, name, patch) => self.patch(&kind.at(name), patch).await?,
            Step::Delete(kind, name) => self.delete(&kind.at(name)).await?,
            Step::LosePod(clique) => self.lose_pod(clique).await?,
            Step::LoseNode(clique) => self.lose_node(clique).await?,
            Step::NodesReturn => nodes().for_each(|(rack, host)| self.cluster.fleet().up(&node_name(rack, host))),
            Step::AddNode(rack, host) => self.cluster.fleet().add(node(*rack, *host)),
            Step::Cordon(on) => self.cordon(*on).await?,
            Step::LiftForeignGates => {
                tokio::spawn(lift_foreign_gates(self.cluster.clone(), self.people.clone()));
            }
            Step::Configure(levels) => {
                for process in self.processes.values() {
                    process.configure(levels);
                }
            }
            Step::Rest => self.rest().await,
            Step::Pass(seconds) => tokio::time::sleep(Duration::from_secs(*seconds)).await,
        }
        Ok(())
    }

    /// How often processes were killed.
    pub(crate) fn kills(&self) -> usize {
        self.processes.values().map(Process::kills).sum()
    }

    /// Another controller begins to write into everything that is owned.
    pub(crate) fn storm(&self, per_second: u32, seconds: u64) {
        let (cluster, client) = (self.cluster.clone(), self.people.clone());
        tokio::spawn(storm(cluster, client, per_second, seconds));
    }

    /// Waits until nothing is written any more, or for as long as people have patience.
    async fn rest(&self) {
        comes_to_rest(&self.cluster, QUIET, PATIENCE).await;
    }

    /// Another controller writes its own into everything that there is: nobody of ours may touch that.
    pub(crate) async fn mark(&self) -> Result<(), NotTaken> {
        let mark =
            json!({"metadata": {"annotations": {"example.com/owner": "them"}, "labels": {"example.com/team": "a"}}});
        for kind in Kind::MARKED {
            for object in self.list(kind, "").await? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                self.patch(&kind.at(name), &mark).await?;
            }
        }
        Ok(())
    }

    /// Deletes all that people made.
    pub(crate) async fn clear(&self) -> Result<(), NotTaken> {
        for kind in [Kind::Graph, Kind::Set] {
            for object in self.list(kind, "").await? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                self.delete(&kind.at(name)).await?;
            }
        }
        Ok(())
    }

    async fn create(&self, object: &Value) -> Result<(), NotTaken> {
        let kind = Kind::of(object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let deadline = Instant::now() + INSIST_MAX;
        loop {
            let body = serde_json::to_vec(object).unwrap_or_default();
            let request = http::Request::post(kind.path()).body(body);
            match self.people.request::<Value>(sound(request)).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 && self.is_there(&kind.at(name)).await => {
                    return Ok(());
                }
                Err(error) => self.wait_or_give_up(&kind.at(name), error, deadline).await?,
            }
        }
    }

    /// Whether an object is there and stays.
    async fn is_there(&self, path: &str) -> bool {
        let found = self.people.request::<Value>(get(path)).await;
        found.is_ok_and(|object| object["metadata"]["deletionTimestamp"].is_null())
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<(), NotTaken> {
        let deadline = Instant::now() + INSIST_MAX;
        loop {
            match self.people.request::<Value>(patching(path, patch)).await {
                Ok(_) => return Ok(()),
                Err(error) => self.wait_or_give_up(path, error, deadline).await?,
            }
        }
    }

    async fn delete(&self, path: &str) -> Result<(), NotTaken> {
        let deadline = Instant::now() + INSIST_MAX;
        loop {
            let request = http::Request::delete(path).body(b"{}".to_vec());
            match self.people.request::<Value>(sound(request)).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(error) => self.wait_or_give_up(path, error, deadline).await?,
            }
        }
    }

    /// Objects of a kind, by name.
    async fn list(&self, kind: Kind, selector: &str) -> Result<Vec<Value>, NotTaken> {
        let path = match selector {
            "" => kind.path(),
            selector => format!("{}?labelSelector={selector}", kind.path()),
        };
        let deadline = Instant::now() + INSIST_MAX;
        loop {
            match self.people.request::<Value>(get(&path)).await {
                Ok(mut list) => {
                    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
                    return Ok(items);
                }
                Err(error) => self.wait_or_give_up(&path, error, deadline).await?,
            }
        }
    }

    async fn wait_or_give_up(&self, what: &str, error: kube::Error, deadline: Instant) -> Result<(), NotTaken> {
        if Instant::now() >= deadline {
            return Err(NotTaken {
                what: what.to_owned(),
                why: error.to_string(),
            });
        }
        tokio::time::sleep(TRY_AGAIN).await;
        Ok(())
    }

    /// The first pod of a clique that has a node and stays, by its name, and the node.
    async fn first_pod(&self, clique: &str) -> Result<Option<(String, String)>, NotTaken> {
        let pods = self.list(Kind::Pod, &format!("grove.io/podclique%3D{clique}")).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let staying = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let bound = staying.filter(|pod| pod["spec"]["nodeName"].is_string());
        let first = bound.min_by_key(|pod| text(&pod["metadata"]["labels"]["grove.io/podclique-pod-index"]));
        Ok(first.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))))
    }

    async fn lose_pod(&self, clique: &str) -> Result<(), NotTaken> {
        let Some((pod, node)) = self.first_pod(clique).await? else {
            return Ok(());
        };
        self.patch(&Kind::Node.at(&node), &json!({"spec": {"unschedulable": true}}))
            .await?;
        self.delete(&Kind::Pod.at(&pod)).await
    }

    async fn lose_node(&self, clique: &str) -> Result<(), NotTaken> {
        if let Some((_, node)) = self.first_pod(clique).await? {
            self.cluster.fleet().down(&node);
        }
        Ok(())
    }

    async fn cordon(&self, on: bool) -> Result<(), NotTaken> {
        for (rack, host) in nodes() {
            let patch = json!({"spec": {"unschedulable": on}});
            self.patch(&Kind::Node.at(&node_name(rack, host)), &patch).await?;
        }
        Ok(())
    }
}

/// Another controller that writes into what is owned, one object after the other.
async fn storm(cluster: Arc<Cluster>, client: Client, per_second: u32, seconds: u64) {
    let pause = Duration::from_secs(1) / per_second.max(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut count = 0_usize;
    while Instant::now() < end {
        let kind = Kind::OWNED[count % Kind::OWNED.len()];
        let resource = kind.resource();
        let names = cluster.store().list(&resource, Some(NAMESPACE)).items;
        if let Some((key, _)) = names.get(count / Kind::OWNED.len() % names.len().max(1)) {
            let annotations = json!({format!("{FOREIGN}count"): count.to_string()});
            let patch = json!({"metadata": {"annotations": annotations}});
            // It may be gone by now, or the request may be lost: the next one comes soon.
            let _ = client.request::<Value>(patching(&kind.at(&key.name), &patch)).await;
        }
        count += 1;
        tokio::time::sleep(pause).await;
    }
}

/// The controller whose gate pods have lets them go from now on, and touches no other gate.
async fn lift_foreign_gates(cluster: Arc<Cluster>, client: Client) {
    let mut writes = cluster.store().tap();
    loop {
        if !lift_once(&client).await {
            tokio::time::sleep(TRY_AGAIN).await;
            continue;
        }
        while writes
            .recv()
            .await
            .is_some_and(|(resource, _)| &*resource.plural != "pods")
        {}
    }
}

/// Whether all foreign gates that were seen are lifted.
async fn lift_once(client: &Client) -> bool {
    let Ok(list) = client.request::<Value>(get(&Kind::Pod.path())).await else {
        return false;
    };
    let is_theirs = |gate: &Value| gate["name"].as_str().is_some_and(|name| name.starts_with(FOREIGN));
    let mut is_done = true;
    for pod in list["items"].as_array().into_iter().flatten() {
        let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
        let (theirs, others): (Vec<&Value>, Vec<&Value>) = gates.partition(|gate| is_theirs(gate));
        if theirs.is_empty() {
            continue;
        }
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let version = &pod["metadata"]["resourceVersion"];
        let patch = json!({"spec": {"schedulingGates": others}, "metadata": {"resourceVersion": version}});
        is_done &= client
            .request::<Value>(patching(&Kind::Pod.at(name), &patch))
            .await
            .is_ok();
    }
    is_done
}

fn patching(path: &str, patch: &Value) -> http::Request<Vec<u8>> {
    let body = serde_json::to_vec(patch).unwrap_or_default();
    let sort = if patch.is_array() { "json-patch" } else { "merge-patch" };
    let request = http::Request::patch(path).header("content-type", format!("application/{sort}+json"));
    sound(request.body(body))
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    sound(http::Request::get(path).body(Vec::new()))
}

fn sound(request: http::Result<http::Request<Vec<u8>>>) -> http::Request<Vec<u8>> {
    request.expect("paths are made of names that the API server took")
}
