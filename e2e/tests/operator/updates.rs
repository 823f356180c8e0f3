//! Updates: while a set scales, and at the user's pace.

use anyhow::{Context, Result};
use grove_api::{PodClique, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::support::{Place, WORKLOAD, images, uids};

async fn update_has_ended(place: &Place) -> Result<bool> {
    let set = place.all::<PodCliqueSet>().get("w").await?;
    let status = set.status.context("a status")?;
    let progress = status.update_progress.as_ref();
    let ended = progress.is_some_and(|progress| progress.update_ended_at.is_some());
    Ok(ended && status.updated_replicas == set.spec.replicas && status.observed_generation == set.metadata.generation)
}

/// RU11: a replica that is added during an update is new from the start, and the update ends with all of them.
#[tokio::test(flavor = "multi_thread")]
async fn ru11_a_replica_that_comes_during_an_update_is_new() -> Result<()> {
    let place = Place::new("ru11").await?;
    place.create(WORKLOAD).await?;
    let before = uids(&place.ready(10).await?);
    place.set_image(0, "two").await?;
    place.scale::<PodCliqueSet>("w", 2).await?;
    place.until("the update to end", update_has_ended).await?;
    let pods = place.ready(20).await?;
    let (changed, others): (Vec<Pod>, Vec<Pod>) = pods.into_iter().partition(|pod| pod.name_any().contains("-pc-a-"));
    assert_eq!(images(&changed), ["two".to_owned()].into());
    assert_eq!(
        uids(&others).intersection(&before).count(),
        8,
        "nobody else was touched"
    );
    Ok(())
}

/// RU9 and a second update on top of it: the newest wins, and every pod is of it.
#[tokio::test(flavor = "multi_thread")]
async fn ru9_a_second_update_during_an_update_wins() -> Result<()> {
    let place = Place::new("ru9").await?;
    place.create(WORKLOAD).await?;
    place.ready(10).await?;
    for image in ["two", "three"] {
        for clique in 0..3 {
            place.set_image(clique, image).await?;
        }
    }
    place.until("the update to end", update_has_ended).await?;
    assert_eq!(images(&place.ready(10).await?), ["three".to_owned()].into());
    Ok(())
}

/// OD1, OD2: nothing is replaced by itself; what the user deletes comes back new, and is counted.
#[tokio::test(flavor = "multi_thread")]
async fn od2_a_deleted_pod_returns_as_a_new_one_and_no_other() -> Result<()> {
    let place = Place::new("od2").await?;
    place.create(WORKLOAD).await?;
    let before = uids(&place.ready(10).await?);
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
    let victim = pods.iter().find(|pod| pod.name_any().starts_with("w-0-pc-a-"));
    place
        .delete::<Pod>(&victim.context("a pod of pc-a")?.name_any())
        .await?;
    place
        .until("one new pod to be counted", async |place| {
            let status = place
                .all::<PodClique>()
                .get("w-0-pc-a")
                .await?
                .status
                .context("a status")?;
            Ok((status.updated_replicas, status.ready_replicas) == (1, 2))
        })
        .await?;
    let after = place.ready(10).await?;
    assert_eq!(uids(&after).intersection(&before).count(), 9);
    Ok(())
}
