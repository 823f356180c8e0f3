//! Time, work and quality of single gangs: `cargo bench -p grove-placement -- [nodes…]`.
//!
//! *New shape* counts the shape on all nodes and then solves; *known shape* solves with the counts at hand. Each time is
//! the best of several runs, because other work on the machine only ever adds to it. The judge looks at every plan.

#[path = "../tests/it/judged.rs"]
mod judged;

use std::time::{Duration, Instant};

use grove_placement::bench::{Case, Instance};
use grove_placement::{Budget, Gang, Outcome, Plan, PreemptionRequest, Running, Solver, preempt};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const RUNS: u64 = 30;

/// A benchmark of wrong placements would be worth nothing.
fn judge(instance: &Instance, gang: &Gang, plan: &Plan) {
    assert_eq!(judged::faults(instance, gang, plan), []);
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn best_of(mut run: impl FnMut(u64) -> Duration) -> f64 {
    micros((0..RUNS).map(&mut run).min().unwrap_or_default())
}

/// The gang with every shape replaced by one of the same size that was never seen.
fn with_new_shapes(instance: &mut Instance, gang: &Gang, sizes: &[u64], variant: u64) -> Gang {
    let mut gang = gang.clone();
    for (pod_group, gpus) in gang.pod_groups.iter_mut().zip(sizes) {
        pod_group.shape = instance.shape(*gpus, variant);
    }
    gang
}

fn measure(instance: &mut Instance, case: &Case, sizes: &[u64], variants: &mut u64) {
    let (name, gang) = (&case.name, &case.gang);
    let mut solver = Solver::new();
    solver.solve(&mut instance.cluster, gang, Budget::default());
    let new_shape = best_of(|run| {
        let start = Instant::now();
        let fresh = with_new_shapes(instance, gang, sizes, *variants + run);
        std::hint::black_box(solver.solve(&mut instance.cluster, &fresh, Budget::default()));
        start.elapsed()
    });
    *variants += RUNS;
    let known_shape = best_of(|_| {
        let start = Instant::now();
        std::hint::black_box(solver.solve(&mut instance.cluster, gang, Budget::default()));
        start.elapsed()
    });
    let profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().total_blocks;
    std::hint::black_box(solver.solve(&mut instance.cluster, gang, Budget::default()));
    let allocations = dhat::HeapStats::get().total_blocks - before;
    drop(profiler);
    let (result, plan) = match solver.solve(&mut instance.cluster, gang, Budget::default()) {
        Outcome::Placed(plan) => (if plan.optimal { "optimal" } else { "placed" }, plan.clone()),
        Outcome::Infeasible => ("infeasible", Default::default()),
        Outcome::Undecided => ("undecided", Default::default()),
    };
    let work = solver.work();
    if !plan.assignments.is_empty() {
        judge(instance, gang, &plan);
    }
    let commit = best_of(|_| {
        let start = Instant::now();
        let committed = instance.cluster.commit(&plan.assignments);
        let elapsed = start.elapsed();
        committed.expect("a plan that was just made fits");
        instance.cluster.release(&plan.assignments);
        elapsed
    });
    println!(
        "{name:46} {result:>10} {new_shape:>9.1} {known_shape:>8.1} {commit:>8.1} {allocations:>6} {:>7} {:>7} {:>7}  {:?}",
        work.candidates, work.hosts, work.states, plan.quality.domains
    );
}

/// A rack for a gang on a cluster that 2,000 gangs of lower priority fill.
fn measure_preemption(nodes: usize) {
    let mut instance = Instance::new(nodes);
    let mut solver = Solver::new();
    let whole_host = instance.shape(8, 0);
    let gpu = instance.shape(1, 0);
    let filler = instance.gang(None, None, 1, gpu);
    let mut running: Vec<Running> = Vec::new();
    for size in [
        instance.gang(Some("rack"), None, 4, whole_host),
        instance.gang(None, None, 1, whole_host),
        filler,
    ] {
        while let Outcome::Placed(plan) = solver.solve(&mut instance.cluster, &size, Budget::default()) {
            if running.len() >= 2_000 {
                break;
            }
            let plan = plan.clone();
            judge(&instance, &size, &plan);
            let assignments = plan.assignments;
            instance
                .cluster
                .commit(&assignments)
                .expect("a plan that was just made fits");
            let minimum = vec![size.pod_groups[0].minimum];
            running.push(Running {
                name: format!("g{}", running.len()),
                priority: 0,
                assignments,
                minimum,
                budgets: Vec::new(),
            });
        }
    }
    let gang = instance.gang(Some("rack"), None, 8, whole_host);
    let request = PreemptionRequest {
        gang: &gang,
        priority: 1,
        running: &running,
        budgets: &[],
    };
    let mut victims = None;
    let micros = best_of(|_| {
        let start = Instant::now();
        victims = preempt(&mut solver, &mut instance.cluster, request).map(|found| found.victims.len());
        start.elapsed()
    });
    println!(
        "preemption for 8 x 8 GPU in a rack among {} gangs: {micros:.1} us, victims {victims:?}",
        running.len()
    );
}

/// Gangs of two roles, each in a rack of one block, one after the other, as `grove plan` places them.
fn measure_plan(nodes: usize, gangs: usize) {
    let mut placed = 0;
    let micros = best_of(|_| {
        let mut instance = Instance::new(nodes);
        let mut solver = Solver::new();
        let gang = instance.two_roles();
        placed = 0;
        let start = Instant::now();
        for _ in 0..gangs {
            if let Outcome::Placed(plan) = solver.solve(&mut instance.cluster, &gang, Budget::default()) {
                let committed = instance.cluster.commit(&plan.assignments);
                committed.expect("a plan that was just made fits");
                placed += 1;
            }
        }
        start.elapsed()
    });
    let mut instance = Instance::new(nodes);
    let (mut solver, gang) = (Solver::new(), instance.two_roles());
    for _ in 0..gangs {
        if let Outcome::Placed(plan) = solver.solve(&mut instance.cluster, &gang, Budget::default()) {
            let plan = plan.clone();
            judge(&instance, &gang, &plan);
            instance
                .cluster
                .commit(&plan.assignments)
                .expect("a plan that was just made fits");
        }
    }
    println!("{gangs} gangs of two roles one after the other: {micros:.1} us, {placed} placed");
}

/// Solves one case again and again and measures nothing: for tools that count instructions.
fn repeat(nodes: usize, case: usize, runs: u64) {
    let mut instance = Instance::new(nodes);
    let mut solver = Solver::new();
    let case = instance.cases().swap_remove(case);
    for _ in 0..runs {
        std::hint::black_box(solver.solve(&mut instance.cluster, &case.gang, Budget::default()));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|text| text == "repeat") {
        let numbers: Vec<usize> = arguments[at + 1..]
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        let [nodes, case, runs] = numbers[..] else {
            panic!("usage: repeat NODES CASE RUNS");
        };
        return repeat(nodes, case, runs as u64);
    }
    let asked: Vec<usize> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![1_000, 10_000] } else { asked };
    for nodes in sizes {
        let mut instance = Instance::new(nodes);
        println!("\n{nodes} nodes");
        println!(
            "{:46} {:>10} {:>9} {:>8} {:>8} {:>6} {:>7} {:>7} {:>7}  blocks, racks, hosts",
            "case", "result", "new us", "known us", "commit", "allocs", "domains", "hosts", "states"
        );
        let mut variants = 1;
        for case in instance.cases() {
            let requests = |shape| {
                instance
                    .cluster
                    .requests(shape)
                    .iter()
                    .next()
                    .map_or(0, |(_, gpus)| gpus)
            };
            let sizes: Vec<u64> = case
                .gang
                .pod_groups
                .iter()
                .map(|pod_group| requests(pod_group.shape))
                .collect();
            measure(&mut instance, &case, &sizes, &mut variants);
        }
        measure_preemption(nodes);
        measure_plan(nodes, 200);
    }
}
