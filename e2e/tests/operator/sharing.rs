//! RS1: claims that pods share belong to the level that declares them, follow its scale, and go with it.

use std::collections::BTreeMap;

use anyhow::Result;
use grove_api::{PodClique, PodCliqueSet};
use grove_scenarios::{SHARED, claim_counts, claims_by_owner};
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::support::Place;

async fn claims(place: &Place) -> Result<BTreeMap<String, usize>> {
    Ok(claims_by_owner(&place.list::<ResourceClaim>().await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn rs1_claims_follow_the_scale_and_go_with_their_owner() -> Result<()> {
    let place = Place::new("rs1").await?;
    place.create(SHARED).await?;
    // One for all and one for each: of one replica, of two group replicas, of two pods.
    place
        .until("the claims to be made", async |place| {
            Ok(claims(place).await? == claim_counts(2, 3, 3))
        })
        .await?;
    place.scale::<PodClique>("w-0-solo", 1).await?;
    place
        .until("the claim of the pod to go", async |place| {
            Ok(claims(place).await? == claim_counts(2, 3, 2))
        })
        .await?;
    place.delete::<PodCliqueSet>("w").await?;
    place
        .until("no claim to be left", async |place| {
            Ok(place.list::<ResourceClaim>().await?.is_empty())
        })
        .await
}
