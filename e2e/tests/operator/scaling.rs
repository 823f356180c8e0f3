//! Scaling: by Kubernetes' own autoscaler, and to zero and back.

use anyhow::Result;
use grove_api::{PodCliqueSet, PodGang};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::json;

use crate::support::{Place, WORKLOAD, names, uids};

/// The autoscaler has no metrics here, but it keeps its bounds: moving them scales a clique out and in.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_scales_a_clique_out_and_in() -> Result<()> {
    let place = Place::new("hpa").await?;
    let scaled = "roleName: pc-a\n        autoScalingConfig: {minReplicas: 1, maxReplicas: 5}\n";
    place.create(&WORKLOAD.replacen("roleName: pc-a\n", scaled, 1)).await?;
    let before = uids(&place.ready(10).await?);
    let found = place.list::<HorizontalPodAutoscaler>().await?;
    assert_eq!(names(&found), ["w-0-pc-a"]);
    assert_eq!(found[0].spec.scale_target_ref.kind, "PodClique");

    let bounds = "/cliques/0/spec/autoScalingConfig";
    place
        .edit_template("replace", bounds, json!({"minReplicas": 4, "maxReplicas": 5}))
        .await?;
    assert!(uids(&place.ready(12).await?).is_superset(&before));
    place
        .edit_template("replace", bounds, json!({"minReplicas": 1, "maxReplicas": 2}))
        .await?;
    place.ready(10).await?;

    place.edit_template("remove", bounds, json!(null)).await?;
    place
        .until("the autoscaler to go", async |place| {
            Ok(place.list::<HorizontalPodAutoscaler>().await?.is_empty())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_scales_to_zero_and_back() -> Result<()> {
    let place = Place::new("zero").await?;
    place.create(WORKLOAD).await?;
    let before = uids(&place.ready(10).await?);
    place.scale::<PodCliqueSet>("w", 0).await?;
    place.ready(0).await?;
    place
        .until("the gangs to go", async |place| {
            Ok(place.list::<PodGang>().await?.is_empty())
        })
        .await?;
    place.scale::<PodCliqueSet>("w", 1).await?;
    assert!(uids(&place.ready(10).await?).is_disjoint(&before));
    Ok(())
}
