//! What one attempt has tried so far, on top of the cluster and without touching it: pods put on hosts, and the domains
//! that this makes the gang use. Everything is undone in reverse, so a search can step back at no cost.

use std::collections::HashMap;

use crate::cells::Cells;
use crate::cluster::Cluster;
use crate::marks::{Mark, Marks, Tally};
use crate::resources::{Ledger, Resource};
use crate::shapes::{RuleSet, ShapeState};
use crate::solve::held::Held;
use crate::solve::problem::Problem;
use crate::solve::rank::{Layout, Rank};
use crate::topology::{Place, Tree};

/// The parts of a cluster that a search reads.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) topology: usize,
    pub(crate) ledger: &'a Ledger,
    pub(crate) cells: &'a Cells,
    pub(crate) marks: &'a Marks,
    pub(crate) shapes: &'a [ShapeState],
    rule_sets: &'a [RuleSet],
}

impl<'a> View<'a> {
    pub(crate) fn new(cluster: &'a Cluster, topology: usize) -> Self {
        View {
            tree: &cluster.trees[topology],
            topology,
            ledger: &cluster.ledger,
            cells: &cluster.cells,
            marks: &cluster.marks,
            shapes: &cluster.shapes,
            rule_sets: &cluster.rule_sets,
        }
    }

    /// The shape of an item.
    pub(crate) fn shape(&self, problem: &Problem, item: usize) -> &'a ShapeState {
        &self.shapes[problem.shapes[problem.items[item].shape].0 as usize]
    }

    /// The node of a place that is one, or a cell of one; a node that states no cells has none.
    pub(crate) fn node_of(&self, place: Place) -> Option<(u32, Option<u8>)> {
        let (node, cell) = self.tree.node_of(place)?;
        Some((node, cell.filter(|_| self.cells.count(node) > 0)))
    }

    /// Pods of a shape that a node, or a cell of it, has room for.
    pub(crate) fn room_at(&self, shape: &ShapeState, (node, cell): (u32, Option<u8>)) -> u16 {
        let room = shape.rooms[node as usize];
        cell.map_or(room, |cell| {
            room.min(self.cells.room(self.ledger, (node, cell), shape.requests.iter(), |_| 0))
        })
    }

    /// Where pods of a shape may go, and what they miss of their preferences there.
    pub(crate) fn rules(&self, shape: &ShapeState) -> &'a RuleSet {
        &self.rule_sets[shape.rule_set]
    }
}

/// Pods of an item on a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    pub(crate) item: usize,
    pub(crate) node: u32,
    /// The cell of the node that the item is held in.
    pub(crate) cell: Option<u8>,
    pub(crate) pods: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub(crate) puts: Vec<Put>,
    /// Per node: index of its amounts in `taken`, plus one.
    slots: Vec<u32>,
    touched: Vec<u32>,
    /// Amounts per touched host, `width` each.
    taken: Vec<i64>,
    width: usize,
    held: Held,
    /// Pods that avoid or bear a mark, by mark and domain of it.
    marked: HashMap<(Mark, u32), Tally>,
    /// Whether room that is left beside tried pods is asked for. A gang of one item never asks.
    tracks_room: bool,
    /// How often each domain and each node is used: by bound pods, as a chosen domain, by tried pods, and once by each
    /// domain right below that is in use.
    domains: Vec<u32>,
    nodes: Vec<u32>,
    /// Domains used and what they had free, per depth.
    pub(crate) used: Rank,
    /// The same before the first of the puts.
    used_before: Rank,
    pub(crate) layout: Layout,
    scarce: Option<Resource>,
}

impl Overlay {
    /// Starts an attempt. Nothing of an earlier one is left: it was undone.
    pub(crate) fn start(&mut self, view: View, problem: &Problem, tracks_room: bool) {
        self.tracks_room = tracks_room;
        self.slots.resize(view.ledger.nodes(), 0);
        self.nodes.resize(view.ledger.nodes(), 0);
        self.domains.resize(view.tree.domains.len().max(self.domains.len()), 0);
        self.width = problem.resources.len();
        self.held.start(self.width);
        self.scarce = problem.scarce;
        self.used = Rank::ZERO;
        self.layout = Layout {
            host_depth: view.tree.host_depth(),
            objective: problem.objective,
        };
    }

    pub(crate) fn is_used(&self, place: Place) -> bool {
        let counters = if place.depth == self.layout.host_depth {
            &self.nodes
        } else {
            &self.domains
        };
        counters[place.id as usize] > 0
    }

