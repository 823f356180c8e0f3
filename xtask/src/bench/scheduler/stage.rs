//! The cluster that gangs are placed on, and the objects that ask for a place.
//!
//! The nodes are objects that nobody plays: heartbeats of 5,000 kubelets would take the API server's time from whoever is
//! measured, and pods that start would add writes of their own. Every arm finds the same nodes, and its pods made before
//! it begins.

use std::path::{Path, PathBuf};

use anyhow::Result;
use grove_api::{PodGang, labels};
use grove_e2e::{ControlPlane, Identity, node};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::super::bare::{self, create_namespace};
use super::super::operator::install;
use super::super::process::Measured;

const RACK_HOSTS: usize = 16;
const BLOCK_RACKS: usize = 20;
const BLOCK: &str = "example.com/block";
const RACK: &str = "example.com/rack";
const HOST: &str = "kubernetes.io/hostname";
/// Gangs that name no topology mean this one.
const TOPOLOGY: &str = "grove-topology";
const CAPACITY: [(&str, &str); 4] = [
    ("cpu", "64"),
    ("memory", "512Gi"),
    ("pods", "110"),
    ("nvidia.com/gpu", "8"),
];

pub(super) const NAMESPACE: &str = "gangs";
/// Where the bare client works: the scheduler takes no notice of it.
pub(super) const BARE: &str = "bare";
pub(super) const GROVE: &str = "grove-scheduler";
pub(super) const KUBE: &str = "default-scheduler";
/// The scheduler of pods that nobody schedules.
pub(super) const NOBODY: &str = "nobody";

pub(super) const GANG_PODS: usize = 8;
/// Binds that the bare client has under way at once; as many as the scheduler has.
const BINDS: usize = 64;

/// A control plane with nodes in racks and blocks, and Grove's kinds.
pub(super) struct Stage {
    pub(super) client: Client,
    pub(super) plane: ControlPlane,
    pub(super) nodes: usize,
    grove: PathBuf,
}

/// Pods that are placed together.
#[derive(Clone, Copy, Debug)]
pub(super) struct GangSpec<'a> {
    pub(super) name: &'a str,
    pub(super) pods: usize,
    pub(super) gpus: usize,
    /// The label of the level that holds all of it.
    pub(super) within: &'static str,
}

impl<'a> GangSpec<'a> {
    /// Eight pods that share a rack, and take an eighth of it.
    pub(super) fn of_eight(name: &'a str) -> Self {
        Self {
            name,
            pods: GANG_PODS,
            gpus: 2,
            within: RACK,
        }
    }

    pub(super) fn in_a_block(name: &'a str, pods: usize) -> Self {
        Self {
            name,
            pods,
            gpus: 2,
            within: BLOCK,
        }
    }

    /// Pods without GPUs, sixteen of which fit on a node: a thousand find room on a hundred nodes.
    pub(super) fn of_any_size(name: &'a str, pods: usize) -> Self {
        let within = if pods <= GANG_PODS { RACK } else { BLOCK };
        Self {
            name,
            pods,
            gpus: 0,
            within,
        }
    }

    fn pod(&self, index: usize, scheduler: &str) -> Result<DynamicObject> {
        let name = self.pod_name(index);
        pod(&name, (self.name, scheduler), self.gpus)
    }

    fn pod_name(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }

    fn gang(&self, namespace: &str) -> Result<DynamicObject> {
        let pods: Vec<Value> = (0..self.pods)
            .map(|index| json!({"namespace": namespace, "name": self.pod_name(index)}))
            .collect();
        let gang = json!({
            "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
            "metadata": {"name": self.name},
            "spec": {
                "topologyRef": TOPOLOGY,
                "topologyConstraint": {"packConstraint": {"required": self.within}},
                "podgroups": [{"name": "worker", "minReplicas": self.pods, "podReferences": pods}],
            },
        });
        Ok(serde_json::from_value(gang)?)
    }
}

fn pod(name: &str, (gang, scheduler): (&str, &str), gpus: usize) -> Result<DynamicObject> {
    let mut limits = json!({});
    if gpus > 0 {
        limits["nvidia.com/gpu"] = json!(gpus.to_string());
    }
    let mut amounts = limits.clone();
    amounts["cpu"] = json!("4");
    amounts["memory"] = json!("32Gi");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {labels::PODGANG: gang}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{
                "name": "main", "image": "registry.example/server:1",
                "resources": {"requests": amounts, "limits": limits},
            }],
        },
    });
    Ok(serde_json::from_value(pod)?)
}

