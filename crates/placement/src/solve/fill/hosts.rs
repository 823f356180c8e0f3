//! Which of the hosts in chosen domains take the pods, and how many each.

use std::cmp::{Ordering, Reverse};

use super::Job;
use crate::solve::overlay::Overlay;
use crate::solve::rank::Objective;
use crate::solve::rooms::{Last, Rooms};

/// Hosts with room, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    list: Vec<Host>,
    alike: Vec<Host>,
    /// Rooms of the hosts that are in use, and of those that are not.
    rooms: [Rooms; 2],
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
    /// What taking the host costs beside its room; of hosts with equal room the least comes first.
    fn loss(&self) -> (u64, u64, u32) {
        (self.penalty, self.opens, self.node)
    }
}

impl Hosts {
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    pub(super) fn push(&mut self, job: Job, overlay: &Overlay, nodes: &[u32]) {
        let shape = job.shape();
        let rules = job.view.rules(shape);
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
            self.list.push(Host {
                node: *node,
                room: u32::from(room),
                used: overlay.is_used_node(*node),
                penalty: rules.penalty(*node),
                opens: free.map_or(0, |free| free[*node as usize].max(0) as u64),
            });
        }
    }

    /// Puts as many pods as find room; returns how many.
    pub(super) fn fill(&mut self, job: Job, overlay: &mut Overlay) -> u32 {
        if overlay.layout.objective != Objective::FewestHosts {
            self.order_fragments_first(job.pods);
        } else if let Some((used, last)) = self.last_needed(job.pods) {
            self.fill_largest(job, overlay, (used, last));
            return job.pods;
        }
        let mut left = job.pods;
        let taken = self.list.iter().map_while(|host| {
            let pods = host.room.min(left);
            left -= pods;
            (pods > 0).then_some((host.node, pods))
        });
        job.put(overlay, taken);
        job.pods - left
    }

    /// The last of the fewest hosts that hold the pods, those in use first and then the largest; none if all hosts do not
    /// hold them.
    fn last_needed(&mut self, pods: u32) -> Option<(bool, Last)> {
        let [used, unused] = &mut self.rooms;
        used.clear();
        unused.clear();
        for host in &self.list {
            if host.used { &mut *used } else { &mut *unused }.add(host.room);
        }
        match used.last_of_fewest(pods) {
            Ok(last) => Some((true, last)),
            Err(left) => unused.last_of_fewest(left).ok().map(|last| (false, last)),
        }
    }

    /// Fills the fewest hosts in their order, all but one, which is the tightest that takes the rest, unless what it has
    /// left is for others.
    fn fill_largest(&mut self, job: Job, overlay: &mut Overlay, (used, last): (bool, Last)) {
        let smallest = self.last_alike(used, last);
        let is_filled = |host: &Host| match (host.used, host.room).cmp(&(used, last.room)) {
            Ordering::Equal => host.loss() < smallest.loss(),
            larger => larger.is_gt(),
        };
        let mut takes_rest = smallest;
        // One that is filled by the rest is the tightest.
        if !job.shares && last.rest < last.room {
            let open = self
                .list
                .iter()
                .filter(|host| host.room >= last.rest && !is_filled(host));
            let tightest = open.min_by_key(|host| (!host.used, host.penalty, host.opens, host.room, host.node));
            takes_rest = tightest.copied().unwrap_or(smallest);
        }
        let taken = self.list.iter().filter_map(|host| {
            let rest = (host.node == takes_rest.node).then_some(last.rest);
            let pods = if is_filled(host) { Some(host.room) } else { rest };
            pods.map(|pods| (host.node, pods))
        });
        job.put(overlay, taken);
    }

    /// Of the hosts that are as large as the last one that is needed, in use or not, the last that is taken.
    fn last_alike(&mut self, used: bool, last: Last) -> Host {
        let is_alike = |host: &&Host| (host.used, host.room) == (used, last.room);
        let at = last.alike as usize - 1;
        // Mostly they were found in their order.
        let (mut wanted, mut before) = (None, None);
        for (seen, host) in self.list.iter().filter(is_alike).enumerate() {
            if before > Some(host.loss()) {
                wanted = None;
                break;
            }
            before = Some(host.loss());
            if seen == at {
                wanted = Some(*host);
            }
        }
        if let Some(host) = wanted {
            return host;
        }
        self.alike.clear();
        self.alike.extend(self.list.iter().filter(is_alike));
        *self.alike.select_nth_unstable_by_key(at, Host::loss).1
    }

    /// Hosts in use first, then those with the least free; what the last ones make superfluous is left out.
    fn order_fragments_first(&mut self, pods: u32) {
        let key = |host: &Host| (host.penalty, !host.used, host.opens, Reverse(host.room), host.node);
        // Each host takes a pod, so no more hosts than pods are looked at.
        let most = pods as usize;
        if most < self.list.len() {
            self.list.select_nth_unstable_by_key(most, key);
            self.list.truncate(most);
        }
        self.list.sort_unstable_by_key(key);
        let mut total = 0;
        let covered = self.list.iter().position(|host| {
            total += host.room;
            total >= pods
        });
        let Some(last) = covered else { return };
        self.list.truncate(last + 1);
        let mut spare = total - pods;
        for at in (0..self.list.len()).rev() {
            if !self.list[at].used && self.list[at].room <= spare {
                spare -= self.list[at].room;
                self.list.remove(at);
            }
        }
    }
}
