//! Chooses a domain for every scope that asks for one, outer scopes first, and packs the pods.
//!
//! A depth-first search over the scopes: for each, domains from the preferred level up to the required one, the most
//! promising first; a domain that cannot hold what it would have to is passed over, and so is one that cannot lead to
//! anything better than what is known. When every scope has its domain, the items are packed into hosts. With budget
//! enough the search is complete: what it finds is the best there is, and when it finds nothing there is nothing.

mod bounds;
mod candidates;

use std::cmp::Reverse;

use crate::plan::Work;
use crate::solve::apart::Trial;
use crate::solve::exact::{Packer, Task, TooLarge};
use crate::solve::fill::{Filler, Job, Need};
use crate::solve::overlay::{Overlay, Put, View};
use crate::solve::problem::{Problem, Scope};
use crate::solve::rank::Rank;
use crate::topology::{Place, ROOT};
use candidates::Candidate;

/// How much work a search may do: candidates, hosts and states looked at, not time, so that it repeats exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Until a placement is found.
    pub find: u64,
    /// After that, to find one that meets more preferences or touches fewer domains or hosts.
    pub improve: u64,
    /// After that, to find one that is only tighter.
    pub tighten: u64,
}

impl Budget {
    /// Search to the end.
    pub const UNLIMITED: Budget = Budget {
        find: u64::MAX,
        improve: u64::MAX,
        tighten: u64::MAX,
    };
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            find: 2_000_000,
            improve: 1_000,
            tighten: 300,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) overlay: Overlay,
    pub(crate) filler: Filler,
    packer: Packer,
    candidates: Vec<Candidate>,
    domains: Vec<u32>,
    /// The place of every scope, as far as chosen.
    targets: Vec<Place>,
    /// The place of every item.
    places: Vec<Place>,
    packing_order: Vec<usize>,
    found: Vec<Put>,
    pub(crate) best: Vec<Put>,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "made once per search, on the stack")]
pub(crate) enum End {
    /// The best puts are in the scratch.
    Found {
        rank: Rank,
        proven: bool,
    },
    Impossible,
    GaveUp,
}

pub(crate) struct Search<'a> {
    view: View<'a>,
    problem: &'a Problem,
    budget: Budget,
    /// How much more than the budget may be done to save a host.
    patience: u64,
    scratch: &'a mut Scratch,
    work: &'a mut Work,
    best: Option<Rank>,
    /// Shortfall of the scopes that have a domain.
    shortfall: [u64; 3],
    /// What the whole gang needs at least below the place that holds all of it.
    floor: (Place, Need),
    /// Some part of the search was skipped for want of budget.
    cut: bool,
    spent_to_find: u64,
    hosts_to_find: u64,
}

/// Scopes that choose a domain. The search is that deep; a gang with more is left undecided.
const SCOPES_MAX: usize = 512;

/// What a host counts when a placement is packed only to improve on one that is known.
const PACKING_WEIGHT: u64 = 4;

/// How much more may be done where a domain may be saved, or a preference met, than for a host.
const SAVING_WEIGHT: u64 = 100;

/// How much more may be done for pods of several kinds: the quick packing of alike ones is mostly the best.
const MIXED_WEIGHT: u64 = 2;

/// The same on clusters up to this size. There counting takes next to nothing, and what is saved by it is spent here.
const SMALL_WEIGHT: u64 = 10;
const SMALL_NODES: usize = 1_000;

impl<'a> Search<'a> {
    pub(crate) fn new(
        (view, problem): (View<'a>, &'a Problem),
        budget: Budget,
        scratch: &'a mut Scratch,
        work: &'a mut Work,
    ) -> Self {
        let (patience, tighten) = match (problem.items.len() > 1, view.ledger.nodes() <= SMALL_NODES) {
            (false, _) => (1, 1),
            (true, false) => (MIXED_WEIGHT, 1),
            (true, true) => (SMALL_WEIGHT, SMALL_WEIGHT),
        };
        let budget = Budget {
            tighten: budget.tighten.saturating_mul(tighten),
            ..budget
        };
        Search {
            view,
            problem,
            budget,
            patience,
            scratch,
            work,
            best: None,
            shortfall: [0; 3],
            floor: (ROOT, Need::default()),
            cut: false,
            spent_to_find: 0,
            hosts_to_find: 0,
        }
    }

