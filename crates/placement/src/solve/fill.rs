//! Puts the pods of one item into a place: fewest domains level by level, then hosts as the policy has it.
//!
//! Level by level the fewest domains are chosen out of those below the ones chosen before: the ones that the gang uses
//! already are free, then the largest, the last one as tight as it may be; then single domains are exchanged while that
//! lowers what the levels below will need. For one shape the number of domains at one level, and of hosts in given
//! domains, is the least possible; over several levels it is a good guess that `exact` improves where it can afford to.

use std::cmp::Reverse;

use crate::counts::{Counts, Histogram};
use crate::plan::Work;
use crate::shapes::ShapeState;
use crate::solve::overlay::{Overlay, Put, View};
use crate::solve::problem::Problem;
use crate::solve::rank::Objective;
use crate::solve::rooms::Rooms;
use crate::topology::Place;

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
    hosts: Vec<Host>,
    by_size: Vec<Host>,
    pub(crate) rooms: Rooms,
}

/// A domain that could be used.
#[derive(Clone, Copy, Debug)]
struct Choice {
    domain: u32,
    pods: u32,
    used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    node: u32,
    room: u32,
    used: bool,
    penalty: u64,
    opens: u64,
}

impl Host {
    /// Hosts in use come first, then the largest.
    fn size(&self) -> (bool, Reverse<u32>, u64, u64, u32) {
        (!self.used, Reverse(self.room), self.penalty, self.opens, self.node)
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
        if !job.shape().marks.is_empty() {
            return self.fill_apart(job, overlay, work);
        }
        if let Some((node, _)) = job.view.node_of(job.place) {
            work.hosts += 1;
            self.push_hosts(job, overlay, &[node]);
            return self.fill_hosts(job, overlay);
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
        let first_node = |domain: &u32| job.view.tree.domains[*domain as usize].nodes.first();
        self.pool.sort_unstable_by_key(first_node);
        for index in 0..self.pool.len() {
            let nodes = &job.view.tree.domains[self.pool[index] as usize].nodes;
            work.hosts += nodes.len() as u64;
            self.push_hosts(job, overlay, nodes);
        }
        for domain in self.lost_in.drain(..) {
            self.lost[domain as usize] = 0;
        }
        self.fill_hosts(job, overlay)
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
                    job.put(overlay, node, pods);
                    left -= pods;
                }
            }
        }
        job.pods - left
    }

    fn push_hosts(&mut self, job: Job, overlay: &Overlay, nodes: &[u32]) {
        let shape = job.shape();
        let is_counted = overlay.is_untouched() && job.cell().is_none();
        let free = job.problem.scarce.map(|scarce| job.view.ledger.column(scarce));
        for node in nodes {
            let room = if is_counted {
                shape.rooms[*node as usize]
            } else {
                job.room(overlay, *node)
            };
            if room == 0 {
                continue;
            }
            self.hosts.push(Host {
                node: *node,
                room: u32::from(room),
                used: overlay.is_used_node(*node),
                penalty: job.view.penalty(shape, *node),
                opens: free.map_or(0, |free| free[*node as usize].max(0) as u64),
            });
        }
    }

    fn fill_hosts(&mut self, job: Job, overlay: &mut Overlay) -> u32 {
        match overlay.layout.objective {
            Objective::FewestHosts => self.keep_largest(job.pods, job.shares),
            Objective::SpareHosts | Objective::LeastLoss => self.order_fragments_first(job.pods),
        }
        let mut left = job.pods;
        for host in &self.hosts {
            let pods = host.room.min(left);
            if pods == 0 {
                break;
            }
            job.put(overlay, host.node, pods);
            left -= pods;
        }
        job.pods - left
    }

    /// Keeps the fewest hosts that hold the pods, in their order: those in use first, then the largest. All are filled
    /// but one, which is the tightest that takes the rest, unless what it has left is for others.
    fn keep_largest(&mut self, pods: u32, shares: bool) {
        let count = self.fewest_hosts(pods);
        if count == 0 || count > self.hosts.len() {
            return;
        }
        self.by_size.clone_from(&self.hosts);
        let (_, smallest, _) = self.by_size.select_nth_unstable_by_key(count - 1, Host::size);
        let smallest = *smallest;
        let is_filled = |host: &Host| host.size() < smallest.size();
        let filled: u32 = self
            .hosts
            .iter()
            .filter(|host| is_filled(host))
            .map(|host| host.room)
            .sum();
        let rest = pods.saturating_sub(filled);
        let mut last = smallest;
        if !shares {
            let takes_rest = self.hosts.iter().filter(|host| host.room >= rest && !is_filled(host));
            let tightest = takes_rest.min_by_key(|host| (!host.used, host.penalty, host.opens, host.room, host.node));
            last = tightest.copied().unwrap_or(smallest);
        }
        self.hosts.retain(|host| is_filled(host) || host.node == last.node);
        if let Some(last) = self.hosts.iter_mut().find(|host| host.node == last.node) {
            last.room = rest;
        }
    }

    /// How many hosts it takes, used ones first and then the largest; more than there are if they do not suffice.
    fn fewest_hosts(&mut self, pods: u32) -> usize {
        let mut left = pods;
        let mut count = 0;
        for used in [true, false] {
            self.rooms.clear();
            for host in self.hosts.iter().filter(|host| host.used == used) {
                self.rooms.add(host.room);
            }
            let total = self.rooms.total();
            if total >= u64::from(left) {
                return count + self.rooms.fewest(left) as usize;
            }
            count += self.hosts.iter().filter(|host| host.used == used).count();
            left -= total as u32;
        }
        self.hosts.len() + 1
    }

    /// Hosts in use first, then those with the least free; what the last ones make superfluous is left out.
    fn order_fragments_first(&mut self, pods: u32) {
        let key = |host: &Host| (host.penalty, !host.used, host.opens, Reverse(host.room), host.node);
        // Each host takes a pod, so no more hosts than pods are looked at.
        let most = pods as usize;
        if most < self.hosts.len() {
            self.hosts.select_nth_unstable_by_key(most, key);
            self.hosts.truncate(most);
        }
        self.hosts.sort_unstable_by_key(key);
        let mut total = 0;
        let covered = self.hosts.iter().position(|host| {
            total += host.room;
            total >= pods
        });
        let Some(last) = covered else { return };
        self.hosts.truncate(last + 1);
        let mut spare = total - pods;
        for at in (0..self.hosts.len()).rev() {
            if !self.hosts[at].used && self.hosts[at].room <= spare {
                spare -= self.hosts[at].room;
                self.hosts.remove(at);
            }
        }
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
                    });
                }
            }
        }
        self.next
            .sort_unstable_by_key(|choice| (!choice.used, Reverse(choice.pods), choice.domain));
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
        if count == 1 {
            let fitting = self.next[free..].partition_point(|choice| choice.pods >= job.pods);
            let mut best: Option<(Need, usize)> = None;
            for at in free..free + fitting {
                let domain = self.next[at].domain;
                self.chosen.add(job, &self.lost, domain);
                let need = (self.chosen.need(job.pods, objective), at);
                self.chosen.remove(job, &self.lost, domain);
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
        for choice in &self.next[free..free + count] {
            self.chosen.add(job, &self.lost, choice.domain);
        }
        self.exchange(job, objective, free, count);
    }

    /// Exchanges one chosen domain for one that is not while that lowers the need.
    fn exchange(&mut self, job: Job, objective: Objective, free: usize, count: usize) {
        let mut room: u32 = self.next[free..free + count].iter().map(|choice| choice.pods).sum();
        let mut best = self.chosen.need(job.pods, objective);
        let least = self.least_need(job, objective, free);
        let mut weighed = 0;
        let mut moved = true;
        while moved {
            moved = false;
            for inside in free..free + count {
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
                    if is_least && job.opens(other.domain) >= job.opens(mine.domain) {
                        continue;
                    }
                    self.chosen.shift_children(job, &self.lost, (mine.domain, other.domain));
                    // Mostly the children settle it, and the hosts need not be counted.
                    if self.chosen.children.fewest(job.pods) <= best.children {
                        self.chosen.shift_hosts(job, (mine.domain, other.domain));
                        let need = self.chosen.need(job.pods, objective);
                        if need < best {
                            (best, room, moved) = (need, exchanged, true);
                            self.next.swap(inside, outside);
                            continue;
                        }
                        self.chosen.shift_hosts(job, (other.domain, mine.domain));
                    }
                    self.chosen.shift_children(job, &self.lost, (other.domain, mine.domain));
                }
            }
        }
    }

    /// What no choice among the domains after the first `free` needs less than.
    fn least_need(&mut self, job: Job, objective: Objective, free: usize) -> Need {
        self.all.clear();
        for choice in &self.next[free..] {
            self.all.add(job, &self.lost, choice.domain);
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

    /// Rooms of the domains right below one.
    fn children(&self, lost: &[u32], domain: u32) -> impl Iterator<Item = u32> {
        let counts = self.counts();
        let children = self.view.tree.domains[domain as usize].children.iter();
        children.map(|child| counts.pods[*child as usize] - lost[*child as usize])
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

    fn put(&self, overlay: &mut Overlay, node: u32, pods: u32) {
        let put = Put {
            item: self.item,
            node,
            cell: self.cell(),
            pods,
        };
        overlay.put(self.view, put, self.shape(), &self.problem.resources);
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

    fn add(&mut self, job: Job, lost: &[u32], domain: u32) {
        self.opens += job.opens(domain);
        self.hosts.merge(&job.counts().hosts[domain as usize]);
        for room in job.children(lost, domain) {
            self.children.add(room);
        }
    }

    fn remove(&mut self, job: Job, lost: &[u32], domain: u32) {
        self.opens -= job.opens(domain);
        self.hosts.part(&job.counts().hosts[domain as usize]);
        for room in job.children(lost, domain) {
            self.children.remove(room);
        }
    }

    /// Exchanges the children of one domain for those of another; its hosts and what it has free stay.
    fn shift_children(&mut self, job: Job, lost: &[u32], (from, to): (u32, u32)) {
        for room in job.children(lost, from) {
            self.children.remove(room);
        }
        for room in job.children(lost, to) {
            self.children.add(room);
        }
    }

    /// The rest of an exchange.
    fn shift_hosts(&mut self, job: Job, (from, to): (u32, u32)) {
        self.opens = self.opens - job.opens(from) + job.opens(to);
        self.hosts.part(&job.counts().hosts[from as usize]);
        self.hosts.merge(&job.counts().hosts[to as usize]);
    }

    fn need(&mut self, pods: u32, objective: Objective) -> Need {
        let hosts = if objective == Objective::FewestHosts {
            self.hosts.hosts_for(pods)
        } else {
            0
        };
        Need {
            children: self.children.fewest(pods),
            hosts,
            opens: self.opens,
        }
    }
}
