//! Pods that belong to no gang, and pods that others place.

use k8s_openapi::api::core::v1::Pod;

use crate::support::{World, nodes, set};

pub(crate) fn pod(name: &str, scheduler: &str, gpus: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  schedulerName: {scheduler}\n  containers:\n  \
         - name: main\n    image: one\n    resources: {{requests: {{nvidia.com/gpu: \"{gpus}\"}}, limits: \
         {{nvidia.com/gpu: \"{gpus}\"}}}}\n"
    )
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_gang_is_placed_alone() {
    let world = World::new(nodes(1, 1, 1)).await;
    world.create::<Pod>(&pod("one", "grove-scheduler", 6)).await;
    world
        .eventually("it is bound", async |world| world.unbound().await == 0)
        .await;
    world.create::<Pod>(&pod("two", "grove-scheduler", 6)).await;
    world
        .eventually("it is told why it waits", async |world| {
            !world.events_of("two").await.is_empty()
        })
        .await;
    let (reason, note) = world.events_of("two").await.remove(0);
    assert_eq!(reason, "FailedScheduling");
    assert!(note.starts_with("needs 6 nvidia.com/gpu, 2 are free"), "{note}");
    world
        .all::<Pod>()
        .delete("one", &Default::default())
        .await
        .expect("a deletion");
    world
        .eventually("its turn has come", async |world| world.unbound().await == 0)
        .await;
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_what_is_not_supported_is_left_alone_and_told_so() {
    let world = World::new(nodes(1, 1, 1)).await;
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: claims}\nspec:\n  schedulerName: grove-scheduler\n  \
                    resourceClaims: [{name: gpu, resourceClaimName: mine}]\n  containers: [{name: main, image: one}]\n";
    world.create::<Pod>(manifest).await;
    world
        .eventually("it is told", async |world| !world.events_of("claims").await.is_empty())
        .await;
    let (_, note) = world.events_of("claims").await.remove(0);
    assert!(note.contains("unsupported: resource claims"), "{note}");
    assert_eq!(world.unbound().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_names_a_gang_that_does_not_exist_is_told_so() {
    let world = World::new(nodes(1, 1, 1)).await;
    let orphan = pod("orphan", "grove-scheduler", 1);
    let orphan = orphan.replace("{name: orphan}", "{name: orphan, labels: {grove.io/podgang: ghost}}");
    world.create::<Pod>(&orphan).await;
    world
        .eventually("it is told", async |world| !world.events_of("orphan").await.is_empty())
        .await;
    let message = "PodGang ghost does not exist; create it, or make the pod without the label grove.io/podgang";
    let told = ("FailedScheduling".to_owned(), message.to_owned());
    world.settle().await;
    assert_eq!(world.events_of("orphan").await, [told], "once");
    let status = world.list::<Pod>().await["orphan"].status.clone().expect("a status");
    let conditions = status.conditions.unwrap_or_default();
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    assert_eq!(
        scheduled.and_then(|condition| condition.message.as_deref()),
        Some(message)
    );
    let gang = "apiVersion: scheduler.grove.io/v1alpha1\nkind: PodGang\nmetadata: {name: ghost}\nspec:\n  podgroups:\n  \
                - {name: w, minReplicas: 1, podReferences: [{namespace: default, name: orphan}]}\n";
    world.create::<grove_api::PodGang>(gang).await;
    world
        .eventually("it is bound with its gang", async |world| world.unbound().await == 0)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_volume_claim_is_not_bound_is_told_so() {
    let world = World::new(nodes(1, 1, 1)).await;
    let manifest = pod("disk", "grove-scheduler", 1);
    let manifest = manifest + "  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n";
    world.create::<Pod>(&manifest).await;
    world
        .eventually("it is told", async |world| !world.events_of("disk").await.is_empty())
        .await;
    let (_, note) = world.events_of("disk").await.remove(0);
    assert!(note.contains("volume claim data is not bound"), "{note}");
    world.settle().await;
    assert_eq!(world.unbound().await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_another_scheduler_are_counted_and_never_touched() {
    let world = World::new(nodes(1, 2, 2)).await;
    for index in 0..3 {
        world
            .create::<Pod>(&pod(&format!("other{index}"), "default-scheduler", 8))
            .await;
    }
    world
        .eventually("they are bound", async |world| world.unbound().await == 0)
        .await;
    world.create::<grove_api::PodCliqueSet>(&set("w", 2, 8, "rack")).await;
    world.await_scheduled("w-0", ("False", "InsufficientCapacity")).await;
    world
        .all::<Pod>()
        .delete("other2", &Default::default())
        .await
        .expect("a deletion");
    world.await_scheduled("w-0", ("True", "Placed")).await;
    world.settle().await;
    world.audit();
}
