//! How much room topologies have, for people who plan: whole hosts that lie together, GPUs and hosts by state.
//!
//! It is told of every node and of every pod that takes or leaves a place. What a change touches is counted anew when
//! somebody asks, and nothing else: the cost of an answer grows with what has changed since the last one.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::topology::HOSTNAME_LABEL;
use grove_placement::{TopologySpec, Traits};

/// Sizes of gangs for which room is counted, in whole hosts.
pub const SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Topologies that are told apart; those after them are one, so that what is shown stays bounded.
const TOPOLOGIES_MAX: usize = 16;
/// The name of all topologies beyond [`TOPOLOGIES_MAX`].
const OTHERS: &str = "other";
/// How the names of the resources end that are counted: `nvidia.com/gpu`, `amd.com/gpu`.
const GPU: &str = "/gpu";
/// Taints by which Kubernetes says that a node does not work; others only choose who may use it.
const TROUBLE: &str = "node.kubernetes.io/";

/// Whether a resource is a GPU.
pub fn is_gpu(resource: &str) -> bool {
    resource.ends_with(GPU)
}

/// The hosts of a topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// They take pods, and have every label.
    pub ready: u64,
    /// Cordoned, or in trouble.
    pub unavailable: u64,
    /// A label of the topology is missing.
    pub unlabelled: u64,
}

/// The GPUs of a topology's hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    /// Pods hold them, wherever they are.
    pub used: u64,
    /// On hosts that are ready.
    pub free: u64,
    pub unavailable: u64,
    pub unlabelled: u64,
}

impl Hosts {
    fn with(self, other: Self, sum: fn(u64, u64) -> u64) -> Self {
        Self {
            ready: sum(self.ready, other.ready),
            unavailable: sum(self.unavailable, other.unavailable),
            unlabelled: sum(self.unlabelled, other.unlabelled),
        }
    }
}

impl Gpus {
    fn with(self, other: Self, sum: fn(u64, u64) -> u64) -> Self {
        Self {
            used: sum(self.used, other.used),
            free: sum(self.free, other.free),
            unavailable: sum(self.unavailable, other.unavailable),
            unlabelled: sum(self.unlabelled, other.unlabelled),
        }
    }
}

/// What a topology has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyRoom {
    pub name: String,
    /// By level, broad to narrow: for how many gangs of each of [`SIZES`] there are whole free hosts in one domain.
    pub slots: Vec<(String, [u64; SIZES.len()])>,
    pub gpus: Gpus,
    pub hosts: Hosts,
}

#[derive(Debug, Default)]
struct Host {
    /// None while only pods speak of it.
    traits: Option<Seat>,
    used: u64,
}

/// What placement looks at of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seat {
    labels: BTreeMap<String, String>,
    gpus: u64,
    is_open: bool,
}

/// What one host adds to what is told of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Share {
    gpus: Gpus,
    hosts: Hosts,
    /// The domains that have one whole free host more by it, one for each level.
    free_in: Vec<String>,
}

#[derive(Debug)]
struct Table {
    /// Words and keys of the levels that nodes have labels for.
    levels: Vec<(String, String)>,
    shares: BTreeMap<String, Share>,
    /// Whole free hosts by level and domain.
    free: BTreeMap<(usize, String), u64>,
    room: TopologyRoom,
}

/// The room of all topologies.
#[derive(Debug, Default)]
pub struct Rooms {
    hosts: BTreeMap<String, Host>,
    topologies: BTreeMap<String, Table>,
    touched: BTreeSet<String>,
    /// A topology came, changed or went.
    is_redrawn: bool,
}

impl Rooms {
    pub(crate) fn set_node(&mut self, traits: &Traits, gpus: u64) {
        let in_trouble = traits.taints.iter().any(|taint| taint.key.starts_with(TROUBLE));
        let seat = Seat {
            labels: traits.labels.clone(),
            gpus,
            is_open: !traits.unschedulable && !in_trouble,
        };
        let host = self.hosts.entry(traits.name.clone()).or_default();
        if host.traits.as_ref() != Some(&seat) {
            host.traits = Some(seat);
            self.touched.insert(traits.name.clone());
        }
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        if let Some(host) = self.hosts.get_mut(name) {
            host.traits = None;
            self.touched.insert(name.to_owned());
        }
    }

