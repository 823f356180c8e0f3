//! Gangs: in which order their gates come off, what a loss costs them, what those that start later may ask.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use grove_api::duration::DurationString;
use grove_api::podcliqueset::CliqueStartupType;
use grove_api::{PodCliqueScalingGroup, PodCliqueSet, PodGang, labels};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, PostParams};

use crate::support::{Place, WORKLOAD, names, uids};

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
    place.scheduled("w-0", "False").await?;
    place.add_node().await?;
    place.ready(10).await?;
    for gang in ["w-0", "w-0-sg-x-0"] {
        place.scheduled(gang, "True").await?;
    }
    place.audit().await
}

/// What is ready runs on the node of the place, which has some room left; the gang of what is scaled out now needs more,
/// so that none of its pods takes any, and all of them run when there is enough.
async fn waits_for_room(
    place: &Place,
    (room, gang): (usize, &str),
    scale_out: impl AsyncFn(&Place) -> Result<()>,
) -> Result<()> {
    place.add_node_for(10 + room, &place.namespace).await?;
    place.create(&place.pinned()).await?;
    let before = uids(&place.ready(10).await?);
    scale_out(place).await?;
    place.scheduled(gang, "False").await?;
    let has_place = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let pods = place.list::<Pod>().await?;
    let placed: Vec<&Pod> = pods.iter().filter(has_place).collect();
    assert_eq!(placed.len(), 10, "all or none");
    place.add_node_for(20, &format!("{}-more", place.namespace)).await?;
    assert!(uids(&place.ready(pods.len()).await?).is_superset(&before));
    place.scheduled(gang, "True").await?;
    place.audit().await
}

/// GS2: a replica that a scaling group gets is a gang of its own, which waits for room.
#[tokio::test(flavor = "multi_thread")]
async fn gs2_a_scaled_group_waits_for_room_and_disturbs_nobody() -> Result<()> {
    let place = Place::new("gs2").await?;
    let scale_out = async |place: &Place| place.scale::<PodCliqueScalingGroup>("w-0-sg-x", 3).await;
    waits_for_room(&place, (1, "w-0-sg-x-1"), scale_out).await?;
    let gangs = ["w-0", "w-0-sg-x-0", "w-0-sg-x-1"];
    assert_eq!(names(&place.list::<PodGang>().await?), gangs);
    assert_eq!(place.list::<Pod>().await?.len(), 14);
    Ok(())
}

/// GS3: a second replica has gangs of its own, which wait for room.
#[tokio::test(flavor = "multi_thread")]
async fn gs3_a_second_replica_waits_for_room_and_disturbs_nobody() -> Result<()> {
    let place = Place::new("gs3").await?;
    let scale_out = async |place: &Place| place.scale::<PodCliqueSet>("w", 2).await;
    waits_for_room(&place, (2, "w-1"), scale_out).await?;
    let gangs = ["w-0", "w-0-sg-x-0", "w-1", "w-1-sg-x-0"];
    assert_eq!(names(&place.list::<PodGang>().await?), gangs);
    assert_eq!(place.list::<Pod>().await?.len(), 20);
    Ok(())
}

/// The workload with a short delay before what stays below its minimum is made anew; `all_of` needs all of its pods.
async fn breakable(namespace: &str, all_of: &str) -> Result<(Place, Vec<Pod>)> {
    let place = Place::new(namespace).await?;
    place.add_node().await?;
    let mut set: PodCliqueSet = serde_saphyr::from_str(&place.pinned())?;
    set.spec.template.termination_delay = Some(DurationString("2s".to_owned()));
    for clique in set
        .spec
        .template
        .cliques
        .iter_mut()
        .filter(|clique| clique.name == all_of)
    {
        clique.spec.min_available = Some(clique.spec.replicas);
    }
    place.all().create(&PostParams::default(), &set).await?;
    let pods = place.ready(10).await?;
    Ok((place, pods))
}

/// Takes away one pod of a clique and the room for another.
async fn lose(place: &Place, pods: &[Pod], clique: &str) -> Result<()> {
    place.cordon(true).await?;
    let lost = pods.iter().find(|pod| pod.name_any().starts_with(clique));
    place
        .delete::<Pod>(&lost.context("a pod of the clique")?.name_any())
        .await
}

