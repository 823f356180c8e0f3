//! A queue of gangs on a cluster, placed one after the other in order; a gang that does not fit is passed over.

use std::collections::{BTreeMap, BTreeSet};

use crate::bench::pod_group;
use crate::{
    Assignment, Budget, Cluster, Gang, Level, NodeSpec, Outcome, Pack, Policy, Shape, Solver, TopologyId, TopologySpec,
    Traits, Work,
};

/// A host with eight GPUs, some of them taken.
#[derive(Clone, Debug)]
pub struct QueueHost {
    pub name: String,
    pub zone: String,
    pub block: String,
    pub rack: String,
    pub used: u64,
}

/// Alike pods; levels are words (`zone`, `block`, `rack`, `host`).
#[derive(Clone, Debug)]
pub struct QueueGang {
    pub name: String,
    pub required: Option<String>,
    pub preferred: Option<String>,
    pub pods: u32,
    pub gpus: u64,
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub hosts: Vec<QueueHost>,
    /// In the order in which they are placed.
    pub gangs: Vec<QueueGang>,
}

/// What became of one gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Result {
    pub placed: bool,
    /// The search ended before its budget did.
    pub decided: bool,
    /// Hosts by their number in the queue, and how many pods each got.
    pub hosts: Vec<(usize, u32)>,
    pub racks: BTreeSet<String>,
    pub work: Work,
}

/// Sums over a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub gangs: usize,
    pub gpus: u64,
    pub undecided: usize,
    /// Racks per gang, over the gangs that `shared` names.
    pub racks_per_gang: f64,
}

/// Places and commits every gang of a queue; one result per gang.
pub fn place_all(queue: &Queue, policy: Policy, budget: Budget) -> Vec<Result> {
    let mut cluster = Cluster::new();
    let gpu = cluster.resource("gpu");
    let level = |word: &str| Level {
        word: word.to_owned(),
        key: word.to_owned(),
    };
    let levels = ["zone", "block", "rack", "host"].map(level).to_vec();
    let topology = cluster.set_topology(TopologySpec {
        name: "queue".to_owned(),
        levels,
        host: Some(3),
    });
    for host in &queue.hosts {
        let labels = [("zone", &host.zone), ("block", &host.block), ("rack", &host.rack)];
        let labels: BTreeMap<String, String> = labels.map(|(key, value)| (key.to_owned(), value.clone())).into();
        let traits = Traits {
            name: host.name.clone(),
            labels,
            ..Traits::default()
        };
        let node = cluster.set_node(NodeSpec {
            traits,
            allocatable: [(gpu, 8)].into_iter().collect(),
        });
        cluster.take(node, &[(gpu, host.used)].into_iter().collect());
    }
    let mut solver = Solver::with_policy(policy);
    let mut results = Vec::new();
    for gang in &queue.gangs {
        let requests = [(gpu, gang.gpus)].into_iter().collect();
        let shape = cluster.shape(&Shape {
            requests,
            ..Shape::default()
        });
        let gang = to_gang(gang, topology, shape);
        let outcome = solver.solve(&mut cluster, &gang, budget);
        let decided = outcome != Outcome::Undecided;
        let assignments = if let Outcome::Placed(plan) = outcome {
            plan.assignments.clone()
        } else {
            Vec::new()
        };
        // A plan that was just made fits; if it did not, the gang would count as not placed.
        let placed = !assignments.is_empty() && cluster.commit(&assignments).is_ok();
        // Nodes were added in the order of the hosts.
        let host = |assignment: &Assignment| (assignment.node.0 as usize, assignment.pods);
        let hosts: Vec<(usize, u32)> = assignments.iter().map(host).collect();
        let racks = hosts.iter().map(|(host, _)| queue.hosts[*host].rack.clone()).collect();
        results.push(Result {
            placed,
            decided,
            hosts,
            racks,
            work: solver.work(),
        });
    }
    results
}

fn to_gang(gang: &QueueGang, topology: TopologyId, shape: crate::ShapeId) -> Gang {
    Gang {
        name: gang.name.clone(),
        topology,
        replica: None,
        pack: Pack {
            required: gang.required.clone(),
            preferred: gang.preferred.clone(),
        },
        groups: Vec::new(),
        pod_groups: vec![pod_group("workers", Pack::default(), gang.pods, shape)],
    }
}

/// Sums up; racks per gang are averaged over the placed gangs for which `shared` is true.
pub fn tally(queue: &Queue, results: &[Result], shared: impl Fn(usize) -> bool) -> Tally {
    let mut tally = Tally::default();
    let (mut racks, mut gangs) = (0, 0);
    for (index, (gang, result)) in queue.gangs.iter().zip(results).enumerate() {
        tally.undecided += usize::from(!result.decided);
        if !result.placed {
            continue;
        }
        tally.gangs += 1;
        tally.gpus += u64::from(gang.pods) * gang.gpus;
        if shared(index) {
            racks += result.racks.len();
            gangs += 1;
        }
    }
    tally.racks_per_gang = racks as f64 / f64::from(gangs.max(1));
    tally
}
