//! RS1: claims that pods share are made by the level that declares them, follow its scale, and go with it.

use std::collections::BTreeMap;

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet};
use grove_scenarios::{SHARED, claim_counts, claims_by_owner};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;

use crate::support::{Placer, World};

async fn claims(world: &World) -> BTreeMap<String, usize> {
    claims_by_owner(world.list::<ResourceClaim>().await.values())
}

#[tokio::test(start_paused = true)]
async fn rs1_claims_follow_the_scale_of_the_level_that_declares_them() {
    let world = World::placed_by(Placer::Operator, 30).await;
    world.create_set(SHARED).await;
    world.settle().await;
    assert_eq!(world.ready().await, 4);
    // One for all and one for each: of one replica, of two group replicas, of two pods.
    assert_eq!(claims(&world).await, claim_counts(2, 3, 3));

    world.scale::<PodClique>("w-0-solo", 1).await;
    world.settle().await;
    assert_eq!(claims(&world).await, claim_counts(2, 3, 2));
    world.scale::<PodClique>("w-0-solo", 3).await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg", 3).await;
    world.settle().await;
    assert_eq!(claims(&world).await, claim_counts(2, 4, 4));
    assert_eq!(world.ready().await, 6);

    let before = world.list::<ResourceClaim>().await;
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    assert_eq!(claims(&world).await, claim_counts(3, 4 + 3, 4 + 3));
    world.scale::<PodCliqueSet>("w", 1).await;
    world.settle().await;
    let after = world.list::<ResourceClaim>().await;
    let uids = |claims: &BTreeMap<String, ResourceClaim>| -> Vec<_> { claims.values().map(ResourceExt::uid).collect() };
    assert_eq!(uids(&after), uids(&before), "claims in use are never replaced");

    world.delete::<PodCliqueSet>("w").await;
    world.settle().await;
    assert!(world.list::<ResourceClaim>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rs1_every_container_of_a_pod_uses_the_claims_of_its_levels() {
    let world = World::placed_by(Placer::Operator, 10).await;
    world.create_set(SHARED).await;
    world.settle().await;
    let used = |pod: &Pod| -> Vec<String> {
        let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        claims.filter_map(|claim| claim.resource_claim_name.clone()).collect()
    };
    let pods = world.pods_of("w-0-sg-1-member").await;
    let expected = ["w-all-fabric", "w-0-fabric", "w-0-sg-all-fabric", "w-0-sg-1-fabric"];
    assert_eq!(used(&pods[0]), expected);
    let containers = &pods[0].spec.as_ref().expect("a spec").containers;
    let claims = containers[0]
        .resources
        .as_ref()
        .and_then(|resources| resources.claims.as_ref());
    assert_eq!(claims.map(Vec::len), Some(4));
}

/// A template that is an object of its own and does not exist is named in the status; once it is there, a change of
/// the set is enough.
#[tokio::test(start_paused = true)]
async fn rs1_a_missing_claim_template_is_told() {
    let world = World::placed_by(Placer::Operator, 10).await;
    let manifest = SHARED.replace(
        "- {name: fabric, scope: AllReplicas}\n",
        "- {name: elsewhere, scope: AllReplicas}\n",
    );
    assert_ne!(manifest, SHARED);
    world.create_set(&manifest).await;
    world
        .eventually("the status names it", async |world| {
            let status = world.get::<PodCliqueSet>("w").await.status.unwrap_or_default();
            let mut errors = status.last_errors.iter();
            errors.any(|error| {
                error
                    .description
                    .contains("ResourceClaimTemplate default/elsewhere does not exist")
            })
        })
        .await;
    let template = serde_json::from_value(serde_json::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "elsewhere"},
        "spec": {"spec": {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "fabric.example"}}]}}},
    }));
    let template: k8s_openapi::api::resource::v1::ResourceClaimTemplate = template.expect("a template");
    world.create(&template).await;
    world
        .eventually("the pods run", async |world| world.ready().await == 4)
        .await;
    world.settle().await;
    let status = world.get::<PodCliqueSet>("w").await.status.unwrap_or_default();
    assert!(status.last_errors.is_empty(), "{:?}", status.last_errors);
}

/// What was made from a template lives on without it: the next operator does all its work, and says what is missing.
#[tokio::test(start_paused = true)]
async fn rs1_a_claim_template_that_is_gone_stops_nothing_that_runs() {
    let mut world = World::placed_by(Placer::Operator, 10).await;
    let manifest = SHARED.replace(
        "- {name: fabric, scope: AllReplicas}\n",
        "- {name: elsewhere, scope: AllReplicas}\n",
    );
    let template = serde_json::from_value(serde_json::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "elsewhere"},
        "spec": {"spec": {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "fabric.example"}}]}}},
    }));
    let template: k8s_openapi::api::resource::v1::ResourceClaimTemplate = template.expect("a template");
    world.create(&template).await;
    world.create_set(&manifest).await;
    world.settle().await;
    assert_eq!(world.ready().await, 4);
    let claims = world.list::<ResourceClaim>().await;
    world.stop_operator().await;
    world
        .delete::<k8s_openapi::api::resource::v1::ResourceClaimTemplate>("elsewhere")
        .await;
    world.start_operator();
    world.settle().await;
    world.scale::<PodClique>("w-0-solo", 3).await;
    let lost = world.pods_of("w-0-sg-0-member").await;
    world.delete::<Pod>(&lost[0].name_any()).await;
    world.settle().await;
    assert_eq!(world.ready().await, 5);
    let now = world.list::<ResourceClaim>().await;
    for (name, claim) in &claims {
        assert_eq!(now.get(name).and_then(ResourceExt::uid), claim.uid(), "{name}");
    }
    let errors = world
        .get::<PodCliqueSet>("w")
        .await
        .status
        .unwrap_or_default()
        .last_errors;
    let words = "ResourceClaimTemplate default/elsewhere does not exist";
    assert!(
        errors.iter().any(|error| error.description.contains(words)),
        "{errors:?}"
    );
}
