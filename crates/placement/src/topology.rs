//! A topology over the nodes: a tree of domains built from label values, with the nodes as its leaves.
//!
//! ```text
//! depth 0        all nodes                 (always one domain)
//! depth 1..=D    one depth per label level (zone, block, rack)
//! depth D+1      the nodes themselves      (level `host`)
//! depth D+2      NUMA cells                (levels below `host`; a node that states no cells is one)
//! ```
//!
//! A domain is its path: equal rack names under different blocks are different racks. Nodes that lack a label hang in
//! one *outside* branch, which holds pods of scopes without a level but is never a domain that a level can be met in.
//! Domains are never renumbered or removed: an empty one is found again when a node with its labels returns. Room is
//! counted elsewhere, except the sums of free amounts, which say how tight a domain is.

use std::collections::{BTreeMap, HashMap};

use crate::cells::CELLS_MAX;

/// Handle of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyId(pub(crate) u32);

/// A level: the word that workloads use, and the node label that holds its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub word: String,
    pub key: String,
}

/// The levels of a topology, broad to narrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologySpec {
    pub name: String,
    pub levels: Vec<Level>,
    /// Which level is the node itself; the ones after it lie inside a node. `None`: all levels are above the node.
    pub host: Option<usize>,
}

/// Levels that a topology may have.
pub const LEVELS_MAX: usize = 16;

/// A place in the tree: a domain, a node, or a cell of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) depth: u8,
    pub(crate) id: u32,
}

pub(crate) const ROOT: Place = Place { depth: 0, id: 0 };

#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) name: String,
    pub(crate) parent: u32,
    pub(crate) children: Vec<u32>,
    /// Nodes right below; only at depth D.
    pub(crate) nodes: Vec<u32>,
    /// The branch of nodes that lack a label.
    pub(crate) outside: bool,
}

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) spec: TopologySpec,
    pub(crate) domains: Vec<Domain>,
    by_path: HashMap<(u32, String), u32>,
    by_depth: Vec<Vec<u32>>,
    /// The domains that each node lies in: depths 0..=D, for one node after the other.
    paths: Vec<u32>,
    /// Sum of free amounts of the nodes below, by resource and domain.
    free: Vec<Vec<u64>>,
}

const NOWHERE: u32 = u32::MAX;

impl Tree {
    pub(crate) fn new(mut spec: TopologySpec) -> Self {
        spec.levels.truncate(LEVELS_MAX);
        spec.host = spec.host.filter(|host| *host < spec.levels.len());
        let above_host = spec.host.unwrap_or(spec.levels.len());
        let mut tree = Tree {
            by_depth: vec![Vec::new(); above_host + 1],
            spec,
            domains: Vec::new(),
            by_path: HashMap::new(),
            paths: Vec::new(),
            free: Vec::new(),
        };
        tree.push_domain(NOWHERE, String::new(), 0, false);
        tree
    }

    /// Depth of the domains right above the nodes.
    pub(crate) fn last_depth(&self) -> u8 {
        (self.by_depth.len() - 1) as u8
    }

    pub(crate) fn host_depth(&self) -> u8 {
        self.last_depth() + 1
    }

    /// Depth of the cells of nodes.
    pub(crate) fn cell_depth(&self) -> u8 {
        self.host_depth() + 1
    }

    /// The depth at which a level word is met where nodes are one cell each.
    pub(crate) fn depth_of(&self, word: &str) -> Option<u8> {
        Some(self.depth_with_cells(word)?.min(self.host_depth()))
    }

    /// The depth at which a level word is met where nodes have cells.
    pub(crate) fn depth_with_cells(&self, word: &str) -> Option<u8> {
        let level = self.spec.levels.iter().position(|level| level.word == word)?;
        Some(((level + 1) as u8).min(self.cell_depth()))
    }

    pub(crate) fn cell(&self, node: u32, cell: u8) -> Place {
        Place {
            depth: self.cell_depth(),
            id: node * CELLS_MAX as u32 + u32::from(cell),
        }
    }

    /// The node of a place that is one or lies in one, and the number of its cell.
    pub(crate) fn node_of(&self, place: Place) -> Option<(u32, Option<u8>)> {
        if place.depth == self.cell_depth() {
            let (node, cell) = (place.id / CELLS_MAX as u32, place.id % CELLS_MAX as u32);
            return Some((node, Some(cell as u8)));
        }
        (place.depth == self.host_depth()).then_some((place.id, None))
    }

