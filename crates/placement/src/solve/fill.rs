//! Puts the pods of one item into a place: fewest domains level by level, then hosts as the policy has it.
//!
//! Level by level the fewest domains are chosen out of those below the ones chosen before: the ones that the gang uses
//! already are free, then the largest, the last one as tight as it may be; then single domains are exchanged while that
//! lowers what the levels below will need. For one shape the number of domains at one level, and of hosts in given
//! domains, is the least possible; over several levels it is a good guess that `exact` improves where it can afford to.

mod hosts;

use std::cmp::Reverse;

use crate::counts::{Counts, Histogram};
use crate::plan::Work;
use crate::shapes::ShapeState;
use crate::solve::overlay::{Overlay, Put, View};
use crate::solve::problem::Problem;
use crate::solve::rank::Objective;
use crate::solve::rooms::Rooms;
use crate::topology::Place;
use hosts::Hosts;

/// Pods of an item that are to go into a place.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) view: View<'a>,
    pub(crate) problem: &'a Problem,
    pub(crate) item: usize,
    pub(crate) place: Place,
    pub(crate) pods: u32,
    /// More items follow: the last host need not be tight, what it has left is for them.
    pub(crate) shares: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Filler {
    /// Pods of the item's shape that tried pods keep out of each domain, and where that is not 0.
    lost: Vec<u32>,
    lost_in: Vec<u32>,
    pool: Vec<u32>,
    next: Vec<Choice>,
    chosen: Chosen,
    all: Chosen,
    /// The children of the chosen domains after an exchange.
    trial: Rooms,
    /// Rooms of the domains below each choice, one after the other.
    below: Vec<u32>,
    /// The chosen domains by their first node: that and the domain in one number, which is quick to compare.
    by_node: Vec<u64>,
    hosts: Hosts,
    pub(crate) rooms: Rooms,
}

/// A domain that could be used.
#[derive(Clone, Copy, Debug)]
struct Choice {
    domain: u32,
    pods: u32,
    used: bool,
    /// What it has free of the scarce resource.
    opens: u64,
    /// Where the rooms of the domains right below it lie.
    below: (u32, u32),
}

impl Choice {
    /// The order of domains that are used or not: the largest first. One number, which is quick to compare.
    fn largest_first(&self) -> u64 {
        u64::from(u32::MAX - self.pods) << 32 | u64::from(self.domain)
    }

    fn rooms<'a>(&self, below: &'a [u32]) -> &'a [u32] {
        &below[self.below.0 as usize..self.below.1 as usize]
    }
}

/// What a set of domains needs below; less is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub(crate) children: u32,
    /// Not asked for when hosts are spared rather than saved.
    pub(crate) hosts: u32,
    pub(crate) opens: u64,
}

/// Exchanges of domains that are weighed at most, per level.
const EXCHANGES_MAX: usize = 128;

impl Filler {
    /// Puts as many pods as find room; returns how many.
    pub(crate) fn fill(&mut self, job: Job, overlay: &mut Overlay, work: &mut Work) -> u32 {
        let last_depth = job.view.tree.last_depth();
        self.hosts.clear();
        if job.pods == 0 {
            return 0;
        }
        if !job.shape().marks.is_empty() {
            return self.fill_apart(job, overlay, work);
        }
        if let Some((node, _)) = job.view.node_of(job.place) {
            work.hosts += 1;
            self.hosts.push(job, overlay, &[node]);
            return self.hosts.fill(job, overlay);
        }
        self.count_lost(job, overlay);
        self.pool.clear();
        self.pool.push(job.place.id);
        if overlay.layout.objective == Objective::LeastLoss {
            // Fragments lie anywhere, and which domains they are in comes last.
            let mut domains = std::mem::take(&mut self.pool);
            domains.clear();
            job.view.tree.domains_within(job.place, last_depth, &mut domains);
            self.pool = domains;
        } else {
            for depth in job.place.depth + 1..=last_depth {
                self.narrow(job, overlay, depth);
            }
        }
        // In the order of the nodes, so that a plan comes in its order.
        let nodes = |domain: u32| &job.view.tree.domains[domain as usize].nodes;
        self.by_node.clear();
        let first = |domain: &u32| nodes(*domain).first().copied().unwrap_or_default();
        let by_first = |domain: &u32| u64::from(first(domain)) << 32 | u64::from(*domain);
        self.by_node.extend(self.pool.iter().map(by_first));
        self.by_node.sort_unstable();
        for by_first in &self.by_node {
            let nodes = nodes(*by_first as u32);
            work.hosts += nodes.len() as u64;
            self.hosts.push(job, overlay, nodes);
        }
        for domain in self.lost_in.drain(..) {
            self.lost[domain as usize] = 0;
        }
        self.hosts.fill(job, overlay)
    }