fn host_name(index: usize) -> String {
    format!("host-{index}")
}

fn host(index: usize) -> Node {
    let rack = index / RACK_HOSTS;
    let block = rack / BLOCK_RACKS;
    let labels = [(BLOCK, format!("b{block}")), (RACK, format!("r{rack}"))];
    let labels = labels.each_ref().map(|(key, value)| (*key, value.as_str()));
    let mut node = node(&host_name(index), &labels, &CAPACITY);
    let ready = NodeCondition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        ..NodeCondition::default()
    };
    if let Some(status) = &mut node.status {
        status.conditions = Some(vec![ready]);
    }
    node
}

impl Stage {
    pub(super) async fn start(grove: &Path, nodes: usize) -> Result<Self> {
        let bare = ControlPlane::builder().controller_manager(false).kubelets(false);
        // Only for the time between two arms.
        let bare = bare.api_server_flag("--delete-collection-workers=16");
        let plane = bare.node_objects((0..nodes).map(host)).start().await?;
        let client = plane.client(Identity::Admin).await?;
        install(&client).await?;
        for namespace in [NAMESPACE, BARE] {
            create_namespace(&client, namespace).await?;
        }
        let levels = [("block", BLOCK), ("rack", RACK), ("host", HOST)];
        let levels = levels.map(|(domain, key)| json!({"domain": domain, "key": key}));
        let topology = json!({
            "apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": TOPOLOGY},
            "spec": {"levels": levels},
        });
        let topologies = Api::<grove_api::ClusterTopology>::all(client.clone());
        topologies
            .create(&PostParams::default(), &serde_json::from_value(topology)?)
            .await?;
        Ok(Self {
            client,
            plane,
            nodes,
            grove: grove.to_owned(),
        })
    }

    pub(super) async fn scheduler(&self) -> Result<Measured> {
        Measured::scheduler(&self.grove, &self.plane.kubeconfig(Identity::Admin), "").await
    }

    /// Makes pods that wait for a scheduler, and nothing that says that they belong together.
    pub(super) async fn create_pods(&self, namespace: &str, scheduler: &str, gangs: &[GangSpec<'_>]) -> Result<()> {
        let pods = gangs
            .iter()
            .flat_map(|gang| (0..gang.pods).map(move |index| (gang, index)));
        let pods: Vec<_> = pods
            .map(|(gang, index)| gang.pod(index, scheduler))
            .collect::<Result<_>>()?;
        bare::create(&self.client, namespace, &pods).await
    }

    pub(super) async fn create_gangs(&self, namespace: &str, gangs: &[GangSpec<'_>]) -> Result<()> {
        let gangs: Vec<_> = gangs.iter().map(|gang| gang.gang(namespace)).collect::<Result<_>>()?;
        bare::create(&self.client, namespace, &gangs).await
    }

    /// Puts a small pod on every node, so that no node is whole.
    pub(super) async fn occupy_every_node(&self) -> Result<()> {
        let occupant = |index: usize| {
            let mut pod = pod(&format!("occupant-{index}"), ("occupant", NOBODY), 1)?;
            pod.data["spec"]["nodeName"] = json!(host_name(index));
            Ok(pod)
        };
        let pods: Vec<_> = (0..self.nodes).map(occupant).collect::<Result<_>>()?;
        bare::create(&self.client, BARE, &pods).await
    }

    /// Binds as a client does that knows beforehand where each pod goes.
    pub(super) async fn bind(&self, namespace: &str, gangs: &[GangSpec<'_>]) -> Result<()> {
        let names = gangs
            .iter()
            .flat_map(|gang| (0..gang.pods).map(|index| gang.pod_name(index)));
        // Four pods on each node, the nodes of a rack one after the other.
        let places = names
            .enumerate()
            .map(|(index, name)| (name, host_name(index / 4 % self.nodes)));
        bare::bind(&self.client, namespace, places, BINDS).await
    }

    /// Deletes the gangs and the pods of a namespace.
    pub(super) async fn clear(&self, namespace: &str) -> Result<()> {
        let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
        let gangs = Api::<PodGang>::namespaced(self.client.clone(), namespace);
        gangs.delete_collection(&now, &all).await?;
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        pods.delete_collection(&now, &all).await?;
        Ok(())
    }
}
