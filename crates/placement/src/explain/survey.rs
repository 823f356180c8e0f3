//! What the domains of a level have to offer to a scope that does not fit, and what stands in the way on their nodes.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::eligibility::Verdict;
use crate::gang::{Gang, PodGroup};
use crate::report::place_name;
use crate::topology::Place;

/// A domain that comes close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Label value of the domain, or `cluster`.
    pub domain: String,
    /// The pod-group that finds the least room there, and how many of its missing pods do.
    pub pod_group: String,
    pub room: u32,
    pub wanted: u32,
    /// Nodes without room for it, by what stands in the way.
    pub nodes: Vec<(Obstacle, usize)>,
}

impl Nearest {
    /// "room for 3 of 4 pods of workers"; where each finds room and only all of them together do not, it says so.
    pub fn has(&self) -> String {
        match self.wanted.saturating_sub(self.room) {
            0 => "room for each of them alone".to_owned(),
            _ => format!("room for {} of {} pods of {}", self.room, self.wanted, self.pod_group),
        }
    }

    /// "room for 1 pod"
    pub fn lacks(&self) -> String {
        match self.wanted.saturating_sub(self.room) {
            0 => "room for all of them together".to_owned(),
            1 => "room for 1 pod".to_owned(),
            pods => format!("room for {pods} pods"),
        }
    }
}

/// Why a node has no room for one more pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// It would have room if less ran there.
    Full,
    /// It would have no room even if nothing ran there.
    TooSmall,
    Barred(Verdict),
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str(match self {
            Obstacle::Full => "full",
            Obstacle::TooSmall => "too small",
            Obstacle::Barred(Verdict::Cordoned) => "cordoned",
            Obstacle::Barred(Verdict::Tainted) => "tainted",
            Obstacle::Barred(Verdict::SelectorMismatch) => "without the labels of its node selector",
            Obstacle::Barred(Verdict::AffinityMismatch) => "against its node affinity",
            Obstacle::Barred(Verdict::VolumeUnreachable) => "out of reach of its volumes",
            Obstacle::Barred(Verdict::OutsideTopology) => "without the topology's labels",
            Obstacle::Barred(Verdict::Gone | Verdict::Eligible) => "gone",
        })
    }
}

/// The pod-groups of a scope that still miss pods.
pub(super) type Members<'a> = Vec<&'a PodGroup>;

/// The domains of a depth inside a place, those that come closest first.
pub(super) fn nearest(cluster: &Cluster, gang: &Gang, members: &Members, depth: u8, within: Place) -> Vec<Nearest> {
    let tree = &cluster.trees[gang.topology.0 as usize];
    let inside = || inside_nodes(cluster, gang).filter(|node| tree.holds(within, *node));
    let places: Vec<Place> = if depth.min(tree.host_depth()) <= within.depth {
        vec![tree.widen(within, depth.min(within.depth))]
    } else if depth == tree.host_depth() {
        inside().map(|id| Place { depth, id }).collect()
    } else if depth == tree.cell_depth() {
        let cells = |node: u32| (0..cluster.cells.count(node).max(1)).map(move |cell| tree.cell(node, cell as u8));
        inside().flat_map(cells).collect()
    } else {
        let mut domains = Vec::new();
        tree.domains_within(within, depth, &mut domains);
        domains.retain(|id| !tree.domains[*id as usize].outside);
        domains.into_iter().map(|id| Place { depth, id }).collect()
    };
    let mut found: Vec<(u64, Nearest)> = places
        .iter()
        .filter_map(|place| look_at(cluster, gang, members, *place))
        .collect();
    // The share of the pods that fit, largest first; the order of the tree among equals.
    found.sort_by_key(|(share, _)| std::cmp::Reverse(*share));
    found.into_iter().map(|(_, nearest)| nearest).collect()
}

fn inside_nodes<'a>(cluster: &'a Cluster, gang: &Gang) -> impl Iterator<Item = u32> + 'a {
    let tree = &cluster.trees[gang.topology.0 as usize];
    cluster.nodes().map(|node| node.0).filter(|node| tree.is_inside(*node))
}

