//! `grove bench placement`: time, memory, work and quality of placing one gang.
//!
//! *New shape* counts the shape of the pods on all nodes and then solves; *known shape* solves with the counts at hand.
//! Each time is the best of several runs, because other work on the machine only ever adds to it. The fewest domains
//! that there can be are counted by the judge, which knows nothing of the engine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use grove_placement::bench::{Case, Instance};
use grove_placement::{Budget, Cluster, Gang, NodeId, Outcome, Pack, Plan, PodGroup, Resource, Solver, Work};
use grove_plancheck::{Alike, Host, Instance as Judged, Near, Put, Room, check, least_domains};
use serde::Serialize;

use crate::ALLOCATOR;
use crate::output::{columns, row};

const RUNS: u64 = 30;

/// Levels of the instance, broad to narrow.
const LEVELS: [&str; 3] = ["block", "rack", "host"];

/// One case; the field names are a contract.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    case: String,
    nodes: usize,
    pods: u32,
    new_shape_us: f64,
    known_shape_us: f64,
    commit_us: f64,
    /// Of a solve with a known shape.
    allocations: usize,
    work: WorkCounts,
    domains: BTreeMap<&'static str, u32>,
    /// The fewest that there can be; empty for a gang of several shapes whose placement is not proven the best.
    optimal_domains: BTreeMap<&'static str, u32>,
    result: &'static str,
}

#[derive(Debug, Serialize)]
struct WorkCounts {
    candidates: u64,
    hosts: u64,
    states: u64,
}

impl From<Work> for WorkCounts {
    fn from(work: Work) -> Self {
        WorkCounts {
            candidates: work.candidates,
            hosts: work.hosts,
            states: work.states,
        }
    }
}

pub(super) fn measure(nodes: usize) -> Vec<Line> {
    let mut instance = Instance::new(nodes);
    let cases = instance.cases();
    let mut variants = 1;
    let measured = cases
        .iter()
        .map(|case| measure_case(&mut instance, case, nodes, &mut variants));
    measured.collect()
}

fn measure_case(instance: &mut Instance, case: &Case, nodes: usize, variants: &mut u64) -> Line {
    let gang = &case.gang;
    let mut solver = Solver::new();
    solver.solve(&mut instance.cluster, gang, Budget::default());
    let new_shape_us = best_of(|run| {
        let start = Instant::now();
        let fresh = with_new_shapes(instance, gang, *variants + run);
        std::hint::black_box(solver.solve(&mut instance.cluster, &fresh, Budget::default()));
        start.elapsed()
    });
    *variants += RUNS;
    let known_shape_us = best_of(|_| {
        let start = Instant::now();
        std::hint::black_box(solver.solve(&mut instance.cluster, gang, Budget::default()));
        start.elapsed()
    });
    let before = ALLOCATOR.stats().allocations;
    std::hint::black_box(solver.solve(&mut instance.cluster, gang, Budget::default()));
    let allocations = ALLOCATOR.stats().allocations - before;
    let (result, plan) = match solver.solve(&mut instance.cluster, gang, Budget::default()) {
        Outcome::Placed(plan) => {
            let plan = plan.clone();
            // Never seen; a benchmark of wrong placements would be worth nothing.
            let accepted = is_accepted(instance, gang, &plan);
            (if accepted { "placed" } else { "rejected by the judge" }, plan)
        }
        Outcome::Infeasible => ("infeasible", Plan::default()),
        Outcome::Undecided => ("undecided", Plan::default()),
    };
    let commit_us = best_of(|_| {
        let start = Instant::now();
        let committed = instance.cluster.commit(&plan.assignments);
        let elapsed = start.elapsed();
        if committed.is_ok() {
            instance.cluster.release(&plan.assignments);
        }
        elapsed
    });
    Line {
        case: case.name.clone(),
        nodes,
        pods: case.pods,
        new_shape_us,
        known_shape_us,
        commit_us,
        allocations,
        work: solver.work().into(),
        optimal_domains: by_level(&optimum(instance, gang, &plan)),
        domains: by_level(&plan.quality.domains),
        result,
    }
}

fn best_of(mut run: impl FnMut(u64) -> Duration) -> f64 {
    let best = (0..RUNS).map(&mut run).min().unwrap_or_default();
    (best.as_secs_f64() * 1e7).round() / 10.0
}

/// The gang with every shape replaced by one of the same size that was never seen.
fn with_new_shapes(instance: &mut Instance, gang: &Gang, variant: u64) -> Gang {
    let mut gang = gang.clone();
    for pod_group in &mut gang.pod_groups {
        let gpus = instance
            .cluster
            .requests(pod_group.shape)
            .iter()
            .next()
            .map_or(0, |(_, gpus)| gpus);
        pod_group.shape = instance.shape(gpus, variant);
    }
    gang
}