/// GT1: a replica that stays below its minimum is made anew, all of it; it runs again when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay() -> Result<()> {
    let (place, pods) = breakable("gt1", "pc-a").await?;
    lose(&place, &pods, "w-0-pc-a-").await?;
    place
        .until("all pods to be new", async |place| {
            let now = place.list::<Pod>().await?;
            Ok(now.len() == 10 && uids(&now).is_disjoint(&uids(&pods)))
        })
        .await?;
    place.scheduled("w-0", "False").await?;
    place.cordon(false).await?;
    place.ready(10).await?;
    place.scheduled("w-0", "True").await?;
    place.audit().await
}

/// GT5: a scaling group that can spare a replica has only that one made anew.
#[tokio::test(flavor = "multi_thread")]
async fn gt5_a_lost_pod_recycles_only_its_replica_of_the_group() -> Result<()> {
    let (place, pods) = breakable("gt5", "pc-c").await?;
    let of = |pods: &[Pod], replica: &str| -> BTreeSet<String> {
        let of = pods.iter().filter(|pod| pod.name_any().starts_with(replica));
        of.filter_map(ResourceExt::uid).collect()
    };
    lose(&place, &pods, "w-0-sg-x-0-pc-c-").await?;
    place
        .until("the replica to be new", async |place| {
            let now = of(&place.list::<Pod>().await?, "w-0-sg-x-0-");
            Ok(now.len() == 4 && now.is_disjoint(&of(&pods, "w-0-sg-x-0-")))
        })
        .await?;
    place.cordon(false).await?;
    let after = place.ready(10).await?;
    for untouched in ["w-0-pc-a-", "w-0-sg-x-1-"] {
        assert_eq!(of(&after, untouched), of(&pods, untouched));
    }
    place.audit().await
}

/// GT6: what is above the minimum is replaced, and nobody else pays for it.
#[tokio::test(flavor = "multi_thread")]
async fn gt6_a_lost_pod_of_a_scaled_gang_is_just_replaced() -> Result<()> {
    let place = Place::new("gt6").await?;
    place.add_node().await?;
    place.create(&place.pinned()).await?;
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
    place.audit().await
}

/// What the init container of a pod waits for.
fn awaited(pod: &Pod) -> Vec<String> {
    let inits = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let ours = inits.filter(|init| init.name == "grove-initc");
    let args = ours.flat_map(|init| init.args.clone().unwrap_or_default());
    args.filter(|arg| arg.starts_with("--podcliques=")).collect()
}

/// SO3: with an explicit order each pod waits for the cliques that it names, in its own gang.
#[tokio::test(flavor = "multi_thread")]
async fn so3_an_explicit_order_says_whom_each_pod_waits_for() -> Result<()> {
    let place = Place::new("so3").await?;
    let mut set: PodCliqueSet = serde_saphyr::from_str(WORKLOAD)?;
    set.spec.template.clique_startup_type = CliqueStartupType::Explicit;
    set.spec.template.cliques[1].spec.starts_after = vec!["pc-c".to_owned()];
    set.spec.template.cliques[2].spec.starts_after = vec!["pc-a".to_owned()];
    place.all().create(&PostParams::default(), &set).await?;
    let pods = place.ready(10).await?;
    for (clique, expected) in [
        ("w-0-pc-a-", vec![]),
        ("w-0-sg-x-0-pc-c-", vec!["--podcliques=w-0-pc-a:1".to_owned()]),
        ("w-0-sg-x-0-pc-b-", vec!["--podcliques=w-0-sg-x-0-pc-c:1".to_owned()]),
        ("w-0-sg-x-1-pc-c-", vec![]),
        ("w-0-sg-x-1-pc-b-", vec!["--podcliques=w-0-sg-x-1-pc-c:1".to_owned()]),
    ] {
        let pod = pods.iter().find(|pod| pod.name_any().starts_with(clique));
        assert_eq!(awaited(pod.context("a pod of the clique")?), expected, "{clique}");
    }
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
    let waiting = pods.iter().filter(|pod| !awaited(pod).is_empty());
    assert_eq!(waiting.count(), 7, "all but pc-a, and pc-b of the scaled gang");
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
