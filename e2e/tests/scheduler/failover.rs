//! Two replicas of `grove scheduler`: one binds, and the other takes over.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use grove_api::config::SchedulerProfile;
use grove_e2e::{ControlPlane, Identity, binary_for_test};
use grove_scenarios::audit::{Audit, Terms};
use grove_scheduler::Policy;

use crate::place::{GPU_HOST, Place, record, run_operator, set};
use crate::replica::Replica;

/// The usual lease: 15 s, renewed within 10 s, tried every 2 s.
const CONFIG: &str = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n\
                      server: {healthProbes: {port: 0}, metrics: {port: 0}}\n\
                      leaderElection: {enabled: true, resourceNamespace: failover}\n";
const AFTER_KILL_MAX: Duration = Duration::from_secs(20);
/// Of the median of three handovers: the machine has other work.
const AFTER_TERM_MAX: Duration = Duration::from_secs(3);

/// Creates a gang and waits until it runs; how long that took since a moment.
async fn bound_after(place: &Place, gang: &str, pods: usize, since: Instant) -> Result<Duration> {
    place.create(&set(gang, &place.namespace, 4, 2)).await?;
    place.scheduled(&format!("{gang}-0"), "True").await?;
    let took = since.elapsed();
    place.running(pods, pods).await?;
    Ok(took)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_replica_takes_over_in_time_and_binds_nothing_twice() -> Result<()> {
    let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
    let plane = ControlPlane::builder().start().await?;
    run_operator(&plane, &SchedulerProfile::Grove).await?;
    let record = record(&plane).await?;
    let place = Place::on(&plane, "failover").await?;
    place.add_nodes(3, 2, &GPU_HOST).await?;
    let start = || Replica::start(&grove, "scheduler", CONFIG, &plane.kubeconfig(Identity::Admin));

    let first = start()?;
    first.says("elected leader").await?;
    let second = start()?;
    second.says("another replica leads").await?;
    bound_after(&place, "a", 4, Instant::now()).await?;

    let killed = Instant::now();
    first.kill().await?;
    let after_kill = bound_after(&place, "b", 8, killed).await?;

    let mut leader = second;
    let mut handovers = Vec::new();
    for (handover, gang) in ["c", "d", "e"].into_iter().enumerate() {
        let next = start()?;
        next.says("another replica leads").await?;
        let told = Instant::now();
        leader.terminate().await?;
        handovers.push(bound_after(&place, gang, 4 * (handover + 3), told).await?);
        leader = next;
    }
    handovers.sort();
    let after_term = handovers[1];

    println!("bound again {after_kill:?} after a kill, {handovers:?} after a signal");
    ensure!(after_kill < AFTER_KILL_MAX, "{after_kill:?} after a kill");
    ensure!(after_term < AFTER_TERM_MAX, "{after_term:?} after a signal");
    let audit = Audit::of(
        record.moments(&place.client).await?,
        Terms::calm(Policy::default().grace),
    );
    assert_eq!(audit.binds, 20);
    leader.terminate().await
}
