//! NUMA cells: a scope that asks for a level below the host shares one cell where hosts state them.

use grove_placement::{
    Amounts, Budget, Cluster, Gang, Level, NodeId, NodeSpec, Outcome, Pack, Plan, PodGroup, Reason, Resource, Shape,
    Solver, Standing, TopologyId, TopologySpec, Traits, explain, report,
};

/// Hosts of 8 GPUs with two cells of 4.
struct Site {
    cluster: Cluster,
    topology: TopologyId,
    gpu: Resource,
    hosts: Vec<NodeId>,
}

impl Site {
    fn new(hosts: usize) -> Self {
        let mut cluster = Cluster::new();
        let gpu = cluster.resource("gpu");
        let level = |word: &str| Level {
            word: word.to_owned(),
            key: word.to_owned(),
        };
        let topology = cluster.set_topology(TopologySpec {
            name: "site".to_owned(),
            levels: ["host", "numa"].map(level).to_vec(),
            host: Some(0),
        });
        let mut site = Site {
            cluster,
            topology,
            gpu,
            hosts: Vec::new(),
        };
        for host in 0..hosts {
            let traits = Traits {
                name: format!("n{host}"),
                ..Traits::default()
            };
            let allocatable = site.gpus(8);
            let node = site.cluster.set_node(NodeSpec { traits, allocatable });
            site.cluster.set_cells(node, &[vec![(gpu, 4)], vec![(gpu, 4)]]);
            site.hosts.push(node);
        }
        site
    }

    fn gpus(&self, amount: u64) -> Amounts {
        [(self.gpu, amount)].into_iter().collect()
    }

    /// A gang of pod-groups, each with GPUs per pod, pods, and the level that it requires.
    fn gang(&mut self, groups: &[(u64, u32, Option<&str>)]) -> Gang {
        let pod_groups = groups.iter().enumerate().map(|(index, (gpus, pods, required))| {
            let requests = self.gpus(*gpus);
            PodGroup {
                name: format!("p{index}"),
                group: None,
                pack: Pack {
                    required: required.map(str::to_owned),
                    preferred: None,
                },
                shape: self.cluster.shape(&Shape {
                    requests,
                    ..Shape::default()
                }),
                minimum: *pods,
                desired: *pods,
                bound: Vec::new(),
            }
        });
        let pod_groups = pod_groups.collect();
        Gang {
            name: "bench".to_owned(),
            topology: self.topology,
            replica: None,
            pack: Pack::default(),
            groups: Vec::new(),
            pod_groups,
        }
    }

    fn place(&mut self, gang: &Gang) -> Option<Plan> {
        match Solver::new().solve(&mut self.cluster, gang, Budget::UNLIMITED) {
            Outcome::Placed(plan) => Some(plan.clone()),
            _ => None,
        }
    }

    fn run(&mut self, gang: &Gang) -> Option<Plan> {
        let plan = self.place(gang)?;
        self.cluster
            .commit(&plan.assignments)
            .expect("a plan that was just made fits");
        Some(plan)
    }
}

// shows: G244-13
#[test]
fn two_gpus_come_from_one_cell_until_no_cell_has_two() {
    let mut site = Site::new(1);
    let three = site.gang(&[(3, 1, Some("numa"))]);
    let two = site.gang(&[(2, 1, Some("numa"))]);
    let anywhere = site.gang(&[(2, 1, Some("host"))]);
    let cells: Vec<Option<u8>> = (0..2).map(|_| site.run(&three).unwrap().assignments[0].cell).collect();
    assert_eq!(cells, [Some(0), Some(1)]);
    assert_eq!(site.place(&two), None, "one GPU is left in each cell");
    assert_eq!(site.place(&anywhere).unwrap().assignments[0].cell, None);
    let proof = explain(&site.cluster, &two).unwrap();
    assert_eq!(proof.reason, Reason::Fragmented);
    insta::assert_snapshot!(proof.sentence, @"needs 1 pod of p0 (2 gpu) in one numa; 2 gpu are free, but the best of 2 numas, n0/0, has room for 0 (nodes: 1 full)");
    assert_eq!(proof.would_fit_if, ["the level were host"]);
}

