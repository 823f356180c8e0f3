//! One set of ever more pods: how the cost grows, and what a restarted operator keeps of them.

use anyhow::Result;
use grove_api::PodCliqueSet;
use grove_e2e::Identity;
use kube::api::{Api, PostParams};

use super::super::follow::Follower;
use super::super::process::Measured;
use super::Stage;
use super::requests::{Cost, cost_of, quiet};
use super::throughput::{Case, NAMESPACE, create_sets, set, warm_up};

/// What so many pods cost.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    pub(super) pods: usize,
    pub(super) cost: Cost,
    /// Of an operator that has just started, when there was no pod.
    pub(super) rss_with_none_mib: f64,
    /// The same, when all of them were there.
    pub(super) rss_with_all_mib: f64,
}

pub(super) async fn measure(mut stage: Stage, pods: usize) -> Result<Growth> {
    let client = &stage.client.clone();
    quiet(client).await?;
    let rss_with_none_mib = stage.operator.usage()?.rss_mib;
    warm_up(client, pods.min(1_000)).await?;
    let mut follower = Follower::open(client, NAMESPACE).await?;
    let case = Case::of_one_set(pods);
    let cost = cost_of(&stage, ("POST", 1), async {
        let (made, times) = tokio::join!(create_sets(client, &case), follower.all(pods));
        made?;
        Ok(times?.ungated)
    })
    .await?;
    let kubeconfig = stage.plane.kubeconfig(Identity::Admin);
    stage.operator.stop().await?;
    stage.operator = Measured::operator(&stage.grove, &kubeconfig, "").await?;
    // It has read everything when it acts.
    let mut follower = Follower::open(client, NAMESPACE).await?;
    let sets = Api::<PodCliqueSet>::namespaced(client.clone(), NAMESPACE);
    sets.create(&PostParams::default(), &set("one-more", 1, 1)?).await?;
    follower.all(1).await?;
    quiet(client).await?;
    Ok(Growth {
        pods,
        cost,
        rss_with_none_mib,
        rss_with_all_mib: stage.operator.usage()?.rss_mib,
    })
}