    /// A pod takes its place on a node.
    pub(crate) fn take(&mut self, node: &str, gpus: u64) {
        self.shift(node, |used| used.saturating_add(gpus), gpus);
    }

    /// A pod leaves it.
    pub(crate) fn give_back(&mut self, node: &str, gpus: u64) {
        self.shift(node, |used| used.saturating_sub(gpus), gpus);
    }

    fn shift(&mut self, node: &str, by: impl Fn(u64) -> u64, gpus: u64) {
        if gpus > 0 {
            let host = self.hosts.entry(node.to_owned()).or_default();
            host.used = by(host.used);
            self.touched.insert(node.to_owned());
        }
    }

    pub(crate) fn set_topology(&mut self, spec: &TopologySpec) {
        let down_to_host = spec.host.map_or(spec.levels.len(), |host| host + 1);
        let levels = spec.levels.iter().take(down_to_host);
        let levels: Vec<(String, String)> = levels.map(|level| (level.word.clone(), level.key.clone())).collect();
        if self
            .topologies
            .get(&spec.name)
            .is_some_and(|known| known.levels == levels)
        {
            return;
        }
        let table = Table {
            room: TopologyRoom {
                name: spec.name.clone(),
                slots: levels
                    .iter()
                    .map(|(word, _)| (word.clone(), [0; SIZES.len()]))
                    .collect(),
                ..TopologyRoom::default()
            },
            levels,
            shares: BTreeMap::new(),
            free: BTreeMap::new(),
        };
        self.topologies.insert(spec.name.clone(), table);
        self.is_redrawn = true;
        self.touched.extend(self.hosts.keys().cloned());
    }

    pub(crate) fn remove_topology(&mut self, name: &str) {
        self.is_redrawn |= self.topologies.remove(name).is_some();
    }

    /// Whether an answer would differ from the last one, as far as is known without counting.
    pub fn is_stale(&self) -> bool {
        self.is_redrawn || !self.touched.is_empty()
    }

    /// What each topology has now.
    pub fn count(&mut self) -> Vec<TopologyRoom> {
        self.is_redrawn = false;
        for name in std::mem::take(&mut self.touched) {
            let host = self.hosts.get(&name);
            for table in self.topologies.values_mut() {
                table.put(&name, host.and_then(|host| table.share(host)));
            }
            if host.is_some_and(|host| host.traits.is_none() && host.used == 0) {
                self.hosts.remove(&name);
            }
        }
        let mut rooms: Vec<TopologyRoom> = self.topologies.values().map(|table| table.room.clone()).collect();
        let others = rooms.split_off(rooms.len().min(TOPOLOGIES_MAX));
        rooms.extend(others.into_iter().reduce(joined));
        rooms
    }
}

impl Table {
    /// None for a host that is not the topology's: it carries none of its own labels.
    fn share(&self, host: &Host) -> Option<Share> {
        let seat = host.traits.as_ref()?;
        let has = |key: &String| seat.labels.contains_key(key);
        let mut own = self.levels.iter().filter(|(_, key)| key != HOSTNAME_LABEL).peekable();
        if own.peek().is_some() && !own.any(|(_, key)| has(key)) {
            return None;
        }
        let used = host.used.min(seat.gpus);
        let rest = seat.gpus - used;
        let mut share = Share::default();
        share.gpus.used = used;
        if !self.levels.iter().all(|(_, key)| has(key)) {
            (share.hosts.unlabelled, share.gpus.unlabelled) = (1, rest);
        } else if !seat.is_open {
            (share.hosts.unavailable, share.gpus.unavailable) = (1, rest);
        } else {
            (share.hosts.ready, share.gpus.free) = (1, rest);
            if host.used == 0 && seat.gpus > 0 {
                share.free_in = self.domains(seat);
            }
        }
        Some(share)
    }

    /// The domains of a host from the broadest level down, each with those around it: names may repeat.
    fn domains(&self, seat: &Seat) -> Vec<String> {
        let mut path = String::new();
        let values = self.levels.iter().filter_map(|(_, key)| seat.labels.get(key));
        values
            .map(|value| {
                path.push('/');
                path.push_str(value);
                path.clone()
            })
            .collect()
    }

