//! Updates: one thing at a time, while a set scales, and at the user's pace.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::film::Film;
use crate::support::{Place, WORKLOAD, images, is_ready, uids};

async fn update_has_ended(place: &Place) -> Result<bool> {
    let set = place.all::<PodCliqueSet>().get("w").await?;
    let status = set.status.context("a status")?;
    let progress = status.update_progress.as_ref();
    let ended = progress.is_some_and(|progress| progress.update_ended_at.is_some());
    Ok(ended && status.updated_replicas == set.spec.replicas && status.observed_generation == set.metadata.generation)
}

/// The workload, running.
async fn running(namespace: &str) -> Result<(Place, BTreeSet<String>)> {
    let place = Place::new(namespace).await?;
    place.create(WORKLOAD).await?;
    let pods = uids(&place.ready(10).await?);
    Ok((place, pods))
}

/// Waits for the end of the update; then there are so many pods, and those of `role` run the image `two`.
async fn ends_with(place: &Place, count: usize, role: &str) -> Result<Vec<Pod>> {
    place.until("the update to end", update_has_ended).await?;
    let pods = place.ready(count).await?;
    let (changed, others): (Vec<Pod>, Vec<Pod>) = pods
        .into_iter()
        .partition(|pod| pod.name_any().contains(&format!("-{role}-")));
    assert_eq!(images(&changed), ["two".to_owned()].into());
    Ok(others)
}

/// RU7: one pod at a time, one replica at a time; nobody else is touched. A replica is done when all of its pods are new and
/// enough of them are ready, so the last of them may still start when the next replica begins.
#[tokio::test(flavor = "multi_thread")]
async fn ru7_one_pod_at_a_time() -> Result<()> {
    let (place, _) = running("ru7").await?;
    place.scale::<PodCliqueSet>("w", 2).await?;
    let before = uids(&place.ready(20).await?);
    let film = Film::start(&place).await?;
    place.set_image(0, "two").await?;
    let others = ends_with(&place, 20, "pc-a").await?;
    assert_eq!(uids(&others).intersection(&before).count(), 16);
    film.replay(|scene| {
        let (first, second) = (scene.ready("w-0-pc-a-"), scene.ready("w-1-pc-a-"));
        assert!(first >= 1 && second >= 1, "{first} and {second} were ready at once");
        let old = [
            scene.with_image("w-0-pc-a-", "one"),
            scene.with_image("w-1-pc-a-", "one"),
        ];
        assert_ne!(old, [1, 1], "both replicas were being updated");
    });
    Ok(())
}

/// RU8: one replica of a scaling group at a time. One that is new is done when enough of its pods are ready.
#[tokio::test(flavor = "multi_thread")]
async fn ru8_one_replica_of_a_group_at_a_time() -> Result<()> {
    let (place, before) = running("ru8").await?;
    let film = Film::start(&place).await?;
    place.set_image(1, "two").await?;
    let others = ends_with(&place, 10, "pc-b").await?;
    let of_a: Vec<Pod> = others
        .into_iter()
        .filter(|pod| pod.name_any().starts_with("w-0-pc-a-"))
        .collect();
    assert_eq!(uids(&of_a).intersection(&before).count(), 2);
    film.replay(|scene| {
        let serves = |clique: &str| scene.ready(clique) >= 1;
        let group = |replica: i32| ["b", "c"].map(|clique| format!("w-0-sg-x-{replica}-pc-{clique}-"));
        let serving = (0..2).filter(|replica| group(*replica).iter().all(|clique| serves(clique)));
        assert!(serving.count() >= 1, "no replica of the group served");
    });
    Ok(())
}

/// RU10: without room one pod is replaced and waits; the update goes on when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn ru10_without_room_one_pod_is_replaced_and_waits() -> Result<()> {
    let place = Place::new("ru10").await?;
    place.add_node().await?;
    place.create(&place.pinned()).await?;
    place.ready(10).await?;
    let film = Film::start(&place).await?;
    place.cordon(true).await?;
    place.set_image(0, "two").await?;
    place
        .until("one new pod to wait", async |place| {
            let pods = place.list::<Pod>().await?;
            let waits = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            Ok((ready, pods.iter().filter(waits).count()) == (9, 1))
        })
        .await?;
    place.cordon(false).await?;
    ends_with(&place, 10, "pc-a").await?;
    film.replay(|scene| assert!(scene.ready("w-0-") >= 9, "a second pod went before the first was back"));
    Ok(())
}

/// RU11: a replica that is added during an update is new from the start, and the update ends with all of them.
#[tokio::test(flavor = "multi_thread")]
async fn ru11_a_replica_that_comes_during_an_update_is_new() -> Result<()> {
    let (place, before) = running("ru11").await?;
    place.set_image(0, "two").await?;
    place.scale::<PodCliqueSet>("w", 2).await?;
    let others = ends_with(&place, 20, "pc-a").await?;
    assert_eq!(
        uids(&others).intersection(&before).count(),
        8,
        "nobody else was touched"
    );
    Ok(())
}

