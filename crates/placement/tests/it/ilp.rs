//! Against an integer program on 112 hosts, where brute force is out of reach: extra domains per level.
//!
//! One gang in a block, each of its two or three pod-groups in a rack; fewest racks, then fewest hosts. The program is
//! written from the rules, with a variable for every pod-group and host. What its solver cannot prove in time is left
//! out of the comparison, and enough must be left.

use std::time::Duration;

use grove_placement::{Budget, Solver};
use grove_plancheck::{Host, Instance, PodGroup, Scope};
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolutionStatus, SolveOutcome, Variable};

use crate::generate::Dice;
use crate::world::{Answer, build, solve};

const BLOCKS: usize = 2;
const RACKS: usize = 14;
const HOSTS: usize = 112;
const CASES: u64 = 24;

fn rack_of(host: usize) -> usize {
    host * RACKS / HOSTS
}

fn block_of(rack: usize) -> usize {
    rack * BLOCKS / RACKS
}

/// Hosts of 8 GPUs, half of them broken into; pod-groups of 1, 2, 4 or 8 GPUs.
fn instance(dice: &mut Dice) -> Instance {
    let host = |dice: &mut Dice, index: usize| {
        let free = if dice.chance(50) { 8 } else { dice.roll(8) as i64 };
        let rack = rack_of(index);
        Host {
            free: vec![free],
            path: Some(vec![block_of(rack) as u32, rack as u32]),
            cells: vec![],
        }
    };
    let hosts: Vec<Host> = (0..HOSTS).map(|index| host(dice, index)).collect();
    let scope = |parent, tier, required| Scope {
        parent,
        tier,
        required,
        preferred: 0,
        others: vec![],
    };
    let groups = 2 + dice.roll(2) as usize;
    let mut scopes = vec![scope(None, 0, 1)];
    scopes.extend((0..groups).map(|_| scope(Some(0), 2, 2)));
    let group = |dice: &mut Dice, index: usize| {
        let gpus = 1 << dice.roll(4);
        let pods = 1 + dice.roll(40 / gpus) as u32;
        PodGroup {
            scope: index + 1,
            request: vec![gpus],
            eligible: vec![true; HOSTS],
            dislikes: vec![0; HOSTS],
            minimum: pods,
            desired: pods,
            bound: vec![],
        }
    };
    Instance {
        levels: 2,
        hosts,
        totals: vec![8 * HOSTS as u64],
        scopes,
        groups: (0..groups).map(|index| group(dice, index)).collect(),
        aparts: vec![],
    }
}

/// Fewest racks and hosts, if the solver can prove them in time.
fn optimum(instance: &Instance) -> Option<(u64, u64)> {
    let mut program = Problem::new(OptimizationDirection::Minimize);
    program.set_time_limit(Duration::from_secs(5));
    // One rack more is dearer than all hosts of a rack-sized gang together.
    let racks: Vec<Variable> = (0..RACKS).map(|_| program.add_binary_var(HOSTS as f64)).collect();
    let blocks: Vec<Variable> = (0..BLOCKS).map(|_| program.add_binary_var(0.0)).collect();
    let hosts: Vec<Variable> = (0..HOSTS).map(|_| program.add_binary_var(1.0)).collect();
    let all = |variables: &[Variable]| variables.iter().map(|variable| (*variable, 1.0)).collect::<Vec<_>>();
    program.add_constraint(all(&blocks), ComparisonOp::Eq, 1.0);
    for rack in 0..RACKS {
        program.add_constraint(
            [(racks[rack], 1.0), (blocks[block_of(rack)], -1.0)],
            ComparisonOp::Le,
            0.0,
        );
    }
    let mut on_host: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); HOSTS];
    for group in &instance.groups {
        let (pods, gpus) = (f64::from(group.minimum), group.request[0] as f64);
        let inside: Vec<Variable> = (0..RACKS).map(|_| program.add_binary_var(0.0)).collect();
        program.add_constraint(all(&inside), ComparisonOp::Eq, 1.0);
        let mut of_rack: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); RACKS];
        for (host, on) in on_host.iter_mut().enumerate() {
            let room = (instance.hosts[host].free[0] as u64 / group.request[0]).min(u64::from(group.minimum));
            let put = program.add_integer_var(0.0, (0, room as i32));
            on.push((put, gpus));
            of_rack[rack_of(host)].push((put, 1.0));
        }
        for (rack, mut put) in of_rack.into_iter().enumerate() {
            // All pods of the group are in the rack that it chose, and none elsewhere.
            put.push((inside[rack], -pods));
            program.add_constraint(put, ComparisonOp::Eq, 0.0);
            program.add_constraint([(inside[rack], 1.0), (racks[rack], -1.0)], ComparisonOp::Le, 0.0);
        }
    }
    for (host, mut asked) in on_host.into_iter().enumerate() {
        asked.push((hosts[host], -(instance.hosts[host].free[0] as f64)));
        program.add_constraint(asked, ComparisonOp::Le, 0.0);
        program.add_constraint(
            [(hosts[host], 1.0), (racks[rack_of(host)], -1.0)],
            ComparisonOp::Le,
            0.0,
        );
    }
    match program.solve().ok()? {
        SolveOutcome::Solution(found) if found.status() == SolutionStatus::Optimal => {
            let used =
                |variables: &[Variable]| variables.iter().filter(|one| found.var_value(**one) > 0.5).count() as u64;
            Some((used(&racks), used(&hosts)))
        }
        _ => None,
    }
}

#[test]
fn hardly_more_domains_than_an_integer_program_finds() {
    let mut dice = Dice(11);
    let mut solver = Solver::new();
    let (mut compared, mut ours, mut least) = (0, (0, 0), (0, 0));
    for _ in 0..CASES {
        let instance = instance(&mut dice);
        let answer = solve(&mut build(&instance), &instance, &mut solver, Budget::default());
        let (Answer::Placed { key, .. }, Some((racks, hosts))) = (answer, optimum(&instance)) else {
            continue;
        };
        assert!(
            (key[4], key[5]) >= (racks, hosts),
            "the program's optimum is none: {key:?} {racks} {hosts}"
        );
        ours = (ours.0 + key[4], ours.1 + key[5]);
        least = (least.0 + racks, least.1 + hosts);
        compared += 1;
    }
    println!(
        "{compared} of {CASES} compared: racks {} for {}, hosts {} for {}",
        ours.0, least.0, ours.1, least.1
    );
    assert!(compared >= CASES / 2, "only {compared} of {CASES} were proven");
    assert!(ours.0 * 100 <= least.0 * 101, "racks: {} for {}", ours.0, least.0);
    assert!(ours.1 * 100 <= least.1 * 101, "hosts: {} for {}", ours.1, least.1);
}
