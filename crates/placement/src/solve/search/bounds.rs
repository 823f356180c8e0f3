//! What is known of a choice before it is followed: whether a place may hold what it would have to, and the least that
//! any placement inside it costs. Both err on one side only: a place that is refused cannot hold the items, and nothing
//! behind a choice is better than its floor.

use std::ops::Range;

use super::Search;
use crate::resources::Resource;
use crate::solve::fill::Need;
use crate::solve::overlay::opens;
use crate::solve::rank::{Objective, Rank};
use crate::topology::Place;

impl Search<'_> {
    /// Pods of a shape that a place has room for.
    pub(super) fn room(&self, place: Place, shape: usize) -> u64 {
        let shape = &self.view.shapes[self.problem.shapes[shape].0 as usize];
        if let Some(at) = self.view.node_of(place) {
            return u64::from(self.view.room_at(shape, at));
        }
        u64::from(shape.counts(self.view.topology).pods[place.id as usize])
    }

    /// Whether a domain may have a host for all items of a scope; a no is certain.
    pub(super) fn may_have_host(&self, scope_index: usize, domain: u32) -> bool {
        let items = &self.problem.scopes[scope_index].items;
        self.problem.items[items.clone()].iter().all(|item| {
            let shape = &self.view.shapes[self.problem.shapes[item.shape].0 as usize];
            let pods = self.problem.places_needed(items.clone(), item.shape);
            shape.counts(self.view.topology).hosts[domain as usize].may_hold(pods)
        })
    }

    /// Whether a place may hold some items; a no is certain.
    pub(super) fn can_hold(&self, place: Place, items: Range<usize>) -> bool {
        let has_places = |item: usize| {
            let shape = self.problem.items[item].shape;
            self.problem.places_needed(items.clone(), shape) <= self.room(place, shape)
        };
        items.clone().all(has_places) && (items.len() < 2 || self.has_amounts(place, items))
    }

    /// Whether a place has as much free as some items ask for in sum.
    pub(super) fn has_amounts(&self, place: Place, items: Range<usize>) -> bool {
        self.problem.resources.iter().all(|resource| {
            let asked = self.problem.items[items.clone()].iter().map(|item| {
                let shape = &self.view.shapes[self.problem.shapes[item.shape].0 as usize];
                shape.requests.get(*resource).saturating_mul(u64::from(item.pods))
            });
            let asked = asked.fold(0, u64::saturating_add);
            asked <= opens(self.view, place, Some(*resource)) && asked <= self.in_cell(place, *resource)
        })
    }

    /// What a place has free of a resource if it is a cell that counts it; else there is no bound.
    fn in_cell(&self, place: Place, resource: Resource) -> u64 {
        let Some((node, Some(cell))) = self.view.node_of(place) else {
            return u64::MAX;
        };
        let free = self.view.cells.free(self.view.ledger, (node, cell), resource);
        free.map_or(u64::MAX, |free| free.max(0) as u64)
    }

    /// Whether the places around a new target still hold all items that are confined to them by now.
    pub(super) fn others_fit(&self, target: Place, own: &Range<usize>) -> bool {
        if own.len() == self.problem.items.len() || self.problem.items.len() < 2 {
            return true;
        }
        let tree = self.view.tree;
        (1..=target.depth).rev().all(|depth| {
            let around = tree.widen(target, depth);
            (0..self.problem.shapes.len()).all(|shape| {
                let inside = |item: &usize| tree.is_within(self.place_of(self.problem.items[*item].scope), around);
                let pods = |item: usize| {
                    self.problem
                        .displaces(item, shape)
                        .saturating_mul(u64::from(self.problem.items[item].pods))
                };
                let needed = (0..self.problem.items.len())
                    .filter(inside)
                    .map(pods)
                    .fold(0, u64::saturating_add);
                needed <= self.room(around, shape)
            })
        })
    }

    /// The least that some items need of the domains and hosts below a place.
    pub(super) fn need(&mut self, place: Place, items: Range<usize>) -> Need {
        let opens = opens(self.view, place, self.problem.scarce);
        let mut need = Need {
            opens,
            ..Need::default()
        };
        if place.depth >= self.view.tree.host_depth() {
            return need;
        }
        let children = &self.view.tree.domains[place.id as usize].children;
        let rooms = &mut self.scratch.filler.rooms;
        for item in items.clone() {
            let shape = self.problem.items[item].shape;
            let needed = self.problem.places_needed(items.clone(), shape);
            let needed = u32::try_from(needed).unwrap_or(u32::MAX);
            let counts = self.view.shapes[self.problem.shapes[shape].0 as usize].counts(self.view.topology);
            if self.problem.objective == Objective::FewestHosts {
                need.hosts = need.hosts.max(counts.hosts[place.id as usize].hosts_for(needed));
            }
            if !children.is_empty() {
                rooms.clear();
                for child in children {
                    rooms.add(counts.pods[*child as usize]);
                }
                need.children = need.children.max(rooms.fewest(needed));
            }
        }
        need
    }

    /// Whether what is chosen so far can still lead to something better than what is known.
    pub(super) fn is_worth_it(&self) -> bool {
        self.best.is_none_or(|best| self.is_better(&self.floor_rank(), &best))
    }

    /// Whether a rank is better; being only tighter counts while the budget for that lasts.
    pub(super) fn is_better(&self, rank: &Rank, best: &Rank) -> bool {
        let layout = self.scratch.overlay.layout;
        rank < best
            && (layout.visible(rank) < layout.visible(best)
                || self.work.total() - self.spent_to_find < self.budget.tighten)
    }

    /// No placement with the domains chosen so far is better than this.
    pub(super) fn floor_rank(&self) -> Rank {
        let mut rank = self.scratch.overlay.used;
        rank.set_shortfall(self.shortfall);
        let (place, need) = self.floor;
        let layout = self.scratch.overlay.layout;
        for depth in 1..=layout.host_depth {
            let least = match depth {
                _ if depth <= place.depth => 1,
                _ if depth == layout.host_depth => need.hosts.max(need.children),
                _ => need.children,
            };
            let domains = rank.at_mut(layout.domains(depth));
            *domains = (*domains).max(u64::from(least));
            let opened = rank.at_mut(layout.opened(depth));
            *opened = (*opened).max(self.problem.scarce_demand);
        }
        rank
    }
}
