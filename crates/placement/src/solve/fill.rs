//! Puts the pods of one item into a place: fewest domains level by level, then fewest hosts, then the tightest ones.
//!
//! Level by level the fewest domains are chosen out of those below the ones chosen before: the ones that the gang uses
//! already are free, then the largest, the last one as tight as it may be; then single domains are exchanged while that
//! lowers what the levels below will need. For one shape the number of domains at one level, and of hosts in given
//! domains, is the least possible; over several levels it is a good guess that `exact` improves where it can afford to.

use std::cmp::Reverse;

use crate::counts::Histogram;
use crate::plan::Work;
use crate::solve::overlay::{Overlay, Put, View, opens};
use crate::solve::problem::Problem;
use crate::topology::Place;

#[derive(Debug, Default)]
pub(crate) struct Filler {
    /// Pods of the item's shape that tried pods keep out of each domain.
    lost: Vec<u32>,
    lost_in: Vec<u32>,
    pool: Vec<u32>,
    next: Vec<Choice>,
    hosts: Vec<Host>,
    children: Vec<u32>,
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
    opens: u64,
}

/// What a set of domains would still need below; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub(crate) children: u32,
    pub(crate) hosts: u32,
    pub(crate) opens: u64,
}

/// What is being filled.
#[derive(Clone, Copy)]
struct Job<'a> {
    view: View<'a>,
    problem: &'a Problem,
    item: usize,
}

/// Exchanges of domains that are weighed at most, per level.
const EXCHANGES_MAX: usize = 256;

impl Filler {
    /// Puts up to `pods` pods of an item into a place; returns how many found room.
    pub(crate) fn fill(
        &mut self,
        (view, problem): (View, &Problem),
        overlay: &mut Overlay,
        (item, place, pods): (usize, Place, u32),
        work: &mut Work,
    ) -> u32 {
        let job = Job { view, problem, item };
        let last_depth = view.tree.last_depth();
        self.hosts.clear();
        if place.depth > last_depth {
            self.push_host(job, overlay, place.id);
            return self.fill_hosts(job, overlay, pods);
        }
        self.count_lost(job, overlay);
        self.pool.clear();
        self.pool.push(place.id);
        for depth in place.depth + 1..=last_depth {
            self.narrow(job, overlay, depth, pods);
        }
        for index in 0..self.pool.len() {
            let domain = &view.tree.domains[self.pool[index] as usize];
            work.hosts += domain.nodes.len() as u64;
            for node in &domain.nodes {
                self.push_host(job, overlay, *node);
            }
        }
        self.forget_lost();
        self.fill_hosts(job, overlay, pods)
    }

    fn push_host(&mut self, job: Job, overlay: &Overlay, node: u32) {
        let room = job.room(overlay, node);
        if room > 0 {
            let place = Place {
                depth: job.view.tree.host_depth(),
                id: node,
            };
            self.hosts.push(Host {
                node,
                room: u32::from(room),
                used: overlay.is_used(place, place.depth),
                opens: opens(job.view, place, job.problem.scarce),
            });
        }
    }

    /// Hosts in use first, then the largest; the last one is the tightest that takes the rest.
    fn fill_hosts(&mut self, job: Job, overlay: &mut Overlay, pods: u32) -> u32 {
        self.hosts
            .sort_unstable_by_key(|host| (!host.used, Reverse(host.room), host.opens, host.node));
        let mut left = pods;
        let mut index = 0;
        while left > 0 && index < self.hosts.len() {
            if self.hosts[index].room >= left {
                let fitting = (index..self.hosts.len()).filter(|at| self.hosts[*at].room >= left);
                let tightest = fitting.min_by_key(|at| {
                    let host = &self.hosts[*at];
                    (!host.used, host.opens, host.room, host.node)
                });
                self.hosts.swap(index, tightest.unwrap_or(index));
            }
            let host = self.hosts[index];
            let pods = host.room.min(left);
            job.put(overlay, host.node, pods);
            left -= pods;
            index += 1;
        }
        pods - left
    }

    /// Replaces the chosen domains by the fewest of the next depth that hold the pods.
    fn narrow(&mut self, job: Job, overlay: &Overlay, depth: u8, pods: u32) {
        self.next.clear();
        for index in 0..self.pool.len() {
            for child in &job.view.tree.domains[self.pool[index] as usize].children {
                let room = self.pods_in(job, *child);
                if room > 0 {
                    let used = overlay.is_used(Place { depth, id: *child }, job.view.tree.host_depth());
                    self.next.push(Choice {
                        domain: *child,
                        pods: room,
                        used,
                    });
                }
            }
        }
        self.next
            .sort_unstable_by_key(|choice| (!choice.used, Reverse(choice.pods), choice.domain));
        let free = self.next.partition_point(|choice| choice.used);
        let mut left = pods;
        for choice in &self.next[..free] {
            left = left.saturating_sub(choice.pods);
        }
        let mut count = 0;
        let mut rest = left;
        while rest > 0 && free + count < self.next.len() {
            rest = rest.saturating_sub(self.next[free + count].pods);
            count += 1;
        }
        if count > 0 && rest == 0 {
            self.tighten(job, free, count, left);
        }
        self.pool.clear();
        self.pool
            .extend(self.next[..free + count].iter().map(|choice| choice.domain));
    }

