//! One gang: placed whole where it must be, or waiting whole with a reason.

use grove_api::podgang::Waiting;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use crate::support::{World, clique, node, nodes, set};

#[tokio::test(start_paused = true)]
async fn a_gang_is_bound_whole_inside_its_rack() {
    let world = World::new(nodes(2, 2, 4)).await;
    world
        .create::<grove_api::PodCliqueSet>(&set("train", 4, 8, "rack"))
        .await;
    world.await_scheduled("train-0", ("True", "Placed")).await;
    assert_eq!(world.racks_of("train").await.len(), 1);
    let status = world.gang("train-0").await.status.expect("a status");
    assert_eq!(status.placement_score, Some(1.0));
    assert_eq!(status.pending, None);
    let rack = status
        .placement
        .iter()
        .find(|place| place.level == "rack")
        .expect("its rack");
    assert_eq!(rack.domains, world.racks_of("train").await);
    let events = world.events_of("train-0").await;
    assert_eq!(
        events,
        [("Scheduled".to_owned(), format!("Placed in rack {}", rack.domains[0]))]
    );
    world.settle().await;
    assert_eq!(world.audit().binds, 4);
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_no_rack_can_hold_waits_with_a_proof() {
    let world = World::new(nodes(1, 2, 4)).await;
    world
        .create::<grove_api::PodCliqueSet>(&set("giant", 5, 8, "rack"))
        .await;
    world.await_scheduled("giant-0", ("False", "TooLarge")).await;
    world.settle().await;
    let pending = world
        .gang("giant-0")
        .await
        .status
        .and_then(|status| status.pending)
        .expect("a reason");
    assert_eq!((pending.reason.as_str(), pending.waiting), ("TooLarge", Waiting::Never));
    assert_eq!(pending.level.as_deref(), Some("rack"));
    assert!(
        pending.would_fit_if.contains(&"the level were block".to_owned()),
        "{pending:?}"
    );
    assert!(serde_json::to_vec(&pending).expect("JSON").len() < 2048);
    let said = world.scheduled("giant-0").await.expect("a condition");
    assert_eq!(said.2, pending.message);
    for (name, pod) in world.list::<Pod>().await {
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
        let told = scheduled.map(|condition| (condition.status.as_str(), condition.message.clone()));
        assert_eq!(told, Some(("False", Some(pending.message.clone()))), "{name}");
    }
    assert_eq!(
        world.events_of("giant-0").await,
        [("FailedScheduling".to_owned(), pending.message)]
    );
    assert_eq!(world.audit().binds, 0);
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_waits_is_placed_when_its_rack_is_free() {
    let world = World::new(nodes(1, 1, 4)).await;
    world
        .create::<grove_api::PodCliqueSet>(&set("first", 3, 8, "rack"))
        .await;
    world.await_scheduled("first-0", ("True", "Placed")).await;
    world
        .create::<grove_api::PodCliqueSet>(&set("second", 2, 8, "rack"))
        .await;
    world
        .await_scheduled("second-0", ("False", "InsufficientCapacity"))
        .await;
    let sets = world.all::<grove_api::PodCliqueSet>();
    sets.delete("first", &DeleteParams::default())
        .await
        .expect("a deletion");
    world.await_scheduled("second-0", ("True", "Placed")).await;
    let status = world.gang("second-0").await.status.expect("a status");
    assert_eq!(status.pending, None, "what it waited for is no longer said");
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_waits_tells_what_it_needs_and_who_holds_it() {
    let world = World::new(nodes(1, 2, 2)).await;
    for (name, pods) in [("small", 1), ("large", 2)] {
        world
            .create::<grove_api::PodCliqueSet>(&set(name, pods, 8, "rack"))
            .await;
        world.await_scheduled(&format!("{name}-0"), ("True", "Placed")).await;
    }
    world
        .create::<grove_api::PodCliqueSet>(&set("next", 2, 8, "rack"))
        .await;
    world.await_scheduled("next-0", ("False", "InsufficientCapacity")).await;
    let status = world.gang("next-0").await.status.expect("a status");
    let pending = status.pending.expect("a reason");
    let need = "2 pods of next-0-a (8 nvidia.com/gpu each) in one rack";
    assert_eq!(pending.need.as_deref(), Some(need));
    let blockers: Vec<_> = pending.nearest.iter().map(|near| near.blockers.as_slice()).collect();
    assert_eq!(
        blockers,
        [["small-0 (1 pod, priority 0)"], ["large-0 (2 pods, priority 0)"]]
    );
    assert_eq!(pending.nearest[0].domain, world.racks_of("small").await[0]);
}

/// Two pods that fill a host each, wherever in a block.
async fn score_of(constraint: &str) -> Option<f64> {
    let world = World::new(nodes(1, 1, 2)).await;
    let set = set("w", 2, 8, "block").replace("{packDomain: block}", constraint);
    world.create::<grove_api::PodCliqueSet>(&set).await;
    world.await_scheduled("w-0", ("True", "Placed")).await;
    world.gang("w-0").await.status.and_then(|status| status.placement_score)
}

#[tokio::test(start_paused = true)]
async fn the_score_counts_what_the_author_asked_for_and_nothing_else() {
    assert_eq!(
        score_of("{packDomain: block}").await,
        Some(1.0),
        "the host is the policy's wish"
    );
    assert_eq!(score_of("{pack: {required: block, preferred: rack}}").await, Some(1.0));
    assert_eq!(score_of("{pack: {required: block, preferred: host}}").await, Some(0.5));
}

#[tokio::test(start_paused = true)]
async fn a_new_rack_helps_a_gang_that_was_too_large() {
    let world = World::new(nodes(1, 2, 2)).await;
    world.create::<grove_api::PodCliqueSet>(&set("w", 3, 8, "rack")).await;
    world.await_scheduled("w-0", ("False", "TooLarge")).await;
    for host in 1..=3 {
        world.cluster.fleet().add(node("b1", "b1r9", host));
    }
    world.await_scheduled("w-0", ("True", "Placed")).await;
    assert_eq!(world.racks_of("w").await, ["b1r9"]);
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn hopeless_gangs_hold_nobody_up() {
    let world = World::new(nodes(1, 2, 4)).await;
    for index in 0..20 {
        world
            .create::<grove_api::PodCliqueSet>(&set(&format!("giant{index}"), 5, 8, "rack"))
            .await;
    }
    world.await_scheduled("giant19-0", ("False", "TooLarge")).await;
    world
        .create::<grove_api::PodCliqueSet>(&set("small", 2, 8, "rack"))
        .await;
    world.await_scheduled("small-0", ("True", "Placed")).await;
    world.settle().await;
    assert_eq!(world.audit().binds, 2);
}

#[tokio::test(start_paused = true)]
async fn the_minimum_is_placed_and_the_rest_when_there_is_room() {
    let world = World::new(nodes(1, 1, 2)).await;
    let set = format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: e}}\nspec:\n  replicas: 1\n  template:\n    \
         topologyConstraint: {{packDomain: rack}}\n    cliques:\n{}",
        clique("a", 4, 2, 8)
    );
    world.create::<grove_api::PodCliqueSet>(&set).await;
    world.await_scheduled("e-0", ("True", "Placed")).await;
    world.settle().await;
    assert_eq!(world.unbound().await, 2);
    world.cluster.fleet().add(node("b1", "b1r1", 3));
    world
        .eventually("one more has room", async |world| world.unbound().await == 1)
        .await;
    // Another rack is no room for them: the gang is in its rack.
    world.cluster.fleet().add(node("b1", "b1r2", 1));
    world.settle().await;
    assert_eq!(world.unbound().await, 1);
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_topology_does_not_exist_says_so_and_is_placed_when_it_does() {
    let world = World::new(nodes(1, 1, 2)).await;
    let gang = "apiVersion: scheduler.grove.io/v1alpha1\nkind: PodGang\nmetadata: {name: lost}\nspec:\n  topologyRef: elsewhere\n  \
                topologyConstraint: {packConstraint: {required: topology.kubernetes.io/rack}}\n  podgroups:\n  \
                - {name: w, minReplicas: 1, podReferences: [{namespace: default, name: p0}]}\n";
    world.create::<grove_api::PodGang>(gang).await;
    let pod = crate::pods::pod("p0", "grove-scheduler", 8);
    let labelled = pod.replace("{name: p0", "{name: p0, labels: {grove.io/podgang: lost}");
    world.create::<Pod>(&labelled).await;
    world.await_scheduled("lost", ("False", "TopologyUnavailable")).await;
    let (_, _, message) = world.scheduled("lost").await.expect("a condition");
    assert!(message.contains("elsewhere"), "{message}");
    let topology = "apiVersion: grove.io/v1alpha1\nkind: ClusterTopology\nmetadata: {name: elsewhere}\nspec:\n  levels:\n  \
                    - {domain: rack, key: topology.kubernetes.io/rack}\n";
    let topology: grove_api::ClusterTopology = serde_saphyr::from_str(topology).expect("a topology");
    let topologies = kube::Api::<grove_api::ClusterTopology>::all(world.client.clone());
    let made = topologies.create(&Default::default(), &topology).await;
    made.expect("a topology that is taken");
    world.await_scheduled("lost", ("True", "Placed")).await;
    world.audit();
}
