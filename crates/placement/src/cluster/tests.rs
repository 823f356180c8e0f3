//! The incremental state against a fresh build of the same cluster.

use std::collections::BTreeMap;

use super::*;
use crate::counts::Histogram;
use crate::topology::Level;

/// Numbers that repeat (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

struct Site {
    cluster: Cluster,
    resources: [Resource; 2],
    shapes: Vec<ShapeId>,
    topologies: Vec<TopologyId>,
    running: Vec<(NodeId, Amounts)>,
}

fn spec(dice: &mut Dice, node: u64, resources: [Resource; 2]) -> NodeSpec {
    let mut labels = BTreeMap::from([("zone".to_owned(), format!("z{}", dice.roll(2)))]);
    if dice.roll(10) > 0 {
        labels.insert("rack".to_owned(), format!("r{}", dice.roll(5)));
    }
    let allocatable = resources.into_iter().zip([8, 4 + dice.roll(5)]).collect();
    let traits = Traits {
        name: format!("n{node}"),
        labels,
        unschedulable: dice.roll(8) == 0,
        ..Traits::default()
    };
    NodeSpec { traits, allocatable }
}

fn site(dice: &mut Dice) -> Site {
    let mut cluster = Cluster::new();
    let resources = ["gpu", "cpu"].map(|name| cluster.resource(name));
    let level = |word: &str| Level {
        word: word.to_owned(),
        key: word.to_owned(),
    };
    let topology = |name: &str, words: &[&str]| TopologySpec {
        name: name.to_owned(),
        levels: words.iter().map(|word| level(word)).collect(),
        host: None,
    };
    let topologies = vec![
        cluster.set_topology(topology("deep", &["zone", "rack"])),
        cluster.set_topology(topology("flat", &[])),
    ];
    for node in 0..60 {
        let spec = spec(dice, node, resources);
        cluster.set_node(spec);
    }
    let inside = Rules {
        inside: Some(topologies[0]),
        ..Rules::default()
    };
    let shapes = [(1, Rules::default()), (3, Rules::default()), (2, inside)];
    let shapes = shapes.map(|(gpus, rules)| {
        let requests = [(resources[0], gpus), (resources[1], 1)].into_iter().collect();
        cluster.shape(&Shape {
            requests,
            rules,
            ..Shape::default()
        })
    });
    Site {
        cluster,
        resources,
        shapes: shapes.to_vec(),
        topologies,
        running: Vec::new(),
    }
}

/// One change of any kind.
fn change(site: &mut Site, dice: &mut Dice) {
    let node = dice.roll(70);
    let id = site.cluster.node(&format!("n{node}"));
    match (dice.roll(100), id) {
        (0..2, Some(id)) => site.cluster.remove_node(id),
        (2..6, _) => {
            let spec = spec(dice, node, site.resources);
            site.cluster.set_node(spec);
        }
        (6..55, Some(id)) => {
            let amounts: Amounts = [(site.resources[0], dice.roll(3)), (site.resources[1], dice.roll(2))]
                .into_iter()
                .collect();
            site.cluster.take(id, &amounts);
            site.running.push((id, amounts));
        }
        _ if !site.running.is_empty() => {
            let (id, amounts) = site.running.swap_remove(dice.roll(site.running.len() as u64) as usize);
            site.cluster.give_back(id, &amounts);
        }
        _ => {}
    }
}

type Summary = BTreeMap<String, (u32, Histogram, Vec<u64>)>;

/// Everything that is counted per domain, by path: handles may differ between two clusters.
fn summary(cluster: &mut Cluster, shape: ShapeId, topology: TopologyId) -> Summary {
    cluster.refresh(std::iter::once(shape), topology);
    let tree = &cluster.trees[topology.0 as usize];
    let counts = cluster.shapes[shape.0 as usize].counts(topology.0 as usize);
    let mut found = Summary::new();
    for domain in 0..tree.domains.len() as u32 {
        let mut path = Vec::new();
        let mut above = domain;
        while above != 0 {
            path.insert(0, tree.domains[above as usize].name.clone());
            above = tree.domains[above as usize].parent;
        }
        let pods = counts.pods[domain as usize];
        let free = cluster
            .ledger
            .resources()
            .map(|resource| tree.free(domain, resource.0))
            .collect();
        if counts.hosts[domain as usize] != Histogram::default() {
            found.insert(path.join("/"), (pods, counts.hosts[domain as usize], free));
        }
    }
    found
}

