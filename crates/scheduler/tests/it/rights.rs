//! What the scheduler may do (`grove_api::rights::scheduler`) is what it does: one run goes through everything, and every
//! right that the run did not use is listed here with the reason. That no test goes beyond is checked at the end of each.

use std::collections::BTreeSet;

use grove_api::{PodCliqueSet, rights};
use grove_scenarios::rights::{Right, granted, used};
use grove_simcluster::fault::{RequestFault, Rule};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};

use crate::crash::binds;
use crate::priority::{class, important};
use crate::support::{SCHEDULER, World, nodes, set};

const VOLUMES: &str = "the embedded cluster has no volumes; a test on a real control plane does";

/// Rights that the run does not show.
const UNSEEN: [(&str, &str, &str); 3] = [
    ("", "watch persistentvolumes", VOLUMES),
    ("", "watch persistentvolumeclaims", VOLUMES),
    (
        "topology.node.k8s.io",
        "watch noderesourcetopologies",
        "no node publishes its cells here; shown by cells_count_once_nodes_publish_them",
    ),
];

#[tokio::test(start_paused = true)]
async fn every_right_is_used_or_has_a_reason() {
    let mut world = World::new(nodes(1, 1, 3)).await;
    // The third bind never arrives, and its node goes meanwhile: half a gang is given back.
    let never = Rule::request(binds(), RequestFault::FailBefore).nth(3).always();
    world.cluster.faults().script([never]);
    world.create::<PodCliqueSet>(&set("half", 3, 8, "rack")).await;
    world
        .eventually("two are bound", async |world| {
            world.nodes_of("half").await.iter().flatten().count() == 2
        })
        .await;
    world.crash_scheduler().await;
    world.cluster.faults().clear();
    let bound = world.nodes_of("half").await;
    let mut hosts = (1..=3).map(|host| format!("b1r1h{host}"));
    let free = hosts.find(|host| !bound.contains(&Some(host.clone())));
    let free = free.expect("a node without a pod");
    let all = Api::<Node>::all(world.client.clone());
    all.delete(&free, &DeleteParams::default()).await.expect("a deletion");
    world.start_scheduler();
    world.await_scheduled("half-0", ("False", "TooLarge")).await;
    // The answer to a bind is lost, and then one gang makes room for another.
    let lost = Rule::request(binds(), RequestFault::FailAfter).nth(1);
    world.cluster.faults().script([lost]);
    world.create::<PodCliqueSet>(&set("low", 2, 8, "rack")).await;
    world.await_scheduled("low-0", ("True", "Placed")).await;
    class(&world, "high", 1000).await;
    world.create::<PodCliqueSet>(&important("urgent", 2, "high")).await;
    world.await_scheduled("urgent-0", ("True", "Placed")).await;
    world.settle().await;

    let history = world.cluster.history().expect("histories of tests are recorded");
    let granted = granted(rights::scheduler::cluster_role().rules.unwrap_or_default());
    let unused: BTreeSet<Right> = granted.difference(&used(history, SCHEDULER)).cloned().collect();
    let unseen = UNSEEN.map(|(group, right, _)| (group.to_owned(), right.to_owned()));
    assert_eq!(
        unused,
        unseen.into(),
        "granted in crates/api/src/rights/scheduler.rs and never used"
    );
}