    /// The word for a depth; a topology that does not name the host calls it `host`.
    pub(crate) fn word(&self, depth: u8) -> &str {
        let level = usize::from(depth)
            .checked_sub(1)
            .and_then(|index| self.spec.levels.get(index));
        match level {
            Some(level) => &level.word,
            None if depth == 0 => "cluster",
            None => "host",
        }
    }

    /// A domain's label value, with those around it where that alone is ambiguous.
    pub(crate) fn domain_name(&self, place: Place) -> String {
        let name = |id: u32| self.domains[id as usize].name.as_str();
        let twins = self
            .at_depth(place.depth)
            .iter()
            .filter(|id| name(**id) == name(place.id))
            .count();
        if twins < 2 {
            return name(place.id).to_owned();
        }
        let path: Vec<&str> = (1..=place.depth)
            .map(|depth| name(self.widen(place, depth).id))
            .collect();
        path.join("/")
    }

    pub(crate) fn at_depth(&self, depth: u8) -> &[u32] {
        &self.by_depth[usize::from(depth)]
    }

    /// The domains of a node from the root down.
    pub(crate) fn path(&self, node: u32) -> &[u32] {
        let length = self.by_depth.len();
        &self.paths[node as usize * length..(node as usize + 1) * length]
    }

    /// The domain right above a node, if it is in the tree.
    pub(crate) fn leaf(&self, node: u32) -> Option<u32> {
        let length = self.by_depth.len();
        let domain = self.paths.get((node as usize + 1) * length - 1)?;
        (*domain != NOWHERE).then_some(*domain)
    }

    /// Where a node lies at a depth.
    pub(crate) fn above(&self, node: u32, depth: u8) -> Place {
        let id = if depth == self.host_depth() {
            node
        } else {
            self.path(node)[usize::from(depth)]
        };
        Place { depth, id }
    }

    /// The place at a broader depth that a place lies in.
    pub(crate) fn widen(&self, place: Place, depth: u8) -> Place {
        if depth == place.depth {
            return place;
        }
        if let Some((node, _)) = self.node_of(place) {
            return self.above(node, depth);
        }
        let mut id = place.id;
        for _ in depth..place.depth {
            id = self.domains[id as usize].parent;
        }
        Place { depth, id }
    }

    pub(crate) fn is_within(&self, inner: Place, outer: Place) -> bool {
        inner.depth >= outer.depth && self.widen(inner, outer.depth) == outer
    }

    /// Whether a place holds a node, or lies in it.
    pub(crate) fn holds(&self, place: Place, node: u32) -> bool {
        match self.node_of(place) {
            Some((own, _)) => own == node,
            None => self.above(node, place.depth) == place,
        }
    }

    pub(crate) fn is_outside(&self, place: Place) -> bool {
        let domain = self.widen(place, place.depth.min(self.last_depth()));
        self.domains[domain.id as usize].outside
    }

    pub(crate) fn is_inside(&self, node: u32) -> bool {
        self.path(node)[0] != NOWHERE && !self.is_outside(self.above(node, self.last_depth()))
    }

    /// Sum of what the nodes of a domain have free of a resource.
    pub(crate) fn free(&self, domain: u32, resource: u32) -> u64 {
        self.free[resource as usize][domain as usize]
    }

    /// Appends the domains of a depth (at most D) that lie in a domain, in the order of the tree.
    pub(crate) fn domains_within(&self, outer: Place, depth: u8, found: &mut Vec<u32>) {
        let start = found.len();
        found.push(outer.id);
        for _ in outer.depth..depth {
            let end = found.len();
            for index in start..end {
                let domain = found[index];
                found.extend_from_slice(&self.domains[domain as usize].children);
            }
            found.drain(start..end);
        }
    }

    fn push_domain(&mut self, parent: u32, name: String, depth: usize, outside: bool) -> u32 {
        let id = self.domains.len() as u32;
        self.domains.push(Domain {
            name,
            parent,
            children: Vec::new(),
            nodes: Vec::new(),
            outside,
        });
        self.by_depth[depth].push(id);
        for column in &mut self.free {
            column.push(0);
        }
        id
    }

    fn child(&mut self, parent: u32, name: &str, depth: usize, outside: bool) -> u32 {
        // The outside branch has no label value; a label value is never this text, which has a space.
        let name = if outside { "no label" } else { name };
        let key = (parent, name.to_owned());
        if let Some(known) = self.by_path.get(&key) {
            return *known;
        }
        let id = self.push_domain(parent, name.to_owned(), depth, outside);
        self.by_path.insert(key, id);
        self.domains[parent as usize].children.push(id);
        id
    }

    pub(crate) fn push_resource(&mut self) {
        self.free.push(vec![0; self.domains.len()]);
    }

