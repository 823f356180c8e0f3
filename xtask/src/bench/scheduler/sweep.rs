//! Gangs of many sizes on clusters of many sizes: from the moment that a gang is whole until its last pod is bound. Its
//! pods are there before; the PodGang that names them is what makes it whole. A client that knows the places beforehand
//! takes turns with the scheduler.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::super::follow::Follower;
use super::super::process::Usage;
use super::super::results::percentiles;
use super::stage::{BARE, GROVE, GangSpec, NAMESPACE, NOBODY, Stage};

/// Sizes of clusters and gangs, and how many gangs of each size a round has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) nodes: &'static [usize],
    pub(super) gangs: &'static [(usize, usize)],
    pub(super) rounds: usize,
}

impl Sizes {
    pub(super) const FULL: Self = Self {
        nodes: &[100, 1_000, 5_000],
        gangs: &[(1, 40), (8, 40), (64, 15), (1_000, 4)],
        rounds: 3,
    };
    pub(super) const QUICK: Self = Self {
        nodes: &[40],
        gangs: &[(1, 2), (20, 1)],
        rounds: 1,
    };
}

/// One size on one cluster; a pair for each round: p50 and p99 in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Swept {
    pub(super) nodes: usize,
    pub(super) pods: usize,
    pub(super) gangs: usize,
    pub(super) grove_ms: Vec<[f64; 2]>,
    pub(super) bare_ms: Vec<[f64; 2]>,
}

/// What the scheduler used for all gangs of one cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) nodes: usize,
    pub(super) usage: Usage,
}

pub(super) async fn measure(grove: &Path, sizes: Sizes) -> Result<(Vec<Swept>, Vec<Used>)> {
    let (mut all, mut used) = (Vec::new(), Vec::new());
    for nodes in sizes.nodes {
        let stage = Stage::start(grove, *nodes).await?;
        let scheduler = stage.scheduler().await?;
        for (pods, gangs) in sizes.gangs {
            eprintln!("scheduler: gangs of {pods} on {nodes} nodes");
            all.push(of_size(&stage, (*pods, *gangs), sizes.rounds).await?);
        }
        used.push(Used {
            nodes: *nodes,
            usage: scheduler.usage()?,
        });
        scheduler.stop().await?;
    }
    Ok((all, used))
}

async fn of_size(stage: &Stage, (pods, gangs): (usize, usize), rounds: usize) -> Result<Swept> {
    // Nobody meets a size for the first time.
    by_grove(stage, &GangSpec::of_any_size("first", pods)).await?;
    let mut swept = Swept {
        nodes: stage.nodes,
        pods,
        gangs,
        grove_ms: Vec::new(),
        bare_ms: Vec::new(),
    };
    for round in 0..rounds {
        let (mut grove, mut bare) = (Vec::new(), Vec::new());
        for number in 0..gangs {
            let name = format!("g{round}-{number}");
            let gang = GangSpec::of_any_size(&name, pods);
            grove.push(by_grove(stage, &gang).await?);
            bare.push(by_bare_client(stage, &gang).await?);
        }
        swept.grove_ms.push(percentiles(grove));
        swept.bare_ms.push(percentiles(bare));
    }
    Ok(swept)
}

async fn by_grove(stage: &Stage, gang: &GangSpec<'_>) -> Result<f64> {
    let gangs = &[*gang];
    stage.create_pods(NAMESPACE, GROVE, gangs).await?;
    let mut follower = Follower::of(&stage.client, NAMESPACE, "").await?;
    let begun = Instant::now();
    stage.create_gangs(NAMESPACE, gangs).await?;
    let bound = follower.bound(gang.pods).await?;
    stage.clear(NAMESPACE).await?;
    Ok((bound.last - begun).as_secs_f64() * 1e3)
}

async fn by_bare_client(stage: &Stage, gang: &GangSpec<'_>) -> Result<f64> {
    let gangs = &[*gang];
    stage.create_pods(BARE, NOBODY, gangs).await?;
    let mut follower = Follower::of(&stage.client, BARE, "").await?;
    let begun = Instant::now();
    stage.create_gangs(BARE, gangs).await?;
    let (sent, bound) = tokio::join!(stage.bind(BARE, gangs), follower.bound(gang.pods));
    sent?;
    let bound = bound?;
    stage.clear(BARE).await?;
    Ok((bound.last - begun).as_secs_f64() * 1e3)
}
