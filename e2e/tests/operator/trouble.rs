//! What goes wrong around the operator: pods that do not end, names that are taken.

use anyhow::{Context, Result};
use grove_api::{PodClique, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::support::{Place, WORKLOAD, is_ready, uids};

/// grove #401: somebody never lets go of a pod that is being deleted. Its replacement does not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_never_ends_neither_blocks_nor_counts() -> Result<()> {
    let place = Place::new("held").await?;
    place.create(WORKLOAD).await?;
    let pods = place.ready(10).await?;
    let stuck = pods.iter().find(|pod| pod.name_any().starts_with("w-0-pc-a-"));
    let stuck = stuck.context("a pod of pc-a")?.name_any();
    place
        .merge::<Pod>(&stuck, json!({"metadata": {"finalizers": ["example.com/held"]}}))
        .await?;
    place.delete::<Pod>(&stuck).await?;
    place
        .until("ten others to be ready", async |place| {
            let pods = place.list::<Pod>().await?;
            Ok(pods.len() == 11 && pods.iter().filter(|pod| is_ready(pod)).count() == 10)
        })
        .await?;
    place
        .until("the clique to count what serves", async |place| {
            let status = place
                .all::<PodClique>()
                .get("w-0-pc-a")
                .await?
                .status
                .context("a status")?;
            Ok((status.replicas, status.ready_replicas) == (2, 2))
        })
        .await?;
    // It is let go, and nothing else changes.
    place
        .merge::<Pod>(&stuck, json!({"metadata": {"finalizers": null}}))
        .await?;
    let after = uids(&place.ready(10).await?);
    assert_eq!(uids(&pods).intersection(&after).count(), 9);
    Ok(())
}

/// `a` and its clique `b-0-c`, and `a-0-b` and its clique `c`: both want a PodClique `a-0-b-0-c`.
#[tokio::test(flavor = "multi_thread")]
async fn two_sets_with_colliding_names_are_told_and_nothing_foreign_is_touched() -> Result<()> {
    let place = Place::new("collision").await?;
    let set = |name: &str, clique: &str| {
        format!(
            "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: {name}}}\nspec:\n  replicas: 1\n  \
             template:\n    cliques:\n    - name: {clique}\n      spec:\n        roleName: {clique}\n        \
             replicas: 2\n        minAvailable: 2\n        podSpec: {{containers: [{{name: main, image: one}}]}}\n"
        )
    };
    place.create(&set("a-0-b", "c")).await?;
    let before = uids(&place.ready(2).await?);
    place.create(&set("a", "b-0-c")).await?;
    place
        .until("the second to be told", async |place| {
            let status = place.all::<PodCliqueSet>().get("a").await?.status.unwrap_or_default();
            let mut errors = status.last_errors.iter();
            let holder = "PodClique collision/a-0-b-0-c already exists";
            Ok(errors.any(|error| error.description.contains(holder) && error.description.contains("a-0-b")))
        })
        .await?;
    place.delete::<PodCliqueSet>("a").await?;
    place
        .until("the second to go", async |place| {
            Ok(place.all::<PodCliqueSet>().get_opt("a").await?.is_none())
        })
        .await?;
    assert_eq!(uids(&place.ready(2).await?), before);
    Ok(())
}