#[test]
fn a_pod_that_is_larger_than_every_cell_waits_in_vain() {
    let mut site = Site::new(2);
    let five = site.gang(&[(5, 1, Some("numa"))]);
    assert_eq!(site.place(&five), None);
    let proof = explain(&site.cluster, &five).unwrap();
    assert_eq!(proof.reason, Reason::TooLarge);
    insta::assert_snapshot!(proof.sentence, @"needs 1 pod of p0 (5 gpu) in one numa; even empty, the largest numa, n0/0, would hold 0 pods of p0");
}

#[test]
fn pods_of_a_scope_share_a_cell_and_scopes_get_their_own() {
    let mut site = Site::new(2);
    let gang = site.gang(&[(1, 4, Some("numa")), (2, 2, Some("numa")), (4, 1, None)]);
    let plan = site.place(&gang).unwrap();
    let at: Vec<(usize, NodeId, Option<u8>)> = plan
        .assignments
        .iter()
        .map(|assignment| (assignment.pod_group, assignment.node, assignment.cell))
        .collect();
    assert_eq!(at.len(), 3, "each pod-group is in one place");
    assert_eq!(at[0].1, at[1].1, "two cells of one host");
    assert_ne!(at[0].2, at[1].2);
    assert_ne!(at[2].1, at[0].1);
    let scopes = report(&site.cluster, &gang, &plan.assignments);
    assert_eq!(
        scopes[1].domains[1],
        ("numa".to_owned(), vec![format!("n0/{}", at[0].2.unwrap())])
    );
}

#[test]
fn pods_whose_cell_nobody_knows_count_in_every_cell() {
    let mut site = Site::new(1);
    let held = site.gang(&[(2, 1, Some("numa"))]);
    site.cluster.take(site.hosts[0], &site.gpus(3));
    assert_eq!(site.place(&held), None, "three of the four in a cell may be gone");
    site.cluster.give_back(site.hosts[0], &site.gpus(1));
    let plan = site.run(&held).unwrap();
    assert_eq!(
        site.place(&held).unwrap().assignments[0].cell,
        Some(1),
        "cell 0 is full"
    );
    site.cluster.release(&plan.assignments);
    assert_eq!(site.place(&held).unwrap().assignments[0].cell, Some(0));
}

#[test]
fn a_plan_is_stale_when_its_cell_was_taken_meanwhile() {
    let mut site = Site::new(1);
    let held = site.gang(&[(4, 1, Some("numa"))]);
    let plan = site.place(&held).unwrap();
    assert!(site.cluster.commit(&plan.assignments).is_ok());
    assert!(
        site.cluster.commit(&plan.assignments).is_err(),
        "the host has room, the cell has not"
    );
}

#[test]
fn running_pods_hold_a_scope_on_their_host_and_a_preference_falls_back_to_it() {
    let mut site = Site::new(2);
    let mut gang = site.gang(&[(2, 2, Some("numa"))]);
    site.cluster.take(site.hosts[1], &site.gpus(2));
    gang.pod_groups[0].bound = vec![site.hosts[1]];
    assert_eq!(site.place(&gang).unwrap().assignments[0].node, site.hosts[1]);
    let mut gang = site.gang(&[(3, 2, None)]);
    gang.pod_groups[0].pack.preferred = Some("numa".to_owned());
    let plan = site.place(&gang).unwrap();
    assert_eq!((plan.assignments.len(), plan.assignments[0].cell), (1, None));
    assert_eq!(plan.quality.shortfall, [0, 0, 1], "one level behind: a host");
    assert_eq!(
        report(&site.cluster, &gang, &plan.assignments)[1].standing,
        Standing::Missed
    );
}