#[test]
fn counts_after_100_000_changes_equal_a_fresh_build() {
    let mut dice = Dice(0x5EED);
    let mut site = site(&mut dice);
    for number in 1..=100_000 {
        change(&mut site, &mut dice);
        // Sometimes a shape reads the log often, sometimes after so much that it counts everything again.
        if number % 7 == 0 {
            let shape = site.shapes[dice.roll(3) as usize];
            let topology = site.topologies[dice.roll(2) as usize];
            site.cluster.refresh(std::iter::once(shape), topology);
        }
        if number % 2_000 == 0 {
            let mut fresh = site.cluster.what_if(false, false);
            for shape in site.shapes.clone() {
                for topology in site.topologies.clone() {
                    let live = summary(&mut site.cluster, shape, topology);
                    assert!(live.len() > 1 || topology == site.topologies[1]);
                    assert_eq!(live, summary(&mut fresh, shape, topology), "after {number} changes");
                }
            }
        }
    }
}

#[test]
fn a_commit_that_no_longer_fits_changes_nothing() {
    let mut dice = Dice(3);
    let mut site = site(&mut dice);
    let node = |name: &str, site: &Site| site.cluster.node(name).expect("a node of the site");
    let eligible: Vec<NodeId> = site
        .cluster
        .nodes()
        .filter(|node| !site.cluster.nodes[node.0 as usize].unschedulable)
        .collect();
    let assignment = |node, pods| Assignment {
        pod_group: 0,
        node,
        cell: None,
        shape: site.shapes[0],
        pods,
    };
    let plan = [assignment(eligible[0], 2), assignment(eligible[1], 99)];
    let before: Vec<i64> = eligible
        .iter()
        .map(|node| site.cluster.free(*node, site.resources[0]))
        .collect();
    assert_eq!(
        site.cluster.commit(&plan),
        Err(Stale {
            node: eligible[1],
            pod_group: 0
        })
    );
    let after: Vec<i64> = eligible
        .iter()
        .map(|node| site.cluster.free(*node, site.resources[0]))
        .collect();
    assert_eq!(before, after);
    assert!(site.cluster.commit(&plan[..1]).is_ok());
    assert_eq!(site.cluster.free(eligible[0], site.resources[0]), before[0] - 2);
    site.cluster.release(&plan[..1]);
    assert_eq!(site.cluster.free(eligible[0], site.resources[0]), before[0]);
    let gone = node("n0", &site);
    site.cluster.remove_node(gone);
    let pods = [assignment(gone, 1)];
    assert_eq!(
        site.cluster.commit(&pods),
        Err(Stale {
            node: gone,
            pod_group: 0
        }),
        "a node that is gone takes no pods"
    );
}

#[test]
fn more_shapes_than_are_kept_at_hand_are_still_counted_right() {
    let mut dice = Dice(5);
    let mut site = site(&mut dice);
    let shapes: Vec<ShapeId> = (1..=100)
        .map(|cpus| {
            let requests = [(site.resources[0], 1 + cpus % 3), (site.resources[1], cpus)]
                .into_iter()
                .collect();
            site.cluster.shape(&Shape {
                requests,
                ..Shape::default()
            })
        })
        .collect();
    for round in 0..3 {
        let mut fresh = site.cluster.what_if(false, false);
        for shape in &shapes {
            let topology = site.topologies[round % 2];
            let live = summary(&mut site.cluster, *shape, topology);
            assert_eq!(live, summary(&mut fresh, *shape, topology));
        }
        (0..500).for_each(|_| change(&mut site, &mut dice));
    }
    site.cluster.refresh(shapes.iter().copied(), site.topologies[0]);
    for shape in &shapes {
        let state = &site.cluster.shapes[shape.0 as usize];
        assert_eq!(
            state.counts(0).pods[0],
            state.rooms.iter().map(|room| u32::from(*room)).sum::<u32>()
        );
    }
}