/// RU14: a replica that a scaling group gets during an update is new from the start, and is not rolled again.
#[tokio::test(flavor = "multi_thread")]
async fn ru14_a_group_replica_that_comes_during_an_update_is_new() -> Result<()> {
    let (place, _) = running("ru14").await?;
    let film = Film::start(&place).await?;
    place.set_image(1, "two").await?;
    place.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await?;
    ends_with(&place, 14, "pc-b").await?;
    let mut made = BTreeSet::new();
    film.replay(|scene| made.extend(scene.uids("w-0-sg-x-2-pc-b-")));
    assert_eq!(made.len(), 1, "made once, and never replaced");
    Ok(())
}

/// RU18, RU20: a clique is scaled out and in while its pods are replaced.
#[tokio::test(flavor = "multi_thread")]
async fn ru18_a_clique_is_scaled_during_an_update() -> Result<()> {
    let (place, _) = running("ru18").await?;
    place.set_image(0, "two").await?;
    place.scale::<PodClique>("w-0-pc-a", 4).await?;
    ends_with(&place, 12, "pc-a").await?;
    place.set_image(0, "three").await?;
    place.scale::<PodClique>("w-0-pc-a", 1).await?;
    place.set_image(0, "two").await?;
    ends_with(&place, 9, "pc-a").await?;
    Ok(())
}

/// RU9 and a second update on top of it: the newest wins, and every pod is of it.
#[tokio::test(flavor = "multi_thread")]
async fn ru9_a_second_update_during_an_update_wins() -> Result<()> {
    let (place, _) = running("ru9").await?;
    for image in ["two", "three"] {
        for clique in 0..3 {
            place.set_image(clique, image).await?;
        }
    }
    place.until("the update to end", update_has_ended).await?;
    assert_eq!(images(&place.ready(10).await?), ["three".to_owned()].into());
    Ok(())
}

/// The workload, running, with a new template that nobody has been replaced for.
async fn at_the_users_pace(namespace: &str) -> Result<(Place, Vec<Pod>)> {
    let (place, before) = running(namespace).await?;
    let strategy = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
    place.merge::<PodCliqueSet>("w", strategy).await?;
    place.set_image(0, "two").await?;
    place
        .until("the update to count as over", async |place| {
            let status = place.all::<PodCliqueSet>().get("w").await?.status.context("a status")?;
            Ok(status
                .update_progress
                .is_some_and(|progress| progress.update_ended_at.is_some()))
        })
        .await?;
    let pods = place.ready(10).await?;
    assert_eq!(uids(&pods), before, "nothing was deleted");
    Ok((place, pods))
}

/// Deletes one pod of pc-a, and waits until a new one is counted.
async fn replace_one(place: &Place, pods: &[Pod]) -> Result<()> {
    let victim = pods.iter().find(|pod| pod.name_any().starts_with("w-0-pc-a-"));
    let victim = victim.context("a pod of pc-a")?.name_any();
    place.delete::<Pod>(&victim).await?;
    place
        .until("one new pod to be counted", async |place| {
            let clique = place.all::<PodClique>().get("w-0-pc-a").await?;
            let status = clique.status.context("a status")?;
            Ok((status.updated_replicas, status.ready_replicas) == (1, 2))
        })
        .await
}

/// OD1, OD2: nothing is replaced by itself; what the user deletes comes back new, and is counted.
#[tokio::test(flavor = "multi_thread")]
async fn od2_a_deleted_pod_returns_as_a_new_one_and_no_other() -> Result<()> {
    let (place, pods) = at_the_users_pace("od2").await?;
    replace_one(&place, &pods).await?;
    let after = place.ready(10).await?;
    assert_eq!(uids(&after).intersection(&uids(&pods)).count(), 9);
    Ok(())
}

/// OD3: scaling in takes the outdated pod and leaves the new one.
#[tokio::test(flavor = "multi_thread")]
async fn od3_scaling_in_takes_the_outdated_pod() -> Result<()> {
    let (place, pods) = at_the_users_pace("od3").await?;
    replace_one(&place, &pods).await?;
    place.scale::<PodClique>("w-0-pc-a", 1).await?;
    let mut left = place.ready(9).await?;
    left.retain(|pod| pod.name_any().starts_with("w-0-pc-a-"));
    assert_eq!(images(&left), ["two".to_owned()].into());
    Ok(())
}

/// OD9: what was left over is replaced once the strategy says so.
#[tokio::test(flavor = "multi_thread")]
async fn od9_what_was_left_over_is_replaced_once_the_strategy_says_so() -> Result<()> {
    let (place, pods) = at_the_users_pace("od9").await?;
    let strategy = json!({"spec": {"updateStrategy": {"type": "RollingRecreate"}}});
    place.merge::<PodCliqueSet>("w", strategy).await?;
    place
        .until("both pods of pc-a to be new", async |place| {
            let clique = place.all::<PodClique>().get("w-0-pc-a").await?;
            let status = clique.status.context("a status")?;
            Ok((status.updated_replicas, status.ready_replicas) == (2, 2))
        })
        .await?;
    let others = ends_with(&place, 10, "pc-a").await?;
    assert_eq!(uids(&others).intersection(&uids(&pods)).count(), 8);
    Ok(())
}