    /// The gang uses a place, and so every domain around it. Cells are not counted.
    pub(crate) fn mark(&mut self, view: View, place: Place) {
        let Some((node, _)) = view.tree.node_of(place) else {
            return self.mark_domain(view, place);
        };
        self.nodes[node as usize] += 1;
        if self.nodes[node as usize] == 1 {
            let host = view.tree.above(node, self.layout.host_depth);
            self.count_used(host.depth, opens(view, host, self.scarce));
            self.mark_above(view, node);
        }
    }

    /// A node that was not in use is: so is what is around it.
    fn mark_above(&mut self, view: View, node: u32) {
        let Some(leaf) = view.tree.leaf(node) else { return };
        match &mut self.domains[leaf as usize] {
            0 => self.mark_domain(
                view,
                Place {
                    depth: view.tree.last_depth(),
                    id: leaf,
                },
            ),
            counter => *counter += 1,
        }
    }

    fn mark_domain(&mut self, view: View, place: Place) {
        let mut id = place.id;
        for depth in (1..=place.depth).rev() {
            let counter = &mut self.domains[id as usize];
            *counter += 1;
            if *counter > 1 {
                return;
            }
            self.count_used(depth, opens(view, Place { depth, id }, self.scarce));
            id = view.tree.domains[id as usize].parent;
        }
    }

    /// One more place of a depth is in use, which had so much free.
    fn count_used(&mut self, depth: u8, free: u64) {
        *self.used.at_mut(self.layout.domains(depth)) += 1;
        *self.used.at_mut(self.layout.opened(depth)) += free;
    }

    pub(crate) fn unmark(&mut self, view: View, place: Place) {
        for depth in (1..=place.depth.min(self.layout.host_depth)).rev() {
            let around = view.tree.widen(place, depth);
            let counter = self.counter(around);
            *counter -= 1;
            if *counter > 0 {
                return;
            }
            *self.used.at_mut(self.layout.domains(depth)) -= 1;
            *self.used.at_mut(self.layout.opened(depth)) -= opens(view, around, self.scarce);
        }
    }

    /// Whether the gang uses nothing at all so far.
    pub(crate) fn is_unused(&self) -> bool {
        self.used.at(self.layout.domains(1)) == 0
    }

    pub(crate) fn is_used_node(&self, node: u32) -> bool {
        self.nodes[node as usize] > 0
    }

    /// Whether no room was taken so far: every host has what is counted.
    pub(crate) fn is_untouched(&self) -> bool {
        self.touched.is_empty()
    }

    fn counter(&mut self, place: Place) -> &mut u32 {
        let counters = if place.depth == self.layout.host_depth {
            &mut self.nodes
        } else {
            &mut self.domains
        };
        &mut counters[place.id as usize]
    }

    /// Room for pods of a shape on a host, or in a cell of it, beside what the attempt put there.
    pub(crate) fn room(
        &self,
        view: View,
        shape: &ShapeState,
        (node, cell): (u32, Option<u8>),
        resources: &[Resource],
    ) -> u16 {
        let apart = self.apart(view, shape, node);
        let Some(slot) = (self.slots[node as usize] as usize).checked_sub(1) else {
            return view.room_at(shape, (node, cell)).min(apart);
        };
        let taken = |resource: Resource| {
            let column = resources.iter().position(|known| *known == resource);
            column.map_or(0, |column| self.taken[slot * self.width + column])
        };
        let room = shape.room_with(node, view.ledger, taken).min(apart);
        let Some(cell) = cell else { return room };
        let held = self.held.amounts((node, cell));
        let held = |resource: Resource| {
            let column = resources.iter().position(|known| *known == resource);
            column.zip(held).map_or(0, |(column, held)| held[column])
        };
        room.min(view.cells.room(view.ledger, (node, cell), shape.requests.iter(), held))
    }

    /// How many pods of a shape the marks on a host let in.
    fn apart(&self, view: View, shape: &ShapeState, node: u32) -> u16 {
        if shape.marks.is_empty() {
            return u16::MAX;
        }
        let tried = |mark, domain| self.marked.get(&(mark, domain)).copied().unwrap_or_default();
        view.marks.room(node, &shape.marks, tried)
    }

    /// Puts pods of an item on a host.
    pub(crate) fn put(&mut self, view: View, put: Put, shape: &ShapeState, resources: &[Resource]) {
        self.put_all(view, std::iter::once(put), shape, resources);
    }

