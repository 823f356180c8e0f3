//! `grove scheduler` killed at its n-th bind: every gang ends whole, and nothing is booked twice.

use std::path::PathBuf;

use anyhow::Result;
use grove_api::PodCliqueSet;
use grove_api::config::SchedulerProfile;
use grove_e2e::{ControlPlane, Identity, binary_for_test};
use grove_scenarios::RACK;
use grove_scenarios::audit::{Audit, Terms};
use grove_scheduler::Policy;
use k8s_openapi::api::core::v1::Pod;

use crate::place::{GPU_HOST, Place, node_of, record, run_operator, set};
use crate::replica::Replica;
use crate::space::Space;

/// Binds at which every run kills; `GROVE_EXHAUSTIVE` kills a hundred times.
const SAMPLE: [usize; 6] = [1, 3, 6, 9, 12, 15];
const ALL: usize = 100;

const SETS: [&str; 4] = ["a", "b", "c", "d"];
const PODS: usize = 4;

/// Fifty requests a second, one after the other: between two binds there is time to die.
const CONFIG: &str = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n\
                      server: {healthProbes: {port: 0}, metrics: {port: 0}}\n\
                      runtimeClientConnection: {qps: 50, burst: 1}\nleaderElection: {enabled: false}\n";

async fn bound(place: &Space) -> Result<usize> {
    let pods = place.pods().await?;
    Ok(pods.values().filter(|pod| node_of(pod).is_some()).count())
}

fn is_open(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_none_or(Vec::is_empty)
}

/// Four gangs that fill four racks, and the scheduler killed once so many pods are bound. How many were when it was dead.
async fn killed_at(place: &Place, (grove, plane): (&PathBuf, &ControlPlane), binds: usize) -> Result<usize> {
    for name in SETS {
        place.create(&set(name, &place.namespace, PODS, 4)).await?;
    }
    let all = SETS.len() * PODS;
    place
        .until("all pods to wait for the scheduler", async |place| {
            let pods = place.pods().await?;
            Ok(pods.len() == all && pods.values().all(is_open))
        })
        .await?;
    let start = || Replica::start(grove, "scheduler", CONFIG, &plane.kubeconfig(Identity::Admin));
    let first = start()?;
    place
        .until("the bind to be seen", async |place| Ok(bound(place).await? >= binds))
        .await?;
    first.kill().await?;
    let left = bound(place).await?;
    let second = start()?;
    place.running(all, all).await?;
    second.kill().await?;
    for name in SETS {
        assert_eq!(
            place.domains(&format!("{name}-0-"), RACK).await?.len(),
            1,
            "gang {name}"
        );
        place.delete::<PodCliqueSet>(name).await?;
    }
    place.running(0, 0).await?;
    Ok(left)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_bind_every_gang_ends_whole() -> Result<()> {
    let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
    let plane = ControlPlane::builder().start().await?;
    run_operator(&plane, &SchedulerProfile::Grove).await?;
    let record = record(&plane).await?;
    let place = Place::on(&plane, "kills").await?;
    place.add_nodes(SETS.len(), 2, &GPU_HOST).await?;
    let kills: Vec<usize> = match std::env::var_os("GROVE_EXHAUSTIVE") {
        None => SAMPLE.to_vec(),
        Some(_) => (0..ALL).map(|kill| 1 + kill % (SETS.len() * PODS - 1)).collect(),
    };
    let mut halves = 0;
    for binds in &kills {
        let left = killed_at(&place, (&grove, &plane), *binds).await?;
        halves += usize::from(left % PODS != 0);
    }
    let audit = Audit::of(
        record.moments(&place.client).await?,
        Terms::calm(Policy::default().grace),
    );
    assert_eq!(audit.binds, kills.len() * SETS.len() * PODS, "no pod was released");
    println!("{} kills, {halves} of them in the middle of a gang", kills.len());
    Ok(())
}
