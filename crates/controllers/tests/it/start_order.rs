//! SO1–SO4: containers start in the order that is asked for, while the whole gang is placed at once.
//!
//! The init container that waits is run for real, by what the API says of the cliques before it.

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::json;

use crate::support::World;
use crate::support::workloads::{Minimum, Order, workload};

async fn started(minimum: Minimum, order: Order) -> World {
    let world = World::with_places(10).await;
    world.create_set(&workload(minimum, order)).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world
}

/// When pods of a clique became ready, in order.
async fn ready(world: &World, clique: &str) -> Vec<Timestamp> {
    let since = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut ready = conditions.filter(|condition| condition.type_ == "Ready" && condition.status == "True");
        ready.next()?.last_transition_time.as_ref().map(|time| time.0)
    };
    let mut times: Vec<Timestamp> = world.pods_of(clique).await.iter().filter_map(since).collect();
    times.sort();
    assert!(!times.is_empty(), "{clique}");
    times
}

/// Whether all of the first are ready before any of the second.
async fn comes_before(world: &World, first: &str, second: &str) {
    let (one, two) = (ready(world, first).await, ready(world, second).await);
    assert!(one.last() < two.first(), "{first} {one:?}, {second} {two:?}");
}

#[tokio::test(start_paused = true)]
async fn so1_cliques_start_in_the_order_of_the_template() {
    let world = started(Minimum::All, Order::Template).await;
    for replica in 0..2 {
        comes_before(&world, "w-0-pc-a", &format!("w-0-sg-x-{replica}-pc-b")).await;
        for other in 0..2 {
            let (b, c) = (format!("w-0-sg-x-{other}-pc-b"), format!("w-0-sg-x-{replica}-pc-c"));
            comes_before(&world, &b, &c).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn so2_a_scaled_gang_keeps_its_own_order() {
    let world = started(Minimum::One, Order::Template).await;
    comes_before(&world, "w-0-sg-x-0-pc-b", "w-0-sg-x-0-pc-c").await;
    comes_before(&world, "w-0-sg-x-1-pc-b", "w-0-sg-x-1-pc-c").await;
    // The minimum of pc-a is one pod: pc-b waits for the first, whatever the second does.
    let (a, b) = (ready(&world, "w-0-pc-a").await, ready(&world, "w-0-sg-x-0-pc-b").await);
    assert!(a.first() < b.first(), "{a:?} {b:?}");
}

#[tokio::test(start_paused = true)]
async fn so3_an_explicit_order_is_kept() {
    let world = started(Minimum::All, Order::AcbExplicit).await;
    for replica in 0..2 {
        comes_before(&world, "w-0-pc-a", &format!("w-0-sg-x-{replica}-pc-c")).await;
        comes_before(&world, "w-0-sg-x-0-pc-c", &format!("w-0-sg-x-{replica}-pc-b")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn so4_an_explicit_order_counts_only_the_minimum() {
    let world = started(Minimum::One, Order::AbcExplicit).await;
    let a = ready(&world, "w-0-pc-a").await;
    let b = ready(&world, "w-0-sg-x-0-pc-b").await;
    let c = ready(&world, "w-0-sg-x-0-pc-c").await;
    assert!(a.first() < b.first() && b.first() < c.first(), "{a:?} {b:?} {c:?}");
    comes_before(&world, "w-0-sg-x-1-pc-b", "w-0-sg-x-1-pc-c").await;
}

/// All pods get their nodes at once; only containers wait.
#[tokio::test(start_paused = true)]
async fn order_delays_containers_and_not_placement() {
    let world = World::with_places(10).await;
    world.create_set(&workload(Minimum::All, Order::Template)).await;
    world
        .eventually("all pods have nodes", async |world| {
            world.pods().await.len() == 10 && world.pending().await == 0
        })
        .await;
    assert_eq!(world.ready().await, 0);
}

/// What waits may read the cliques that it waits for and its own, and nothing else; without an order nothing is granted.
#[tokio::test(start_paused = true)]
async fn rights_are_given_only_where_something_waits() {
    let world = started(Minimum::All, Order::Any).await;
    assert!(world.list::<Role>().await.is_empty() && world.list::<RoleBinding>().await.is_empty());
    assert!(world.pods().await.iter().all(|pod| {
        let spec = pod.spec.as_ref();
        spec.is_some_and(|spec| spec.init_containers.as_ref().is_none_or(Vec::is_empty))
    }));

    let world = started(Minimum::All, Order::AcbExplicit).await;
    let role = world.get::<Role>("grove.io:pcs:w").await;
    let rule = &role.rules.expect("rules")[0];
    let names = rule.resource_names.clone().expect("names");
    let members = [
        "w-0-sg-x-0-pc-b",
        "w-0-sg-x-0-pc-c",
        "w-0-sg-x-1-pc-b",
        "w-0-sg-x-1-pc-c",
    ];
    assert_eq!(names[0], "w-0-pc-a");
    assert_eq!(names[1..], members, "who waits, and who is waited for");
    assert_eq!(rule.resources.as_deref(), Some(&["podcliques".to_owned()][..]));
}

/// One pod of `a`, and of `b` and `c`, each in a scaling group of its own.
fn abc(order: &str) -> PodCliqueSet {
    let clique = |name: &str, after: &[&str]| {
        let pod = json!({"containers": [{"name": "main", "image": "one"}]});
        json!({"name": name, "spec": {"roleName": name, "replicas": 1, "minAvailable": 1, "podSpec": pod,
            "startsAfter": after}})
    };
    let group = |name: &str, clique: &str| json!({"name": name, "cliqueNames": [clique]});
    let after = |names: &[&'static str]| match order {
        "Explicit" => names.to_vec(),
        _ => vec![],
    };
    let template = json!({
        "cliqueStartupType": format!("CliqueStartupType{order}"),
        "cliques": [clique("a", &[]), clique("b", &after(&["a"])), clique("c", &after(&["a", "b"]))],
        "podCliqueScalingGroups": [group("x", "b"), group("y", "c")],
    });
    let set = json!({"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "w"},
        "spec": {"replicas": 1, "template": template}});
    serde_json::from_value(set).expect("a set")
}

/// Who is waited for depends on the numbers of others: who has none is waited for no more, until it is back.
#[tokio::test(start_paused = true)]
async fn what_is_scaled_to_zero_is_no_parent_until_it_is_back() {
    let world = World::with_places(10).await;
    world.create(&abc("Explicit")).await;
    world.settle().await;
    let after = async |clique: &str| {
        let clique = world.all::<PodClique>().get_opt(clique).await.expect("an answer");
        clique.map(|clique| clique.spec.starts_after).unwrap_or_default()
    };
    assert_eq!(after("w-0-y-0-c").await, ["w-0-a", "w-0-x-0-b"]);
    world.scale::<PodCliqueScalingGroup>("w-0-x", 0).await;
    world.settle().await;
    assert_eq!(after("w-0-y-0-c").await, ["w-0-a"]);
    world.scale::<PodClique>("w-0-a", 0).await;
    world.settle().await;
    assert!(after("w-0-y-0-c").await.is_empty());
    world.scale::<PodCliqueScalingGroup>("w-0-x", 1).await;
    world.settle().await;
    assert_eq!(after("w-0-y-0-c").await, ["w-0-x-0-b"]);
    assert!(after("w-0-x-0-b").await.is_empty());
    world.scale::<PodClique>("w-0-a", 1).await;
    world.settle().await;
    assert_eq!(after("w-0-x-0-b").await, ["w-0-a"]);
    assert_eq!(world.ready().await, 3);
}

/// Pods wait for what was there when they were made; when that is scaled to zero, they start.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_role_that_is_scaled_to_zero_starts() {
    let world = World::with_places(10).await;
    let mut set = abc("InOrder");
    // The first never becomes ready.
    let stuck = serde_json::from_value(json!([{"name": "never", "image": "bad"}]));
    set.spec.template.cliques[0].spec.pod_spec.init_containers = stuck.expect("containers");
    world.create(&set).await;
    world.pass(60).await;
    assert_eq!((world.ready().await, world.pending().await), (0, 0));
    let role = async || {
        let rules = world.get::<Role>("grove.io:pcs:w").await.rules.expect("rules");
        rules[0].resource_names.clone().expect("names")
    };
    let rights = role().await;
    // c waits for b, which is gone; and not for a, for which its pod was not made to wait.
    world.scale::<PodCliqueScalingGroup>("w-0-x", 0).await;
    world.settle().await;
    assert_eq!(world.ready().await, 1);
    let after = world.get::<PodClique>("w-0-y-0-c").await.spec.starts_after;
    assert_eq!(after, ["w-0-a"], "the next pod waits for who comes before");
    assert_eq!(role().await, rights, "whoever waits may go on reading");
    world.scale::<PodCliqueScalingGroup>("w-0-x", 1).await;
    world.pass(60).await;
    assert_eq!(world.ready().await, 1);
    // b waits for a, which stays but has no pods.
    world.scale::<PodClique>("w-0-a", 0).await;
    world.settle().await;
    assert_eq!(world.ready().await, 2);
}
