//! How close gangs sit on a cluster of 10,000 hosts that is as full as real ones, beside the fewest domains that the judge
//! counts.

use grove_placement::bench::{Case, Instance};
use grove_placement::{Budget, Outcome, Solver};
use grove_plancheck::{Room, least_domains};

use crate::judged::faults;

const LEVELS: [&str; 2] = ["block", "rack"];

/// The hosts with their room for the pods of a case.
fn rooms(instance: &Instance, case: &Case) -> Vec<Room> {
    let cluster = &instance.cluster;
    let requests = cluster.requests(case.gang.pod_groups[0].shape);
    let number = |text: &String| text.trim_start_matches(char::is_alphabetic).parse::<u32>();
    let room = |node| {
        let labels = &cluster.traits(node).labels;
        let values = LEVELS.iter().map(|level| &labels[&format!("bench/{level}")]);
        let fits = requests
            .iter()
            .map(|(resource, amount)| cluster.free(node, resource).max(0) as u64 / amount);
        Room {
            path: values
                .map(|value| number(value).expect("levels are numbered"))
                .collect(),
            pods: fits.min().unwrap_or(0) as u32,
        }
    };
    cluster.nodes().map(room).collect()
}

/// Cases that have been measured elsewhere, and how few domains they must take: blocks, racks, hosts.
const LIMITS: [(&str, [u32; 3]); 3] = [
    ("64 x 8 GPU required block", [1, 8, 64]),
    ("1000 x 1 GPU required block", [1, 13, 144]),
    ("64 x 1 GPU required rack", [1, 1, 8]),
];

#[test]
fn gangs_that_others_spread_are_close_together() {
    let mut instance = Instance::new(10_000);
    let mut solver = Solver::new();
    let cases = instance.cases();
    for (name, limits) in LIMITS {
        let case = cases.iter().find(|case| case.name == name).expect("the case is there");
        let Outcome::Placed(plan) = solver.solve(&mut instance.cluster, &case.gang, Budget::default()) else {
            panic!("{name} is not placed");
        };
        let used = &plan.quality.domains;
        assert!(
            used.iter().zip(limits).all(|(used, most)| *used <= most),
            "{name}: {used:?}"
        );
    }
}

#[test]
fn the_judge_accepts_every_measured_plan() {
    let mut instance = Instance::new(10_000);
    let mut solver = Solver::new();
    for case in instance.cases() {
        if let Outcome::Placed(plan) = solver.solve(&mut instance.cluster, &case.gang, Budget::default()) {
            let plan = plan.clone();
            assert_eq!(faults(&instance, &case.gang, &plan), [], "{}", case.name);
            let mut short = plan.clone();
            short.assignments.pop();
            assert_ne!(
                faults(&instance, &case.gang, &short),
                [],
                "{}: a pod is missing",
                case.name
            );
        }
    }
}

#[test]
fn gangs_use_the_fewest_blocks_and_racks_and_hardly_more_hosts() {
    let mut instance = Instance::new(10_000);
    let mut solver = Solver::new();
    for case in instance.cases().iter().filter(|case| case.gang.pod_groups.len() == 1) {
        let rooms = rooms(&instance, case);
        let depth = |word: &Option<String>| {
            let word = word.as_deref().unwrap_or_default();
            LEVELS
                .iter()
                .position(|level| *level == word)
                .map_or(0, |index| index + 1)
        };
        let (required, preferred) = (depth(&case.gang.pack.required), depth(&case.gang.pack.preferred));
        let together = (required..=required.max(preferred)).rev();
        let least = together
            .into_iter()
            .find_map(|depth| least_domains(&rooms, case.pods, depth));
        match (
            solver.solve(&mut instance.cluster, &case.gang, Budget::default()),
            least,
        ) {
            (Outcome::Placed(plan), Some(least)) => {
                let used = &plan.quality.domains;
                println!("{}: {used:?}, no fewer than {least:?}", case.name);
                assert_eq!(used[0], least[0], "{}: blocks", case.name);
                // Over several blocks the count is of racks anywhere, which no choice of few blocks has to reach.
                if least[0] == 1 {
                    assert_eq!(used[1], least[1], "{}: racks", case.name);
                }
                assert!(
                    used[2] * 100 <= least[2] * 115,
                    "{}: hosts {used:?}, {least:?}",
                    case.name
                );
            }
            (Outcome::Infeasible, None) => {}
            (outcome, least) => panic!("{}: {outcome:?}, but the fewest domains are {least:?}", case.name),
        }
    }
}