    /// Puts pods that are kept apart from others one host after the other: each one may close others. A host whose
    /// domains are in use already comes first, then the one with most room.
    fn fill_apart(&mut self, job: Job, overlay: &mut Overlay, work: &mut Work) -> u32 {
        let tree = job.view.tree;
        self.pool.clear();
        if let Some((node, _)) = job.view.node_of(job.place) {
            self.pool.push(node);
        } else {
            self.lost_in.clear();
            tree.domains_within(job.place, tree.last_depth(), &mut self.lost_in);
            for domain in self.lost_in.drain(..) {
                self.pool.extend_from_slice(&tree.domains[domain as usize].nodes);
            }
        }
        let mut left = job.pods;
        while left > 0 {
            work.hosts += self.pool.len() as u64;
            let open = self
                .pool
                .iter()
                .map(|node| (*node, u32::from(job.room(overlay, *node))));
            let best = open.filter(|(_, room)| *room > 0).min_by_key(|(node, room)| {
                let is_new = |depth| !overlay.is_used(tree.above(*node, depth));
                let opened = (1..=tree.host_depth()).fold(0_u32, |all, depth| all << 1 | u32::from(is_new(depth)));
                (opened, Reverse((*room).min(left)), *node)
            });
            let Some((best, _)) = best else { break };
            // With it the other hosts of its domain, as far as it leaves them open.
            let near = &tree.domains[tree.above(best, tree.last_depth()).id as usize].nodes;
            let near = near.iter().copied().filter(|node| tree.holds(job.place, *node));
            for node in std::iter::once(best).chain(near) {
                let pods = u32::from(job.room(overlay, node)).min(left);
                if pods > 0 {
                    job.put(overlay, std::iter::once((node, pods)));
                    left -= pods;
                }
            }
        }
        job.pods - left
    }

    /// Replaces the chosen domains by the fewest of the next depth that hold the pods.
    fn narrow(&mut self, job: Job, overlay: &Overlay, depth: u8) {
        self.next.clear();
        let counts = job.counts();
        for index in 0..self.pool.len() {
            for child in &job.view.tree.domains[self.pool[index] as usize].children {
                let pods = counts.pods[*child as usize] - self.lost[*child as usize];
                if pods > 0 {
                    let used = overlay.is_used(Place { depth, id: *child });
                    self.next.push(Choice {
                        domain: *child,
                        pods,
                        used,
                        opens: 0,
                        below: (0, 0),
                    });
                }
            }
        }
        self.next
            .sort_unstable_by_key(|choice| (!choice.used, choice.largest_first()));
        let free = self.next.partition_point(|choice| choice.used);
        let left = self.next[..free]
            .iter()
            .fold(job.pods, |left, choice| left.saturating_sub(choice.pods));
        let (mut rest, mut count) = (left, 0);
        while rest > 0 && free + count < self.next.len() {
            rest = rest.saturating_sub(self.next[free + count].pods);
            count += 1;
        }
        if count > 0 && rest == 0 {
            self.tighten(Job { pods: left, ..job }, overlay.layout.objective, free, count);
        }
        self.pool.clear();
        self.pool
            .extend(self.next[..free + count].iter().map(|choice| choice.domain));
    }

