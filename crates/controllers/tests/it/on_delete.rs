//! OD1–OD9: with the strategy OnDelete nothing is replaced until somebody deletes it.

use grove_api::podcliqueset::{UpdateStrategy, UpdateStrategyType};
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::support::World;
use crate::support::workloads::{Minimum, running};

async fn strategy(world: &World, type_: UpdateStrategyType) {
    world
        .edit_set("w", |set| set.spec.update_strategy = Some(UpdateStrategy { type_ }))
        .await;
    world.settle().await;
}

async fn on_delete(minimum: Minimum, places: usize) -> World {
    let world = running(minimum, places).await;
    strategy(&world, UpdateStrategyType::OnDelete).await;
    world
}

async fn updated(world: &World, clique: &str) -> i32 {
    let status = world.get::<PodClique>(clique).await.status;
    status.expect("a status").updated_replicas
}

async fn delete_one(world: &World, clique: &str, image: &str) {
    let pods = world.pods_of(clique).await;
    let is_of = |pod: &&Pod| {
        pod.spec
            .as_ref()
            .is_some_and(|spec| spec.containers[0].image.as_deref() == Some(image))
    };
    let pod = pods.iter().find(is_of).expect("a pod of that image");
    world.delete::<Pod>(&pod.name_any()).await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn od1_a_change_deletes_nothing_and_the_update_is_over_at_once() {
    let world = on_delete(Minimum::One, 10).await;
    let before = world.uids_of("w-0").await;
    world.set_image(&["pc-a", "pc-c"], "two").await;
    world.settle().await;
    assert_eq!(world.uids_of("w-0").await, before);
    let status = world.set_status("w").await;
    assert!(status.update_progress.expect("an update").update_ended_at.is_some());
    assert_eq!(updated(&world, "w-0-pc-a").await, 0);
}

#[tokio::test(start_paused = true)]
async fn od2_a_deleted_pod_returns_as_a_new_one() {
    let world = on_delete(Minimum::One, 10).await;
    world.set_image(&["pc-a"], "two").await;
    world.settle().await;
    delete_one(&world, "w-0-pc-a", "one").await;
    assert_eq!(updated(&world, "w-0-pc-a").await, 1);
    assert_eq!(world.images_of("w-0-pc-a").await.len(), 2);
    delete_one(&world, "w-0-pc-a", "one").await;
    assert_eq!(updated(&world, "w-0-pc-a").await, 2);
    world.all_run("w-0-pc-a", "two").await;
    let status = world.set_status("w").await;
    assert_eq!(status.updated_replicas, 1);
}

#[tokio::test(start_paused = true)]
async fn od3_scaling_in_takes_the_outdated_pod() {
    let world = on_delete(Minimum::One, 10).await;
    world.set_image(&["pc-a"], "two").await;
    world.settle().await;
    delete_one(&world, "w-0-pc-a", "one").await;
    world.scale::<PodClique>("w-0-pc-a", 1).await;
    world.settle().await;
    world.all_run("w-0-pc-a", "two").await;
}

#[tokio::test(start_paused = true)]
async fn od4_a_deleted_pod_of_a_group_returns_as_a_new_one() {
    let world = on_delete(Minimum::One, 10).await;
    let before = world.uids_of("w-0").await;
    world.set_image(&["pc-c"], "two").await;
    world.settle().await;
    delete_one(&world, "w-0-sg-x-0-pc-c", "one").await;
    assert_eq!(updated(&world, "w-0-sg-x-0-pc-c").await, 1);
    assert_eq!(updated(&world, "w-0-sg-x-1-pc-c").await, 0);
    assert_eq!(world.uids_of("w-0").await.intersection(&before).count(), 9);
}

#[tokio::test(start_paused = true)]
async fn od5_a_group_scales_in_from_the_top() {
    let world = on_delete(Minimum::One, 10).await;
    world.set_image(&["pc-c"], "two").await;
    world.settle().await;
    delete_one(&world, "w-0-sg-x-0-pc-c", "one").await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 1).await;
    world.settle().await;
    assert!(world.pods_of("w-0-sg-x-1").await.is_empty());
    assert_eq!(world.images_of("w-0-sg-x-0-pc-c").await.len(), 2);
    assert_eq!(updated(&world, "w-0-sg-x-0-pc-c").await, 1);
}

