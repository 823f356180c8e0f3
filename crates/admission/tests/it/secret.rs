//! Certificates that live in a Secret of the embedded cluster, on virtual time.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use grove_admission::certificates::{Auto, Certificates, Current, Lifetimes, Manual, Material};
use grove_admission::registration::Turn;
use grove_simcluster::Cluster;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, timeout};

use crate::kit::{made, names};
use crate::registration::upkeep;

const SECRET: &str = "certs";
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Short ones: even virtual time takes time when watches are renewed every few minutes of it.
const LIFETIMES: Lifetimes = Lifetimes {
    authority: Duration::from_secs(30 * 60 * 60),
    leaf: Duration::from_secs(8 * 60 * 60),
    renew_before: Duration::from_secs(2 * 60 * 60),
};

fn auto(cluster: &Cluster) -> Auto {
    Auto {
        client: cluster.client(),
        namespace: "default".to_owned(),
        secret: SECRET.to_owned(),
        names: names(),
        lifetimes: LIFETIMES,
    }
}

/// Starts a replica's upkeep of the Secret, without webhooks.
fn replica(cluster: &Cluster, tasks: &mut JoinSet<()>) -> Current {
    let (sender, current) = watch::channel(None);
    let (_, trusted) = watch::channel(None);
    let clock = cluster.clock();
    tasks.spawn(auto(cluster).run(sender, trusted, move || clock.now()));
    current
}

async fn in_force(current: &mut Current) -> Result<Certificates> {
    let certificates = timeout(DAY, current.wait_for(Option::is_some)).await??;
    certificates.clone().context("was waited for")
}

async fn stored(cluster: &Cluster) -> Result<Material> {
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    let data: BTreeMap<String, ByteString> = secrets.get(SECRET).await?.data.unwrap_or_default();
    Material::read(&data).context("the Secret holds certificates")
}

#[tokio::test(start_paused = true)]
async fn replicas_that_race_agree_on_one_secret() -> Result<()> {
    for seed in 0..20 {
        let cluster = Cluster::builder().seed(seed).start();
        let mut tasks = JoinSet::new();
        let mut replicas: Vec<Current> = (0..3).map(|_| replica(&cluster, &mut tasks)).collect();
        for current in &mut replicas {
            in_force(current).await?;
        }
        // Whoever lost has taken over what the winner wrote.
        let stored = stored(&cluster).await?.certificates()?;
        for current in &mut replicas {
            let same = |seen: &Option<Certificates>| format!("{seen:?}") == format!("{:?}", Some(&stored));
            timeout(DAY, current.wait_for(same)).await??;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_leaf_is_renewed_at_its_moment_by_one_and_served_by_all() -> Result<()> {
    let cluster = Cluster::builder().start();
    let mut tasks = JoinSet::new();
    let mut first = replica(&cluster, &mut tasks);
    let mut second = replica(&cluster, &mut tasks);
    in_force(&mut first).await?;
    in_force(&mut second).await?;
    let before = stored(&cluster).await?;
    // Eight hours of life, renewed when two are left.
    tokio::time::sleep(HOUR * 5).await;
    assert_eq!(stored(&cluster).await?, before);
    first.mark_unchanged();
    second.mark_unchanged();
    timeout(HOUR * 2, first.changed()).await??;
    timeout(HOUR * 2, second.changed()).await??;
    let after = stored(&cluster).await?;
    assert_eq!(after.data()["ca.crt"], before.data()["ca.crt"]);
    assert_ne!(after.data()["tls.crt"], before.data()["tls.crt"]);
    Ok(())
}

/// An authority of thirty hours: two stand beside each other from the twenty-second on, the new one signs at the next
/// renewal, and the old one goes when it has expired. What is in force is trusted at every moment.
#[tokio::test(start_paused = true)]
async fn an_authority_is_replaced_without_a_gap_and_without_a_wait() -> Result<()> {
    let cluster = Cluster::builder().start();
    let mut tasks = JoinSet::new();
    let (sender, mut current) = watch::channel(None);
    let (told, trusted) = watch::channel(None);
    let (registered, _is_registered) = watch::channel(false);
    let clock = cluster.clock();
    tasks.spawn(auto(&cluster).run(sender, trusted.clone(), move || clock.now()));
    tasks.spawn(upkeep(&cluster, 1, Turn::AtOnce).run(current.clone(), registered, told));
    in_force(&mut current).await?;
    let first = stored(&cluster).await?.data()["ca.crt"].0.clone();
    let mut steps = Vec::new();
    let begun = tokio::time::Instant::now();
    loop {
        let material = stored(&cluster).await?;
        let bundle = String::from_utf8(material.data()["ca.crt"].0.clone())?;
        timeout(HOUR, trusted.clone().wait_for(|known| known.as_ref() == Some(&bundle))).await??;
        let count = bundle.matches("BEGIN CERTIFICATE").count();
        steps.push((begun.elapsed().as_secs() / 3600, count));
        if count == 1 && bundle.as_bytes() != first {
            break;
        }
        timeout(DAY, current.changed()).await??;
    }
    assert_eq!(steps, [(0, 1), (6, 1), (12, 1), (18, 1), (22, 2), (24, 2), (30, 1)]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_emptied_or_deleted_is_filled_again() -> Result<()> {
    let cluster = Cluster::builder().start();
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    let mut tasks = JoinSet::new();
    let mut current = replica(&cluster, &mut tasks);
    in_force(&mut current).await?;
    let emptied = json!({"data": {"tls.crt": "", "tls.key": "", "ca.crt": "", "ca.key": ""}});
    current.mark_unchanged();
    secrets
        .patch(SECRET, &PatchParams::default(), &Patch::Merge(&emptied))
        .await?;
    timeout(DAY, current.changed()).await??;
    stored(&cluster).await?;
    current.mark_unchanged();
    secrets.delete(SECRET, &DeleteParams::default()).await?;
    timeout(DAY, current.changed()).await??;
    stored(&cluster).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn certificates_of_a_directory_are_taken_over_when_they_change() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let write = |material: &Material| -> Result<()> {
        for (name, bytes) in material.data() {
            std::fs::write(folder.path().join(name), bytes.0)?;
        }
        Ok(())
    };
    write(&made())?;
    let (sender, mut current) = watch::channel(None);
    let manual = Manual {
        dir: folder.path().to_owned(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(manual.run(sender));
    timeout(DAY, current.changed()).await??;
    let first = format!("{:?}", current.borrow_and_update());
    // Half a pair is of no use: what is served stays.
    std::fs::write(folder.path().join("tls.key"), &made().data()["tls.key"].0)?;
    assert!(timeout(Duration::from_secs(60), current.changed()).await.is_err());
    write(&made())?;
    timeout(DAY, current.changed()).await??;
    assert_ne!(format!("{:?}", current.borrow()), first);
    Ok(())
}
