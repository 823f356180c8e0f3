//! There is no quota for all pods, and then there is.

use std::collections::BTreeSet;

use anyhow::Result;
use grove_api::PodCliqueSet;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::stage::{Stage, recovery};

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_is_used_up_and_then_raised() -> Result<()> {
    let mut stage = Stage::shared("quota").await?;
    let operator = stage.sole_operator().await?;
    stage.calm().await?;
    let quotas = stage.space.all::<ResourceQuota>();
    let quota = serde_json::from_value(json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "10"}}}))?;
    quotas.create(&PostParams::default(), &quota).await?;
    stage
        .space
        .until("the quota to count", async |space| {
            let quota = space.all::<ResourceQuota>().get("few").await?;
            Ok(quota
                .status
                .is_some_and(|status| status.used.is_some_and(|used| !used.is_empty())))
        })
        .await?;
    stage.create("w", 20).await?;
    stage
        .space
        .until("the set to say why pods are missing", async |space| {
            let set = space.all::<PodCliqueSet>().get("w").await?;
            let told = serde_json::to_string(&set.status)?;
            Ok(told.contains("exceeded quota"))
        })
        .await?;
    let before = operator.proxy.pods_made();
    let more = Patch::Merge(json!({"spec": {"hard": {"pods": "30"}}}));
    quotas.patch("few", &PatchParams::default(), &more).await?;
    recovery("quota used up", stage.all_ready(20, &BTreeSet::new())).await?;
    assert!(before < operator.proxy.pods_made(), "the quota kept nothing back");
    Ok(())
}