#[tokio::test(start_paused = true)]
async fn od6_cliques_and_groups_are_replaced_at_the_users_pace() {
    let world = on_delete(Minimum::One, 14).await;
    world.set_image(&["pc-a", "pc-b", "pc-c"], "two").await;
    world.settle().await;
    delete_one(&world, "w-0-pc-a", "one").await;
    delete_one(&world, "w-0-sg-x-1-pc-b", "one").await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await;
    world.settle().await;
    world.all_run("w-0-sg-x-2", "two").await;
    world.all_run("w-0-sg-x-1-pc-b", "two").await;
    world.all_run("w-0-sg-x-0", "one").await;
    world.all_run("w-0-sg-x-1-pc-c", "one").await;
    assert_eq!(updated(&world, "w-0-pc-a").await, 1);
}

#[tokio::test(start_paused = true)]
async fn od7_each_replica_of_a_set_is_replaced_by_itself() {
    let world = on_delete(Minimum::All, 20).await;
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    world.set_image(&["pc-a"], "two").await;
    world.settle().await;
    for _ in 0..2 {
        delete_one(&world, "w-1-pc-a", "one").await;
    }
    world.all_run("w-1-pc-a", "two").await;
    world.all_run("w-0-pc-a", "one").await;
    let status = world.set_status("w").await;
    assert_eq!((status.updated_replicas, status.available_replicas), (1, 2));
}

/// A node that fails is avoided by the new template; its pods are moved by whoever deletes them.
#[tokio::test(start_paused = true)]
async fn od8_a_bad_node_is_left_by_an_edit_and_a_delete() {
    let world = on_delete(Minimum::One, 11).await;
    let before = world.uids_of("w-0").await;
    let bad = world.pods_of("w-0-pc-a").await[0].clone();
    let node = bad
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.clone())
        .expect("a node");
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}]}]}}});
    world
        .edit_set("w", |set| {
            let affinity = serde_json::from_value(affinity.clone()).expect("an affinity");
            set.spec.template.cliques[0].spec.pod_spec.affinity = Some(affinity);
        })
        .await;
    world.settle().await;
    assert_eq!(world.uids_of("w-0").await, before);
    world.cordon(&node, true).await;
    world.delete::<Pod>(&bad.name_any()).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    let pods = world.pods_of("w-0-pc-a").await;
    let new = pods.iter().find(|pod| !before.contains(&pod.uid().unwrap_or_default()));
    let spec = new.and_then(|pod| pod.spec.clone()).expect("a new pod");
    assert!(spec.affinity.is_some() && spec.node_name.as_deref() != Some(node.as_str()));
}

#[tokio::test(start_paused = true)]
async fn od9_what_was_left_over_is_replaced_once_the_strategy_says_so() {
    let world = on_delete(Minimum::All, 10).await;
    world.set_image(&["pc-a", "pc-b"], "two").await;
    world.settle().await;
    world.all_run("w-0-pc-a", "one").await;
    strategy(&world, UpdateStrategyType::RollingRecreate).await;
    world.all_run("w-0-pc-a", "two").await;
    world.all_run("w-0-sg-x-0-pc-b", "two").await;
    world.all_run("w-0-sg-x-1-pc-b", "two").await;
    assert_eq!(world.ready().await, 10);
    strategy(&world, UpdateStrategyType::OnDelete).await;
    world.set_image(&["pc-a"], "three").await;
    world.settle().await;
    world.all_run("w-0-pc-a", "two").await;
}
