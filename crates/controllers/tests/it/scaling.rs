//! Scaling: by the scale subresource, by an edit of the template, by an autoscaler; to zero and back.

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::support::World;
use crate::support::workloads::{Minimum, Order, running, workload};

/// W2 whose pc-a and sg-x scale by themselves.
fn autoscaled() -> String {
    let config = "autoScalingConfig: {minReplicas: 1, maxReplicas: 5}";
    let manifest = workload(Minimum::One, Order::Any);
    let manifest = manifest.replacen(
        "        roleName: pc-a\n",
        &format!("        roleName: pc-a\n        {config}\n"),
        1,
    );
    manifest.replacen(
        "replicas: 2, minAvailable: 1}",
        "replicas: 2, minAvailable: 1, scaleConfig: {minReplicas: 1, maxReplicas: 4}}",
        1,
    )
}

#[tokio::test(start_paused = true)]
async fn autoscalers_are_made_for_what_scales_by_itself_and_removed_with_it() {
    let world = World::with_places(20).await;
    world.create_set(&autoscaled()).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    let found = world.list::<HorizontalPodAutoscaler>().await;
    let targets: Vec<(&str, &str)> = found
        .iter()
        .map(|(name, scaler)| (name.as_str(), scaler.spec.scale_target_ref.kind.as_str()))
        .collect();
    assert_eq!(
        targets,
        [("w-0-pc-a", "PodClique"), ("w-0-sg-x", "PodCliqueScalingGroup")]
    );
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    assert_eq!(world.list::<HorizontalPodAutoscaler>().await.len(), 4);
    assert_eq!(
        world.list::<Service>().await.len(),
        2 + 1,
        "one for each replica, and the cluster's own"
    );
    world.scale::<PodCliqueSet>("w", 1).await;
    world.settle().await;
    assert_eq!(world.list::<HorizontalPodAutoscaler>().await.len(), 2);
    assert_eq!(world.list::<Service>().await.len(), 1 + 1);
    world
        .edit_set("w", |set| set.spec.template.cliques[0].spec.auto_scaling_config = None)
        .await;
    world.settle().await;
    let left: Vec<String> = world.list::<HorizontalPodAutoscaler>().await.into_keys().collect();
    assert_eq!(left, ["w-0-sg-x"]);
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_owns_the_number_and_its_selector_finds_the_pods() {
    let world = World::with_places(20).await;
    world.create_set(&autoscaled()).await;
    world.settle().await;
    world.scale::<PodClique>("w-0-pc-a", 4).await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await;
    world.settle().await;
    assert_eq!(world.ready().await, 4 + 3 * 4);
    let scale = world.all::<PodClique>().get_scale("w-0-pc-a").await.expect("a scale");
    let selector = scale.status.and_then(|status| status.selector).expect("a selector");
    let found = world
        .all::<k8s_openapi::api::core::v1::Pod>()
        .list(&kube::api::ListParams::default().labels(&selector))
        .await
        .expect("pods");
    assert_eq!(found.items.len(), 4);
    // An edit of the template does not take the number away from the autoscaler.
    world
        .edit_set("w", |set| set.spec.template.cliques[0].spec.replicas = 3)
        .await;
    world.settle().await;
    assert_eq!(world.get::<PodClique>("w-0-pc-a").await.spec.replicas, 4);
    world.scale::<PodClique>("w-0-pc-a", 1).await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 1).await;
    world.settle().await;
    assert_eq!(world.ready().await, 5);
    assert_eq!(world.list::<PodGang>().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_the_template_reaches_what_no_autoscaler_owns() {
    let world = running(Minimum::One, 20).await;
    let before = world.uids_of("w-0").await;
    world
        .edit_set("w", |set| {
            set.spec.template.cliques[0].spec.replicas = 3;
            set.spec.template.scaling_groups[0].replicas = Some(3);
        })
        .await;
    world.settle().await;
    assert_eq!(world.ready().await, 15);
    assert!(
        before.is_subset(&world.uids_of("w-0").await),
        "scaling replaces nothing"
    );
    let status = world.set_status("w").await;
    assert!(status.update_progress.is_none(), "and is no update");
}

#[tokio::test(start_paused = true)]
async fn scale_to_zero_and_back() {
    let world = running(Minimum::All, 20).await;
    world.scale::<PodCliqueSet>("w", 0).await;
    world.settle().await;
    assert!(world.pods().await.is_empty());
    assert!(world.list::<PodClique>().await.is_empty() && world.list::<PodCliqueScalingGroup>().await.is_empty());
    assert!(world.list::<PodGang>().await.is_empty());
    world.scale::<PodCliqueSet>("w", 1).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 0).await;
    world.settle().await;
    assert_eq!(world.ready().await, 2);
    world.scale::<PodCliqueScalingGroup>("w-0-sg-x", 2).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world.scale::<PodClique>("w-0-pc-a", 0).await;
    world.settle().await;
    assert_eq!(world.ready().await, 8);
    world.scale::<PodClique>("w-0-pc-a", 2).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    let status = world.set_status("w").await;
    assert_eq!(status.available_replicas, 1);
}

/// Below the minimum a gang is as large as what is asked for: nothing hangs, and nothing is torn down.
#[tokio::test(start_paused = true)]
async fn below_the_minimum_what_is_asked_for_is_what_runs() {
    let world = running(Minimum::All, 10).await;
    let before = world.uids_of("w-0").await;
    world.scale::<PodClique>("w-0-pc-a", 1).await;
    world.settle().await;
    world.pass(100).await;
    assert_eq!(world.ready().await, 9);
    assert!(world.uids_of("w-0").await.is_subset(&before));
    world.scale::<PodClique>("w-0-pc-a", 2).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
}

/// Somebody who writes a number into the object and the operator who writes the rest do not undo each other.
#[tokio::test(start_paused = true)]
async fn numbers_and_templates_written_at_once_both_arrive() {
    let world = running(Minimum::One, 30).await;
    for replicas in [3, 4, 5, 3] {
        let annotations = json!({"metadata": {"annotations": {"round": replicas.to_string()}}});
        world.merge::<PodCliqueSet>("w", annotations).await;
        world.set_image(&["pc-a"], &format!("image-{replicas}")).await;
        world.scale::<PodClique>("w-0-pc-a", replicas).await;
    }
    world.settle().await;
    assert_eq!(world.pods_of("w-0-pc-a").await.len(), 3);
    world.all_run("w-0-pc-a", "image-3").await;
    assert_eq!(world.ready().await, 3 + 8);
}
