//! Packs items into hosts exactly: the best way there is, or the certainty that there is none.
//!
//! Hosts are taken in the order of the tree, one layer after the other. A state is how many pods of each item are left
//! and how deep the current path is in use already; of all ways to reach a state only the best is kept. What a way
//! costs adds up host by host, so the best way to the end is found without looking at each one. The number of states is
//! known beforehand: the caller is told when it would be too many.

use crate::plan::Work;
use crate::resources::{Resource, signed};
use crate::shapes::ShapeState;
use crate::solve::overlay::{Overlay, Put, View, opens};
use crate::solve::problem::Problem;
use crate::solve::rank::Rank;
use crate::topology::Place;

/// Packing would take more states than the budget allows.
#[derive(Debug)]
pub(crate) struct TooLarge;

/// Items of one shape with one place, packed as one.
#[derive(Clone, Copy, Debug)]
struct Kind {
    shape: usize,
    place: Place,
    pods: u32,
    /// Weight of its digit in a number of pods left.
    radix: u32,
}

/// How a state was reached.
#[derive(Clone, Copy, Debug)]
struct Origin {
    /// Index in the layer before; `UNREACHED` if there is no way.
    from: u32,
    /// Pods put on the layer's host, one digit per kind.
    step: u32,
}

const UNREACHED: u32 = u32::MAX;

/// States that fit in memory, whatever the budget.
const STATES_MAX: u64 = 1 << 24;

#[derive(Debug, Default)]
pub(crate) struct Packer {
    kinds: Vec<Kind>,
    hosts: Vec<u32>,
    domains: Vec<u32>,
    /// Per host and kind: room from this host on.
    room_after: Vec<u32>,
    /// Per layer and state.
    origins: Vec<Origin>,
    /// Costs of the states of the current and the next layer, `price` numbers each, in the order of the objective.
    costs: Vec<u64>,
    next_costs: Vec<u64>,
    steps: Vec<u32>,
    cost: Vec<u64>,
    missing: Vec<u32>,
    /// Positions in a rank that packing decides.
    positions: Vec<usize>,
    /// Number of states and of path depths.
    states: usize,
    paths: usize,
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
    /// The best packing, as pods per item and host; false when there is none (better than asked).
    pub(crate) fn pack(
        &mut self,
        task: Task,
        overlay: &Overlay,
        work: &mut Work,
        puts: &mut Vec<Put>,
    ) -> Result<bool, TooLarge> {
        self.set_up(task, overlay)?;
        let width = self.states * self.paths;
        let price = self.positions.len();
        let full: u32 = self.kinds.iter().map(|kind| kind.pods * kind.radix).sum();
        self.origins.clear();
        self.origins.resize(
            width * (self.hosts.len() + 1),
            Origin {
                from: UNREACHED,
                step: 0,
            },
        );
        self.costs.clear();
        self.costs.resize(width * price, 0);
        self.next_costs.clear();
        self.next_costs.resize(width * price, 0);
        self.origins[full as usize * self.paths].from = 0;
        for layer in 0..self.hosts.len() {
            self.advance(task, overlay, layer, work);
            std::mem::swap(&mut self.costs, &mut self.next_costs);
        }
        let last = &self.origins[width * self.hosts.len()..];
        let ends = (0..self.paths).filter(|path| last[*path].from != UNREACHED);
        let Some(best) = ends.min_by_key(|path| &self.costs[path * price..(path + 1) * price]) else {
            return Ok(false);
        };
        self.trace_back(task, best, puts);
        Ok(true)
    }

    /// Joins equal items, counts the states, and lists the hosts.
    fn set_up(&mut self, task: Task, overlay: &Overlay) -> Result<(), TooLarge> {
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
        self.paths = usize::from(task.view.tree.last_depth()) + 1;
        let per_layer = states.saturating_mul(self.paths as u64);
        let most = task.states_max.min(STATES_MAX);
        let hosts_max = self
            .kinds
            .iter()
            .map(|kind| u64::from(task.hosts_in(*kind)))
            .max()
            .unwrap_or(0);
        if per_layer.saturating_mul(hosts_max + 1) > most {
            return Err(TooLarge);
        }
        self.list_hosts(task);
        if per_layer.saturating_mul(self.hosts.len() as u64 + 1) > most {
            return Err(TooLarge);
        }
        self.states = states as usize;
        let layout = overlay.layout;
        self.positions.clear();
        let depths = 1..=layout.host_depth;
        self.positions
            .extend(depths.flat_map(|depth| [layout.domains(depth), layout.opened(depth)]));
        self.positions.push(layout.penalty());
        self.positions.sort_unstable();
        Ok(())
    }

