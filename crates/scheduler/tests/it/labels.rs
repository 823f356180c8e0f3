//! Nodes whose labels cannot be right: what a gang requires holds all the same, and nothing hangs.

use grove_simcluster::NodeSpec;

use crate::support::{World, node, set};

/// A node of a block and a rack whose name does not come from either.
fn host(name: &str, block: &str, rack: &str) -> NodeSpec {
    NodeSpec::new(name)
        .label("topology.kubernetes.io/block", block)
        .label("topology.kubernetes.io/rack", rack)
        .capacity("nvidia.com/gpu", "8")
}

/// `r1` is the name of a rack in two blocks. Which of the two is meant is clear from the block: they are two racks.
#[tokio::test(start_paused = true)]
async fn a_rack_in_two_blocks_is_two_racks() {
    let nodes = [("a1", "b1"), ("a2", "b1"), ("c1", "b2"), ("c2", "b2")];
    let world = World::new(nodes.map(|(name, block)| host(name, block, "r1")).to_vec()).await;
    world
        .create::<grove_api::PodCliqueSet>(&set("wide", 3, 8, "rack"))
        .await;
    world.await_scheduled("wide-0", ("False", "TooLarge")).await;
    for name in ["x", "y"] {
        world.create::<grove_api::PodCliqueSet>(&set(name, 2, 8, "rack")).await;
        world.await_scheduled(&format!("{name}-0"), ("True", "Placed")).await;
        let mut hosts: Vec<String> = world
            .nodes_of(&format!("{name}-0"))
            .await
            .into_iter()
            .flatten()
            .collect();
        hosts.sort();
        assert!(hosts == ["a1", "a2"] || hosts == ["c1", "c2"], "{hosts:?}");
    }
    world.audit();
}

/// Racks and blocks that each hold the other.
#[tokio::test(start_paused = true)]
async fn labels_that_go_in_a_circle_hold_what_each_pair_has() {
    let pairs = [("b1", "r1"), ("b1", "r2"), ("b2", "r1"), ("b2", "r2")];
    let nodes = pairs.map(|(block, rack)| host(&format!("{block}{rack}"), block, rack));
    let world = World::new(nodes.to_vec()).await;
    world.create::<grove_api::PodCliqueSet>(&set("one", 2, 4, "rack")).await;
    world.await_scheduled("one-0", ("True", "Placed")).await;
    let hosts = world.nodes_of("one-0").await;
    assert_eq!(hosts[0], hosts[1]);
    world
        .create::<grove_api::PodCliqueSet>(&set("two", 2, 8, "block"))
        .await;
    world.await_scheduled("two-0", ("True", "Placed")).await;
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn without_nodes_a_gang_waits_and_says_so_until_there_are_some() {
    let world = World::new(Vec::new()).await;
    world.create::<grove_api::PodCliqueSet>(&set("w", 2, 8, "rack")).await;
    world
        .eventually("it waits", async |world| {
            world
                .scheduled("w-0")
                .await
                .is_some_and(|(status, _, message)| status == "False" && !message.is_empty())
        })
        .await;
    world.settle().await;
    assert_eq!(world.unbound().await, 2);
    for index in 1..=2 {
        world.cluster.fleet().add(node("b1", "b1r1", index));
    }
    world.await_scheduled("w-0", ("True", "Placed")).await;
    world.audit();
}