    /// Of all ways to take `count` new domains after the first `free`, looks for one that needs least below.
    fn tighten(&mut self, job: Job, objective: Objective, free: usize, count: usize) {
        self.chosen.clear();
        self.look_below(job, free);
        if count == 1 {
            let fitting = self.next[free..].partition_point(|choice| choice.pods >= job.pods);
            let mut best: Option<(Need, usize)> = None;
            for at in free..free + fitting {
                self.chosen.clear();
                self.chosen.add(&self.next[at], &job.counts().hosts, &self.below);
                let need = (self.chosen.need(job.pods, objective), at);
                if best.is_none_or(|best| need < best) {
                    best = Some(need);
                }
            }
            if let Some((_, at)) = best {
                self.next.swap(free, at);
            }
            return;
        }
        let head: u32 = self.next[free..free + count - 1].iter().map(|choice| choice.pods).sum();
        let rest = job.pods.saturating_sub(head);
        let last = self.next[free..].partition_point(|choice| choice.pods >= rest);
        self.next.swap(free + count - 1, free + last - 1);
        let hosts = &job.counts().hosts;
        for choice in &self.next[free..free + count] {
            self.chosen.add(choice, hosts, &self.below);
        }
        self.exchange(job, objective, free, count);
    }

    /// Notes what the choices after the first `free` have free, and the rooms below them.
    fn look_below(&mut self, job: Job, free: usize) {
        let (counts, tree) = (job.counts(), job.view.tree);
        self.below.clear();
        for choice in &mut self.next[free..] {
            let children = tree.domains[choice.domain as usize].children.iter();
            let rooms = children.map(|child| counts.pods[*child as usize] - self.lost[*child as usize]);
            let start = self.below.len() as u32;
            self.below.extend(rooms);
            choice.below = (start, self.below.len() as u32);
            choice.opens = job.opens(choice.domain);
        }
    }

    /// Exchanges one chosen domain for one that is not while that lowers the need.
    fn exchange(&mut self, job: Job, objective: Objective, free: usize, count: usize) {
        let mut room: u32 = self.next[free..free + count].iter().map(|choice| choice.pods).sum();
        let mut best = self.chosen.need(job.pods, objective);
        let least = self.least_need(job, objective, free);
        let largest = |next: &[Choice]| next[free + count..].iter().map(|choice| choice.pods).max();
        let mut most = largest(&self.next).unwrap_or(0);
        let mut weighed = 0;
        let mut moved = true;
        while moved {
            moved = false;
            for inside in free..free + count {
                if room - self.next[inside].pods + most < job.pods {
                    continue;
                }
                for outside in free + count..self.next.len() {
                    let (mine, other) = (self.next[inside], self.next[outside]);
                    let exchanged = room - mine.pods + other.pods;
                    if exchanged < job.pods {
                        continue;
                    }
                    weighed += 1;
                    if weighed > EXCHANGES_MAX {
                        return;
                    }
                    // Where nothing below can be saved any more, an exchange that opens more is not worth a count.
                    let is_least = (best.children, best.hosts) == (least.children, least.hosts);
                    if is_least && other.opens >= mine.opens {
                        continue;
                    }
                    if let Some(need) = self.weigh(job, objective, (mine, other), best) {
                        (best, room, moved) = (need, exchanged, true);
                        self.next.swap(inside, outside);
                        most = largest(&self.next).unwrap_or(0);
                    }
                }
            }
        }
    }

    /// Exchanges a chosen domain for another if that needs less than the best so far; returns what it needs then.
    fn weigh(&mut self, job: Job, objective: Objective, (mine, other): (Choice, Choice), best: Need) -> Option<Need> {
        self.trial.copy(&self.chosen.children);
        self.trial.exchange(mine.rooms(&self.below), other.rooms(&self.below));
        let children = self.trial.fewest(job.pods);
        // Mostly the children settle it, and the hosts need not be counted.
        if children > best.children {
            return None;
        }
        let hosts = &job.counts().hosts;
        self.chosen.shift_hosts(&mine, &other, hosts);
        let need = self.chosen.need_above(children, job.pods, objective);
        if need < best {
            self.chosen.children.copy(&self.trial);
            return Some(need);
        }
        self.chosen.shift_hosts(&other, &mine, hosts);
        None
    }