    pub(crate) fn run(mut self) -> End {
        let (view, problem) = (self.view, self.problem);
        if problem.order.len() > SCOPES_MAX {
            return End::GaveUp;
        }
        let tracks_room = problem.items.len() > 1 || problem.is_apart;
        self.scratch.overlay.start(view, problem, tracks_room);
        self.scratch.targets.clear();
        self.scratch.targets.resize(problem.scopes.len(), ROOT);
        self.scratch.candidates.clear();
        let host_depth = view.tree.host_depth();
        for node in &problem.bound {
            self.scratch.overlay.mark(
                view,
                Place {
                    depth: host_depth,
                    id: *node,
                },
            );
        }
        let all = 0..problem.items.len();
        if self.can_hold(ROOT, all.clone()) {
            self.floor = (ROOT, self.need(ROOT, all));
            self.descend(0);
        }
        for node in &problem.bound {
            self.scratch.overlay.unmark(
                view,
                Place {
                    depth: host_depth,
                    id: *node,
                },
            );
        }
        match self.best {
            Some(rank) => {
                let is_tight = self.work.total() - self.spent_to_find < self.budget.tighten;
                End::Found {
                    rank,
                    proven: !self.cut && is_tight,
                }
            }
            None if self.cut => End::GaveUp,
            None => End::Impossible,
        }
    }

    /// Chooses for the scopes from `index` on.
    fn descend(&mut self, index: usize) {
        let Some(&scope_index) = self.problem.order.get(index) else {
            return self.pack();
        };
        let scope = &self.problem.scopes[scope_index];
        let outer = scope.parent.map_or(ROOT, |parent| self.place_of(parent));
        let narrowest = scope.narrowest().max(outer.depth);
        let broadest = scope.required.max(outer.depth);
        for depth in (broadest..=narrowest).rev() {
            let behind = u64::from(scope.preferred.saturating_sub(self.met(scope, outer, depth)));
            self.shortfall[scope.tier] += behind;
            if self.is_worth_it() {
                self.try_depth(index, outer, depth);
            }
            self.shortfall[scope.tier] -= behind;
            if self.is_out_of_budget() {
                return;
            }
        }
    }

    /// Down to which depth a scope is together when it takes a domain of `depth`. Its bound pods may lie apart from
    /// where its outer scope is put; all other domains are chosen around them.
    fn met(&self, scope: &Scope, outer: Place, depth: u8) -> u8 {
        let tree = self.view.tree;
        match scope.pin {
            Some(pin) if depth == outer.depth => {
                let shared = |depth: &u8| tree.widen(pin, *depth) == tree.widen(outer, *depth);
                let met = (0..=depth.min(pin.depth)).rev().find(shared).unwrap_or(0);
                // Which cells bound pods use is not known: on the same host they are taken to be in the same one.
                if met == tree.host_depth() { depth } else { met }
            }
            _ => depth,
        }
    }

    /// Tries the domains of one depth for a scope.
    fn try_depth(&mut self, index: usize, outer: Place, depth: u8) {
        let scope_index = self.problem.order[index];
        let start = self.scratch.candidates.len();
        self.push_candidates(scope_index, outer, depth);
        let mut at = start;
        let mut sorted = start;
        while at < self.scratch.candidates.len() && !self.is_out_of_budget() {
            if at == sorted {
                sorted = self.sort_some(at);
            }
            let candidate = self.scratch.candidates[at];
            at += 1;
            if !self.try_candidate(index, candidate) {
                break;
            }
        }
        self.scratch.candidates.truncate(start);
    }

