//! Packs items into hosts exactly: the best way there is, or the certainty that there is none.
//!
//! Hosts are taken in the order of the tree, one layer after the other. A state is how many pods of each item are left
//! and how deep the current path is in use already; of all ways to reach a state only the best is kept. What a way
//! costs adds up host by host, so the best way to the end is found without looking at each one. The number of states is
//! known beforehand: the caller is told when it would be too many.

use crate::plan::Work;
use crate::solve::overlay::{Overlay, Put, View, opens};
use crate::solve::problem::Problem;
use crate::solve::rank::{DEPTHS_MAX, Rank};
use crate::topology::Place;

/// Packing more states than the budget allows.
#[derive(Debug)]
pub(crate) struct TooLarge;

/// What a way costs on top of what is used anyway, in the order of `Rank::packing`.
type Cost = [u64; 2 * DEPTHS_MAX];

#[derive(Clone, Copy, Debug)]
struct State {
    cost: Cost,
    /// Index of the state before, in the layer before.
    from: u32,
    /// Pods put on the layer's host, as a mixed-radix number like `left`.
    step: u32,
    reached: bool,
}

const UNREACHED: State = State {
    cost: [0; 2 * DEPTHS_MAX],
    from: 0,
    step: 0,
    reached: false,
};

/// Items of one shape with one place, packed as one.
#[derive(Clone, Copy, Debug)]
struct Kind {
    shape: usize,
    place: Place,
    pods: u32,
    /// Weight of its digit.
    radix: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Packer {
    kinds: Vec<Kind>,
    hosts: Vec<u32>,
    /// Per host and kind: room from this host on.
    room_after: Vec<u32>,
    layers: Vec<State>,
    steps: Vec<(u32, Vec<u32>)>,
}

/// A request to pack.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) view: View<'a>,
    pub(crate) problem: &'a Problem,
    /// The place of every item.
    pub(crate) places: &'a [Place],
    /// Only ways better than this are of interest.
    pub(crate) better_than: Option<&'a Rank>,
    pub(crate) states_max: u64,
}

impl Packer {
    /// The best packing, as pods per item and host; none when there is none (better than asked).
    pub(crate) fn pack(
        &mut self,
        task: Task,
        overlay: &Overlay,
        work: &mut Work,
        puts: &mut Vec<Put>,
    ) -> Result<bool, TooLarge> {
        let states = self.set_up(task)?;
        let paths = usize::from(task.view.tree.last_depth()) + 1;
        let width = states as usize * paths;
        self.layers.clear();
        self.layers.resize(width * (self.hosts.len() + 1), UNREACHED);
        let full: u32 = self.kinds.iter().map(|kind| kind.pods * kind.radix).sum();
        self.layers[full as usize * paths].reached = true;
        for layer in 0..self.hosts.len() {
            self.advance(task, overlay, (layer, width, paths), work);
        }
        let last = &self.layers[width * self.hosts.len()..];
        let ends = (0..paths).filter(|path| last[*path].reached);
        let Some(best) = ends.min_by_key(|path| last[*path].cost) else {
            return Ok(false);
        };
        self.trace_back(task, best, width, puts);
        Ok(true)
    }

    /// Joins equal items, lists the hosts and counts the states.
    fn set_up(&mut self, task: Task) -> Result<u64, TooLarge> {
        self.kinds.clear();
        for (item, place) in task.problem.items.iter().zip(task.places) {
            match self
                .kinds
                .iter_mut()
                .find(|kind| kind.shape == item.shape && kind.place == *place)
            {
                Some(kind) => kind.pods += item.pods,
                None => self.kinds.push(Kind {
                    shape: item.shape,
                    place: *place,
                    pods: item.pods,
                    radix: 0,
                }),
            }
        }
        let mut states: u64 = 1;
        for kind in &mut self.kinds {
            kind.radix = u32::try_from(states).map_err(|_| TooLarge)?;
            states = states.saturating_mul(u64::from(kind.pods) + 1);
        }
        self.list_hosts(task);
        let layers = self.hosts.len() as u64 + 1;
        let all = states
            .saturating_mul(layers)
            .saturating_mul(u64::from(task.view.tree.host_depth()));
        if all > task.states_max || all > u64::from(u32::MAX) {
            Err(TooLarge)
        } else {
            Ok(states)
        }
    }

    /// Hosts that some kind can use, in the order of the tree.
    fn list_hosts(&mut self, task: Task) {
        let tree = task.view.tree;
        self.hosts.clear();
        let mut domains = Vec::new();
        for kind in &self.kinds {
            if kind.place.depth > tree.last_depth() {
                self.hosts.push(kind.place.id);
                continue;
            }
            domains.clear();
            tree.domains_within(kind.place, tree.last_depth(), &mut domains);
            let nodes = domains.iter().flat_map(|domain| &tree.domains[*domain as usize].nodes);
            self.hosts
                .extend(nodes.filter(|node| self.kinds.iter().any(|kind| task.room(*kind, **node) > 0)));
        }
        self.hosts.sort_unstable_by_key(|node| (tree.path(*node), *node));
        self.hosts.dedup();
        let kinds = self.kinds.len();
        self.room_after.clear();
        self.room_after.resize((self.hosts.len() + 1) * kinds, 0);
        for layer in (0..self.hosts.len()).rev() {
            for (index, kind) in self.kinds.iter().enumerate() {
                let after = self.room_after[(layer + 1) * kinds + index];
                self.room_after[layer * kinds + index] = after + task.room(*kind, self.hosts[layer]);
            }
        }
    }

