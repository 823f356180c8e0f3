//! Where the scopes of a gang lie, in the names that people use: for status, events and tables.

use crate::cluster::{Cluster, NodeId};
use crate::gang::{Gang, Pack};
use crate::plan::Assignment;
use crate::topology::{TopologyId, Tree};

/// Whether a scope has what it prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It prefers nothing, or nothing beyond what it requires.
    Indifferent,
    Met,
    Missed,
}

/// One scope with its pods, placed or bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeReport {
    pub name: String,
    pub required: Option<String>,
    pub preferred: Option<String>,
    pub standing: Standing,
    /// Level word and names of its domains, broad to narrow, hosts last; cells after them if the scope names a level
    /// below the host.
    pub domains: Vec<(String, Vec<String>)>,
}

/// The gang, its groups and its pod-groups, as they lie with a plan's assignments and with their bound pods.
pub fn report(cluster: &Cluster, gang: &Gang, assignments: &[Assignment]) -> Vec<ScopeReport> {
    let Some(tree) = cluster.trees.get(gang.topology.0 as usize) else {
        return Vec::new();
    };
    let nodes = |is_member: &dyn Fn(usize) -> bool| -> Vec<Spot> {
        let placed = assignments.iter().filter(|assignment| is_member(assignment.pod_group));
        let members = gang
            .pod_groups
            .iter()
            .enumerate()
            .filter(|(index, _)| is_member(*index));
        let bound = members.flat_map(|(_, pod_group)| pod_group.bound.iter().map(|node| (*node, None)));
        let placed = placed.flat_map(|assignment| spots(cluster, assignment));
        let mut nodes: Vec<Spot> = placed.chain(bound).collect();
        nodes.retain(|(node, _)| tree.is_linked(node.0));
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    };
    let scope = |name: &str, pack: &Pack, nodes: &[Spot]| describe((cluster, tree), name, pack, nodes);
    let mut scopes = vec![scope(&gang.name, &gang.pack, &nodes(&|_| true))];
    for (index, group) in gang.groups.iter().enumerate() {
        let is_member = |pod_group: usize| gang.pod_groups[pod_group].group == Some(index);
        scopes.push(scope(&group.name, &group.pack, &nodes(&is_member)));
    }
    for (index, pod_group) in gang.pod_groups.iter().enumerate() {
        scopes.push(scope(
            &pod_group.name,
            &pod_group.pack,
            &nodes(&|member| member == index),
        ));
    }
    scopes
}

/// A node of a scope, and the cell of it where pods are held in one.
type Spot = (NodeId, Option<u8>);

/// Where pods are placed: in their cell, or in any that their node has.
fn spots(cluster: &Cluster, assignment: &Assignment) -> Vec<Spot> {
    let node = assignment.node;
    let cells = cluster.cells.count(node.0) as u8;
    match assignment.cell {
        None if cells > 0 => (0..cells).map(|cell| (node, Some(cell))).collect(),
        cell => vec![(node, cell)],
    }
}

/// How well a gang is placed, from 0 to 1: one over the number of domains at the preferred level, averaged over the
/// scopes that prefer one. A gang that prefers nothing scores 1.
pub fn score(scopes: &[ScopeReport]) -> f64 {
    let share = |scope: &ScopeReport| {
        let preferred = scope
            .preferred
            .as_ref()
            .filter(|_| scope.standing != Standing::Indifferent)?;
        let (_, names) = scope.domains.iter().find(|(word, _)| word == preferred)?;
        Some(1.0 / names.len().max(1) as f64)
    };
    let shares: Vec<f64> = scopes.iter().filter_map(share).collect();
    if shares.is_empty() {
        1.0
    } else {
        shares.iter().sum::<f64>() / shares.len() as f64
    }
}

fn describe((cluster, tree): (&Cluster, &Tree), name: &str, pack: &Pack, nodes: &[Spot]) -> ScopeReport {
    let is_known = |node: &NodeId| nodes.iter().any(|(other, cell)| other == node && cell.is_some());
    let place = |(node, cell): &Spot, depth: u8| match cell {
        _ if depth <= tree.host_depth() => Some(tree.above(node.0, depth)),
        Some(cell) => Some(tree.cell(node.0, *cell)),
        // Which cells running pods use is not known: they speak for their host.
        None if is_known(node) => None,
        None => Some(tree.above(node.0, tree.host_depth())),
    };
    let names = |depth: u8| -> Vec<String> {
        let mut places: Vec<_> = nodes.iter().filter_map(|spot| place(spot, depth)).collect();
        places.sort_unstable();
        places.dedup();
        places
            .into_iter()
            .map(|place| place_name(cluster, tree, place))
            .collect()
    };
    let depth_of = |word: &Option<String>| {
        let depth = word.as_ref().and_then(|word| cluster.depth_of(tree, word));
        depth.unwrap_or(0)
    };
    let (required, preferred) = (depth_of(&pack.required), depth_of(&pack.preferred));
    let narrowest = required.max(preferred).max(tree.host_depth());
    let domains: Vec<(String, Vec<String>)> = (1..=narrowest)
        .map(|depth| (tree.word(depth).to_owned(), names(depth)))
        .collect();
    let standing = match preferred {
        _ if preferred <= required || nodes.is_empty() => Standing::Indifferent,
        _ if domains[usize::from(preferred) - 1].1.len() == 1 && tree.is_inside(nodes[0].0.0) => Standing::Met,
        _ => Standing::Missed,
    };
    ScopeReport {
        name: name.to_owned(),
        required: pack.required.clone(),
        preferred: pack.preferred.clone(),
        standing,
        domains,
    }
}

/// The name of the domain of a level that a node lies in, as proofs and reports have it; without a level, that of the
/// whole cluster. None if the node has no place in the topology, or the topology no such level.
pub fn domain_name(cluster: &Cluster, topology: TopologyId, level: Option<&str>, node: NodeId) -> Option<String> {
    let tree = cluster.trees.get(topology.0 as usize)?;
    match level {
        None => Some(tree.word(0).to_owned()),
        Some(word) => {
            let depth = tree.depth_of(word).filter(|_| tree.is_linked(node.0))?;
            // A node lies in none of its cells.
            Some(place_name(
                cluster,
                tree,
                tree.above(node.0, depth.min(tree.host_depth())),
            ))
        }
    }
}

/// The name of a domain as its label has it, of a node, or of a cell by its number.
pub(crate) fn place_name(cluster: &Cluster, tree: &Tree, place: crate::topology::Place) -> String {
    match tree.node_of(place) {
        Some((node, Some(cell))) if cluster.cells.count(node) > 0 => {
            format!("{}/{cell}", cluster.nodes[node as usize].name)
        }
        Some((node, _)) => cluster.nodes[node as usize].name.clone(),
        None => tree.domain_name(place),
    }
}
