//! One gang at a time: from its creation until all of it is bound, beside a client that makes the same writes. The two
//! take turns.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use grove_api::PodGang;
use grove_e2e::eventually;
use kube::api::{Api, ListParams};

use super::super::follow::Follower;
use super::super::metrics;
use super::super::process::Measured;
use super::super::results::percentiles;
use super::Row;
use super::stage::{BARE, GANG_PODS, GROVE, GangSpec, NAMESPACE, NOBODY, Stage};

const EXPLAINED_MAX: Duration = Duration::from_secs(600);
/// Name of the case in which nothing else happens.
pub(super) const IDLE: &str = "first gang, idle";
/// Pods of a gang that cannot be placed.
const HOPELESS_PODS: usize = 2;

/// On a cluster in which nothing else happens.
pub(super) async fn measure_idle(stage: &Stage, pairs: usize) -> Result<Row> {
    measure(stage, IDLE, 0, pairs).await
}

/// Beside gangs that wait: each wants two whole nodes, and a pod that does not end holds a part of every node.
pub(super) async fn measure_beside_hopeless(stage: &Stage, hopeless: usize, pairs: usize) -> Result<Row> {
    stage.occupy_every_node().await?;
    let names: Vec<String> = (0..hopeless).map(|index| format!("hopeless{index}")).collect();
    let whole_nodes = |name| GangSpec {
        pods: HOPELESS_PODS,
        gpus: 8,
        ..GangSpec::of_eight(name)
    };
    let gangs: Vec<GangSpec> = names.iter().map(|name| whole_nodes(name)).collect();
    stage.create_pods(NAMESPACE, GROVE, &gangs).await?;
    stage.create_gangs(NAMESPACE, &gangs).await?;
    measure(stage, "beside hopeless gangs", hopeless, pairs).await
}

async fn measure(stage: &Stage, case: &'static str, hopeless: usize, pairs: usize) -> Result<Row> {
    let scheduler = stage.scheduler().await?;
    eventually("every gang to be told why it waits", EXPLAINED_MAX, async || {
        all_explained(stage, hopeless).await
    })
    .await?;
    by_grove(stage, "first").await?;
    by_bare_client(stage, "first").await?;
    let (mut grove, mut bare) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        grove.push(by_grove(stage, &format!("p{pair}")).await?);
        bare.push(by_bare_client(stage, &format!("p{pair}")).await?);
    }
    let usage = scheduler.usage()?;
    scheduler.stop().await?;
    for namespace in [NAMESPACE, BARE] {
        stage.clear(namespace).await?;
    }
    let [p50_ms, p99_ms] = percentiles(grove);
    let [bare_p50_ms, bare_p99_ms] = percentiles(bare);
    let (gangs, pods) = (hopeless + pairs, hopeless * HOPELESS_PODS + pairs * GANG_PODS);
    Ok(Row {
        p50_ms: Some(p50_ms),
        p99_ms: Some(p99_ms),
        bare_p50_ms: Some(bare_p50_ms),
        bare_p99_ms: Some(bare_p99_ms),
        ..Row::of(case, stage.nodes, (gangs, pods), (usage.cpu_s, usage.peak_rss_mib))
    })
}

/// One gang that fills most of a block. Its pods are made before: what is timed is one decision and its binds.
pub(super) async fn measure_large(stage: &Stage, pods: usize) -> Result<Row> {
    let gang = GangSpec::in_a_block("large", pods);
    let scheduler = stage.scheduler().await?;
    by_grove(stage, "first").await?;
    stage.create_pods(NAMESPACE, GROVE, &[gang]).await?;
    stage.create_pods(BARE, NOBODY, &[gang]).await?;
    let mut follower = Follower::of(&stage.client, NAMESPACE, "").await?;
    let before = passes(&scheduler).await?;
    let begun = Instant::now();
    stage.create_gangs(NAMESPACE, &[gang]).await?;
    let bound_s = (follower.bound(pods).await?.last - begun).as_secs_f64();
    let passes = passes(&scheduler).await? - before;
    ensure!(
        passes == 1.0,
        "a gang of {pods} pods was placed in {passes} passes, not in one"
    );
    let usage = scheduler.usage()?;
    scheduler.stop().await?;
    let mut follower = Follower::of(&stage.client, BARE, "").await?;
    let begun = Instant::now();
    stage.create_gangs(BARE, &[gang]).await?;
    let gangs = [gang];
    let (sent, bound) = tokio::join!(stage.bind(BARE, &gangs), follower.bound(pods));
    sent?;
    let bare_s = (bound?.last - begun).as_secs_f64();
    for namespace in [NAMESPACE, BARE] {
        stage.clear(namespace).await?;
    }
    Ok(Row {
        bound_s: Some(bound_s),
        pods_per_s: Some(pods as f64 / bound_s),
        bare_bind_pods_per_s: Some(pods as f64 / bare_s),
        ratio_bare: Some(bare_s / bound_s),
        ..Row::of(
            "one gang in a block",
            stage.nodes,
            (1, pods),
            (usage.cpu_s, usage.peak_rss_mib),
        )
    })
}

/// Decisions so far that placed something.
async fn passes(scheduler: &Measured) -> Result<f64> {
    let told = scheduler.metrics().await?;
    Ok(metrics::sum(
        &told,
        "grove_placement_duration_seconds_count",
        ("result", "placed"),
    ))
}

async fn all_explained(stage: &Stage, gangs: usize) -> Result<()> {
    let api = Api::<PodGang>::namespaced(stage.client.clone(), NAMESPACE);
    let found = api.list(&ListParams::default()).await?;
    let is_explained = |gang: &&PodGang| gang.status.as_ref().is_some_and(|status| status.pending.is_some());
    let explained = found.iter().filter(is_explained).count();
    ensure!(explained == gangs, "{explained} of {gangs} so far");
    Ok(())
}

async fn by_grove(stage: &Stage, name: &str) -> Result<f64> {
    let gang = GangSpec::of_eight(name);
    let mut follower = Follower::of(&stage.client, NAMESPACE, "").await?;
    let begun = Instant::now();
    stage.create_pods(NAMESPACE, GROVE, &[gang]).await?;
    stage.create_gangs(NAMESPACE, &[gang]).await?;
    let bound = follower.bound(gang.pods).await?;
    Ok((bound.last - begun).as_secs_f64() * 1e3)
}

async fn by_bare_client(stage: &Stage, name: &str) -> Result<f64> {
    let gang = GangSpec::of_eight(name);
    let mut follower = Follower::of(&stage.client, BARE, "").await?;
    let begun = Instant::now();
    stage.create_pods(BARE, NOBODY, &[gang]).await?;
    stage.create_gangs(BARE, &[gang]).await?;
    stage.bind(BARE, &[gang]).await?;
    let bound = follower.bound(gang.pods).await?;
    Ok((bound.last - begun).as_secs_f64() * 1e3)
}
