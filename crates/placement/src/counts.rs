//! How many pods of one shape fit, per node and per domain, kept up to date by the change.
//!
//! Per domain there is the sum of rooms and a histogram of the rooms of its nodes. Both add up the tree, so "does it
//! fit?", "how many hosts would it take?" are answered for any domain without descending into it.

use crate::topology::Tree;

/// Rooms up to 16 have a bucket of their own (an 8-GPU host has nine); above, a bucket spans a range.
const BUCKETS: usize = 24;
const LARGEST_EXACT: u16 = 16;
const UPPER: [u16; BUCKETS - 17] = [24, 32, 48, 64, 128, 256, u16::MAX];

/// The nodes of a domain by room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram([u32; BUCKETS]);

fn bucket(room: u16) -> usize {
    if room <= LARGEST_EXACT {
        return usize::from(room);
    }
    17 + UPPER.partition_point(|upper| *upper < room)
}

/// The largest room that a bucket stands for.
fn largest(bucket: usize) -> u32 {
    if bucket < 17 {
        bucket as u32
    } else {
        u32::from(UPPER[bucket - 17])
    }
}

impl Histogram {
    fn add(&mut self, room: u16) {
        self.0[bucket(room)] += 1;
    }

    fn remove(&mut self, room: u16) {
        self.0[bucket(room)] -= 1;
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// Fewest nodes that hold `pods`: never more than it really takes, and exact up to a room of 16.
    pub(crate) fn hosts_for(&self, pods: u32) -> u32 {
        let (mut left, mut hosts) = (pods, 0);
        for bucket in (1..BUCKETS).rev() {
            if left == 0 {
                break;
            }
            // Most buckets are empty, and a division costs more than a look.
            if self.0[bucket] == 0 {
                continue;
            }
            let taken = left.div_ceil(largest(bucket)).min(self.0[bucket]);
            hosts += taken;
            left = left.saturating_sub(taken * largest(bucket));
        }
        hosts
    }

    pub(crate) fn part(&mut self, other: &Histogram) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine -= theirs;
        }
    }

    /// Whether some node may hold `pods` pods; a no is certain.
    pub(crate) fn may_hold(&self, pods: u64) -> bool {
        let room = u16::try_from(pods).unwrap_or(u16::MAX);
        self.0[bucket(room)..].iter().any(|nodes| *nodes > 0)
    }

    /// Nodes that hold at least one pod.
    pub(crate) fn usable(&self) -> u32 {
        self.0[1..].iter().sum()
    }
}

/// The counts of one shape in one topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) pods: Vec<u32>,
    pub(crate) hosts: Vec<Histogram>,
}

impl Counts {
    pub(crate) fn build(tree: &Tree, rooms: &[u16]) -> Self {
        let domains = tree.domains.len();
        let mut counts = Counts {
            pods: vec![0; domains],
            hosts: vec![Histogram::default(); domains],
        };
        counts.rebuild(tree, rooms);
        counts
    }

    /// Counts everything again, in the memory that is there. Node after node, as they lie in memory; neighbours are
    /// mostly of one domain, and are added to it together.
    pub(crate) fn rebuild(&mut self, tree: &Tree, rooms: &[u16]) {
        self.grow(tree);
        self.pods.fill(0);
        self.hosts.fill(Histogram::default());
        let mut node = 0;
        while node < rooms.len() {
            let Some(domain) = tree.leaf(node as u32) else {
                node += 1;
                continue;
            };
            let same = (node..rooms.len()).take_while(|node| tree.leaf(*node as u32) == Some(domain));
            // In two halves: neighbours are often alike, and adding to one number twice in a row has to wait.
            let mut halves = [Histogram::default(); 2];
            let mut pods = 0;
            for next in same {
                pods += u32::from(rooms[next]);
                halves[next % 2].add(rooms[next]);
                node = next + 1;
            }
            self.pods[domain as usize] += pods;
            for half in &halves {
                self.hosts[domain as usize].merge(half);
            }
        }
        for depth in (1..=tree.last_depth()).rev() {
            for domain in tree.at_depth(depth) {
                let parent = tree.domains[*domain as usize].parent as usize;
                let (pods, hosts) = (self.pods[*domain as usize], self.hosts[*domain as usize]);
                self.pods[parent] += pods;
                self.hosts[parent].merge(&hosts);
            }
        }
    }

    /// Makes room for domains that the tree got since.
    pub(crate) fn grow(&mut self, tree: &Tree) {
        self.pods.resize(tree.domains.len(), 0);
        self.hosts.resize(tree.domains.len(), Histogram::default());
    }

    /// A node that was counted with one room now has another; `None` is a node that is not in the tree.
    pub(crate) fn shift(&mut self, path: &[u32], before: Option<u16>, after: Option<u16>) {
        for domain in path {
            let domain = *domain as usize;
            if let Some(room) = before {
                self.pods[domain] -= u32::from(room);
                self.hosts[domain].remove(room);
            }
            if let Some(room) = after {
                self.pods[domain] += u32::from(room);
                self.hosts[domain].add(room);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(rooms: &[u16]) -> Histogram {
        let mut histogram = Histogram::default();
        for room in rooms {
            histogram.add(*room);
        }
        histogram
    }

    #[test]
    fn hosts_are_counted_largest_first() {
        let hosts = histogram(&[8, 8, 3, 1, 0]);
        let needed: Vec<u32> = [0, 1, 8, 9, 16, 17, 19, 20].map(|pods| hosts.hosts_for(pods)).to_vec();
        assert_eq!(needed, [0, 1, 1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn large_rooms_are_never_counted_too_small() {
        for room in [17, 24, 25, 64, 65, 110, 256, 257, u16::MAX] {
            assert!(largest(bucket(room)) >= u32::from(room));
            assert_eq!(histogram(&[room]).hosts_for(u32::from(room)), 1);
        }
    }
}