    /// Counts a host as it is now instead of as it was.
    fn put(&mut self, name: &str, share: Option<Share>) {
        let before = match &share {
            Some(share) => self.shares.insert(name.to_owned(), share.clone()),
            None => self.shares.remove(name),
        };
        if before == share {
            return;
        }
        let (before, share) = (before.unwrap_or_default(), share.unwrap_or_default());
        let room = &mut self.room;
        room.gpus = room
            .gpus
            .with(share.gpus, u64::wrapping_add)
            .with(before.gpus, u64::wrapping_sub);
        room.hosts = room
            .hosts
            .with(share.hosts, u64::wrapping_add)
            .with(before.hosts, u64::wrapping_sub);
        if before.free_in != share.free_in {
            self.shift_free(&before.free_in, |hosts| hosts.saturating_sub(1));
            self.shift_free(&share.free_in, |hosts| hosts + 1);
        }
    }

    fn shift_free(&mut self, domains: &[String], by: impl Fn(u64) -> u64) {
        for (level, domain) in domains.iter().enumerate() {
            let key = (level, domain.clone());
            let before = self.free.get(&key).copied().unwrap_or(0);
            let after = by(before);
            match after {
                0 => drop(self.free.remove(&key)),
                _ => drop(self.free.insert(key, after)),
            }
            if let Some((_, slots)) = self.room.slots.get_mut(level) {
                for (slot, size) in slots.iter_mut().zip(SIZES.map(u64::from)) {
                    *slot = *slot + after / size - before / size;
                }
            }
        }
    }
}

/// Two topologies told as one.
fn joined(mut one: TopologyRoom, two: TopologyRoom) -> TopologyRoom {
    OTHERS.clone_into(&mut one.name);
    for (word, slots) in two.slots {
        match one.slots.iter_mut().find(|(known, _)| *known == word) {
            Some((_, sums)) => sums.iter_mut().zip(slots).for_each(|(sum, slots)| *sum += slots),
            None => one.slots.push((word, slots)),
        }
    }
    one.gpus = one.gpus.with(two.gpus, u64::wrapping_add);
    one.hosts = one.hosts.with(two.hosts, u64::wrapping_add);
    one
}

#[cfg(test)]
mod tests {
    use grove_placement::{Effect, Level, Taint};

    use super::*;

    fn topology(name: &str) -> TopologySpec {
        let level = |word: &str, key: &str| Level {
            word: word.to_owned(),
            key: key.to_owned(),
        };
        TopologySpec {
            name: name.to_owned(),
            levels: vec![
                level("block", "b"),
                level("rack", "r"),
                level("host", HOSTNAME_LABEL),
                level("numa", "cell"),
            ],
            host: Some(2),
        }
    }

    fn traits(block: &str, rack: &str, host: &str) -> Traits {
        let labels = [("b", block), ("r", rack), (HOSTNAME_LABEL, host)];
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        Traits {
            name: host.to_owned(),
            labels: labels
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Traits::default()
        }
    }

    /// Two blocks of two racks of four hosts with eight GPUs each; racks of both blocks have the same names.
    fn rooms() -> Rooms {
        let mut rooms = Rooms::default();
        rooms.set_topology(&topology("t"));
        for (block, rack, host) in places() {
            rooms.set_node(&traits(block, rack, &format!("{block}{rack}h{host}")), 8);
        }
        rooms
    }

    fn places() -> impl Iterator<Item = (&'static str, &'static str, usize)> {
        let racks = ["b1", "b2"]
            .into_iter()
            .flat_map(|block| ["r1", "r2"].map(|rack| (block, rack)));
        racks.flat_map(|(block, rack)| (1..=4).map(move |host| (block, rack, host)))
    }

    fn slots(rooms: &mut Rooms) -> Vec<(String, Vec<u64>)> {
        let room = rooms.count().remove(0);
        room.slots
            .into_iter()
            .map(|(word, slots)| (word, slots[..4].to_vec()))
            .collect()
    }

    fn of(levels: [(&str, [u64; 4]); 3]) -> Vec<(String, Vec<u64>)> {
        levels.map(|(word, slots)| (word.to_owned(), slots.to_vec())).to_vec()
    }

