//! Half an hour of a busy cluster in virtual time: gangs come and go at nine tenths of the capacity, nodes fail and return.
//!
//! Every moment is judged as in the other tests; nobody waits for ever, and no pod is lost. A small cluster in every run;
//! `CHURN_SEEDS=0..20 cargo test --release -p grove-scheduler --test it churn -- --nocapture` runs 1,000 nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use grove_api::{PodCliqueSet, PodGang};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;

use crate::support::{World, nodes, set};
use crate::trace::{Job, Result, Site, TICK, Trace, first_fit};

/// A gang that people keep asking for is placed within this many seconds: a domain is kept for it after five minutes, and
/// what runs there ends by itself.
const WAIT_MAX: u64 = 600;

/// What is known of the gangs of a run.
#[derive(Default)]
struct Observed {
    result: Result,
    /// When a gang was first seen to be placed.
    placed_at: BTreeMap<String, u64>,
}

impl Observed {
    async fn look(&mut self, world: &World, trace: &Trace, now: u64) {
        let jobs: BTreeMap<String, &Job> = trace.jobs.iter().map(|job| (format!("{}-0", job.name), job)).collect();
        for (name, gang) in world.list::<PodGang>().await {
            let Some(job) = jobs.get(&name).filter(|job| job.goes > now) else {
                continue;
            };
            if !is_placed(&gang) {
                continue;
            }
            self.result.gpu_seconds += job.gpus_in_all() as u64 * TICK;
            if self.placed_at.insert(name, now).is_none() && job.level == "block" {
                let racks = world.racks_of(&format!("{}-0-", job.name)).await;
                self.result.racks += racks.len();
                self.result.spread += 1;
            }
        }
    }

    /// Gangs that were asked for long enough and never placed.
    fn starved(&self, trace: &Trace) -> Vec<String> {
        let end = trace.seconds;
        let is_starved = |job: &&Job| {
            let asked_for = job.goes.min(end) - job.comes;
            asked_for > WAIT_MAX && !self.placed_at.contains_key(&format!("{}-0", job.name))
        };
        let starved = trace.jobs.iter().filter(is_starved);
        starved.map(|job| format!("{job:?}")).collect()
    }
}

fn is_placed(gang: &PodGang) -> bool {
    let conditions = gang.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Scheduled" && condition.status == "True")
}

async fn churn(trace: &Trace) -> Result {
    let Site { blocks, racks, hosts } = trace.site;
    let world = World::new(nodes(blocks, racks, hosts)).await;
    let sets = world.all::<PodCliqueSet>();
    let mut observed = Observed::default();
    for now in (0..trace.seconds).step_by(TICK as usize) {
        for outage in &trace.outages {
            let name = trace.site.name(outage.node);
            if outage.from == now {
                world.cluster.fleet().down(&name);
            } else if outage.to == now {
                world.cluster.fleet().up(&name);
            }
        }
        for job in trace.jobs.iter().filter(|job| job.goes == now) {
            let deleted = sets.delete(&job.name, &DeleteParams::default()).await;
            deleted.expect("a deletion");
        }
        for job in trace.jobs.iter().filter(|job| job.comes == now) {
            let manifest = set(&job.name, job.pods, job.gpus, job.level);
            world.create::<PodCliqueSet>(&manifest).await;
        }
        tokio::time::sleep(Duration::from_secs(TICK)).await;
        observed.look(&world, trace, now).await;
    }
    let starved = observed.starved(trace);
    assert!(
        starved.is_empty(),
        "{} gangs were never placed: {starved:?}",
        starved.len()
    );
    check_pods(&world, trace).await;
    world.audit();
    observed.result
}

/// Every gang that is still asked for has all its pods, placed or not.
async fn check_pods(world: &World, trace: &Trace) {
    world.settle().await;
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for pod in world.list::<Pod>().await.into_values() {
        if pod.metadata.deletion_timestamp.is_none() {
            let set = pod.labels().get("app.kubernetes.io/part-of").cloned();
            *pods.entry(set.unwrap_or_default()).or_default() += 1;
        }
    }
    let here = trace.jobs.iter().filter(|job| job.goes >= trace.seconds);
    let wanted: BTreeMap<String, usize> = here.map(|job| (job.name.clone(), job.pods)).collect();
    assert_eq!(pods, wanted, "pods by set, found and wanted");
}

async fn compare(seed: u64, site: Site, seconds: u64) {
    let trace = Trace::new(seed, site, seconds);
    let (ours, theirs) = (churn(&trace).await, first_fit(&trace));
    let hours = |seconds: u64| seconds as f64 / 3600.0;
    println!(
        "seed {seed}: {} nodes, {} gangs, {} outages; GPU hours {:.1} (first fit {:.1}); racks of a gang that spans \
         racks {:.2} (first fit {:.2})",
        site.nodes(),
        trace.jobs.len(),
        trace.outages.len(),
        hours(ours.gpu_seconds),
        hours(theirs.gpu_seconds),
        ours.racks_per_gang(),
        theirs.racks_per_gang()
    );
}

#[tokio::test(start_paused = true)]
async fn a_busy_cluster_loses_nothing_and_starves_nobody() {
    let Ok(seeds) = std::env::var("CHURN_SEEDS") else {
        let small = Site {
            blocks: 2,
            racks: 3,
            hosts: 10,
        };
        return compare(1, small, 900).await;
    };
    let (from, to) = seeds.split_once("..").expect("CHURN_SEEDS=FROM..TO");
    let large = Site {
        blocks: 4,
        racks: 25,
        hosts: 10,
    };
    for seed in from.parse().expect("a number")..to.parse().expect("a number") {
        compare(seed, large, 1800).await;
    }
}
