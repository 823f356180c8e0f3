//! Many gangs at once: pods bound in a second by the scheduler, by kube-scheduler without gangs, and by a client that
//! decides nothing. The three take turns on one control plane, and only one of them runs at a time.

use anyhow::Result;

use super::super::follow::Follower;
use super::super::process::{Measured, Usage};
use super::super::results::median;
use super::Row;
use super::stage::{GROVE, GangSpec, KUBE, NAMESPACE, NOBODY, Stage};

/// What one arm did in one round.
#[derive(Clone, Copy, Debug)]
struct Run {
    bound_s: f64,
    pods_per_s: f64,
    /// Of the program that bound; a bare client has none.
    usage: Option<Usage>,
}

/// What all arms did in one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) pods_per_s: f64,
    pub(super) kube_pods_per_s: f64,
    pub(super) bare_pods_per_s: f64,
    pub(super) cpu_s: f64,
    pub(super) kube_cpu_s: f64,
    pub(super) peak_rss_mib: f64,
    pub(super) kube_peak_rss_mib: f64,
}

impl Round {
    fn of(grove: &Run, kube: &Run, bare: &Run) -> Self {
        let used = |run: &Run, of: fn(Usage) -> f64| run.usage.map_or(f64::NAN, of);
        Self {
            pods_per_s: grove.pods_per_s,
            kube_pods_per_s: kube.pods_per_s,
            bare_pods_per_s: bare.pods_per_s,
            cpu_s: used(grove, |usage| usage.cpu_s),
            kube_cpu_s: used(kube, |usage| usage.cpu_s),
            peak_rss_mib: used(grove, |usage| usage.peak_rss_mib),
            kube_peak_rss_mib: used(kube, |usage| usage.peak_rss_mib),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Arm {
    Grove,
    Kube,
    Bare,
}

/// `gangs` gangs of eight, each in a rack.
pub(super) async fn measure(stage: &Stage, gangs: usize, rounds: usize) -> Result<Row> {
    let names: Vec<String> = (0..gangs).map(|index| format!("g{index}")).collect();
    let gangs: Vec<GangSpec> = names.iter().map(|name| GangSpec::of_eight(name)).collect();
    // Nobody meets the API server cold.
    let few = &gangs[..gangs.len().min(20)];
    for arm in [Arm::Bare, Arm::Kube, Arm::Grove] {
        run(stage, few, arm).await?;
    }
    let (mut all, mut bound_s) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("gangs of 8 in a rack, {} nodes: round {round} of {rounds}", stage.nodes);
        let grove = run(stage, &gangs, Arm::Grove).await?;
        let kube = run(stage, &gangs, Arm::Kube).await?;
        let bare = run(stage, &gangs, Arm::Bare).await?;
        bound_s.push(grove.bound_s);
        all.push(Round::of(&grove, &kube, &bare));
    }
    let middle = |of: fn(&Round) -> f64| median(all.iter().map(of).collect());
    let most = |of: fn(&Round) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let (pods_per_s, kube_per_s) = (middle(|round| round.pods_per_s), middle(|round| round.kube_pods_per_s));
    let bare_per_s = middle(|round| round.bare_pods_per_s);
    let pods = gangs.iter().map(|gang| gang.pods).sum();
    let used = (middle(|round| round.cpu_s), most(|round| round.peak_rss_mib));
    Ok(Row {
        bound_s: Some(median(bound_s)),
        pods_per_s: Some(pods_per_s),
        bare_bind_pods_per_s: Some(bare_per_s),
        kube_scheduler_pods_per_s: Some(kube_per_s),
        ratio_bare: Some(pods_per_s / bare_per_s),
        ratio_kube_scheduler: Some(pods_per_s / kube_per_s),
        kube_scheduler_cpu_s: Some(middle(|round| round.kube_cpu_s)),
        kube_scheduler_peak_rss_mib: Some(most(|round| round.kube_peak_rss_mib)),
        rounds: all,
        ..Row::of("gangs of 8 in a rack", stage.nodes, (gangs.len(), pods), used)
    })
}

/// The pods are there when the arm begins, and are gone when it ends. What is timed lies between the first bind and the
/// last, so the start of a program is not.
async fn run(stage: &Stage, gangs: &[GangSpec<'_>], arm: Arm) -> Result<Run> {
    let scheduler = match arm {
        Arm::Grove => GROVE,
        Arm::Kube => KUBE,
        Arm::Bare => NOBODY,
    };
    stage.create_pods(NAMESPACE, scheduler, gangs).await?;
    if let Arm::Grove = arm {
        stage.create_gangs(NAMESPACE, gangs).await?;
    }
    let pods: usize = gangs.iter().map(|gang| gang.pods).sum();
    let mut follower = Follower::of(&stage.client, NAMESPACE, "").await?;
    let program = match arm {
        Arm::Grove => Some(stage.scheduler().await?),
        Arm::Kube => Some(Measured::kube_scheduler(&stage.plane)?),
        Arm::Bare => None,
    };
    let bound = match &program {
        Some(_) => follower.bound(pods).await?,
        None => {
            let (sent, bound) = tokio::join!(stage.bind(NAMESPACE, gangs), follower.bound(pods));
            sent?;
            bound?
        }
    };
    let usage = program.as_ref().map(Measured::usage).transpose()?;
    if let Some(program) = program {
        program.stop().await?;
    }
    stage.clear(NAMESPACE).await?;
    let bound_s = (bound.last - bound.first).as_secs_f64();
    Ok(Run {
        bound_s,
        pods_per_s: (pods - 1) as f64 / bound_s,
        usage,
    })
}