    #[test]
    fn a_slot_is_as_many_whole_free_hosts_of_one_domain_as_the_gang_has() {
        let mut rooms = rooms();
        let empty = of([
            ("block", [16, 8, 4, 2]),
            ("rack", [16, 8, 4, 0]),
            ("host", [16, 0, 0, 0]),
        ]);
        assert_eq!(slots(&mut rooms), empty);
        // Half a host is no host.
        rooms.take("b1r1h1", 4);
        let taken = of([
            ("block", [15, 7, 3, 1]),
            ("rack", [15, 7, 3, 0]),
            ("host", [15, 0, 0, 0]),
        ]);
        assert_eq!(slots(&mut rooms), taken);
        rooms.give_back("b1r1h1", 4);
        assert_eq!(slots(&mut rooms), empty);
    }

    #[test]
    fn gpus_and_hosts_are_told_by_what_they_are_good_for() {
        let mut rooms = rooms();
        rooms.take("b1r1h1", 3);
        let mut cordoned = traits("b1", "r1", "b1r1h2");
        cordoned.unschedulable = true;
        rooms.set_node(&cordoned, 8);
        let mut broken = traits("b1", "r1", "b1r1h3");
        broken.taints.push(Taint {
            key: "node.kubernetes.io/not-ready".to_owned(),
            value: String::new(),
            effect: Effect::NoExecute,
        });
        rooms.set_node(&broken, 8);
        rooms.set_node(&traits("b1", "", "b1r1h4"), 8);
        rooms.set_node(&traits("", "", "elsewhere"), 8);
        let room = rooms.count().remove(0);
        let gpus = Gpus {
            used: 3,
            free: 12 * 8 + 5,
            unavailable: 16,
            unlabelled: 8,
        };
        let hosts = Hosts {
            ready: 13,
            unavailable: 2,
            unlabelled: 1,
        };
        assert_eq!((room.gpus, room.hosts), (gpus, hosts));
    }

    #[test]
    fn a_pod_that_comes_before_its_node_is_counted_with_it_and_gone_hosts_are_forgotten() {
        let mut rooms = Rooms::default();
        rooms.set_topology(&topology("t"));
        rooms.take("h", 8);
        assert_eq!(rooms.count()[0].gpus, Gpus::default());
        rooms.set_node(&traits("b", "r", "h"), 8);
        assert_eq!(rooms.count()[0].gpus.used, 8);
        rooms.remove_node("h");
        rooms.give_back("h", 8);
        assert_eq!(rooms.count()[0].hosts, Hosts::default());
        assert!(rooms.hosts.is_empty() && rooms.topologies["t"].shares.is_empty());
    }

    #[test]
    fn changes_one_by_one_come_to_the_same_as_all_at_once() {
        let mut step_by_step = rooms();
        // Numbers that repeat.
        let mut dice = 7_u64;
        let mut held = BTreeMap::<String, u64>::new();
        for _ in 0..500 {
            dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (block, rack, host) = places().nth((dice >> 33) as usize % 16).unwrap();
            let name = format!("{block}{rack}h{host}");
            let before = held.get(&name).copied().unwrap_or(0);
            let gpus = (dice >> 50) % 9;
            step_by_step.give_back(&name, before);
            step_by_step.take(&name, gpus);
            held.insert(name, gpus);
            if dice.is_multiple_of(3) {
                step_by_step.count();
            }
        }
        let mut at_once = rooms();
        held.iter().for_each(|(name, gpus)| at_once.take(name, *gpus));
        assert_eq!(step_by_step.count(), at_once.count());
    }

    #[test]
    fn a_count_looks_at_what_changed_and_topologies_beyond_the_most_are_one() {
        let mut rooms = rooms();
        rooms.count();
        assert!(!rooms.is_stale());
        rooms.set_node(&traits("b1", "r1", "b1r1h1"), 8);
        assert!(!rooms.is_stale(), "the same again is no news");
        rooms.take("b1r1h1", 1);
        assert_eq!(rooms.touched.len(), 1);
        for number in 0..20 {
            rooms.set_topology(&topology(&format!("u{number}")));
        }
        let told = rooms.count();
        let others = told.last().unwrap();
        assert_eq!((told.len(), others.name.as_str()), (TOPOLOGIES_MAX + 1, OTHERS));
        assert_eq!(others.hosts.ready, 5 * 16);
        rooms.remove_topology("t");
        assert!(rooms.is_stale() && rooms.count().iter().all(|room| room.name != "t"));
    }
}
