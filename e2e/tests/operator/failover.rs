//! Replicas of the operator as processes: the leader dies or hands over while pods are being made.
//!
//! They register webhooks by the address of a process, which only the leader does; so they have a control plane of their own.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Result;
use grove_api::{PodClique, PodCliqueSet, labels};
use grove_e2e::{ControlPlane, Identity, binary_for_test};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PostParams;

use crate::replica::Replica;
use crate::support::{Place, install_kinds, uids};

const NAMESPACE: &str = "failover";

/// Starts a replica that gives up a Lease soon, but not because a busy machine answers late.
fn start(grove: &Path, plane: &ControlPlane) -> Result<Replica> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let config = format!(
        "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n\
         server:\n  webhooks: {{bindAddress: 127.0.0.1, port: {port}}}\n  healthProbes: {{port: 0}}\n  \
         metrics: {{port: 0}}\n\
         leaderElection: {{enabled: true, leaseDuration: 10s, renewDeadline: 8s, retryPeriod: 500ms, \
         resourceNamespace: {NAMESPACE}}}\n\
         scheduler: {{profiles: [{{name: default-scheduler, default: true}}]}}\n"
    );
    Replica::start(grove, "operator", &config, &plane.kubeconfig(Identity::Admin))
}

async fn pods_made(place: &Place, at_least: usize) -> Result<()> {
    place
        .until("some of the pods to be made", async |place| {
            Ok(place.list::<Pod>().await?.len() >= at_least)
        })
        .await
}

/// Waits until so many pods are ready, each of another index.
async fn all_ready_once(place: &Place, count: usize) -> Result<BTreeSet<String>> {
    let pods = place.ready(count).await?;
    let index = |pod: &Pod| pod.labels().get(labels::POD_INDEX).cloned();
    let indices: BTreeSet<Option<String>> = pods.iter().map(index).collect();
    assert_eq!(indices.len(), count, "no index twice");
    Ok(uids(&pods))
}

fn set_of_200() -> Result<PodCliqueSet> {
    let manifest = "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {name: w}\nspec:\n  replicas: 1\n  \
                    template:\n    cliques:\n    - name: a\n      spec:\n        roleName: a\n        replicas: 200\n        \
                    minAvailable: 1\n        podSpec: {containers: [{name: main, image: one}]}\n";
    Ok(serde_saphyr::from_str(manifest)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_change_while_pods_are_made_and_no_pod_is_made_twice() -> Result<()> {
    let grove: PathBuf = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
    let plane = ControlPlane::builder().nodes(5).scheduler(true).start().await?;
    install_kinds(&plane).await?;
    plane.create_namespace(NAMESPACE).await?;
    let place = Place {
        client: plane.client(Identity::Admin).await?,
        namespace: NAMESPACE.to_owned(),
    };
    let first = start(&grove, &plane)?;
    first.says("registered the webhooks").await?;
    let second = start(&grove, &plane)?;
    second.says("another replica leads").await?;

    place
        .all::<PodCliqueSet>()
        .create(&PostParams::default(), &set_of_200()?)
        .await?;
    pods_made(&place, 50).await?;
    // Killed, not stopped: the Lease must run out.
    first.kill().await?;
    second.says("elected leader").await?;
    let before = all_ready_once(&place, 200).await?;

    let third = start(&grove, &plane)?;
    third.says("another replica leads").await?;
    place
        .until("the webhooks of the new leader to be asked", async |place| {
            Ok(place.scale::<PodClique>("w-0-a", 300).await.is_ok())
        })
        .await?;
    pods_made(&place, 220).await?;
    second.terminate().await?;
    third.says("elected leader").await?;
    let after = all_ready_once(&place, 300).await?;
    assert!(after.is_superset(&before), "a pod of before was replaced");
    Ok(())
}
