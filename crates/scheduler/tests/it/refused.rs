//! Binds that the API server refuses, nodes that go under a bind, pods that a kubelet does not take: the gang ends whole
//! elsewhere.

use std::time::Duration;

use grove_api::PodCliqueSet;
use grove_simcluster::fault::{Match, RequestFault, Rule};
use grove_simcluster::server::Verb;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::crash::binds;
use crate::support::{Policies, SCHEDULER, World, node, nodes, set};

/// How long the second bind of a gang is under way.
const SLOW: Duration = Duration::from_secs(10);

/// A gang of two of which one is bound, with its node, while the bind of the other is under way.
async fn half_way(world: &World) -> (Pod, String, Pod) {
    let slow = Rule::request(binds(), RequestFault::Slow(SLOW)).nth(2);
    world.cluster.faults().script([slow]);
    world.create::<PodCliqueSet>(&set("w", 2, 8, "rack")).await;
    let node_of = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    world
        .eventually("one is bound", async |world| {
            world.nodes_of("w").await.iter().flatten().count() == 1
        })
        .await;
    let pods: Vec<Pod> = world.list::<Pod>().await.into_values().collect();
    let (bound, waiting): (Vec<Pod>, Vec<Pod>) = pods.into_iter().partition(|pod| node_of(pod).is_some());
    let ([bound], [waiting]) = (&bound[..], &waiting[..]) else {
        panic!("{} bound, {} waiting", bound.len(), waiting.len());
    };
    (bound.clone(), node_of(bound).expect("a node"), waiting.clone())
}

/// The gang `w-0` has its two pods, alive and each on a host of the same rack.
async fn ends_whole(world: &World) {
    world
        .eventually("two pods that live are on two hosts of a rack", async |world| {
            let pods = world.list::<Pod>().await.into_iter().filter(|(name, pod)| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                name.starts_with("w-") && pod.metadata.deletion_timestamp.is_none() && phase != Some("Failed")
            });
            let mut nodes: Vec<_> = pods.filter_map(|(_, pod)| pod.spec?.node_name).collect();
            nodes.dedup();
            nodes.len() == 2 && world.racks_of("w").await.len() == 1
        })
        .await;
    world.await_scheduled("w-0", ("True", "Placed")).await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_conflicts_is_decided_again() {
    let world = World::new(nodes(1, 2, 2)).await;
    let conflicts = Rule::request(binds(), RequestFault::Conflict).times(3);
    world.cluster.faults().script([conflicts]);
    world.create::<PodCliqueSet>(&set("w", 2, 8, "rack")).await;
    ends_whole(&world).await;
    assert_eq!(world.audit().binds, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_else_binds_meanwhile_is_counted_where_it_is() {
    let world = World::new(nodes(1, 1, 3)).await;
    let (_, node, waiting) = half_way(&world).await;
    let free = (1..=3).map(|host| format!("b1r1h{host}")).rfind(|name| *name != node);
    let free = free.expect("another host");
    world.bind(&waiting.name_any(), &free).await;
    ends_whole(&world).await;
    // The third host is free, also in the scheduler's eyes.
    world.create::<PodCliqueSet>(&set("next", 1, 8, "rack")).await;
    world.await_scheduled("next-0", ("True", "Placed")).await;
    world.settle().await;
    assert_eq!(world.audit().binds, 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_goes_while_it_is_bound_is_placed_on_another() {
    let world = World::new(nodes(1, 1, 2)).await;
    let (_, node_of_first, second) = half_way(&world).await;
    let gone = ["b1r1h1", "b1r1h2"].into_iter().find(|name| *name != node_of_first);
    let gone = gone.expect("the other host");
    let hosts = Api::<Node>::all(world.client.clone());
    hosts.delete(gone, &DeleteParams::default()).await.expect("a deletion");
    world.cluster.fleet().add(node("b1", "b1r1", 3));
    world
        .eventually("it is bound to a node that is gone", async |world| {
            world.nodes_of("w").await.contains(&Some(gone.to_owned()))
        })
        .await;
    // What the control plane does with pods of nodes that are gone.
    let at_once = DeleteParams::default().grace_period(0);
    let pods = world.all::<Pod>();
    pods.delete(&second.name_any(), &at_once).await.expect("a deletion");
    ends_whole(&world).await;
    assert!(world.nodes_of("w").await.contains(&Some("b1r1h3".to_owned())));
}

/// Ends a pod as a kubelet does that has no room for it.
async fn turn_away(world: &World, pod: &str, reason: &str) {
    let status = json!({"status": {"phase": "Failed", "reason": reason,
        "message": "Pod was rejected: Node didn't have enough resource"}});
    let pods = world.all::<Pod>();
    let patched = pods
        .patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
        .await;
    patched.expect("a pod that is there");
}

/// Binds a pod of another scheduler to a node.
async fn rival_on(world: &World, node: &str) {
    let rival = crate::pods::pod("rival", "theirs", 8);
    world.create::<Pod>(&rival).await;
    world.bind("rival", node).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_its_kubelet_turns_away_is_replaced_elsewhere() {
    for (reason, pins) in [
        ("OutOfcpu", false),
        ("OutOfnvidia.com/gpu", false),
        ("OutOfnvidia.com/gpu", true),
    ] {
        let policies = Policies { pins, spills: false };
        let world = World::with(nodes(1, 1, 3), policies).await;
        world.create::<PodCliqueSet>(&set("w", 2, 8, "rack")).await;
        world.await_scheduled("w-0", ("True", "Placed")).await;
        // Another scheduler was faster: the kubelet takes whom it hears of first.
        let first = world.list::<Pod>().await.into_values().next().expect("a pod");
        let node = first.spec.clone().and_then(|spec| spec.node_name).expect("a bound pod");
        rival_on(&world, &node).await;
        turn_away(&world, &first.name_any(), reason).await;
        ends_whole(&world).await;
        assert!(
            !world.nodes_of("w-").await.contains(&Some(node)),
            "{reason}: where the rival is"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_turned_away_before_its_gang_is_whole_returns_and_the_gang_ends_whole() {
    let world = World::new(nodes(1, 2, 2)).await;
    let (first, node, _) = half_way(&world).await;
    rival_on(&world, &node).await;
    turn_away(&world, &first.name_any(), "OutOfnvidia.com/gpu").await;
    ends_whole(&world).await;
    let rack = |node: &str| node.split_once('h').map(|(rack, _)| rack.to_owned());
    assert_ne!(
        world.racks_of("w").await,
        [rack(&node).expect("a rack")],
        "that rack has one host left"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_bound_before_it_is_told_that_it_has_no_room_is_not_told() {
    let world = World::new(nodes(1, 1, 2)).await;
    world.create::<PodCliqueSet>(&set("first", 2, 8, "rack")).await;
    world.await_scheduled("first-0", ("True", "Placed")).await;
    let marks = Match::any()
        .user(SCHEDULER)
        .verb(Verb::Patch)
        .resource("", "pods")
        .subresource("status");
    world
        .cluster
        .faults()
        .script([Rule::request(marks, RequestFault::Slow(SLOW)).times(2)]);
    world.create::<PodCliqueSet>(&set("w", 2, 8, "rack")).await;
    world.await_scheduled("w-0", ("False", "InsufficientCapacity")).await;
    let sets = world.all::<PodCliqueSet>();
    sets.delete("first", &DeleteParams::default())
        .await
        .expect("a deletion");
    ends_whole(&world).await;
    tokio::time::sleep(SLOW).await;
    world.settle().await;
    world.audit();
}
