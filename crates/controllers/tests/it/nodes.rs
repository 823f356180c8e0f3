//! Nodes that die, with pods on them that never finish ending.

use grove_api::{PodClique, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::support::World;
use crate::support::workloads::{Minimum, running};

/// Lets the node under one pod of a clique die; the name of the pod and of the node.
async fn kill_node_under(world: &World, clique: &str) -> (String, String) {
    let pod = world.pods_of(clique).await[0].clone();
    let node = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.clone())
        .expect("a node");
    world.cluster.fleet().down(&node);
    (pod.name_any(), node)
}

async fn stuck(world: &World) -> Vec<String> {
    let pods = world.pods().await.into_iter();
    let leaving = pods.filter(|pod| pod.metadata.deletion_timestamp.is_some());
    leaving.map(|pod| pod.name_any()).collect()
}

/// grove #401, kueue #15148: pods that hang on a dead node neither block recovery nor count.
#[tokio::test(start_paused = true)]
async fn pain_grove_401_pods_stuck_on_a_dead_node_neither_block_nor_count() {
    let world = running(Minimum::One, 11).await;
    let before = world.uids_of("w-0").await;
    let (pod, _) = kill_node_under(&world, "w-0-pc-a").await;
    world
        .eventually("the pod hangs", async |world| stuck(world).await == [pod.clone()])
        .await;
    world.settle().await;
    assert_eq!(world.ready().await, 10, "the replacement did not wait for the node");
    let status = world.clique_status("w-0-pc-a").await;
    assert_eq!((status.replicas, status.ready_replicas), (2, 2));
    world.pass(10_000).await;
    assert_eq!(stuck(&world).await, [pod]);
    assert_eq!(world.uids_of("w-0").await.intersection(&before).count(), 9);
}

/// The replacement of a pod that hangs has its index: two hosts of one name would be one too many.
#[tokio::test(start_paused = true)]
async fn the_replacement_takes_the_index_of_the_pod_that_hangs() {
    let world = running(Minimum::One, 11).await;
    let (lost, node) = kill_node_under(&world, "w-0-pc-a").await;
    let hostname = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    let expected = hostname(&world.get::<Pod>(&lost).await);
    world
        .eventually("the pod hangs", async |world| !stuck(world).await.is_empty())
        .await;
    world.settle().await;
    let pods = world.pods_of("w-0-pc-a").await;
    assert_eq!(pods.iter().filter(|pod| hostname(pod) == expected).count(), 1);
    // The node comes back and finishes: nothing else changes.
    let after = world.uids_of("w-0").await;
    world.cluster.fleet().up(&node);
    world.pass(60).await;
    assert!(stuck(&world).await.is_empty());
    assert_eq!(world.uids_of("w-0").await, after);
}

/// grove #775, #277, #798: a loss of nodes raises the breach, the replica is recycled, and the breach ends.
#[tokio::test(start_paused = true)]
async fn pain_grove_775_a_lost_node_breaches_and_the_breach_ends() {
    let world = running(Minimum::All, 10).await;
    let before = world.uids_of("w-0").await;
    let (_, node) = kill_node_under(&world, "w-0-sg-x-0-pc-c").await;
    // Given up after 40 s, evicted 300 s later, recycled 10 s after that: not one pod is left of the old gang.
    world.pass(400).await;
    assert!(world.uids_of("w-0").await.is_disjoint(&before));
    assert_eq!(world.ready().await, 0, "nine places do not hold the gang");
    let set = world.get::<PodCliqueSet>("w").await;
    assert_eq!(set.status.expect("a status").available_replicas, 0);
    let waiting = world.uids_of("w-0").await;
    world.pass(10_000).await;
    assert_eq!(world.uids_of("w-0").await, waiting, "once for each episode");
    world.cluster.fleet().up(&node);
    world.pass(60).await;
    assert_eq!(world.ready().await, 10);
    for (name, clique) in world.list::<PodClique>().await {
        let conditions = clique.status.expect("a status").conditions;
        let breach = conditions
            .iter()
            .find(|condition| condition.type_ == "MinAvailableBreached");
        assert_eq!(breach.map(|breach| breach.status.as_str()), Some("False"), "{name}");
    }
}

/// A set whose pods hang can still be deleted, and recreated under its name.
#[tokio::test(start_paused = true)]
async fn a_set_with_pods_that_hang_is_deleted_and_made_anew() {
    let world = running(Minimum::All, 21).await;
    kill_node_under(&world, "w-0-pc-a").await;
    world
        .eventually("the pod hangs", async |world| !stuck(world).await.is_empty())
        .await;
    world.delete::<PodCliqueSet>("w").await;
    world
        .eventually("the set is gone", async |world| {
            world.list::<PodCliqueSet>().await.is_empty()
        })
        .await;
    let manifest = crate::support::workloads::workload(Minimum::All, crate::support::workloads::Order::Any);
    world.create_set(&manifest).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    assert_eq!(stuck(&world).await.len(), 1);
}
