//! Gangs: in which order their gates come off, what a loss costs them, what those that start later may ask.

use anyhow::{Context, Result};
use grove_api::labels;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, PostParams};

use crate::support::{Place, WORKLOAD, uids};

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == labels::SCHEDULING_GATE)
}

/// GS5, GS8: the gates of the base gang come off at once, those of a scaled gang when the base gang has its nodes.
#[tokio::test(flavor = "multi_thread")]
async fn gs5_a_scaled_gang_waits_until_the_base_gang_is_scheduled() -> Result<()> {
    let place = Place::new("gs5").await?;
    place.create(&place.pinned()).await?;
    let of_gang = |pods: &[Pod], gang: &str, gated: bool| {
        let of = pods
            .iter()
            .filter(|pod| pod.labels().get(labels::PODGANG).is_some_and(|of| of == gang));
        of.filter(|pod| is_gated(pod) == gated).count()
    };
    place
        .until("the base gang to be released, and nobody else", async |place| {
            let pods = place.list::<Pod>().await?;
            Ok(of_gang(&pods, "w-0", false) == 6 && of_gang(&pods, "w-0-sg-x-0", true) == 4)
        })
        .await?;
    place.add_node().await?;
    place.ready(10).await?;
    Ok(())
}

/// GT1: a replica that stays below its minimum is made anew, all of it; it runs again when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay() -> Result<()> {
    let place = Place::new("gt1").await?;
    place.add_node().await?;
    let all_needed = place
        .pinned()
        .replace("  template:\n", "  template:\n    terminationDelay: 2s\n")
        .replace(
            "replicas: 2\n        minAvailable: 1",
            "replicas: 2\n        minAvailable: 2",
        );
    place.create(&all_needed).await?;
    let before = uids(&place.ready(10).await?);
    place.cordon(true).await?;
    let pods = place.list::<Pod>().await?;
    let lost = pods.iter().find(|pod| pod.name_any().starts_with("w-0-pc-a-"));
    place.delete::<Pod>(&lost.context("a pod of pc-a")?.name_any()).await?;
    place
        .until("all pods to be new", async |place| {
            let pods = place.list::<Pod>().await?;
            Ok(pods.len() == 10 && uids(&pods).is_disjoint(&before))
        })
        .await?;
    place.cordon(false).await?;
    place.ready(10).await?;
    Ok(())
}

/// GT6: what is above the minimum is replaced, and nobody else pays for it.
#[tokio::test(flavor = "multi_thread")]
async fn gt6_a_lost_pod_of_a_scaled_gang_is_just_replaced() -> Result<()> {
    let place = Place::new("gt6").await?;
    place.create(WORKLOAD).await?;
    let pods = place.ready(10).await?;
    let lost = pods.iter().find(|pod| pod.name_any().starts_with("w-0-sg-x-1-pc-c-"));
    let lost = lost.context("a pod of the scaled gang")?;
    place.delete::<Pod>(&lost.name_any()).await?;
    place
        .until("the pod to be gone", async |place| {
            let uid = place
                .all::<Pod>()
                .get_opt(&lost.name_any())
                .await?
                .and_then(|pod| pod.uid());
            Ok(uid != lost.uid())
        })
        .await?;
    let after = uids(&place.ready(10).await?);
    assert_eq!(uids(&pods).intersection(&after).count(), 9);
    Ok(())
}

/// SO1: a pod that waits may watch the cliques that it waits for, by name, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn so1_a_pod_that_waits_may_ask_for_its_parents_only() -> Result<()> {
    let place = Place::new("so1").await?;
    let ordered = WORKLOAD.replace(
        "  template:\n",
        "  template:\n    cliqueStartupType: CliqueStartupTypeInOrder\n",
    );
    place.create(&ordered).await?;
    let pods = place.ready(10).await?;
    let waits = |pod: &&Pod| {
        let spec = pod.spec.as_ref();
        spec.is_some_and(|spec| {
            spec.init_containers
                .iter()
                .flatten()
                .any(|init| init.name == "grove-initc")
        })
    };
    assert_eq!(
        pods.iter().filter(waits).count(),
        7,
        "all but pc-a, and pc-b of the scaled gang"
    );
    let reviews = Api::<SubjectAccessReview>::all(place.client.clone());
    let may = async |verb: &str, resource: &str, name: Option<&str>| -> Result<bool> {
        let group = if resource == "podcliques" { "grove.io" } else { "" };
        let attributes = ResourceAttributes {
            namespace: Some(place.namespace.clone()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some(verb.to_owned()),
            name: name.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{}:default", place.namespace)),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.context("a verdict")?.allowed)
    };
    place
        .until("the parent to be readable", async |_| {
            may("watch", "podcliques", Some("w-0-pc-a")).await
        })
        .await?;
    assert!(!may("watch", "podcliques", None).await?, "not all of them");
    assert!(!may("delete", "podcliques", Some("w-0-pc-a")).await?);
    assert!(!may("list", "pods", None).await? && !may("list", "secrets", None).await?);
    Ok(())
}