    /// Puts pods of an item on several hosts. What that costs is summed up first: a large gang takes a thousand.
    pub(crate) fn put_all(
        &mut self,
        view: View,
        puts: impl Iterator<Item = Put>,
        shape: &ShapeState,
        resources: &[Resource],
    ) {
        if self.puts.is_empty() {
            self.used_before = self.used;
        }
        let before = self.puts.len();
        let free = self.scarce.map(|scarce| view.ledger.column(scarce));
        let rules = view.rules(shape);
        let (mut hosts, mut opened, mut penalty) = (0, 0, 0);
        for put in puts {
            let counter = &mut self.nodes[put.node as usize];
            *counter += 1;
            if *counter == 1 {
                hosts += 1;
                opened += free.map_or(0, |free| free[put.node as usize].max(0) as u64);
                self.mark_above(view, put.node);
            }
            penalty += rules.penalty(put.node) * u64::from(put.pods);
            self.puts.push(put);
        }
        let host_depth = self.layout.host_depth;
        *self.used.at_mut(self.layout.domains(host_depth)) += hosts;
        *self.used.at_mut(self.layout.opened(host_depth)) += opened;
        *self.used.at_mut(self.layout.penalty()) += penalty;
        if self.tracks_room || !shape.marks.is_empty() {
            for at in before..self.puts.len() {
                self.take_room(view, self.puts[at], shape, resources, 1);
            }
        }
    }

    /// Takes the pods that were put last off again.
    pub(crate) fn take_back(&mut self, view: View, shape: &ShapeState, resources: &[Resource]) {
        let Some(put) = self.puts.pop() else { return };
        *self.used.at_mut(self.layout.penalty()) -= view.rules(shape).penalty(put.node) * u64::from(put.pods);
        self.take_room(view, put, shape, resources, -1);
        self.unmark(view, view.tree.above(put.node, self.layout.host_depth));
    }

    /// Counts what pods take on their host and whom they keep away, or gives it back.
    fn take_room(&mut self, view: View, put: Put, shape: &ShapeState, resources: &[Resource], sign: i64) {
        if self.tracks_room {
            let slot = self.slot(put.node);
            let pods = sign * i64::from(put.pods);
            for (column, resource) in resources.iter().enumerate() {
                self.taken[slot * self.width + column] += shape.requests.get(*resource) as i64 * pods;
            }
            if let Some(cell) = put.cell {
                self.held.change((put.node, cell), shape, resources, pods);
            }
        }
        for (mark, stance) in &shape.marks {
            if let Some(domain) = view.marks.domain(*mark, put.node) {
                let tally = self.marked.entry((*mark, domain)).or_default();
                if sign > 0 {
                    tally.add(*stance, put.pods);
                } else {
                    tally.remove(*stance, put.pods);
                }
            }
        }
    }

    /// Takes all pods off again; marks stay.
    pub(crate) fn clear_puts(&mut self, view: View) {
        if !self.puts.is_empty() {
            self.used = self.used_before;
        }
        let last_depth = view.tree.last_depth();
        for put in self.puts.drain(..) {
            let mut counter = &mut self.nodes[put.node as usize];
            let mut above = view.tree.leaf(put.node).unwrap_or_default();
            let mut depth = last_depth;
            *counter -= 1;
            while *counter == 0 && depth > 0 {
                counter = &mut self.domains[above as usize];
                *counter -= 1;
                above = view.tree.domains[above as usize].parent;
                depth -= 1;
            }
        }
        for node in self.touched.drain(..) {
            self.slots[node as usize] = 0;
        }
        self.taken.clear();
        self.held.clear();
        self.marked.clear();
    }

    /// Hosts that the attempt put pods on.
    pub(crate) fn touched(&self) -> &[u32] {
        &self.touched
    }

    fn slot(&mut self, node: u32) -> usize {
        if self.slots[node as usize] == 0 {
            self.touched.push(node);
            self.slots[node as usize] = self.touched.len() as u32;
            self.taken.resize(self.touched.len() * self.width, 0);
        }
        self.slots[node as usize] as usize - 1
    }
}

/// What using a place takes away from whoever needs it whole: all that it has free of the scarce resource. A cell takes
/// its host away.
pub(crate) fn opens(view: View, place: Place, scarce: Option<Resource>) -> u64 {
    let Some(scarce) = scarce else { return 0 };
    match view.tree.node_of(place) {
        Some((node, _)) => view.ledger.free(node, scarce).max(0) as u64,
        None => view.tree.free(place.id, scarce.0),
    }
}
