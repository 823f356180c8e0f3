//! A set from its creation to its end.

use std::collections::BTreeSet;

use anyhow::Result;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::support::{Place, WORKLOAD, names};

#[tokio::test(flavor = "multi_thread")]
async fn a_set_runs_says_so_and_goes_without_a_trace() -> Result<()> {
    let place = Place::new("lifecycle").await?;
    place.create(WORKLOAD).await?;
    place.ready(10).await?;
    place
        .until("the set to say that it is ready", async |place| {
            let status = place.all::<PodCliqueSet>().get("w").await?.status.unwrap_or_default();
            let ready = status
                .conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True");
            Ok(ready && status.pod_gang_statuses.len() == 2)
        })
        .await?;
    assert_eq!(names(&place.list::<PodGang>().await?), ["w-0", "w-0-sg-x-0"]);
    let expected = [
        "w-0-pc-a",
        "w-0-sg-x-0-pc-b",
        "w-0-sg-x-0-pc-c",
        "w-0-sg-x-1-pc-b",
        "w-0-sg-x-1-pc-c",
    ];
    assert_eq!(names(&place.list::<PodClique>().await?), expected);

    place
        .all::<PodCliqueSet>()
        .delete("w", &DeleteParams::default())
        .await?;
    place
        .until("nothing to be left", async |place| {
            let left = [
                place.list::<PodCliqueSet>().await?.len(),
                place.list::<PodCliqueScalingGroup>().await?.len(),
                place.list::<PodClique>().await?.len(),
                place.list::<PodGang>().await?.len(),
                place.list::<Pod>().await?.len(),
                place.list::<Service>().await?.len(),
                place.list::<ControllerRevision>().await?.len(),
            ];
            Ok(left.iter().sum::<usize>() == 0)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scaling_group_grows_and_shrinks_by_its_scale() -> Result<()> {
    let place = Place::new("scaling").await?;
    place.create(WORKLOAD).await?;
    let first: BTreeSet<String> = place.ready(10).await?.iter().filter_map(ResourceExt::uid).collect();
    place.scale::<PodCliqueScalingGroup>("w-0-sg-x", 4).await?;
    place.ready(18).await?;
    assert_eq!(
        names(&place.list::<PodGang>().await?),
        ["w-0", "w-0-sg-x-0", "w-0-sg-x-1", "w-0-sg-x-2"]
    );
    place.scale::<PodCliqueScalingGroup>("w-0-sg-x", 2).await?;
    let last: BTreeSet<String> = place.ready(10).await?.iter().filter_map(ResourceExt::uid).collect();
    assert_eq!(first, last, "nobody else was touched");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_api_server_refuses_is_told_on_its_clique() -> Result<()> {
    let place = Place::new("refused").await?;
    // The name of a volume that does not exist: the schema cannot know, the API server refuses the pod.
    let broken = WORKLOAD.replacen(
        "image: one,",
        "image: one, volumeMounts: [{name: nowhere, mountPath: /x}],",
        1,
    );
    place.create(&broken).await?;
    place
        .until("the clique to say why", async |place| {
            let Some(clique) = place.all::<PodClique>().get_opt("w-0-pc-a").await? else {
                return Ok(false);
            };
            let errors = clique.status.unwrap_or_default().last_errors;
            Ok(errors
                .iter()
                .any(|error| error.description.contains("volumeMounts[0].name")))
        })
        .await?;
    let fixed = json!([{"op": "remove", "path": "/spec/template/cliques/0/spec/podSpec/containers/0/volumeMounts"}]);
    let patch = Patch::<()>::Json(serde_json::from_value(fixed)?);
    place
        .all::<PodCliqueSet>()
        .patch("w", &PatchParams::default(), &patch)
        .await?;
    place.ready(10).await?;
    place
        .until("the error to be gone", async |place| {
            let clique = place.all::<PodClique>().get("w-0-pc-a").await?;
            Ok(clique.status.unwrap_or_default().last_errors.is_empty())
        })
        .await
}
