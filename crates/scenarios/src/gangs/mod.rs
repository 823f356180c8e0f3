//! GS1–GS12 and GT1–GT6, each as steps that any cluster can go through: gangs start whole and scaled gangs after their
//! base; what stays below its minimum is torn down and comes back; what is above it is replaced.
//!
//! A cluster takes part by being a [`Floor`]. Its nodes have room for so many pods, so that counting pods is enough.

mod loss;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grove_api::conditions::podgang::SCHEDULED;
use grove_api::{PodCliqueScalingGroup, PodCliqueSet, PodGang, labels};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::embedded::{Kind, is_ready};

pub use loss::*;
pub use start::*;

/// How long what is below its minimum stays before it is made anew.
pub const DELAY: Duration = Duration::from_secs(10);

/// A cluster on which an operator runs and gangs are placed, with a namespace for the scenario and no places yet.
#[expect(async_fn_in_trait, reason = "a scenario runs on the thread of its test")]
pub trait Floor {
    fn client(&self) -> &Client;

    /// The namespace that the scenario has to itself; pods of others may be on nodes without its label.
    fn namespace(&self) -> &str;

    /// The label of the nodes that are the scenario's own, if not all of them are.
    fn label(&self) -> Option<(&str, &str)>;

    /// Adds a node with room for so many pods.
    async fn add_node(&self, room: usize);

    /// Waits until something holds, and fails the test when it does not come to hold.
    async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool);

    /// Waits until nothing is under way any more.
    async fn settle(&self);

    /// Lets time pass, more than [`DELAY`] and as much as is bearable, and things come to rest.
    async fn outlast(&self);
}

/// Calls a macro with the name of every scenario.
#[macro_export]
macro_rules! for_each_gang_scenario {
    ($each:ident) => {
        $each! {
            gs01_a_gang_that_does_not_fit_waits_whole,
            gs02_a_scaled_group_waits_as_its_own_gang,
            gs03_a_second_replica_waits_whole,
            gs04_replicas_and_groups_scale_together,
            gs05_the_minimum_runs_first_then_the_rest,
            gs06_a_scaled_gang_needs_only_its_own_minimum,
            gs07_scaled_gangs_come_one_by_one_as_room_does,
            gs08_scaled_before_any_capacity_the_base_comes_first,
            gs09_a_second_replica_comes_gang_by_gang,
            gs10_two_replicas_before_any_capacity,
            gs11_set_and_group_scale_in_turn,
            gs12_everything_up_front,
            gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay,
            gt2_a_lost_pod_of_a_group_at_its_minimum_recycles_the_replica,
            gt3_a_loss_above_the_minimum_is_tolerated,
            gt4_a_group_recycles_one_replica_and_the_set_when_none_is_left,
            gt5_a_lost_pod_recycles_only_its_replica_of_the_group,
            gt6_a_lost_pod_of_a_scaled_gang_is_just_replaced,
        }
    };
}

/// How many of its pods each part of the workload needs.
#[derive(Clone, Copy)]
enum Minimum {
    /// W1
    All,
    /// W2
    One,
    /// W2, but pc-c needs all three of its pods.
    AllOfC,
}

/// pc-a with two pods, and two replicas of the scaling group sg-x of pc-b with one pod and pc-c with three: ten pods.
fn workload(floor: &impl Floor, minimum: Minimum) -> PodCliqueSet {
    let least = |name: &str, replicas: i32| match (minimum, name) {
        (Minimum::All, _) | (Minimum::AllOfC, "pc-c") => replicas,
        (Minimum::One | Minimum::AllOfC, _) => 1,
    };
    let clique = |name: &str, replicas: i32| {
        let mut pod = json!({"containers": [{"name": "main", "image": "one"}]});
        if let Some((key, value)) = floor.label() {
            pod["nodeSelector"] = json!({key: value});
        }
        json!({"name": name, "spec": {"roleName": name, "replicas": replicas,
            "minAvailable": least(name, replicas), "podSpec": pod}})
    };
    let group = json!({"name": "sg-x", "cliqueNames": ["pc-b", "pc-c"], "replicas": 2,
        "minAvailable": least("sg-x", 2)});
    let template = json!({
        "terminationDelay": format!("{}s", DELAY.as_secs()),
        "cliques": [clique("pc-a", 2), clique("pc-b", 1), clique("pc-c", 3)],
        "podCliqueScalingGroups": [group],
    });
    let set = json!({"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "w"},
        "spec": {"replicas": 1, "template": template}});
    serde_json::from_value(set).unwrap()
}

fn all<K: Kind>(floor: &impl Floor) -> Api<K> {
    Api::namespaced(floor.client().clone(), floor.namespace())
}

/// Applies the workload, with so many places.
async fn begin(floor: &impl Floor, minimum: Minimum, places: usize) {
    grow_to(floor, places).await;
    let set = workload(floor, minimum);
    all(floor).create(&PostParams::default(), &set).await.unwrap();
}

/// The same, all of which runs.
async fn running(floor: &impl Floor, minimum: Minimum, places: usize) {
    begin(floor, minimum, places).await;
    holds(floor, (10, 0)).await;
}

/// The same with a node for each pod, to be lost with it.
async fn apart(floor: &impl Floor, minimum: Minimum, places: usize) {
    for _ in 0..places {
        floor.add_node(1).await;
    }
    running(floor, minimum, 0).await;
}

