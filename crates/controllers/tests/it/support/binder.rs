//! A gang binder for tests. It stands in until the scheduler exists, and knows one thing: room is a number of pods on
//! each node.
//!
//! A gang's minimum is bound whole or not at all, base gangs before scaled ones; what is above the minimum comes after
//! all minimums. Like whoever places, it owns the `Scheduled` condition of PodGangs. It is woken by writes and has no
//! timer.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::conditions::podgang::SCHEDULED;
use grove_api::{PodGang, labels};
use grove_simcluster::store::{Event, ResourceName};
use grove_simcluster::{Cluster, User};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;

pub(crate) const SCHEDULER: &str = "grove-scheduler";

/// Ends its binder when dropped.
pub(crate) struct Binder(AbortHandle);

impl Drop for Binder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Binder {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let client = cluster.client_as(User::named(SCHEDULER, &[]));
        let writes = cluster.store().tap();
        let clock = cluster.clock();
        let task = tokio::spawn(run(client, writes, move || clock.now().to_string()));
        Self(task.abort_handle())
    }
}

async fn run(client: Client, mut writes: UnboundedReceiver<(ResourceName, Event)>, now: impl Fn() -> String) {
    while let Some((resource, _)) = writes.recv().await {
        let mut matters = concerns_placement(&resource);
        while let Ok((resource, _)) = writes.try_recv() {
            matters |= concerns_placement(&resource);
        }
        if matters {
            // A write that comes in between is another reason to wake up: an answer that was refused needs no care.
            let _ = place(&client, &now).await;
        }
    }
}

fn concerns_placement(resource: &ResourceName) -> bool {
    matches!(&*resource.plural, "pods" | "nodes" | "podgangs")
}

struct Scene {
    gangs: Vec<PodGang>,
    pods: BTreeMap<String, Pod>,
    /// Room that is left, by node.
    free: BTreeMap<String, usize>,
}

async fn place(client: &Client, now: &impl Fn() -> String) -> kube::Result<()> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await?.items;
    let pods = Api::<Pod>::all(client.clone()).list(&all).await?.items;
    let mut gangs = Api::<PodGang>::all(client.clone()).list(&all).await?.items;
    gangs.sort_by_key(|gang| (gang.labels().contains_key(labels::BASE_PODGANG), gang.name_any()));
    let pods: BTreeMap<String, Pod> = pods.into_iter().map(|pod| (pod.name_any(), pod)).collect();
    let free = free(&nodes, pods.values());
    let mut scene = Scene { gangs, pods, free };
    let mut bindings = scene.minimums();
    bindings.extend(scene.above_minimums());
    for (pod, node) in &bindings {
        bind(client, &scene.pods[pod], node).await?;
    }
    for gang in &scene.gangs {
        report(client, gang, scene.is_placed(gang), now).await?;
    }
    Ok(())
}