    /// Hosts that some kind can use, in the order of the tree.
    fn list_hosts(&mut self, task: Task) {
        let tree = task.view.tree;
        self.hosts.clear();
        for kind in &self.kinds {
            if let Some((node, _)) = tree.node_of(kind.place) {
                self.hosts.push(node);
                continue;
            }
            self.domains.clear();
            tree.domains_within(kind.place, tree.last_depth(), &mut self.domains);
            let nodes = self
                .domains
                .iter()
                .flat_map(|domain| &tree.domains[*domain as usize].nodes);
            self.hosts.extend(nodes.filter(|node| task.room(*kind, **node) > 0));
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
    fn advance(&mut self, task: Task, overlay: &Overlay, layer: usize, work: &mut Work) {
        let node = self.hosts[layer];
        self.list_steps(task, node);
        let shared = self.shared_path(task, layer);
        let width = self.states * self.paths;
        for index in 0..width {
            if self.origins[layer * width + index].from == UNREACHED {
                continue;
            }
            let (left, deep) = ((index / self.paths) as u32, index % self.paths);
            for at in 0..self.steps.len() {
                let step = self.steps[at];
                let fits = self.kinds.iter().all(|kind| digit(left, *kind) >= digit(step, *kind));
                if !fits || !self.can_finish(layer + 1, left - step) {
                    continue;
                }
                work.states += 1;
                let price = self.positions.len();
                self.cost.clear();
                self.cost
                    .extend_from_slice(&self.costs[index * price..(index + 1) * price]);
                let deep = if step == 0 {
                    deep
                } else {
                    self.add_penalty(task, overlay, node, step);
                    self.add_cost(task, overlay, node, deep)
                };
                if self.is_better(task, overlay) {
                    let to = (left - step) as usize * self.paths + deep.min(shared);
                    self.reach(
                        (layer + 1) * width,
                        to,
                        Origin {
                            from: index as u32,
                            step,
                        },
                    );
                }
            }
        }
    }

    /// How much of the path to a layer's host is shared with the next one.
    fn shared_path(&self, task: Task, layer: usize) -> usize {
        let Some(next) = self.hosts.get(layer + 1) else {
            return 0;
        };
        let (mine, theirs) = (task.view.tree.path(self.hosts[layer]), task.view.tree.path(*next));
        mine.iter()
            .zip(theirs)
            .take_while(|(mine, theirs)| mine == theirs)
            .count()
            - 1
    }

    /// Keeps the current cost for a state of the next layer if the state is new or was dearer.
    fn reach(&mut self, layer_start: usize, to: usize, origin: Origin) {
        let price = self.positions.len();
        let known = &mut self.next_costs[to * price..(to + 1) * price];
        let reached = &mut self.origins[layer_start + to];
        if reached.from == UNREACHED || self.cost.as_slice() < &*known {
            known.copy_from_slice(&self.cost);
            *reached = origin;
        }
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
        self.steps.push(0);
        for index in 0..self.kinds.len() {
            let kind = self.kinds[index];
            let most = task.room(kind, node).min(kind.pods);
            for before in 0..self.steps.len() {
                for pods in 1..=most {
                    let step = self.steps[before] + pods * kind.radix;
                    if !task.fits(&self.kinds, step, node) {
                        break;
                    }
                    self.steps.push(step);
                }
            }
        }
    }

    /// Adds what using a host costs when its path is in use down to `deep`; returns how deep it is in use then.
    fn add_cost(&mut self, task: Task, overlay: &Overlay, node: u32, deep: usize) -> usize {
        let tree = task.view.tree;
        for depth in 1..=tree.host_depth() {
            let place = tree.above(node, depth);
            if usize::from(depth) > deep && !overlay.is_used(place) {
                let (domains, opened) = (overlay.layout.domains(depth), overlay.layout.opened(depth));
                for (cost, position) in self.cost.iter_mut().zip(&self.positions) {
                    if *position == domains {
                        *cost += 1;
                    } else if *position == opened {
                        *cost += opens(task.view, place, task.problem.scarce);
                    }
                }
            }
        }
        usize::from(tree.last_depth())
    }

    /// Adds what the pods of a step miss of the nodes that they prefer.
    fn add_penalty(&mut self, task: Task, overlay: &Overlay, node: u32, step: u32) {
        let missed = self.kinds.iter().map(|kind| {
            let shape = &task.view.shapes[task.problem.shapes[kind.shape].0 as usize];
            task.view.rules(shape).penalty(node) * u64::from(digit(step, *kind))
        });
        let missed: u64 = missed.sum();
        let position = overlay.layout.penalty();
        if let Some(at) = self.positions.iter().position(|known| *known == position) {
            self.cost[at] += missed;
        }
    }

    /// A way only gets dearer, so one that is not better than the known one already is dropped.
    fn is_better(&self, task: Task, overlay: &Overlay) -> bool {
        let Some(limit) = task.better_than else { return true };
        let totals = self
            .cost
            .iter()
            .zip(&self.positions)
            .map(|(more, at)| more + overlay.used.at(*at));
        totals.lt(self.positions.iter().map(|at| limit.at(*at)))
    }

    /// Walks back from the end and hands the pods of each kind to its items.
    fn trace_back(&mut self, task: Task, best: usize, puts: &mut Vec<Put>) {
        puts.clear();
        self.missing.clear();
        self.missing.extend(task.problem.items.iter().map(|item| item.pods));
        let width = self.states * self.paths;
        let mut index = best;
        for layer in (1..=self.hosts.len()).rev() {
            let origin = self.origins[layer * width + index];
            let node = self.hosts[layer - 1];
            for kind in &self.kinds {
                let mut pods = digit(origin.step, *kind);
                for (item, wanted) in self.missing.iter_mut().enumerate() {
                    let same = task.problem.items[item].shape == kind.shape && task.places[item] == kind.place;
                    let given = if same { pods.min(*wanted) } else { 0 };
                    if given > 0 {
                        puts.push(Put {
                            item,
                            node,
                            cell: task.view.node_of(kind.place).and_then(|(_, cell)| cell),
                            pods: given,
                        });
                        *wanted -= given;
                        pods -= given;
                    }
                }
            }
            index = origin.from as usize;
        }
    }
}

impl Task<'_> {
    fn room(&self, kind: Kind, node: u32) -> u32 {
        if !self.view.tree.holds(kind.place, node) {
            return 0;
        }
        let cell = self.view.node_of(kind.place).and_then(|(_, cell)| cell);
        u32::from(self.view.room_at(self.shape(kind), (node, cell)))
    }

    fn shape(&self, kind: Kind) -> &ShapeState {
        &self.view.shapes[self.problem.shapes[kind.shape].0 as usize]
    }

    /// Hosts that a kind can use.
    fn hosts_in(&self, kind: Kind) -> u32 {
        if kind.place.depth > self.view.tree.last_depth() {
            return 1;
        }
        let shape = self.shape(kind);
        shape.counts(self.view.topology).hosts[kind.place.id as usize].usable()
    }

    /// Whether the pods of a step fit on a host together.
    fn fits(&self, kinds: &[Kind], step: u32, node: u32) -> bool {
        self.problem.resources.iter().all(|resource| {
            let asked = kinds.iter().map(|kind| self.asked(*kind, step, *resource));
            let asked = asked.fold(0, i64::saturating_add);
            asked == 0 || asked <= self.view.ledger.free(node, *resource) && self.fits_cells(kinds, step, *resource)
        })
    }

    /// Whether the cells that a step holds pods in have what these ask for.
    fn fits_cells(&self, kinds: &[Kind], step: u32, resource: Resource) -> bool {
        let cell = |kind: &Kind| {
            self.view
                .node_of(kind.place)
                .and_then(|(node, cell)| Some((node, cell?)))
        };
        kinds.iter().all(|kind| {
            let Some(place) = cell(kind) else { return true };
            let same = kinds.iter().filter(|other| other.place == kind.place);
            let asked = same.map(|other| self.asked(*other, step, resource));
            let asked = asked.fold(0, i64::saturating_add);
            let free = self.view.cells.free(self.view.ledger, place, resource);
            asked == 0 || free.is_none_or(|free| asked <= free)
        })
    }

    /// What the pods of a kind in a step ask for.
    fn asked(&self, kind: Kind, step: u32, resource: Resource) -> i64 {
        signed(self.shape(kind).requests.get(resource)).saturating_mul(i64::from(digit(step, kind)))
    }
}

/// How many pods of a kind a number of pods holds.
fn digit(number: u32, kind: Kind) -> u32 {
    number / kind.radix % (kind.pods + 1)
}