    /// Of all ways to take `count` new domains after the first `free`, looks for one that needs least below.
    fn tighten(&mut self, job: Job, free: usize, count: usize, pods: u32) {
        if count == 1 {
            let fitting = self.next[free..].partition_point(|choice| choice.pods >= pods);
            let weigh = |at: usize| (self.need(job, &[self.next[free + at].domain], pods), at);
            // Without anything to tell them apart but tightness there is no need to weigh all.
            if let Some((_, best)) = (0..fitting).map(weigh).min() {
                self.next.swap(free, free + best);
            }
            return;
        }
        let head: u32 = self.next[free..free + count - 1].iter().map(|choice| choice.pods).sum();
        let rest = pods.saturating_sub(head);
        let last = self.next[free..].partition_point(|choice| choice.pods >= rest);
        self.next.swap(free + count - 1, free + last - 1);
        self.exchange(job, free, count, pods);
    }

    /// Exchanges one chosen domain for one that is not while that lowers the need.
    fn exchange(&mut self, job: Job, free: usize, count: usize, pods: u32) {
        let mut set: Vec<u32> = self.next[free..free + count]
            .iter()
            .map(|choice| choice.domain)
            .collect();
        let mut room: u64 = self.next[free..free + count]
            .iter()
            .map(|choice| u64::from(choice.pods))
            .sum();
        let mut best = self.need(job, &set, pods);
        let mut weighed = 0;
        let mut moved = true;
        while moved {
            moved = false;
            for inside in 0..count {
                for outside in free + count..self.next.len() {
                    let (mine, other) = (self.next[free + inside], self.next[outside]);
                    let exchanged = room - u64::from(mine.pods) + u64::from(other.pods);
                    if exchanged < u64::from(pods) {
                        continue;
                    }
                    weighed += 1;
                    if weighed > EXCHANGES_MAX {
                        return;
                    }
                    set[inside] = other.domain;
                    let need = self.need(job, &set, pods);
                    if need < best {
                        (best, room, moved) = (need, exchanged, true);
                        self.next.swap(free + inside, outside);
                    } else {
                        set[inside] = mine.domain;
                    }
                }
            }
        }
    }

    /// What `pods` pods would need of the children and hosts of some domains.
    fn need(&mut self, job: Job, set: &[u32], pods: u32) -> Need {
        let shape = job.view.shape(job.problem, job.item);
        let counts = shape.counts(job.view.topology);
        let mut hosts = Histogram::default();
        let mut opens = 0;
        self.children.clear();
        for domain in set {
            hosts.merge(&counts.hosts[*domain as usize]);
            opens += job
                .problem
                .scarce
                .map_or(0, |scarce| job.view.tree.free(*domain, scarce.0));
            for child in &job.view.tree.domains[*domain as usize].children {
                self.children
                    .push(counts.pods[*child as usize] - self.lost.get(*child as usize).copied().unwrap_or(0));
            }
        }
        Need {
            children: fewest(&mut self.children, pods),
            hosts: hosts.hosts_for(pods),
            opens,
        }
    }

    /// Pods of the item's shape that a domain has room for.
    fn pods_in(&self, job: Job, domain: u32) -> u32 {
        let shape = job.view.shape(job.problem, job.item);
        let pods = shape.counts(job.view.topology).pods[domain as usize];
        pods - self.lost.get(domain as usize).copied().unwrap_or(0)
    }

    /// Counts how much room the pods tried so far take from the item's shape.
    fn count_lost(&mut self, job: Job, overlay: &Overlay) {
        self.lost.resize(job.view.tree.domains.len().max(self.lost.len()), 0);
        let shape = job.view.shape(job.problem, job.item);
        for node in overlay.touched() {
            let lost = shape.rooms[*node as usize] - job.room(overlay, *node);
            if lost > 0 {
                for domain in job.view.tree.path(*node) {
                    self.lost[*domain as usize] += u32::from(lost);
                    self.lost_in.push(*domain);
                }
            }
        }
    }

    fn forget_lost(&mut self) {
        for domain in self.lost_in.drain(..) {
            self.lost[domain as usize] = 0;
        }
    }
}

impl Job<'_> {
    fn room(&self, overlay: &Overlay, node: u32) -> u16 {
        let shape = self.view.shape(self.problem, self.item);
        overlay.room(self.view, shape, node, &self.problem.resources)
    }

    fn put(&self, overlay: &mut Overlay, node: u32, pods: u32) {
        let shape = self.view.shape(self.problem, self.item);
        overlay.put(
            self.view,
            Put {
                item: self.item,
                node,
                pods,
            },
            shape,
            &self.problem.resources,
        );
    }
}

/// The fewest of these that add up to `pods`; 0 without any.
pub(crate) fn fewest(rooms: &mut [u32], pods: u32) -> u32 {
    rooms.sort_unstable_by_key(|room| Reverse(*room));
    let mut left = pods;
    let mut count = 0;
    for room in rooms {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(*room);
        count += 1;
    }
    count
}