    /// Follows a candidate as far as it is worth it; false if no later one can be.
    fn try_candidate(&mut self, index: usize, candidate: Candidate) -> bool {
        let scope_index = self.problem.order[index];
        let items = &self.problem.scopes[scope_index].items;
        let floor = self.floor;
        let is_whole = items.len() == self.problem.items.len();
        if is_whole {
            self.floor = (candidate.place, candidate.need);
        }
        let before = self.scratch.targets[scope_index];
        self.scratch.targets[scope_index] = candidate.place;
        self.scratch.overlay.mark(self.view, candidate.place);
        let is_worth_it = self.is_worth_it();
        let goes_on = if is_worth_it && self.is_out_of_budget() {
            // More may be done for what saves a domain; of candidates for the whole gang none after this one does.
            !is_whole
        } else if is_worth_it {
            if self.others_fit(candidate.place, items) {
                self.descend(index + 1);
            }
            true
        } else {
            self.later_may_be_better(is_whole)
        };
        self.scratch.overlay.unmark(self.view, candidate.place);
        self.scratch.targets[scope_index] = before;
        self.floor = floor;
        goes_on
    }

    /// Candidates for the whole gang come in the order of the least that they lead to: when one is not worth it, none
    /// after it is. Others come in the order of how many domains they open; what they open of them is no order.
    fn later_may_be_better(&self, is_whole: bool) -> bool {
        let Some(best) = self.best else { return true };
        let layout = self.scratch.overlay.layout;
        let mut rank = self.floor_rank();
        for depth in 1..=layout.host_depth {
            *rank.at_mut(layout.opened(depth)) = 0;
        }
        !is_whole && self.is_better(&rank, &best)
    }

    /// The place that a scope is confined to: its own, or the nearest one around it.
    fn place_of(&self, scope: usize) -> Place {
        let mut scope = Some(scope);
        while let Some(index) = scope {
            if self.scratch.targets[index] != ROOT {
                return self.scratch.targets[index];
            }
            scope = self.problem.scopes[index].parent;
        }
        ROOT
    }

    fn is_out_of_budget(&mut self) -> bool {
        let out = self.budget_left() == 0;
        self.cut |= out;
        out
    }

    /// Every scope has its domain: packs the items, quickly and then, where that may pay, exactly.
    fn pack(&mut self) {
        self.work.packings += 1;
        self.scratch.places.clear();
        for item in &self.problem.items {
            let place = self.place_of(item.scope);
            self.scratch.places.push(place);
        }
        let mut filled = self.try_to_fill(false);
        // Items that leave room for each other on shared hosts may need fewer.
        if self.problem.items.len() > 1 && (!filled || self.is_worth_it()) {
            filled |= self.try_to_fill(true);
        }
        if !filled || self.is_worth_it() {
            self.pack_exactly();
        }
    }

    fn try_to_fill(&mut self, shares: bool) -> bool {
        let filled = self.fill_all(shares);
        if filled {
            self.offer_puts();
        }
        self.scratch.overlay.clear_puts(self.view);
        filled
    }

    /// Large pods first, and of equal ones those with the least choice.
    fn fill_all(&mut self, shares: bool) -> bool {
        let problem = self.problem;
        let scratch = &mut *self.scratch;
        scratch.packing_order.clear();
        scratch.packing_order.extend(0..problem.items.len());
        let places = &scratch.places;
        let size = |item: usize| {
            problem
                .scarce
                .map_or(0, |scarce| self.view.shape(problem, item).requests.get(scarce))
        };
        scratch
            .packing_order
            .sort_unstable_by_key(|item| (Reverse((size(*item), places[*item].depth)), *item));
        for index in 0..scratch.packing_order.len() {
            let item = scratch.packing_order[index];
            let pods = problem.items[item].pods;
            let job = Job {
                view: self.view,
                problem,
                item,
                place: scratch.places[item],
                pods,
                shares: shares && index + 1 < scratch.packing_order.len(),
            };
            let placed = scratch.filler.fill(job, &mut scratch.overlay, self.work);
            if placed < pods {
                return false;
            }
        }
        true
    }

