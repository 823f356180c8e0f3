//! What people read when a set does not run: why, in words, where they look.

use grove_api::PodGang;
use grove_api::conditions::podcliqueset::READY;
use k8s_openapi::api::events::v1::Event;

use crate::support::World;
use crate::support::workloads::{Minimum, Order, simple, workload};

async fn why_not_ready(world: &World) -> String {
    let status = world.set_status("w").await;
    let mut ready = status.conditions.iter().filter(|condition| condition.type_ == READY);
    let ready = ready.next().expect("a condition");
    assert_eq!(ready.status, "False");
    ready.message.clone()
}

/// Where pods are placed one by one, their scheduler says on the pod why it found no node. Nobody looks at ten pods.
#[tokio::test(start_paused = true)]
async fn why_a_pod_has_no_node_reaches_its_gang_its_set_and_an_event() {
    let world = World::plain(1).await;
    world.create_set(&simple("w", 1, 11)).await;
    world.settle().await;
    let pods = world.pods().await;
    let waiting = pods
        .iter()
        .find(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()));
    let status = waiting
        .expect("a pod without a node")
        .status
        .clone()
        .unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let mut refused = conditions.iter().filter(|condition| condition.type_ == "PodScheduled");
    let words = refused
        .next()
        .and_then(|condition| condition.message.clone())
        .expect("a reason");

    let gang = world.get::<PodGang>("w-0").await.status.expect("a status");
    assert!(
        gang.conditions
            .iter()
            .any(|condition| condition.message.contains(&words)),
        "{gang:?}"
    );
    let why = why_not_ready(&world).await;
    assert!(
        why.starts_with("0 of 1 replicas are available; replica 0: PodGang w-0 is not placed"),
        "{why}"
    );
    assert!(why.contains(&words), "{why}");
    let events = world.list::<Event>().await;
    let told: Vec<&Event> = events
        .values()
        .filter(|event| event.reason.as_deref() == Some("Unplaced"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].note.as_ref().is_some_and(|note| note.contains(&words)),
        "{told:?}"
    );
}

/// Where gangs are placed whole, whoever places says why on the gang.
#[tokio::test(start_paused = true)]
async fn why_a_gang_is_not_placed_reaches_its_set() {
    let world = World::with_places(9).await;
    world.create_set(&workload(Minimum::All, Order::Any)).await;
    world.settle().await;
    let why = why_not_ready(&world).await;
    let gang = world.get::<PodGang>("w-0").await.status.expect("a status");
    let pending = gang.pending.expect("why it waits").message;
    let expected = format!("0 of 1 replicas are available; replica 0: PodGang w-0 is not placed: {pending}");
    assert_eq!(why, expected);
}