    pub(crate) fn push_node(&mut self) {
        self.paths.extend(std::iter::repeat_n(NOWHERE, self.by_depth.len()));
    }

    pub(crate) fn is_linked(&self, node: u32) -> bool {
        self.path(node)[0] != NOWHERE
    }

    /// Hangs a node into the tree by its labels.
    pub(crate) fn link(&mut self, node: u32, labels: &BTreeMap<String, String>) {
        let above_host = self.by_depth.len() - 1;
        let keys = self.spec.levels[..above_host].iter().map(|level| &level.key);
        let values: Option<Vec<String>> = keys.map(|key| labels.get(key).cloned()).collect();
        let mut domain = 0;
        let start = node as usize * self.by_depth.len();
        self.paths[start] = 0;
        for depth in 1..=above_host {
            let name = values.as_ref().map_or("", |values| values[depth - 1].as_str());
            domain = self.child(domain, name, depth, values.is_none());
            self.paths[start + depth] = domain;
        }
        let nodes = &mut self.domains[domain as usize].nodes;
        let at = nodes.partition_point(|known| *known < node);
        nodes.insert(at, node);
    }

    pub(crate) fn unlink(&mut self, node: u32) {
        let above = self.above(node, self.last_depth());
        self.domains[above.id as usize].nodes.retain(|known| *known != node);
        let start = node as usize * self.by_depth.len();
        self.paths[start..start + self.by_depth.len()].fill(NOWHERE);
    }

    /// Adds a change of a node's free amount to the domains above it.
    pub(crate) fn shift_free(&mut self, node: u32, resource: u32, before: i64, after: i64) {
        let (before, after) = (before.max(0) as u64, after.max(0) as u64);
        let length = self.by_depth.len();
        let path = &self.paths[node as usize * length..(node as usize + 1) * length];
        let column = &mut self.free[resource as usize];
        for domain in path {
            let sum = &mut column[*domain as usize];
            *sum = sum.wrapping_add(after).wrapping_sub(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let level = |word: &str| Level {
            word: word.to_owned(),
            key: format!("x/{word}"),
        };
        let levels = ["block", "rack", "host", "numa"].map(level).to_vec();
        let mut tree = Tree::new(TopologySpec {
            name: "t".to_owned(),
            levels,
            host: Some(2),
        });
        let labels = |block: &str, rack: &str| {
            let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            BTreeMap::from([label("x/block", block), label("x/rack", rack)])
        };
        for (node, (block, rack)) in [("b1", "r1"), ("b2", "r1"), ("b1", "r1"), ("b1", "r2")]
            .into_iter()
            .enumerate()
        {
            tree.push_node();
            tree.link(node as u32, &labels(block, rack));
        }
        tree.push_node();
        tree.link(4, &BTreeMap::from([("x/block".to_owned(), "b1".to_owned())]));
        tree
    }

    #[test]
    fn equal_rack_names_under_different_blocks_are_different_racks() {
        let tree = tree();
        let rack = tree.depth_of("rack").unwrap();
        assert_eq!(tree.above(0, rack), tree.above(2, rack));
        assert_ne!(tree.above(0, rack), tree.above(1, rack));
        assert!(tree.is_within(tree.above(3, rack), tree.above(0, 1)));
        assert!(!tree.is_within(tree.above(1, rack), tree.above(0, 1)));
    }

    // shows: G244-15
    #[test]
    fn a_node_that_lacks_a_label_is_outside_and_levels_below_host_need_none() {
        let tree = tree();
        assert!(!tree.is_inside(4));
        assert!((0..4).all(|node| tree.is_inside(node)));
        assert_eq!(tree.depth_of("numa"), Some(tree.host_depth()));
        assert_eq!(tree.depth_of("zone"), None);
    }

    #[test]
    fn domains_within_are_those_of_the_depth_in_tree_order() {
        let tree = tree();
        let mut racks = Vec::new();
        tree.domains_within(tree.above(0, 1), 2, &mut racks);
        let names: Vec<&str> = racks
            .iter()
            .map(|rack| tree.domains[*rack as usize].name.as_str())
            .collect();
        assert_eq!(names, ["r1", "r2"]);
    }

    #[test]
    fn a_node_that_returns_finds_its_domain_again() {
        let mut tree = tree();
        let (rack, count) = (tree.above(3, 2), tree.domains.len());
        tree.unlink(3);
        assert!(!tree.is_linked(3));
        let labels = [("x/block", "b1"), ("x/rack", "r2")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        tree.link(3, &BTreeMap::from(labels));
        assert_eq!((tree.above(3, 2), tree.domains.len()), (rack, count));
    }
}