    fn pack_exactly(&mut self) {
        if self.problem.is_apart {
            return self.pack_apart();
        }
        // With less shortfall than the best, any packing is better.
        let limit = self.best.filter(|best| best.shortfall() == self.shortfall);
        let task = Task {
            view: self.view,
            problem: self.problem,
            places: &self.scratch.places,
            better_than: limit.as_ref(),
            states_max: self.states_max(),
        };
        let packed = self
            .scratch
            .packer
            .pack(task, &self.scratch.overlay, self.work, &mut self.scratch.found);
        match packed {
            Ok(false) => {}
            // Where the quick packing failed this leaves open whether there is one; else, whether there is a better one.
            Err(TooLarge) => self.cut = true,
            Ok(true) => {
                for index in 0..self.scratch.found.len() {
                    let put = self.scratch.found[index];
                    let shape = self.view.shape(self.problem, put.item);
                    self.scratch.overlay.put(self.view, put, shape, &self.problem.resources);
                }
                self.offer_puts();
                self.scratch.overlay.clear_puts(self.view);
            }
        }
    }

    fn pack_apart(&mut self) {
        let mut best = self.best;
        let trial = Trial {
            view: self.view,
            problem: self.problem,
            places: &self.scratch.places,
            shortfall: self.shortfall,
            states_max: self.states_max(),
        };
        let ended = trial.run(&mut self.scratch.overlay, self.work, &mut best, &mut self.scratch.found);
        self.cut |= !ended;
        if best != self.best {
            if self.best.is_none() {
                self.spent_to_find = self.work.total();
                self.hosts_to_find = self.work.hosts;
            }
            self.best = best;
            self.scratch.best.clone_from(&self.scratch.found);
        }
        self.scratch.overlay.clear_puts(self.view);
    }

    /// Keeps what the overlay holds if it is better than what was known.
    fn offer_puts(&mut self) {
        let mut rank = self.scratch.overlay.used;
        rank.set_shortfall(self.shortfall);
        if self.best.is_some_and(|best| best <= rank) {
            return;
        }
        if self.best.is_none() {
            self.spent_to_find = self.work.total();
            self.hosts_to_find = self.work.hosts;
        }
        self.best = Some(rank);
        self.scratch.best.clone_from(&self.scratch.overlay.puts);
    }

    /// States that exact packing may take here: few, if all it could do is to make the placement tighter.
    fn states_max(&self) -> u64 {
        let layout = self.scratch.overlay.layout;
        let only_tighter = |best: Rank| layout.visible(&self.floor_rank()) >= layout.visible(&best);
        let left = self.budget_left();
        if !self.best.is_some_and(only_tighter) {
            return left;
        }
        left.min(
            self.budget
                .tighten
                .saturating_sub(self.work.total() - self.spent_to_find),
        )
    }

    fn budget_left(&self) -> u64 {
        let spent = self.work.total();
        match self.best {
            None => self.budget.find.saturating_sub(spent),
            Some(best) => {
                let is_mixed = self.problem.items.len() > 1;
                // A large gang that is packed once more without being better costs more than all else.
                let weight = if is_mixed { 0 } else { PACKING_WEIGHT - 1 };
                let packed = (self.work.hosts - self.hosts_to_find) * weight;
                let layout = self.scratch.overlay.layout;
                let saves_domains = layout.above_hosts(&self.floor_rank()) < layout.above_hosts(&best);
                let weight = if saves_domains { SAVING_WEIGHT } else { self.patience };
                let allowed = self.budget.improve.saturating_mul(weight);
                allowed.saturating_sub(spent - self.spent_to_find + packed)
            }
        }
    }
}
