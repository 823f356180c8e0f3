//! Components that autoscalers scale, through their adapters.

use grove_api::dynamo::ScalingAdapter;
use grove_api::{DynamoGraphDeployment, DynamoGraphDeploymentScalingAdapter, PodCliqueSet};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::world::{NAMESPACE, World};
use crate::graphs::with_worker;

type Adapter = DynamoGraphDeploymentScalingAdapter;

const READY: (&str, &str) = ("True", "all_resources_are_ready");

/// A graph whose worker has an adapter, up and running.
async fn scaled(world: &World, patch: Value) {
    let mut worker = json!({"scalingAdapter": {}});
    crate::graphs::merge(&mut worker, patch);
    world.create(&with_worker(worker)).await;
    world.says("g", "Ready", READY).await;
    world.settle().await;
}

async fn replicas(world: &World) -> i32 {
    world.get::<DynamoGraphDeployment>("g").await.spec.components[1].replicas
}

/// Waits until the adapter says that there are so many.
async fn there_are(world: &World, wanted: i32) {
    let what = format!("the adapter counts {wanted}");
    let counts = async |world: &World| {
        let adapters = world.list::<Adapter>().await.into_iter();
        let mut counted = adapters.filter_map(|adapter| Some(adapter.status?.replicas));
        counted.next() == Some(wanted)
    };
    world.eventually(&what, counts).await;
    world.says("g", "Ready", READY).await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn the_component_follows_its_adapter() {
    let world = World::start().await;
    scaled(&world, json!({})).await;
    let adapters = world.list::<Adapter>().await;
    let names: Vec<String> = adapters.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["g-worker"], "nobody asked for one of the frontend");
    let status = adapters[0].status.clone().unwrap_or_default();
    let selector = "nvidia.com/dynamo-component=Worker,nvidia.com/dynamo-graph-deployment-name=g";
    assert_eq!((status.replicas, status.selector.as_deref()), (2, Some(selector)));

    let (before, set) = (world.pod_uids("g-0-worker").await, world.get::<PodCliqueSet>("g").await);
    for wanted in [4, 1, 0, 3] {
        world.scale::<Adapter>("g-worker", wanted).await;
        there_are(&world, wanted).await;
        assert_eq!(replicas(&world).await, wanted);
        assert_eq!(
            world.pod_uids("g-0-worker").await.len(),
            usize::try_from(wanted).unwrap()
        );
        if wanted == 4 {
            assert!(world.pod_uids("g-0-worker").await.is_superset(&before));
        }
    }
    let generation = world.get::<PodCliqueSet>("g").await.metadata.generation;
    assert_eq!(generation, set.metadata.generation, "the template stays");
}

#[tokio::test(start_paused = true)]
async fn a_component_on_several_nodes_follows_by_groups() {
    let world = World::start().await;
    scaled(&world, json!({"multinode": {"nodeCount": 2}, "replicas": 1})).await;
    world.scale::<Adapter>("g-worker", 2).await;
    there_are(&world, 2).await;
    assert_eq!(world.pod_uids("g-0-worker").await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_adapter_comes_and_goes_as_the_graph_says_and_no_pod_pays() {
    let world = World::start().await;
    scaled(&world, json!({})).await;
    world.scale::<Adapter>("g-worker", 3).await;
    there_are(&world, 3).await;
    let pods = world.pod_uids("g-").await;
    world.edit("g", |components| components[1].scaling_adapter = None).await;
    world.settle().await;
    assert_eq!(world.list::<Adapter>().await, []);
    assert_eq!((replicas(&world).await, world.pod_uids("g-").await), (3, pods.clone()));

    world.edit("g", |components| components[1].replicas = 2).await;
    world.settle().await;
    world
        .edit("g", |components| {
            components[1].scaling_adapter = Some(ScalingAdapter::default())
        })
        .await;
    there_are(&world, 2).await;
    assert_eq!(
        world.get::<Adapter>("g-worker").await.spec.replicas,
        2,
        "as many as there were"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_done_to_an_adapter_is_mended_and_its_number_kept() {
    let world = World::start().await;
    scaled(&world, json!({})).await;
    world.scale::<Adapter>("g-worker", 3).await;
    there_are(&world, 3).await;
    // Without its label nobody sees it; it is found by its name.
    let unlabelled = json!({"metadata": {"labels": {"nvidia.com/dynamo-graph-deployment-name": null}}});
    world.merge::<Adapter>("g-worker", unlabelled).await;
    world.scale::<Adapter>("g-worker", 4).await;
    there_are(&world, 4).await;
    assert_eq!(
        world.get::<Adapter>("g-worker").await.labels()["nvidia.com/dynamo-graph-deployment-name"],
        "g"
    );
    let uid = world.get::<Adapter>("g-worker").await.uid();
    world.delete::<Adapter>("g-worker").await;
    world.settle().await;
    let adapter = world.get::<Adapter>("g-worker").await;
    assert_ne!(adapter.uid(), uid);
    assert_eq!((adapter.spec.replicas, replicas(&world).await), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_number_that_cannot_be_is_told_and_not_followed() {
    let world = World::start().await;
    scaled(&world, json!({"minAvailable": 2, "replicas": 3})).await;
    let pods = world.pod_uids("g-").await;
    world.scale::<Adapter>("g-worker", 1).await;
    world
        .says("g", "Ready", ("False", "some_resources_are_not_ready"))
        .await;
    world.settle().await;
    let conditions = world.status("g").await.conditions;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .expect("a condition");
    assert_eq!(
        ready.message,
        "DynamoGraphDeploymentScalingAdapter g-worker: spec.replicas: Invalid value: \"1\": component Worker must have 0 \
         replicas, or at least its minAvailable of 2"
    );
    assert_eq!((replicas(&world).await, world.pod_uids("g-").await), (3, pods));
    world.scale::<Adapter>("g-worker", 2).await;
    there_are(&world, 2).await;
}

#[tokio::test(start_paused = true)]
async fn an_adapter_of_somebody_else_is_told_and_left_alone() {
    let world = World::start().await;
    let theirs: Adapter = serde_json::from_value(json!({
        "metadata": {"name": "g-worker", "namespace": NAMESPACE},
        "spec": {"replicas": 9, "dgdRef": {"name": "g", "componentName": "Worker"}},
    }))
    .expect("an adapter");
    world.create(&theirs).await;
    world.create(&with_worker(json!({"scalingAdapter": {}}))).await;
    let taken = "DynamoGraphDeploymentScalingAdapter default/g-worker already exists and belongs to nobody; rename or \
                 delete it";
    let is_told = async |world: &World| {
        let conditions = world.status("g").await.conditions;
        conditions.iter().any(|condition| condition.message == taken)
    };
    world.eventually("the graph says whose the name is", is_told).await;
    assert_eq!(replicas(&world).await, 2);
    assert_eq!(world.get::<Adapter>("g-worker").await.owner_references(), []);
    world.delete::<Adapter>("g-worker").await;
    there_are(&world, 2).await;
}