fn by_level(domains: &[u32]) -> BTreeMap<&'static str, u32> {
    LEVELS.into_iter().zip(domains.iter().copied()).collect()
}

/// The fewest domains there can be: counted for pods that are alike, else what a search that ended has proven.
fn optimum(instance: &Instance, gang: &Gang, plan: &Plan) -> Vec<u32> {
    let [pod_group] = gang.pod_groups.as_slice() else {
        let proven = plan.optimal.then(|| plan.quality.domains.clone());
        return proven.unwrap_or_default();
    };
    let cluster = &instance.cluster;
    let requests = cluster.requests(pod_group.shape);
    let room = |node| {
        let free = |resource| cluster.free(node, resource).max(0) as u64;
        let fits = requests.iter().map(|(resource, amount)| free(resource) / amount).min();
        Room {
            path: path(cluster, node),
            pods: fits.and_then(|fits| u32::try_from(fits).ok()).unwrap_or(0),
        }
    };
    let rooms: Vec<Room> = cluster.nodes().map(room).collect();
    let required = depth(&gang.pack.required);
    let narrowest = depth(&gang.pack.preferred).max(required);
    // The narrowest level at which one domain holds all.
    let mut depths = (required..=narrowest).rev();
    let least = depths.find_map(|together| least_domains(&rooms, pod_group.minimum, together));
    least.unwrap_or_default()
}

/// Depth of a level; 0 is none.
fn depth(word: &Option<String>) -> usize {
    let known = |word: &String| LEVELS.iter().position(|level| level == word);
    word.as_ref().and_then(known).map_or(0, |index| index + 1)
}

/// The numbers of a node's block and rack.
fn path(cluster: &Cluster, node: NodeId) -> Vec<u32> {
    let labels = &cluster.traits(node).labels;
    let values = ["bench/block", "bench/rack"].iter().filter_map(|key| labels.get(*key));
    let number = |text: &String| text.trim_start_matches(char::is_alphabetic).parse().unwrap_or(0);
    values.map(number).collect()
}

/// Whether the judge finds no fault with a plan.
fn is_accepted(instance: &Instance, gang: &Gang, plan: &Plan) -> bool {
    let cluster = &instance.cluster;
    let nodes: Vec<NodeId> = cluster.nodes().collect();
    let resources: Vec<Resource> = cluster
        .requests(gang.pod_groups[0].shape)
        .iter()
        .map(|(resource, _)| resource)
        .collect();
    let host = |node: &NodeId| Host {
        free: resources
            .iter()
            .map(|resource| cluster.free(*node, *resource))
            .collect(),
        path: Some(path(cluster, *node)),
        cells: vec![],
    };
    let near = |pack: &Pack| Near {
        required: depth(&pack.required),
        preferred: depth(&pack.preferred),
    };
    let alike = |pod_group: &PodGroup| Alike {
        near: near(&pod_group.pack),
        request: resources
            .iter()
            .map(|resource| cluster.requests(pod_group.shape).get(*resource))
            .collect(),
        pods: pod_group.minimum,
    };
    let mut judged = Judged::of_hosts(LEVELS.len() - 1, nodes.iter().map(host).collect());
    judged.ask(near(&gang.pack), gang.pod_groups.iter().map(alike));
    let puts = plan.assignments.iter().map(|assignment| Put {
        group: assignment.pod_group,
        host: nodes.binary_search(&assignment.node).unwrap_or(usize::MAX),
        cell: assignment.cell.map(usize::from),
        pods: assignment.pods,
    });
    check(&judged, &puts.collect::<Vec<_>>()).is_empty()
}

pub(super) fn table(lines: &[Line]) -> String {
    let mut rows = vec![row([
        "CASE",
        "RESULT",
        "NEW US",
        "KNOWN US",
        "COMMIT US",
        "ALLOCS",
        "WORK",
        "DOMAINS",
        "FEWEST",
    ])];
    let counts = |domains: &BTreeMap<&str, u32>| {
        let counts = LEVELS.iter().filter_map(|level| domains.get(level));
        counts.map(u32::to_string).collect::<Vec<_>>().join("/")
    };
    rows.extend(lines.iter().map(|line| {
        row([
            &line.case,
            line.result,
            &format!("{:.1}", line.new_shape_us),
            &format!("{:.1}", line.known_shape_us),
            &format!("{:.1}", line.commit_us),
            &line.allocations.to_string(),
            &(line.work.candidates + line.work.hosts + line.work.states).to_string(),
            &counts(&line.domains),
            &counts(&line.optimal_domains),
        ])
    }));
    columns(&rows)
}
