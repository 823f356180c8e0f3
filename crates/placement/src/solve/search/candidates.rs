//! The domains that a scope could take, the most promising first.

use super::Search;
use crate::solve::fill::Need;
use crate::solve::overlay::opens;
use crate::topology::{Place, ROOT};

/// A domain that a scope could take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Domains around and at it that the gang would use anew.
    pub(super) opened: u8,
    /// It cannot hold the rest of what the scope sits in: some of that would have to open another one.
    pub(super) alone: bool,
    pub(super) need: Need,
    pub(super) place: Place,
}

/// Candidates are put in order this many at a time: mostly the first ones are all that is looked at.
const SORTED_AT_ONCE: usize = 16;

impl Search<'_> {
    /// Collects the domains of a depth that a scope could take inside its outer one.
    pub(super) fn push_candidates(&mut self, scope_index: usize, outer: Place, depth: u8) {
        let scope = &self.problem.scopes[scope_index];
        let tree = self.view.tree;
        if depth == outer.depth {
            let held = scope
                .pin
                .filter(|_| scope.required > 0)
                .map(|pin| tree.widen(pin, scope.required.min(depth).min(pin.depth)));
            if held.is_none_or(|held| tree.is_within(outer, held)) {
                self.push_candidate(scope_index, outer);
            }
            return;
        }
        if let Some(pin) = scope.pin {
            if tree.is_within(pin, outer) {
                match tree.node_of(pin) {
                    Some((node, _)) if depth > pin.depth => self.push_cells(scope_index, node),
                    _ if depth <= pin.depth => self.push_candidate(scope_index, tree.widen(pin, depth)),
                    _ => {}
                }
            }
            return;
        }
        if let Some((node, _)) = tree.node_of(outer) {
            return self.push_cells(scope_index, node);
        }
        let domain_depth = depth.min(tree.last_depth());
        if outer == ROOT {
            return self.push_below(scope_index, depth, tree.at_depth(domain_depth));
        }
        let mut domains = std::mem::take(&mut self.scratch.domains);
        domains.clear();
        tree.domains_within(outer, domain_depth, &mut domains);
        self.push_below(scope_index, depth, &domains);
        self.scratch.domains = domains;
    }

    /// Collects out of some domains: themselves, or their hosts or cells if that is the depth.
    fn push_below(&mut self, scope_index: usize, depth: u8, domains: &[u32]) {
        let tree = self.view.tree;
        if depth <= tree.last_depth() {
            return self.push_domains(scope_index, depth, domains);
        }
        for id in domains {
            let domain = &tree.domains[*id as usize];
            if domain.outside || !self.may_have_host(scope_index, *id) {
                continue;
            }
            for node in &domain.nodes {
                if depth == tree.host_depth() {
                    self.push_candidate(scope_index, Place { depth, id: *node });
                } else {
                    self.push_cells(scope_index, *node);
                }
            }
        }
    }

    /// Collects domains; most that have too little room are passed over at a look.
    fn push_domains(&mut self, scope_index: usize, depth: u8, domains: &[u32]) {
        let (problem, tree) = (self.problem, self.view.tree);
        let items = &problem.scopes[scope_index].items;
        let Some(item) = problem.items.get(items.start) else {
            return;
        };
        let is_alone = items.len() == 1;
        let needed = problem.places_needed(items.clone(), item.shape);
        let pods = &self.view.shape(problem, items.start).counts(self.view.topology).pods;
        for domain in domains {
            let place = Place { depth, id: *domain };
            self.work.candidates += 1;
            let has_room = u64::from(pods[*domain as usize]) >= needed;
            if has_room && !tree.domains[*domain as usize].outside && (is_alone || self.can_hold(place, items.clone()))
            {
                self.push_fitting(scope_index, place);
            }
        }
    }

    /// The cells of a node; a node that states none is one.
    fn push_cells(&mut self, scope_index: usize, node: u32) {
        for cell in 0..self.view.cells.count(node).max(1) {
            self.push_candidate(scope_index, self.view.tree.cell(node, cell as u8));
        }
    }

    fn push_candidate(&mut self, scope_index: usize, place: Place) {
        self.work.candidates += 1;
        let items = self.problem.scopes[scope_index].items.clone();
        if self.can_hold(place, items) {
            self.push_fitting(scope_index, place);
        }
    }

    /// Adds a place that may hold the scope.
    fn push_fitting(&mut self, scope_index: usize, place: Place) {
        let items = self.problem.scopes[scope_index].items.clone();
        let around = place.depth.min(self.view.tree.host_depth());
        let overlay = &self.scratch.overlay;
        let is_new = |depth: &u8| !overlay.is_used(self.view.tree.widen(place, *depth));
        let opened = if overlay.is_unused() {
            around
        } else {
            (1..=around).filter(is_new).count() as u8
        };
        let outer = self.problem.scopes[scope_index]
            .parent
            .map_or(0..0, |parent| self.problem.scopes[parent].items.clone());
        let alone = outer.len() > items.len() && !self.can_hold(place, outer);
        let need = self.need(place, items);
        self.scratch.candidates.push(Candidate {
            opened,
            alone,
            need,
            place,
        });
    }

    /// Puts the next candidates from `at` on in order; returns where the order ends.
    pub(super) fn sort_some(&mut self, at: usize) -> usize {
        let view = self.view;
        let scarce = self.problem.scarce;
        // What is opened around a place tells apart what is alike otherwise; narrow domains count first.
        let around = |candidate: &Candidate, other: &Candidate| {
            let opened = |of: &Candidate, depth| opens(view, view.tree.widen(of.place, depth), scarce);
            let deepest = candidate.place.depth.min(view.tree.host_depth());
            let depths = (deepest - candidate.opened + 1..deepest).rev();
            let different = depths.map(|depth| opened(candidate, depth).cmp(&opened(other, depth)));
            different
                .into_iter()
                .find(|order| order.is_ne())
                .unwrap_or(candidate.place.cmp(&other.place))
        };
        let order = |one: &Candidate, other: &Candidate| {
            let known = (one.opened, one.alone, one.need).cmp(&(other.opened, other.alone, other.need));
            known.then_with(|| around(one, other))
        };
        let rest = &mut self.scratch.candidates[at..];
        let count = rest.len().min(SORTED_AT_ONCE);
        if count < rest.len() {
            rest.select_nth_unstable_by(count, order);
        }
        rest[..count].sort_unstable_by(order);
        at + count
    }
}