fn free<'a>(nodes: &[Node], pods: impl Iterator<Item = &'a Pod>) -> BTreeMap<String, usize> {
    let is_usable = |node: &&Node| {
        let spec = node.spec.clone().unwrap_or_default();
        spec.unschedulable != Some(true) && spec.taints.unwrap_or_default().is_empty()
    };
    let room = |node: &Node| {
        let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
        allocatable.get("pods")?.0.parse().ok()
    };
    let mut free: BTreeMap<String, usize> = nodes
        .iter()
        .filter(is_usable)
        .map(|node| (node.name_any(), room(node).unwrap_or_default()))
        .collect();
    for node in pods.filter_map(node_of) {
        if let Some(left) = free.get_mut(node) {
            *left = left.saturating_sub(1);
        }
    }
    free
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn is_live(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn waits(pod: &Pod) -> bool {
    let spec = pod.spec.clone().unwrap_or_default();
    let is_gated = spec.scheduling_gates.is_some_and(|gates| !gates.is_empty());
    is_live(pod) && spec.node_name.is_none() && !is_gated && spec.scheduler_name.as_deref() == Some(SCHEDULER)
}

impl Scene {
    /// For each group of a gang: how many pods its minimum still lacks, and which pods wait.
    fn wants(&self, gang: &PodGang) -> Vec<(usize, Vec<String>)> {
        let groups = gang.spec.pod_groups.iter().map(|group| {
            let listed: BTreeSet<&str> = group.pod_references.iter().map(|pod| pod.name.as_str()).collect();
            let pods = || listed.iter().filter_map(|name| self.pods.get(*name));
            let bound = pods().filter(|pod| is_live(pod) && node_of(pod).is_some()).count();
            let lacks = usize::try_from(group.min_replicas)
                .unwrap_or_default()
                .saturating_sub(bound);
            (
                lacks,
                pods().filter(|pod| waits(pod)).map(ResourceExt::name_any).collect(),
            )
        });
        groups.collect()
    }

    /// Bindings that give gangs their minimum, each gang whole.
    fn minimums(&mut self) -> Vec<(String, String)> {
        let mut bindings = Vec::new();
        for gang in self.gangs.clone() {
            let wants = self.wants(&gang);
            let lacks: usize = wants.iter().map(|(lacks, _)| lacks).sum();
            let can_be_met = wants.iter().all(|(lacks, waiting)| waiting.len() >= *lacks);
            if can_be_met && lacks <= self.free.values().sum() {
                let chosen = wants
                    .into_iter()
                    .flat_map(|(lacks, waiting)| waiting.into_iter().take(lacks));
                bindings.extend(self.put(chosen.collect()));
            }
        }
        bindings
    }

    /// Bindings for what else waits in gangs that have their minimum.
    fn above_minimums(&mut self) -> Vec<(String, String)> {
        let mut bindings = Vec::new();
        for gang in self.gangs.clone() {
            let wants = self.wants(&gang);
            if wants.iter().all(|(lacks, _)| *lacks == 0) {
                bindings.extend(self.put(wants.into_iter().flat_map(|(_, waiting)| waiting).collect()));
            }
        }
        bindings
    }

    /// Puts pods onto nodes, as far as there is room.
    fn put(&mut self, pods: Vec<String>) -> Vec<(String, String)> {
        let mut bindings = Vec::new();
        for pod in pods {
            let Some((node, left)) = self.free.iter_mut().find(|(_, left)| **left > 0) else {
                break;
            };
            *left -= 1;
            let spec = self.pods.get_mut(&pod).and_then(|pod| pod.spec.as_mut());
            spec.expect("a pod that was listed").node_name = Some(node.clone());
            bindings.push((pod, node.clone()));
        }
        bindings
    }

    fn is_placed(&self, gang: &PodGang) -> bool {
        self.wants(gang).iter().all(|(lacks, _)| *lacks == 0)
    }
}

async fn bind(client: &Client, pod: &Pod, node: &str) -> kube::Result<()> {
    let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any()},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let name = pod.name_any();
    api.create_subresource::<_, serde_json::Value>("binding", &name, &PostParams::default(), &binding)
        .await?;
    Ok(())
}

/// Says on the gang whether it is placed, if that is news.
async fn report(client: &Client, gang: &PodGang, is_placed: bool, now: &impl Fn() -> String) -> kube::Result<()> {
    let conditions = gang.status.iter().flat_map(|status| &status.conditions);
    let mut said = conditions.filter(|condition| condition.type_ == SCHEDULED);
    let status = if is_placed { "True" } else { "False" };
    if said.next().map_or("", |condition| &condition.status) == status {
        return Ok(());
    }
    let (reason, message) = match is_placed {
        true => ("Placed", "Every clique has its minimum of pods on nodes"),
        false => ("NoRoom", "The minimum does not fit"),
    };
    let condition = json!({
        "type": SCHEDULED, "status": status, "reason": reason, "message": message, "lastTransitionTime": now(),
        "observedGeneration": gang.metadata.generation,
    });
    let patch = json!({
        "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang", "metadata": {"name": gang.name_any()},
        "status": {"conditions": [condition]},
    });
    let api = Api::<PodGang>::namespaced(client.clone(), &gang.namespace().unwrap_or_default());
    api.patch_status(
        &gang.name_any(),
        &PatchParams::apply(SCHEDULER).force(),
        &Patch::Apply(patch),
    )
    .await?;
    Ok(())
}
