//! RS1: claims that pods share belong to the level that declares them, follow its scale, and go with it.

use std::collections::BTreeMap;

use anyhow::Result;
use grove_api::{PodClique, PodCliqueSet};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;

use crate::support::Place;

const SHARED: &str = r#"
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: w}
spec:
  replicas: 1
  template:
    resourceClaimTemplates:
    - name: fabric
      templateSpec:
        spec: {devices: {requests: [{name: d, exactly: {deviceClassName: fabric.example}}]}}
    resourceSharing:
    - {name: fabric, scope: AllReplicas}
    - {name: fabric, scope: PerReplica}
    cliques:
    - name: solo
      resourceSharing: [{name: fabric, scope: AllReplicas}, {name: fabric, scope: PerReplica}]
      spec:
        roleName: solo
        replicas: 2
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one}]}
    - name: member
      spec:
        roleName: member
        replicas: 1
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one}]}
    podCliqueScalingGroups:
    - name: sg
      cliqueNames: [member]
      replicas: 2
      minAvailable: 1
      resourceSharing: [{name: fabric, scope: AllReplicas}, {name: fabric, scope: PerReplica}]
"#;

/// How many claims each kind of owner has; those on their way out do not count.
async fn claims(place: &Place) -> Result<BTreeMap<String, usize>> {
    let mut owners = BTreeMap::new();
    let found = place.list::<ResourceClaim>().await?;
    for claim in found.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
        *owners.entry(claim.owner_references()[0].kind.clone()).or_default() += 1;
    }
    Ok(owners)
}

fn counts(set: usize, group: usize, clique: usize) -> BTreeMap<String, usize> {
    let named = [
        ("PodCliqueSet", set),
        ("PodCliqueScalingGroup", group),
        ("PodClique", clique),
    ];
    named.map(|(kind, count)| (kind.to_owned(), count)).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn rs1_claims_follow_the_scale_and_go_with_their_owner() -> Result<()> {
    let place = Place::new("rs1").await?;
    place.create(SHARED).await?;
    // One for all and one for each: of one replica, of two group replicas, of two pods.
    place
        .until("the claims to be made", async |place| {
            Ok(claims(place).await? == counts(2, 3, 3))
        })
        .await?;
    place.scale::<PodClique>("w-0-solo", 1).await?;
    place
        .until("the claim of the pod to go", async |place| {
            Ok(claims(place).await? == counts(2, 3, 2))
        })
        .await?;
    place.delete::<PodCliqueSet>("w").await?;
    place
        .until("no claim to be left", async |place| {
            Ok(place.list::<ResourceClaim>().await?.is_empty())
        })
        .await
}
