//! What somebody else takes away or bends is put back, whatever it is: every kind that is made is watched.

use std::collections::BTreeMap;

use grove_api::{PodClique, PodCliqueScalingGroup, PodGang};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::support::workloads::{Minimum, Order, workload};
use crate::support::{Kind, World};

/// A workload of which every kind of object is made, running.
async fn world() -> World {
    let world = World::with_places(20).await;
    let scaled = "roleName: pc-a\n        autoScalingConfig: {minReplicas: 1, maxReplicas: 5}\n";
    let manifest = workload(Minimum::One, Order::Template).replacen("roleName: pc-a\n", scaled, 1);
    world.create_set(&manifest).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world
}

/// How many objects of each kind there are.
fn counts(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (kind, _) in world.remaining(0).into_keys() {
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// Deletes everything of a kind that belongs to somebody; afterwards there is as much of everything as before.
async fn take_away<K: Kind>(world: &World) {
    let before = counts(world);
    for (name, object) in world.list::<K>().await {
        if !object.owner_references().is_empty() {
            world.delete::<K>(&name).await;
        }
    }
    world.settle().await;
    assert_eq!(counts(world), before, "{}", K::kind(&()));
    assert_eq!(world.ready().await, 10, "{}", K::kind(&()));
}

/// dynamo PR #8328, #10527: what nobody watched stayed away.
#[tokio::test(start_paused = true)]
async fn pain_dynamo_8328_what_is_taken_away_comes_back_whatever_its_kind() {
    let world = world().await;
    take_away::<Pod>(&world).await;
    take_away::<PodGang>(&world).await;
    take_away::<PodClique>(&world).await;
    take_away::<PodCliqueScalingGroup>(&world).await;
    take_away::<Service>(&world).await;
    take_away::<HorizontalPodAutoscaler>(&world).await;
    take_away::<ControllerRevision>(&world).await;
    take_away::<Role>(&world).await;
    take_away::<RoleBinding>(&world).await;
}

/// Bends an object; afterwards it says what it said before.
async fn bend<K: Kind + serde::Serialize>(world: &World, name: &str, patch: Value) {
    let content = async || {
        let mut object = serde_json::to_value(world.get::<K>(name).await).expect("JSON");
        for part in ["metadata", "status"] {
            object[part] = Value::Null;
        }
        object
    };
    let before = content().await;
    let bent = world.merge::<K>(name, patch).await;
    let mut bent = serde_json::to_value(bent).expect("JSON");
    (bent["metadata"], bent["status"]) = (Value::Null, Value::Null);
    assert_ne!(bent, before, "{name} was bent");
    world.settle().await;
    assert_eq!(content().await, before, "{} {name}", K::kind(&()));
}

/// dynamo #10527: what others wrote stayed.
#[tokio::test(start_paused = true)]
async fn pain_dynamo_10527_what_is_bent_is_straightened_whatever_its_kind() {
    let world = world().await;
    let before = world.uids_of("w-").await;
    bend::<Service>(&world, "w-0", json!({"spec": {"publishNotReadyAddresses": false}})).await;
    bend::<HorizontalPodAutoscaler>(&world, "w-0-pc-a", json!({"spec": {"maxReplicas": 9}})).await;
    bend::<Role>(&world, "grove.io:pcs:w", json!({"rules": []})).await;
    bend::<RoleBinding>(&world, "grove.io:pcs:w", json!({"subjects": []})).await;
    bend::<PodGang>(&world, "w-0", json!({"spec": {"priorityClassName": "high"}})).await;
    bend::<PodClique>(&world, "w-0-pc-a", json!({"spec": {"roleName": "other"}})).await;
    bend::<PodCliqueScalingGroup>(&world, "w-0-sg-x", json!({"spec": {"minAvailable": 2}})).await;
    assert_eq!(world.uids_of("w-").await, before, "no pod was touched");
}
