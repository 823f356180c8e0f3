//! Who has to go for a gang of higher priority, and who never does.

use grove_placement::{
    Assignment, Budget, Cluster, Gang, Level, Movable, NodeSpec, Outcome, Pack, PodGroup, Preemption,
    PreemptionRequest, Resource, Running, Shape, ShapeId, Solver, TopologyId, TopologySpec, Traits, defragment,
    preempt,
};

use crate::generate::Dice;

/// Racks of hosts with 8 GPUs, and gangs that run on them.
struct Site {
    cluster: Cluster,
    topology: TopologyId,
    gpu: Resource,
    running: Vec<Running>,
}

fn site(racks: usize, hosts: usize) -> Site {
    let mut cluster = Cluster::new();
    let gpu = cluster.resource("gpu");
    let level = |word: &str| Level {
        word: word.to_owned(),
        key: word.to_owned(),
    };
    let levels = ["rack", "host"].map(level).to_vec();
    let topology = cluster.set_topology(TopologySpec {
        name: "site".to_owned(),
        levels,
        host: Some(1),
    });
    for host in 0..racks * hosts {
        let labels = [("rack".to_owned(), format!("r{}", host / hosts))].into();
        let traits = Traits {
            name: format!("n{host}"),
            labels,
            ..Traits::default()
        };
        cluster.set_node(NodeSpec {
            traits,
            allocatable: [(gpu, 8)].into_iter().collect(),
        });
    }
    Site {
        cluster,
        topology,
        gpu,
        running: Vec::new(),
    }
}

impl Site {
    fn shape(&mut self, gpus: u64) -> ShapeId {
        self.cluster.shape(&Shape {
            requests: [(self.gpu, gpus)].into_iter().collect(),
            ..Shape::default()
        })
    }

    fn gang(&mut self, required: Option<&str>, pods: u32, gpus: u64) -> Gang {
        let workers = PodGroup {
            name: "workers".to_owned(),
            group: None,
            pack: Pack::default(),
            shape: self.shape(gpus),
            minimum: pods,
            desired: pods,
            bound: Vec::new(),
        };
        Gang {
            name: "urgent".to_owned(),
            topology: self.topology,
            replica: None,
            pack: Pack {
                required: required.map(str::to_owned),
                preferred: None,
            },
            groups: Vec::new(),
            pod_groups: vec![workers],
        }
    }

    /// Lets a gang run on the first host that takes it.
    fn run(&mut self, host: usize, pods: u32, gpus: u64, priority: i32) -> bool {
        let node = self.cluster.node(&format!("n{host}")).expect("a host of the site");
        let assignments = vec![Assignment {
            pod_group: 0,
            node,
            cell: None,
            shape: self.shape(gpus),
            pods,
        }];
        let fits = self.cluster.commit(&assignments).is_ok();
        if fits {
            let name = format!("running-{}", self.running.len());
            self.running.push(Running {
                name,
                priority,
                assignments,
                minimum: vec![pods],
                budgets: Vec::new(),
            });
        }
        fits
    }

    fn preempt(&mut self, gang: &Gang, priority: i32, budgets: &[u32]) -> Option<Preemption> {
        let before = self.free();
        let request = PreemptionRequest {
            gang,
            priority,
            running: &self.running,
            budgets,
        };
        let found = preempt(&mut Solver::new(), &mut self.cluster, request);
        assert_eq!(before, self.free(), "planning changes nothing");
        found
    }

    fn free(&self) -> Vec<i64> {
        self.cluster
            .nodes()
            .map(|node| self.cluster.free(node, self.gpu))
            .collect()
    }
}

#[test]
fn a_gang_that_needs_one_rack_empties_one_rack() {
    let mut site = site(50, 16);
    for host in 0..800 {
        assert!(site.run(host, 1, 8, 0));
    }
    let gang = site.gang(Some("rack"), 16, 8);
    let found = site.preempt(&gang, 10, &[]).expect("all may go");
    assert_eq!(found.victims.len(), 16);
    let nodes = |assignments: &[Assignment]| -> Vec<String> {
        let mut names: Vec<String> = assignments
            .iter()
            .map(|assignment| site.cluster.node_name(assignment.node).to_owned())
            .collect();
        names.sort();
        names
    };
    let freed: Vec<Assignment> = found
        .victims
        .iter()
        .flat_map(|victim| victim.assignments.clone())
        .collect();
    assert_eq!(
        nodes(&freed),
        nodes(&found.plan.assignments),
        "every host that is freed is used"
    );
}