/// Adds room until there is so much, all at once: who takes single places as they come is not what is asked here.
async fn grow_to(floor: &impl Floor, places: usize) {
    let there: usize = nodes(floor).await.iter().map(room).sum();
    if there < places {
        floor.add_node(places - there).await;
    }
}

/// How many pods a node has room for.
fn room(node: &Node) -> usize {
    let status = node.status.as_ref().unwrap();
    let has = status.allocatable.as_ref().or(status.capacity.as_ref()).unwrap();
    has["pods"].0.parse().unwrap()
}

/// The nodes of the scenario.
async fn nodes(floor: &impl Floor) -> Vec<Node> {
    let own = match floor.label() {
        Some((key, value)) => ListParams::default().labels(&format!("{key}={value}")),
        None => ListParams::default(),
    };
    let nodes = Api::<Node>::all(floor.client().clone());
    nodes.list(&own).await.unwrap().items
}

async fn pods(floor: &impl Floor, prefix: &str) -> Vec<Pod> {
    let mut pods = all::<Pod>(floor).list(&ListParams::default()).await.unwrap().items;
    pods.retain(|pod| pod.name_any().starts_with(prefix) && pod.metadata.deletion_timestamp.is_none());
    pods
}

/// How many pods are ready, and how many have no node.
async fn counts(floor: &impl Floor) -> (usize, usize) {
    let pods = pods(floor, "w-").await;
    let is_pending = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    (ready, pods.iter().filter(is_pending).count())
}

/// Whether whoever places has made up its mind about every gang that may be placed: one that it has not heard of yet
/// would come too late for the next room.
async fn is_decided(floor: &impl Floor) -> bool {
    let gangs = all::<PodGang>(floor).list(&ListParams::default()).await.unwrap();
    let mut said = BTreeMap::new();
    for gang in &gangs {
        let status = gang.status.iter();
        let mut conditions = status.flat_map(|status| &status.conditions);
        let scheduled = conditions.find(|condition| condition.type_ == SCHEDULED);
        let scheduled = scheduled.map(|condition| (condition.status == "True", condition.reason.as_str()));
        said.insert(gang.name_any(), scheduled);
    }
    let is_placed = |gang: &String| matches!(said.get(gang), Some(Some((true, _))));
    gangs.iter().all(|gang| {
        let base = gang.labels().get(labels::BASE_PODGANG);
        base.is_some_and(|base| !is_placed(base))
            || said[&gang.name_any()].is_some_and(|(_, reason)| reason != "NotFormed")
    })
}

/// Waits until so many pods are ready and so many have no node, and sees that it stays so.
async fn holds<F: Floor>(floor: &F, expected: (usize, usize)) {
    let what = format!("{} pods are ready and {} have no node", expected.0, expected.1);
    floor
        .eventually(&what, async |floor: &F| counts(floor).await == expected)
        .await;
    floor
        .eventually("every gang is placed or told why not", async |floor: &F| {
            is_decided(floor).await
        })
        .await;
    floor.settle().await;
    assert_eq!(counts(floor).await, expected, "ready and without a node, at rest");
}

/// Gives the cluster so many places, and sees how many pods are ready and how many without a node.
async fn with_places(floor: &impl Floor, places: usize, expected: (usize, usize)) {
    grow_to(floor, places).await;
    holds(floor, expected).await;
}

async fn scale<K: Kind>(floor: &impl Floor, name: &str, replicas: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let api = all::<K>(floor);
    api.patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Scales a group that may be on its way to be made.
async fn scale_group<F: Floor>(floor: &F, group: &str, replicas: i32) {
    let is_there = async |floor: &F| {
        all::<PodCliqueScalingGroup>(floor)
            .get_opt(group)
            .await
            .unwrap()
            .is_some()
    };
    floor.eventually("the group is there", is_there).await;
    scale::<PodCliqueScalingGroup>(floor, group, replicas).await;
}

async fn scale_set(floor: &impl Floor, replicas: i32) {
    scale::<PodCliqueSet>(floor, "w", replicas).await;
}

async fn cordon(floor: &impl Floor, node: &str, on: bool) {
    let patch = Patch::Merge(json!({"spec": {"unschedulable": on}}));
    let nodes = Api::<Node>::all(floor.client().clone());
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// Gives all places back, and sees everything run again.
async fn recovers(floor: &impl Floor) {
    for node in nodes(floor).await {
        cordon(floor, &node.name_any(), false).await;
    }
    holds(floor, (10, 0)).await;
}

async fn uids(floor: &impl Floor, prefix: &str) -> BTreeSet<String> {
    pods(floor, prefix).await.iter().filter_map(ResourceExt::uid).collect()
}

/// Takes a pod of a clique away, and its place with it. The name of the place.
async fn lose(floor: &impl Floor, clique: &str) -> String {
    let pods = pods(floor, clique).await;
    let lost = pods.iter().find(|pod| is_ready(pod)).unwrap();
    let node = lost.spec.as_ref().unwrap().node_name.clone().unwrap();
    cordon(floor, &node, true).await;
    let api = all::<Pod>(floor);
    api.delete(&lost.name_any(), &DeleteParams::default()).await.unwrap();
    node
}