    /// Lets every state of a layer try every way to use the layer's host.
    fn advance(
        &mut self,
        task: Task,
        overlay: &Overlay,
        (layer, width, paths): (usize, usize, usize),
        work: &mut Work,
    ) {
        let node = self.hosts[layer];
        self.list_steps(task, node);
        let tree = task.view.tree;
        // How much of the path to this host is shared with the next one.
        let shared = match self.hosts.get(layer + 1) {
            Some(next) => {
                tree.path(node)
                    .iter()
                    .zip(tree.path(*next))
                    .take_while(|(mine, theirs)| mine == theirs)
                    .count()
                    - 1
            }
            None => 0,
        };
        let steps = std::mem::take(&mut self.steps);
        for index in 0..width {
            let state = self.layers[layer * width + index];
            if !state.reached {
                continue;
            }
            let (left, deep) = ((index / paths) as u32, index % paths);
            for (step, pods) in &steps {
                let fits = self
                    .kinds
                    .iter()
                    .zip(pods)
                    .all(|(kind, pods)| digit(left, *kind) >= *pods);
                if !fits || !self.can_finish(layer + 1, left - step) {
                    continue;
                }
                work.states += 1;
                let mut cost = state.cost;
                let deep = if *step == 0 {
                    deep
                } else {
                    add_cost(task, overlay, (node, deep), &mut cost)
                };
                if !is_better(task, overlay, &cost) {
                    continue;
                }
                let to = (layer + 1) * width + (left - step) as usize * paths + deep.min(shared);
                let known = &mut self.layers[to];
                if !known.reached || cost < known.cost {
                    *known = State {
                        cost,
                        from: index as u32,
                        step: *step,
                        reached: true,
                    };
                }
            }
        }
        self.steps = steps;
    }

    fn can_finish(&self, layer: usize, left: u32) -> bool {
        let kinds = self.kinds.len();
        let room = &self.room_after[layer * kinds..(layer + 1) * kinds];
        self.kinds
            .iter()
            .zip(room)
            .all(|(kind, room)| digit(left, *kind) <= *room)
    }

    /// All ways to put pods on one host, nothing first.
    fn list_steps(&mut self, task: Task, node: u32) {
        self.steps.clear();
        self.steps.push((0, vec![0; self.kinds.len()]));
        for index in 0..self.kinds.len() {
            let kind = self.kinds[index];
            let most = task.room(kind, node).min(kind.pods);
            for before in 0..self.steps.len() {
                for pods in 1..=most {
                    let (step, mut counts) = self.steps[before].clone();
                    counts[index] = pods;
                    if !task.fits(&self.kinds, &counts, node) {
                        break;
                    }
                    self.steps.push((step + pods * kind.radix, counts));
                }
            }
        }
    }

    /// Walks back from the end and hands the pods of each kind to its items.
    fn trace_back(&self, task: Task, best: usize, width: usize, puts: &mut Vec<Put>) {
        puts.clear();
        let mut missing: Vec<u32> = task.problem.items.iter().map(|item| item.pods).collect();
        let mut index = best;
        for layer in (1..=self.hosts.len()).rev() {
            let state = self.layers[layer * width + index];
            let node = self.hosts[layer - 1];
            for kind in &self.kinds {
                let mut pods = digit(state.step, *kind);
                for (item, wanted) in missing.iter_mut().enumerate() {
                    let same = task.problem.items[item].shape == kind.shape && task.places[item] == kind.place;
                    let given = if same { pods.min(*wanted) } else { 0 };
                    if given > 0 {
                        puts.push(Put {
                            item,
                            node,
                            pods: given,
                        });
                        *wanted -= given;
                        pods -= given;
                    }
                }
            }
            index = state.from as usize;
        }
    }
}

impl Task<'_> {
    fn room(&self, kind: Kind, node: u32) -> u32 {
        if !self.view.tree.holds(kind.place, node) {
            return 0;
        }
        u32::from(self.view.shapes[self.problem.shapes[kind.shape].0 as usize].rooms[node as usize])
    }

    fn fits(&self, kinds: &[Kind], pods: &[u32], node: u32) -> bool {
        self.problem.resources.iter().all(|resource| {
            let asked = kinds.iter().zip(pods).map(|(kind, pods)| {
                let shape = &self.view.shapes[self.problem.shapes[kind.shape].0 as usize];
                shape.requests.get(*resource) as i64 * i64::from(*pods)
            });
            asked.sum::<i64>() <= self.view.ledger.free(node, *resource)
        })
    }
}

/// How many pods of a kind a mixed-radix number holds.
fn digit(number: u32, kind: Kind) -> u32 {
    number / kind.radix % (kind.pods + 1)
}

/// Adds what using a host costs when its path is in use down to `deep`; returns how deep it is in use then.
fn add_cost(task: Task, overlay: &Overlay, (node, deep): (u32, usize), cost: &mut Cost) -> usize {
    let tree = task.view.tree;
    for depth in 1..=tree.host_depth() {
        let place = tree.above(node, depth);
        if usize::from(depth) > deep && !overlay.is_used(place, tree.host_depth()) {
            cost[usize::from(depth) - 1] += 1;
            cost[2 * DEPTHS_MAX - usize::from(depth)] += opens(task.view, place, task.problem.scarce);
        }
    }
    usize::from(tree.last_depth())
}

/// A way only gets dearer, so one that is not better than the known one already is dropped.
fn is_better(task: Task, overlay: &Overlay, cost: &Cost) -> bool {
    let Some(limit) = task.better_than else { return true };
    let used = overlay.used.packing();
    let total = cost.iter().zip(used).map(|(more, used)| more + used);
    total.lt(limit.packing().iter().copied())
}