#[test]
fn the_rack_of_the_least_important_gangs_is_chosen() {
    let mut site = site(3, 2);
    for (host, priority) in [(0, 5), (1, 1), (2, 2), (3, 2), (4, 1), (5, 9)] {
        assert!(site.run(host, 1, 8, priority));
    }
    let gang = site.gang(Some("rack"), 2, 8);
    let found = site.preempt(&gang, 10, &[]).expect("r1 may go");
    assert_eq!(found.domain, "r1");
    assert_eq!(site.preempt(&gang, 2, &[]), None, "nobody of equal priority goes");
    let found = site.preempt(&gang, 3, &[]).expect("r1 is below 3");
    assert_eq!(found.domain, "r1");
}

#[test]
fn replicas_above_the_minimum_go_before_whole_gangs() {
    let mut site = site(1, 2);
    assert!(site.run(0, 8, 1, 0));
    assert!(site.run(1, 8, 1, 0));
    site.running[1].minimum = vec![4];
    let gang = site.gang(Some("rack"), 4, 1);
    let found = site.preempt(&gang, 1, &[]).expect("the surplus suffices");
    assert_eq!(found.victims.len(), 1);
    assert!(!found.victims[0].whole && found.victims[0].running == 1);
    assert_eq!(found.victims[0].assignments[0].pods, 4);
}

#[test]
fn a_disruption_budget_is_not_overdrawn() {
    let mut site = site(1, 2);
    assert!(site.run(0, 2, 4, 0));
    assert!(site.run(1, 2, 4, 0));
    site.running
        .iter_mut()
        .for_each(|running| running.budgets = vec![Some(0)]);
    let one_host = site.gang(Some("rack"), 1, 8);
    assert_eq!(
        site.preempt(&one_host, 1, &[1]),
        None,
        "a gang of two may not go for one"
    );
    assert_eq!(site.preempt(&one_host, 1, &[2]).expect("two may go").victims.len(), 1);
    let both_hosts = site.gang(Some("rack"), 2, 8);
    assert_eq!(site.preempt(&both_hosts, 1, &[3]), None);
    assert_eq!(
        site.preempt(&both_hosts, 1, &[4]).expect("four may go").victims.len(),
        2
    );
}

#[test]
fn each_pod_group_has_a_disruption_budget_of_its_own() {
    let mut site = site(1, 2);
    assert!(site.run(0, 2, 4, 0));
    assert!(site.run(1, 1, 8, 0));
    // One gang of two pod-groups: the first on host 0, the second on host 1.
    let second = site.running.pop().expect("two run");
    let gang = &mut site.running[0];
    gang.assignments
        .extend(second.assignments.iter().map(|assignment| Assignment {
            pod_group: 1,
            ..*assignment
        }));
    gang.minimum = vec![0, 1];
    gang.budgets = vec![None, Some(0)];
    let one_host = site.gang(Some("rack"), 1, 8);
    let found = site.preempt(&one_host, 1, &[0]).expect("no budget guards the first");
    assert!(found.victims.len() == 1 && !found.victims[0].whole);
    let both_hosts = site.gang(Some("rack"), 2, 8);
    assert_eq!(site.preempt(&both_hosts, 1, &[0]), None, "the second is guarded");
    assert!(site.preempt(&both_hosts, 1, &[1]).is_some());
}

/// Fills a small site at random.
fn random_site(dice: &mut Dice) -> Site {
    let mut site = site(1 + dice.roll(3) as usize, 1 + dice.roll(3) as usize);
    let hosts = site.free().len() as u64;
    for _ in 0..3 * hosts {
        let (pods, gpus) = (1 + dice.roll(3) as u32, 1 << dice.roll(4));
        if site.run(dice.roll(hosts) as usize, pods, gpus, dice.roll(5) as i32) && dice.chance(30) {
            let last = site.running.last_mut().expect("it was just added");
            last.minimum = vec![dice.roll(u64::from(pods) + 1) as u32];
        }
    }
    site
}

