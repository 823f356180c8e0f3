//! Many gangs at once: pods bound in a second by the scheduler, by kube-scheduler without gangs, and by a client that
//! decides nothing. The three take turns on one control plane, and only one of them runs at a time.

use anyhow::Result;

use super::super::follow::Follower;
use super::super::process::{Measured, Usage};
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
    let (mut grove, mut kube, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("gangs of 8 in a rack, {} nodes: round {round} of {rounds}", stage.nodes);
        grove.push(run(stage, &gangs, Arm::Grove).await?);
        kube.push(run(stage, &gangs, Arm::Kube).await?);
        bare.push(run(stage, &gangs, Arm::Bare).await?);
    }
    let rate = |runs: &[Run]| median(runs.iter().map(|run| run.pods_per_s).collect());
    let [pods_per_s, kube_per_s, bare_per_s] = [&grove, &kube, &bare].map(|runs| rate(runs));
    let pods = gangs.iter().map(|gang| gang.pods).sum();
    Ok(Row {
        bound_s: Some(median(grove.iter().map(|run| run.bound_s).collect())),
        pods_per_s: Some(pods_per_s),
        bare_bind_pods_per_s: Some(bare_per_s),
        kube_scheduler_pods_per_s: Some(kube_per_s),
        ratio_bare: Some(pods_per_s / bare_per_s),
        ratio_kube_scheduler: Some(pods_per_s / kube_per_s),
        kube_scheduler_cpu_s: Some(cpu_s(&kube)),
        kube_scheduler_peak_rss_mib: Some(peak_rss_mib(&kube)),
        ..Row::of(
            "gangs of 8 in a rack",
            stage.nodes,
            (gangs.len(), pods),
            (cpu_s(&grove), peak_rss_mib(&grove)),
        )
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

fn cpu_s(runs: &[Run]) -> f64 {
    median(
        runs.iter()
            .filter_map(|run| run.usage)
            .map(|usage| usage.cpu_s)
            .collect(),
    )
}

fn peak_rss_mib(runs: &[Run]) -> f64 {
    let peaks = runs.iter().filter_map(|run| run.usage).map(|usage| usage.peak_rss_mib);
    peaks.fold(0.0, f64::max)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }
}
