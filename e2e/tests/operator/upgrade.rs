//! An upgrade: objects and running pods as the release before left them, and this operator that starts among them.
//!
//! `upgrade.jsonl` holds them, an object in a line, owners first. It is recorded by the operator of a release, on the
//! commit of that release: `GROVE_RECORD=1 cargo test -p grove-e2e --test operator upgrade`.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use grove_api::{PodClique, PodCliqueSet, labels};
use grove_e2e::ControlPlane;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

use crate::before::{BEFORE, PODS};
use crate::recording::is_recording;
use crate::space::grant;
use crate::support::{Place, install_kinds, run_operator, uids};

/// Owners before what they own.
const KINDS: [(&str, &str); 7] = [
    ("grove.io/v1alpha1", "PodCliqueSet"),
    ("apps/v1", "ControllerRevision"),
    ("v1", "Service"),
    ("grove.io/v1alpha1", "PodCliqueScalingGroup"),
    ("grove.io/v1alpha1", "PodClique"),
    ("scheduler.grove.io/v1alpha1", "PodGang"),
    ("v1", "Pod"),
];

/// A clique of two pods, and a scaling group with a base gang and a scaled one.
const RECORDED: &str = r#"
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: w}
spec:
  replicas: 1
  template:
    cliques:
    - name: leader
      spec:
        roleName: leader
        replicas: 2
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one, resources: {requests: {cpu: 10m}}}]}
    - name: worker
      spec:
        roleName: worker
        replicas: 1
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one, resources: {requests: {cpu: 10m}}}]}
    podCliqueScalingGroups:
    - {name: sg, cliqueNames: [worker], replicas: 2, minAvailable: 1}
"#;

/// The pods that ran before this operator started.
static RAN: OnceLock<BTreeSet<String>> = OnceLock::new();

/// Puts the objects of the release before into the cluster, and waits until their pods run.
pub(crate) async fn install(plane: &ControlPlane) -> Result<()> {
    if is_recording() {
        return Ok(());
    }
    let (_, pods) = restored(plane).await?;
    RAN.get_or_init(|| pods);
    Ok(())
}

/// The namespace with what the release before left, and its pods, which run.
async fn restored(plane: &ControlPlane) -> Result<(Place, BTreeSet<String>)> {
    plane.create_namespace(BEFORE.namespace).await?;
    let place = Place::on(plane, BEFORE.namespace).await?;
    BEFORE.restore(&place.client).await?;
    let pods = uids(&place.ready(PODS).await?);
    Ok((place, pods))
}

/// Writes down everything that the operator made of a set.
async fn record() -> Result<()> {
    let place = Place::new(BEFORE.namespace).await?;
    place.create(RECORDED).await?;
    place.ready(PODS).await?;
    place
        .until("the set to say that it is ready", async |place| {
            let status = place.all::<PodCliqueSet>().get("w").await?.status.unwrap_or_default();
            let mut conditions = status.conditions.iter();
            Ok(conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"))
        })
        .await?;
    // Where they are placed is the cluster's matter, and others have other nodes.
    BEFORE.record(&place.client, &KINDS, false).await
}

/// Invariant 8, and grove #808: the new operator goes on with the set as if it had made it, and replaces nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_replaces_no_pod_and_goes_on() -> Result<()> {
    if is_recording() {
        return record().await;
    }
    let place = Place::existing(BEFORE.namespace).await?;
    let before = RAN.get().context("pods of the release before")?;
    // A second replica shows that the operator has taken the set over; its templates have the hashes that they had.
    place.scale::<PodCliqueSet>("w", 2).await?;
    let pods = place.ready(2 * PODS).await?;
    assert!(uids(&pods).is_superset(before), "pods of the release before are gone");
    let hashes = |role: &str| -> BTreeSet<Option<String>> {
        let of = pods.iter().filter(|pod: &&Pod| pod.name_any().contains(role));
        of.map(|pod| pod.labels().get(labels::POD_TEMPLATE_HASH).cloned())
            .collect()
    };
    assert_eq!((hashes("-leader-").len(), hashes("-worker-").len()), (1, 1));
    for clique in place.list::<PodClique>().await? {
        let old = clique.name_any().starts_with("w-0-");
        assert!(
            !old || clique.metadata.generation == Some(1),
            "{} was written",
            clique.name_any()
        );
    }
    place.scale::<PodCliqueSet>("w", 1).await?;
    assert_eq!(&uids(&place.ready(PODS).await?), before);
    Ok(())
}

/// The hashes that pods carry.
fn hashes(pods: &[Pod]) -> BTreeSet<Option<String>> {
    let hash = |pod: &Pod| pod.labels().get(labels::POD_TEMPLATE_HASH).cloned();
    pods.iter().map(hash).collect()
}

/// What the first new operator made of the set is what the next ones find: none writes another record, no pod goes, and
/// after a time without any the pods have the hashes of the release before.
#[tokio::test(flavor = "multi_thread")]
async fn pain_grove_808_a_restart_after_an_upgrade_replaces_no_pod_either() -> Result<()> {
    if is_recording() {
        return Ok(());
    }
    let plane = ControlPlane::builder().nodes(4).scheduler(true).start().await?;
    install_kinds(&plane).await?;
    grant(&plane).await?;
    let (place, before) = restored(&plane).await?;
    let recorded = hashes(&place.list::<Pod>().await?);
    let mut records = BTreeSet::new();
    // Each of them shows by a change of the number that it has taken the set over.
    for (replicas, is_before_zero) in [(2, true), (1, true), (0, false), (1, false)] {
        let stop = CancellationToken::new();
        let operator = run_operator(&plane, stop.clone()).await?;
        place.scale::<PodCliqueSet>("w", replicas).await?;
        let pods = place.ready(PODS * usize::try_from(replicas)?).await?;
        let are_kept = uids(&pods).is_superset(&before);
        assert!(are_kept || !is_before_zero, "pods of the release before are gone");
        assert!(hashes(&pods).is_subset(&recorded), "a template has another hash");
        stop.cancel();
        operator.await?;
        let found = place.list::<ControllerRevision>().await?;
        records.insert(found.iter().filter_map(ResourceExt::uid).collect::<Vec<_>>());
    }
    assert_eq!(records.len(), 1, "the same record at each end: {records:?}");
    Ok(())
}