fn look_at(cluster: &Cluster, gang: &Gang, members: &Members, place: Place) -> Option<(u64, Nearest)> {
    let tree = &cluster.trees[gang.topology.0 as usize];
    let cell = tree.node_of(place).and_then(|(_, cell)| cell);
    let room = |pod_group: &PodGroup| -> u32 {
        nodes_in(cluster, gang, place)
            .map(|node| u32::from(room(cluster, pod_group, (node, cell))))
            .sum()
    };
    let share = |pod_group: &PodGroup| u64::from(room(pod_group)) * 1_000 / u64::from(pod_group.missing().max(1));
    let tightest = members.iter().min_by_key(|pod_group| share(pod_group).min(1_000))?;
    let mut nodes: BTreeMap<Obstacle, usize> = BTreeMap::new();
    for node in nodes_in(cluster, gang, place) {
        if let Some(obstacle) = obstacle(cluster, tightest, (node, cell)) {
            *nodes.entry(obstacle).or_default() += 1;
        }
    }
    let domain = match place.depth {
        0 => tree.word(0).to_owned(),
        _ => place_name(cluster, tree, place),
    };
    let nearest = Nearest {
        domain,
        pod_group: tightest.name.clone(),
        room: room(tightest),
        wanted: tightest.missing(),
        nodes: nodes.into_iter().collect(),
    };
    Some((share(tightest), nearest))
}

pub(super) fn nodes_in<'a>(cluster: &'a Cluster, gang: &Gang, place: Place) -> impl Iterator<Item = u32> + 'a {
    let tree = &cluster.trees[gang.topology.0 as usize];
    cluster
        .nodes()
        .map(|node| node.0)
        .filter(move |node| tree.holds(place, *node))
}

/// Pods of a pod-group that a node, or a cell of it, has room for now.
pub(super) fn room(cluster: &Cluster, pod_group: &PodGroup, (node, cell): (u32, Option<u8>)) -> u16 {
    if verdict(cluster, pod_group, node) != Verdict::Eligible {
        return 0;
    }
    let requests: Vec<_> = cluster.requests(pod_group.shape).iter().collect();
    let room = cluster.ledger.room(node, &requests, |_| 0);
    cell.map_or(room, |cell| {
        let requests = requests.iter().copied();
        room.min(cluster.cells.room(&cluster.ledger, (node, cell), requests, |_| 0))
    })
}

pub(super) fn verdict(cluster: &Cluster, pod_group: &PodGroup, node: u32) -> Verdict {
    let shape = &cluster.shapes[pod_group.shape.0 as usize];
    cluster.rule_sets[shape.rule_set].verdicts[node as usize]
}

/// Whether a node is usable, or could be made so by opening it.
pub(super) fn may_open(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Eligible | Verdict::Cordoned | Verdict::Tainted)
}

/// What keeps one more pod off a node, or off a cell of it; none if there is room.
pub(super) fn obstacle(cluster: &Cluster, pod_group: &PodGroup, (node, cell): (u32, Option<u8>)) -> Option<Obstacle> {
    let requests = cluster.requests(pod_group.shape);
    let fits_cell = || cell.is_none_or(|cell| cluster.cells.fits_when_empty((node, cell), requests));
    match verdict(cluster, pod_group, node) {
        Verdict::Eligible if room(cluster, pod_group, (node, cell)) > 0 => None,
        Verdict::Eligible if fits_when_empty(cluster, pod_group, node) && fits_cell() => Some(Obstacle::Full),
        Verdict::Eligible => Some(Obstacle::TooSmall),
        barred => Some(Obstacle::Barred(barred)),
    }
}

pub(super) fn fits_when_empty(cluster: &Cluster, pod_group: &PodGroup, node: u32) -> bool {
    cluster.ledger.room_when_empty(node, cluster.requests(pod_group.shape)) > 0
}
