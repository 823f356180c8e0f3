//! Who makes room for whom, and for whom room is kept.

use std::time::Duration;

use grove_api::PodCliqueSet;
use grove_simcluster::fault::Moment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::{SCHEDULER, World, nodes, set};

pub(crate) async fn class(world: &World, name: &str, value: i32) {
    class_with(world, name, &format!("value: {value}")).await;
}

async fn class_with(world: &World, name: &str, fields: &str) {
    let manifest =
        format!("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}\n{fields}\n");
    let class: PriorityClass = serde_saphyr::from_str(&manifest).expect("a class");
    let api = Api::<PriorityClass>::all(world.client.clone());
    api.create(&PostParams::default(), &class)
        .await
        .expect("a class that is taken");
}

pub(crate) fn important(name: &str, pods: usize, class: &str) -> String {
    let set = set(name, pods, 8, "rack");
    set.replace(
        "  template:\n",
        &format!("  template:\n    priorityClassName: {class}\n"),
    )
}

#[tokio::test(start_paused = true)]
async fn a_gang_of_higher_priority_frees_one_rack_and_takes_it() {
    let world = World::new(nodes(1, 3, 2)).await;
    class(&world, "high", 1000).await;
    for name in ["a", "b", "c"] {
        world.create::<PodCliqueSet>(&set(name, 2, 8, "rack")).await;
        world.await_scheduled(&format!("{name}-0"), ("True", "Placed")).await;
    }
    world.create::<PodCliqueSet>(&important("urgent", 2, "high")).await;
    world.await_scheduled("urgent-0", ("False", "Preempting")).await;
    let (_, _, message) = world.scheduled("urgent-0").await.expect("a condition");
    let told = ["a", "b", "c"].map(|gang| format!("2 pods of gang default/{gang}-0 are evicted from "));
    assert!(told.iter().any(|told| message.starts_with(told)), "{message}");
    world.await_scheduled("urgent-0", ("True", "Placed")).await;
    world.settle().await;
    assert_eq!(
        whole(&world, &["a", "b", "c"]).await,
        2,
        "the gangs of the other racks are left alone"
    );
    world.audit();
}