#[test]
fn in_10_000_random_cases_nobody_of_equal_or_higher_priority_goes_and_nothing_possible_is_missed() {
    let (mut planned, mut impossible) = (0, 0);
    for seed in 0..10_000 {
        let mut dice = Dice(seed);
        let mut site = random_site(&mut dice);
        let required = dice.chance(70).then_some("rack");
        let gang = site.gang(required, 1 + dice.roll(4) as u32, 1 << dice.roll(4));
        let priority = dice.roll(6) as i32;
        match site.preempt(&gang, priority, &[]) {
            Some(found) => {
                planned += 1;
                assert!(
                    found
                        .victims
                        .iter()
                        .all(|victim| site.running[victim.running].priority < priority),
                    "seed {seed}"
                );
                for victim in &found.victims {
                    site.cluster.release(&victim.assignments);
                }
                assert_eq!(
                    site.cluster.commit(&found.plan.assignments),
                    Ok(()),
                    "seed {seed}: the plan fits once they are gone"
                );
            }
            None => {
                impossible += 1;
                let lower: Vec<Running> = site
                    .running
                    .iter()
                    .filter(|running| running.priority < priority)
                    .cloned()
                    .collect();
                lower
                    .iter()
                    .for_each(|running| site.cluster.release(&running.assignments));
                let outcome = Solver::new().solve(&mut site.cluster, &gang, Budget::default()) != Outcome::Infeasible;
                assert!(!outcome, "seed {seed}: it would fit without all of lower priority");
            }
        }
    }
    assert!(
        planned > 2_000 && impossible > 1_000,
        "{planned} planned, {impossible} impossible"
    );
}

impl Site {
    /// Everything that runs, as gangs that may be moved.
    fn movable(&self) -> Vec<Movable> {
        let gang = |running: &Running| {
            let pods = running.assignments[0].pods;
            let workers = PodGroup {
                name: "workers".to_owned(),
                group: None,
                pack: Pack::default(),
                shape: running.assignments[0].shape,
                minimum: pods,
                desired: pods,
                bound: Vec::new(),
            };
            let pack = Pack {
                required: Some("host".to_owned()),
                preferred: None,
            };
            Gang {
                name: running.name.clone(),
                topology: self.topology,
                replica: None,
                pack,
                groups: Vec::new(),
                pod_groups: vec![workers],
            }
        };
        self.running
            .iter()
            .map(|running| Movable {
                running: running.clone(),
                gang: gang(running),
            })
            .collect()
    }
}

#[test]
fn moving_two_gangs_together_frees_a_rack_for_a_third() {
    let mut site = site(2, 4);
    for host in [0, 1, 4, 5] {
        assert!(site.run(host, 1, 8, 0));
    }
    let gang = site.gang(Some("rack"), 4, 8);
    let movable = site.movable();
    let found = defragment(&mut Solver::new(), &mut site.cluster, &gang, &movable, &[]).expect("two moves suffice");
    assert_eq!(found.moves.len(), 2);
    let small = site.gang(Some("rack"), 2, 8);
    assert_eq!(
        defragment(&mut Solver::new(), &mut site.cluster, &small, &movable, &[]),
        None,
        "it fits as it is"
    );
}

#[test]
fn every_proposed_move_has_a_place() {
    let mut proposed = 0;
    for seed in 0..2_000 {
        let mut dice = Dice(seed);
        let mut site = random_site(&mut dice);
        let gang = site.gang(Some("rack"), 1 + dice.roll(4) as u32, 1 << dice.roll(4));
        let before = site.free();
        let movable = site.movable();
        let found = defragment(&mut Solver::new(), &mut site.cluster, &gang, &movable, &[]);
        assert_eq!(before, site.free(), "seed {seed}: proposing changes nothing");
        let Some(found) = found else { continue };
        proposed += 1;
        found.moves.iter().for_each(|step| site.cluster.release(&step.from));
        assert_eq!(site.cluster.commit(&found.plan.assignments), Ok(()), "seed {seed}");
        for step in &found.moves {
            assert_eq!(site.cluster.commit(&step.to), Ok(()), "seed {seed}");
        }
    }
    assert!(proposed > 100, "only {proposed} proposals");
}