    /// What no choice among the domains after the first `free` needs less than.
    fn least_need(&mut self, job: Job, objective: Objective, free: usize) -> Need {
        self.all.clear();
        let hosts = &job.counts().hosts;
        for choice in &self.next[free..] {
            self.all.add(choice, hosts, &self.below);
        }
        self.all.need(job.pods, objective)
    }

    /// Counts how much room the pods tried so far take from the item's shape.
    fn count_lost(&mut self, job: Job, overlay: &Overlay) {
        self.lost.resize(job.view.tree.domains.len().max(self.lost.len()), 0);
        for node in overlay.touched() {
            let lost = job.shape().rooms[*node as usize] - job.room(overlay, *node);
            if lost > 0 {
                for domain in job.view.tree.path(*node) {
                    self.lost[*domain as usize] += u32::from(lost);
                    self.lost_in.push(*domain);
                }
            }
        }
    }
}

impl<'a> Job<'a> {
    fn shape(&self) -> &'a ShapeState {
        self.view.shape(self.problem, self.item)
    }

    /// The cell that the item is held in.
    fn cell(&self) -> Option<u8> {
        self.view.node_of(self.place).and_then(|(_, cell)| cell)
    }

    fn counts(&self) -> &'a Counts {
        self.shape().counts(self.view.topology)
    }

    /// What a domain has free of the scarce resource.
    fn opens(&self, domain: u32) -> u64 {
        self.problem
            .scarce
            .map_or(0, |scarce| self.view.tree.free(domain, scarce.0))
    }

    fn room(&self, overlay: &Overlay, node: u32) -> u16 {
        overlay.room(self.view, self.shape(), (node, self.cell()), &self.problem.resources)
    }

    /// Puts pods on hosts.
    fn put(&self, overlay: &mut Overlay, pods: impl Iterator<Item = (u32, u32)>) {
        let (item, cell) = (self.item, self.cell());
        let puts = pods.map(|(node, pods)| Put { item, node, cell, pods });
        overlay.put_all(self.view, puts, self.shape(), &self.problem.resources);
    }
}

/// A set of domains in sum: its children and hosts by room, and what it has free.
#[derive(Debug, Default)]
struct Chosen {
    children: Rooms,
    hosts: Histogram,
    opens: u64,
}

impl Chosen {
    fn clear(&mut self) {
        self.children.clear();
        self.hosts = Histogram::default();
        self.opens = 0;
    }

    fn add(&mut self, choice: &Choice, hosts: &[Histogram], below: &[u32]) {
        self.opens += choice.opens;
        self.hosts.merge(&hosts[choice.domain as usize]);
        for room in choice.rooms(below) {
            self.children.add(*room);
        }
    }

    /// Exchanges one domain for another, but for its children.
    fn shift_hosts(&mut self, from: &Choice, to: &Choice, hosts: &[Histogram]) {
        self.opens = self.opens - from.opens + to.opens;
        self.hosts.part(&hosts[from.domain as usize]);
        self.hosts.merge(&hosts[to.domain as usize]);
    }

    fn need(&mut self, pods: u32, objective: Objective) -> Need {
        let children = self.children.fewest(pods);
        self.need_above(children, pods, objective)
    }

    /// The need where that of children is known.
    fn need_above(&self, children: u32, pods: u32, objective: Objective) -> Need {
        let hosts = if objective == Objective::FewestHosts {
            self.hosts.hosts_for(pods)
        } else {
            0
        };
        Need {
            children,
            hosts,
            opens: self.opens,
        }
    }
}