/// How many of these sets have all of their pods on nodes; the others have none there.
pub(crate) async fn whole(world: &World, sets: &[&str]) -> usize {
    let mut whole = 0;
    for set in sets {
        let nodes = world.nodes_of(&format!("{set}-")).await;
        let bound = nodes.iter().flatten().count();
        assert!(bound == 0 || bound == nodes.len(), "{set}: {nodes:?}");
        whole += usize::from(bound > 0);
    }
    whole
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_after_the_evictions_evicts_nobody_else() {
    let mut world = World::new(nodes(1, 2, 2)).await;
    class(&world, "high", 1000).await;
    for name in ["a", "b"] {
        world.create::<PodCliqueSet>(&set(name, 2, 8, "rack")).await;
        world.await_scheduled(&format!("{name}-0"), ("True", "Placed")).await;
    }
    world.settle().await;
    let died = world.cluster.faults().kill(SCHEDULER, 2, Moment::BeforeReply);
    world.create::<PodCliqueSet>(&important("urgent", 2, "high")).await;
    let last = died.await.expect("a scheduler that dies");
    assert_eq!(last.subresource, "eviction");
    // The pods that it evicted are still on their way out.
    world.crash_scheduler().await;
    world.start_scheduler();
    world.await_scheduled("urgent-0", ("True", "Placed")).await;
    world.settle().await;
    assert_eq!(
        whole(&world, &["a", "b"]).await,
        1,
        "the gang of the other rack is left alone"
    );
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn nobody_makes_room_for_an_equal() {
    let world = World::new(nodes(1, 1, 2)).await;
    class(&world, "high", 1000).await;
    world.create::<PodCliqueSet>(&important("first", 2, "high")).await;
    world.await_scheduled("first-0", ("True", "Placed")).await;
    world.create::<PodCliqueSet>(&important("second", 2, "high")).await;
    world
        .await_scheduled("second-0", ("False", "InsufficientCapacity"))
        .await;
    world.settle().await;
    assert_eq!(world.audit().binds, 2);
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_never_preempts_waits_and_comes_first() {
    let world = World::new(nodes(1, 1, 2)).await;
    class_with(&world, "patient", "value: 1000\npreemptionPolicy: Never").await;
    world.create::<PodCliqueSet>(&set("a", 2, 8, "rack")).await;
    world.await_scheduled("a-0", ("True", "Placed")).await;
    world.create::<PodCliqueSet>(&set("b", 2, 8, "rack")).await;
    world.create::<PodCliqueSet>(&important("p", 2, "patient")).await;
    for gang in ["b-0", "p-0"] {
        world.await_scheduled(gang, ("False", "InsufficientCapacity")).await;
    }
    world.settle().await;
    assert_eq!(whole(&world, &["a", "b", "p"]).await, 1, "nobody makes room for it");
    let sets = world.all::<PodCliqueSet>();
    sets.delete("a", &DeleteParams::default()).await.expect("a set");
    world.await_scheduled("p-0", ("True", "Placed")).await;
    world.settle().await;
    assert_eq!(whole(&world, &["b"]).await, 0);
    world.audit();
}

async fn budget(world: &World, set: &str) {
    let manifest = format!(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {set}}}\nspec:\n  maxUnavailable: 0\n  \
         selector: {{matchLabels: {{app.kubernetes.io/part-of: {set}}}}}\n"
    );
    world.create::<PodDisruptionBudget>(&manifest).await;
    allow(world, set, 0).await;
}

/// What the disruption controller would write.
async fn allow(world: &World, set: &str, pods: i32) {
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": pods,
        "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}});
    let api = world.all::<PodDisruptionBudget>();
    api.patch_status(set, &PatchParams::default(), &Patch::Merge(status))
        .await
        .expect("a status that is taken");
}

#[tokio::test(start_paused = true)]
async fn a_gang_goes_only_when_its_disruption_budget_allows_it() {
    let world = World::new(nodes(1, 2, 2)).await;
    class(&world, "high", 1000).await;
    for name in ["a", "b"] {
        world.create::<PodCliqueSet>(&set(name, 2, 8, "rack")).await;
        world.await_scheduled(&format!("{name}-0"), ("True", "Placed")).await;
        budget(&world, name).await;
    }
    world.create::<PodCliqueSet>(&important("urgent", 2, "high")).await;
    world
        .await_scheduled("urgent-0", ("False", "InsufficientCapacity"))
        .await;
    world.settle().await;
    assert_eq!(world.audit().binds, 4, "nobody may go");
    let pending = world.gang("urgent-0").await.status.and_then(|status| status.pending);
    let would_fit_if = pending.expect("a reason").would_fit_if;
    let expected = ["a", "b"].map(|set| format!("disruption budget default/{set} let 2 pods go at once, not 0"));
    assert!(expected.contains(&would_fit_if[0]), "{would_fit_if:?}");
    allow(&world, "b", 1).await;
    world.settle().await;
    assert_eq!(world.audit().binds, 4, "one of two would be of no use");
    let racks = world.racks_of("b-").await;
    allow(&world, "b", 2).await;
    world.await_scheduled("urgent-0", ("True", "Placed")).await;
    assert_eq!(world.racks_of("urgent-").await, racks);
    assert!(world.nodes_of("a-").await.iter().all(Option::is_some), "a is guarded");
    world.settle().await;
    world.audit();
}

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  schedulerName: grove-scheduler\n  containers:\n  \
         - name: main\n    image: one\n    resources: {{requests: {{nvidia.com/gpu: \"8\"}}, limits: {{nvidia.com/gpu: \"8\"}}}}\n"
    )
}

#[tokio::test(start_paused = true)]
async fn a_large_gang_is_not_starved_by_small_pods() {
    let world = World::new(nodes(1, 1, 2)).await;
    for name in ["small1", "small2"] {
        world.create::<Pod>(&pod(name)).await;
    }
    world
        .eventually("they are bound", async |world| world.unbound().await == 0)
        .await;
    world.create::<PodCliqueSet>(&set("large", 2, 8, "rack")).await;
    world
        .await_scheduled("large-0", ("False", "InsufficientCapacity"))
        .await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    world.create::<Pod>(&pod("small3")).await;
    world.settle().await;
    world
        .all::<Pod>()
        .delete("small1", &Default::default())
        .await
        .expect("a deletion");
    world.settle().await;
    assert_eq!(world.nodes_of("small3").await, [None], "the rack is kept");
    world
        .all::<Pod>()
        .delete("small2", &Default::default())
        .await
        .expect("a deletion");
    world.await_scheduled("large-0", ("True", "Placed")).await;
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_member_that_a_running_gang_lost_returns_to_a_rack_that_is_kept_for_another() {
    let world = World::new(nodes(1, 1, 2)).await;
    world.create::<PodCliqueSet>(&set("a", 2, 8, "rack")).await;
    world.await_scheduled("a-0", ("True", "Placed")).await;
    world.create::<PodCliqueSet>(&set("b", 2, 8, "rack")).await;
    world.await_scheduled("b-0", ("False", "InsufficientCapacity")).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    world.await_scheduled("b-0", ("False", "Queued")).await;
    let lost = world
        .list::<Pod>()
        .await
        .into_keys()
        .find(|name| name.starts_with("a-"));
    let lost = lost.expect("a pod of it");
    let pods = world.all::<Pod>();
    pods.delete(&lost, &DeleteParams::default()).await.expect("a deletion");
    world
        .eventually("the gang has two pods on nodes again", async |world| {
            let uids = world.list::<Pod>().await;
            !uids.contains_key(&lost) || world.nodes_of("a-").await.iter().flatten().count() == 2
        })
        .await;
    world.settle().await;
    assert_eq!(world.nodes_of("a-").await.iter().flatten().count(), 2);
    assert_eq!(whole(&world, &["a", "b"]).await, 1);
    world.audit();
}
