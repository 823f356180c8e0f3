//! A scheduler that dies at any of its writes, binds that are refused, answers that are lost.

use grove_api::PodCliqueSet;
use grove_simcluster::fault::{Match, Moment, RequestFault, Rule};
use grove_simcluster::server::Verb;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use crate::support::{Policies, SCHEDULER, World, nodes, set};

/// Two gangs that fill the cluster, and the scheduler killed at its n-th write. Whether there was such a write.
async fn killed_at(write: u64, moment: Moment) -> bool {
    let mut world = World::without_scheduler(nodes(1, 2, 3), Policies::default()).await;
    for name in ["a", "b"] {
        world.create::<PodCliqueSet>(&set(name, 3, 8, "rack")).await;
    }
    world.settle().await;
    let mut died = world.cluster.faults().kill(SCHEDULER, write, moment);
    world.start_scheduler();
    world.settle().await;
    let has_died = died.try_recv().is_ok();
    world.crash_scheduler().await;
    world.start_scheduler();
    for gang in ["a-0", "b-0"] {
        world.await_scheduled(gang, ("True", "Placed")).await;
    }
    world.settle().await;
    assert_eq!(world.unbound().await, 0);
    assert_eq!(world.audit().binds, 6, "no pod was bound twice");
    has_died
}

#[tokio::test(start_paused = true)]
async fn killed_at_every_write_every_gang_ends_whole() {
    for moment in [Moment::BeforeWrite, Moment::BeforeReply, Moment::AfterReply] {
        let mut write = 1;
        while killed_at(write, moment).await {
            write += 1;
        }
        assert!(write > 8, "six binds and two statuses at least: {write}");
    }
}

fn binds() -> Match {
    Match::any()
        .user(SCHEDULER)
        .verb(Verb::Create)
        .resource("", "pods")
        .subresource("binding")
}

#[tokio::test(start_paused = true)]
async fn a_bind_whose_answer_is_lost_is_not_taken_for_refused() {
    let world = World::new(nodes(1, 2, 3)).await;
    let lost = [1, 2, 3].map(|nth| Rule::request(binds(), RequestFault::FailAfter).nth(nth));
    world.cluster.faults().script(lost);
    for name in ["a", "b"] {
        world.create::<PodCliqueSet>(&set(name, 3, 8, "rack")).await;
    }
    for gang in ["a-0", "b-0"] {
        world.await_scheduled(gang, ("True", "Placed")).await;
    }
    world.settle().await;
    assert_eq!(world.audit().binds, 6);
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_stays_half_bound_is_released_after_the_grace() {
    let mut world = World::new(nodes(1, 1, 3)).await;
    // The third bind never arrives, and its node goes meanwhile.
    let never = Rule::request(binds(), RequestFault::FailBefore).nth(3).always();
    world.cluster.faults().script([never]);
    world.create::<PodCliqueSet>(&set("w", 3, 8, "rack")).await;
    world
        .eventually("two are bound", async |world| {
            world.nodes_of("w").await.iter().flatten().count() == 2
        })
        .await;
    world.crash_scheduler().await;
    world.cluster.faults().clear();
    let bound = world.nodes_of("w").await;
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(world.client.clone());
    for host in 1..=3 {
        let name = format!("b1r1h{host}");
        if !bound.contains(&Some(name.clone())) {
            nodes.delete(&name, &DeleteParams::default()).await.expect("a deletion");
        }
    }
    let before: Vec<String> = world.list::<Pod>().await.into_keys().collect();
    world.start_scheduler();
    world
        .eventually("the places are given back", async |world| {
            let pods = world.list::<Pod>().await;
            pods.len() == 3
                && pods
                    .values()
                    .all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()))
        })
        .await;
    let after: Vec<String> = world.list::<Pod>().await.into_keys().collect();
    assert_eq!(
        before.iter().filter(|name| after.contains(name)).count(),
        1,
        "who was not bound stays"
    );
    world.settle().await;
    world.audit();
}
