//! Packs items whose pods must not share a domain: every way, host by host, the fullest first.
//!
//! What may go on a host depends on what is on hosts of the same domain, so ways cannot be joined by how many pods are
//! left, as exact packing does elsewhere. A way is given up when it is no better than the best known one, or when the
//! hosts to come have too little room.

use std::collections::BTreeSet;

use crate::plan::Work;
use crate::solve::overlay::{Overlay, Put, View};
use crate::solve::problem::Problem;
use crate::solve::rank::Rank;
use crate::topology::Place;

/// Steps that a way may have: each is a call on the stack.
const DEPTH_MAX: usize = 4_000;

/// A request to pack.
pub(crate) struct Trial<'a> {
    pub(crate) view: View<'a>,
    pub(crate) problem: &'a Problem,
    /// The place of every item.
    pub(crate) places: &'a [Place],
    pub(crate) shortfall: [u64; 3],
    pub(crate) states_max: u64,
}

struct State<'a> {
    overlay: &'a mut Overlay,
    work: &'a mut Work,
    best: &'a mut Option<Rank>,
    found: &'a mut Vec<Put>,
    hosts: Vec<u32>,
    left: Vec<u32>,
    /// Per layer and item: pods that the hosts from there on hold at most.
    room_after: Vec<u64>,
    states_left: u64,
}

impl Trial<'_> {
    /// Looks for a way that is better than `best`, which it replaces together with `found`; false when it had to stop
    /// before all ways were tried.
    pub(crate) fn run(
        &self,
        overlay: &mut Overlay,
        work: &mut Work,
        best: &mut Option<Rank>,
        found: &mut Vec<Put>,
    ) -> bool {
        let hosts = self.hosts();
        let room_after = self.room_after(&hosts, overlay);
        let items = &self.problem.items;
        if items
            .iter()
            .zip(&room_after)
            .any(|(item, room)| u64::from(item.pods) > *room)
        {
            return true;
        }
        if hosts.len() * (items.len() + 1) > DEPTH_MAX {
            return false;
        }
        let mut state = State {
            room_after,
            hosts,
            left: self.problem.items.iter().map(|item| item.pods).collect(),
            overlay,
            work,
            best,
            found,
            states_left: self.states_max,
        };
        self.next_host(&mut state, 0)
    }

    /// Hosts that some item can use, in the order of the tree.
    fn hosts(&self) -> Vec<u32> {
        let tree = self.view.tree;
        let mut hosts: Vec<u32> = Vec::new();
        let mut domains = Vec::new();
        for (item, place) in self.places.iter().enumerate() {
            let rooms = &self.view.shape(self.problem, item).rooms;
            if let Some((node, _)) = tree.node_of(*place) {
                hosts.push(node);
                continue;
            }
            domains.clear();
            tree.domains_within(*place, tree.last_depth(), &mut domains);
            let nodes = domains.iter().flat_map(|domain| &tree.domains[*domain as usize].nodes);
            hosts.extend(nodes.filter(|node| rooms[**node as usize] > 0));
        }
        hosts.sort_unstable_by_key(|node| (tree.path(*node), *node));
        hosts.dedup();
        hosts
    }

    /// Of pods that keep each other apart, no domain to come holds more than one.
    fn room_after(&self, hosts: &[u32], overlay: &Overlay) -> Vec<u64> {
        let items = self.problem.items.len();
        let mut rooms = vec![0; (hosts.len() + 1) * items];
        for item in 0..items {
            let shape = self.view.shape(self.problem, item);
            let exclusive = shape.marks.iter().find(|(_, stance)| stance.is_exclusive());
            let mut domains = BTreeSet::new();
            for (layer, node) in hosts.iter().enumerate().rev() {
                let is_there = self.view.tree.holds(self.places[item], *node);
                let at = (*node, self.cell(item));
                let has_room = is_there && overlay.room(self.view, shape, at, &self.problem.resources) > 0;
                let domain = exclusive.and_then(|(mark, _)| self.view.marks.domain(*mark, *node));
                let room = match domain {
                    _ if !has_room => 0,
                    Some(domain) => u64::from(domains.insert(domain)),
                    None => u64::from(shape.rooms[*node as usize]),
                };
                rooms[layer * items + item] = rooms[(layer + 1) * items + item] + room;
            }
        }
        rooms
    }

    /// The cell that an item is held in.
    fn cell(&self, item: usize) -> Option<u8> {
        self.view.node_of(self.places[item]).and_then(|(_, cell)| cell)
    }

    fn next_host(&self, state: &mut State, layer: usize) -> bool {
        let mut rank = state.overlay.used;
        rank.set_shortfall(self.shortfall);
        if state.best.is_some_and(|best| rank >= best) {
            return true;
        }
        if state.left.iter().all(|pods| *pods == 0) {
            *state.best = Some(rank);
            state.found.clone_from(&state.overlay.puts);
            return true;
        }
        let items = state.left.len();
        let rooms = &state.room_after[layer * items..(layer + 1) * items];
        if state
            .left
            .iter()
            .zip(rooms)
            .any(|(left, room)| u64::from(*left) > *room)
        {
            return true;
        }
        self.next_item(state, layer, 0)
    }

    fn next_item(&self, state: &mut State, layer: usize, item: usize) -> bool {
        if state.states_left == 0 {
            return false;
        }
        state.states_left -= 1;
        state.work.states += 1;
        if item == state.left.len() {
            return self.next_host(state, layer + 1);
        }
        let node = state.hosts[layer];
        let shape = self.view.shape(self.problem, item);
        let resources = &self.problem.resources;
        let room = if self.view.tree.holds(self.places[item], node) {
            u32::from(state.overlay.room(self.view, shape, (node, self.cell(item)), resources))
        } else {
            0
        };
        let mut ended = true;
        for pods in (0..=room.min(state.left[item])).rev() {
            if pods > 0 {
                let cell = self.cell(item);
                let put = Put { item, node, cell, pods };
                state.overlay.put(self.view, put, shape, resources);
            }
            state.left[item] -= pods;
            ended &= self.next_item(state, layer, item + 1);
            state.left[item] += pods;
            if pods > 0 {
                state.overlay.take_back(self.view, shape, resources);
            }
        }
        ended
    }
}
