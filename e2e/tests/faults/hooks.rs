//! The webhooks are gone with the operator, and their certificates expire or belong to somebody else.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use grove_admission::certificates::{Change, Lifetimes, Material, carry_out};
use grove_e2e::eventually;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::proxy::HOME;
use crate::space::LIMIT;
use crate::stage::{SECRET, Stage, recovery};

/// Long enough for a request that waits for a webhook that does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn without_the_operator_writes_are_refused_and_nothing_is_lost() -> Result<()> {
    let mut stage = Stage::shared("hooks-down").await?;
    let operator = stage.sole_operator().await?;
    stage.calm().await?;
    stage.create("w", 10).await?;
    let before = stage.all_ready(10, &BTreeSet::new()).await?;
    operator.replica.kill().await?;

    let refused = tokio::time::timeout(PATIENCE, stage.try_create("late", 1)).await?;
    let refusal = format!("{:#}", refused.err().context("a set was taken that nobody judged")?);
    ensure!(refusal.contains("failed calling webhook"), "{refusal}");
    assert_eq!(
        stage.all_ready(10, &before).await?,
        before,
        "pods went with the operator"
    );
    // Pods are nobody's business but Kubernetes'.
    let lost = stage.pods("w").await?.pop().context("a pod")?;
    stage.space.delete::<Pod>(&lost.name_any()).await?;
    let left: BTreeSet<String> = before
        .iter()
        .filter(|uid| Some(*uid) != lost.uid().as_ref())
        .cloned()
        .collect();

    let _operator = stage.sole_operator().await?;
    let back = async {
        stage.create("late", 1).await?;
        stage.all_ready(10, &left).await
    };
    recovery("webhooks gone", back).await?;
    Ok(())
}

/// Certificates as the operator makes them, made at another time.
fn made(at: Timestamp) -> Result<Material> {
    let names = ["127.0.0.1".to_owned()];
    Ok(carry_out(Change::Everything, None, &names, at, &Lifetimes::default())?)
}

async fn put(stage: &Stage, material: &Material) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(stage.space.client.clone(), HOME);
    let patch = Patch::Merge(json!({"data": material.data()}));
    secrets.patch(SECRET, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the Secret holds other certificates than these, the API server trusts who signed them, and a set that the
/// webhooks judge is taken.
async fn renewed(stage: &Stage, other_than: Option<&Material>, set: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(stage.space.client.clone(), HOME);
    let registrations: Api<MutatingWebhookConfiguration> = Api::all(stage.space.client.clone());
    eventually("new certificates", LIMIT, async || -> Result<()> {
        let data = secrets.get(SECRET).await?.data.context("no data")?;
        let stored = Material::read(&data).context("no certificates")?;
        ensure!(Some(&stored) != other_than, "they are the old ones");
        let registered = registrations.list(&ListParams::default()).await?;
        let webhooks = registered
            .items
            .iter()
            .flat_map(|registered| registered.webhooks.iter().flatten());
        let mut trusted = webhooks.map(|webhook| webhook.client_config.ca_bundle.as_ref());
        ensure!(
            trusted.all(|trusted| trusted == data.get("ca.crt")),
            "the API server does not trust them"
        );
        Ok(())
    })
    .await?;
    stage.create(set, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_expire_are_replaced_and_vanish() -> Result<()> {
    let mut stage = Stage::shared("certificates").await?;
    let operator = stage.sole_operator().await?;
    stage.calm().await?;
    stage.create("w", 4).await?;
    let before = stage.all_ready(4, &BTreeSet::new()).await?;

    // While nobody was there, they ended.
    operator.replica.kill().await?;
    let expired = made(Timestamp::now() - SignedDuration::from_hours(24 * 400))?;
    put(&stage, &expired).await?;
    let _operator = stage.sole_operator().await?;
    recovery(
        "certificates expired before the start",
        renewed(&stage, Some(&expired), "a"),
    )
    .await?;
    // They end while somebody is.
    put(&stage, &expired).await?;
    recovery("certificates expired", renewed(&stage, Some(&expired), "b")).await?;
    // Somebody rolls the authority.
    let theirs = made(Timestamp::now())?;
    put(&stage, &theirs).await?;
    recovery("authority replaced", renewed(&stage, None, "c")).await?;
    // Somebody deletes them.
    let secrets: Api<Secret> = Api::namespaced(stage.space.client.clone(), HOME);
    secrets.delete(SECRET, &DeleteParams::default()).await?;
    recovery("certificates deleted", renewed(&stage, Some(&theirs), "d")).await?;
    assert_eq!(stage.all_ready(4, &before).await?, before);
    Ok(())
}
