//! Resources as integers, and what every node has left of each.
//!
//! A resource is anything counted per node: cpu, memory, pods, GPUs, but also a host port (each node has one) or a
//! marker that keeps pods of one kind off each other's host (each node has one). So ports and anti-affinity by host
//! need no rule of their own. This module knows no units: the caller picks them (millicores, bytes, …).

/// A resource that the cluster counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(pub(crate) u32);

/// Amounts of some resources: sorted, each resource once, no zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts(Vec<(Resource, u64)>);

impl Amounts {
    pub fn iter(&self) -> impl Iterator<Item = (Resource, u64)> + '_ {
        self.0.iter().copied()
    }

    pub fn get(&self, resource: Resource) -> u64 {
        self.0
            .iter()
            .find(|(known, _)| *known == resource)
            .map_or(0, |(_, amount)| *amount)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many `other` fit in the place of one `self`: a pod that asks for `self` keeps as many of `other` out.
    pub(crate) fn holds(&self, other: &Amounts) -> u64 {
        let ratios = other.iter().map(|(resource, amount)| self.get(resource) / amount);
        ratios.min().unwrap_or(0)
    }
}

impl FromIterator<(Resource, u64)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (Resource, u64)>>(amounts: I) -> Self {
        let mut sorted: Vec<(Resource, u64)> = amounts.into_iter().filter(|(_, amount)| *amount > 0).collect();
        sorted.sort_unstable();
        sorted.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            same
        });
        Amounts(sorted)
    }
}

/// One resource over all nodes. Columns, so that counting a shape reads only what the shape asks for.
#[derive(Debug)]
struct Column {
    name: String,
    /// What a node has that does not state it.
    everywhere: u64,
    allocatable: Vec<u64>,
    /// Negative when a node shrank below what runs on it.
    free: Vec<i64>,
    /// Of all nodes; decides which resource a gang asks the greatest share of.
    total: u64,
}

/// What every node has and has left.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    columns: Vec<Column>,
    nodes: usize,
}

impl Ledger {
    pub(crate) fn find(&self, name: &str) -> Option<Resource> {
        let index = self.columns.iter().position(|column| column.name == name)?;
        Some(Resource(index as u32))
    }

    /// Counts one more resource, of which every node that is present has `everywhere`.
    pub(crate) fn push_resource(&mut self, name: &str, everywhere: u64, present: &[bool]) -> Resource {
        let allocatable: Vec<u64> = present.iter().map(|here| if *here { everywhere } else { 0 }).collect();
        self.columns.push(Column {
            name: name.to_owned(),
            everywhere,
            free: allocatable.iter().map(|amount| signed(*amount)).collect(),
            total: allocatable.iter().sum(),
            allocatable,
        });
        Resource(self.columns.len() as u32 - 1)
    }

    pub(crate) fn resources(&self) -> impl ExactSizeIterator<Item = Resource> + use<> {
        (0..self.columns.len()).map(|index| Resource(index as u32))
    }

    pub(crate) fn name(&self, resource: Resource) -> &str {
        &self.columns[resource.0 as usize].name
    }

    pub(crate) fn total(&self, resource: Resource) -> u64 {
        self.columns[resource.0 as usize].total
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Makes room for one more node, which has nothing yet.
    pub(crate) fn push_node(&mut self) {
        self.nodes += 1;
        for column in &mut self.columns {
            column.allocatable.push(0);
            column.free.push(0);
        }
    }

    /// Sets what a node has; what runs on it stays taken. `None` is a node that is gone.
    pub(crate) fn set_allocatable(&mut self, node: u32, allocatable: Option<&Amounts>) {
        for (index, column) in self.columns.iter_mut().enumerate() {
            let stated = allocatable.map(|amounts| amounts.get(Resource(index as u32)));
            let now = stated.map_or(0, |amount| if amount == 0 { column.everywhere } else { amount });
            let slot = node as usize;
            let before = std::mem::replace(&mut column.allocatable[slot], now);
            column.free[slot] += signed(now) - signed(before);
            column.total = column.total.saturating_sub(before).saturating_add(now);
        }
    }

    pub(crate) fn free(&self, node: u32, resource: Resource) -> i64 {
        self.columns[resource.0 as usize].free[node as usize]
    }

    /// What each node has left of a resource.
    pub(crate) fn column(&self, resource: Resource) -> &[i64] {
        &self.columns[resource.0 as usize].free
    }

    pub(crate) fn allocatable(&self, node: u32, resource: Resource) -> u64 {
        self.columns[resource.0 as usize].allocatable[node as usize]
    }

    /// What runs on a node holds of a resource.
    pub(crate) fn used(&self, node: u32, resource: Resource) -> i64 {
        let column = &self.columns[resource.0 as usize];
        signed(column.allocatable[node as usize]) - column.free[node as usize]
    }

    /// How many pods would fit on a node if nothing ran there.
    pub(crate) fn room_when_empty(&self, node: u32, requests: &Amounts) -> u16 {
        let ratios = requests
            .iter()
            .map(|(resource, amount)| self.allocatable(node, resource) / amount);
        ratios
            .min()
            .map_or(u16::MAX, |room| room.min(u64::from(u16::MAX)) as u16)
    }

    pub(crate) fn change(&mut self, node: u32, resource: Resource, by: i64) {
        self.columns[resource.0 as usize].free[node as usize] += by;
    }

    /// How many pods that ask for `requests` fit on a node, when `taken` is spoken for beside what the ledger knows.
    pub(crate) fn room(&self, node: u32, requests: &[(Resource, u64)], taken: impl Fn(Resource) -> i64) -> u16 {
        let mut room = u64::from(u16::MAX);
        for &(resource, amount) in requests {
            let free = (self.free(node, resource) - taken(resource)).max(0) as u64;
            // Most requests do not bind once the scarce one is counted: a product is cheaper than a division.
            if amount.saturating_mul(room) > free {
                room = free / amount;
            }
        }
        room as u16
    }

    /// The same for all nodes at once, one resource after the other: each pass reads one column from end to end.
    pub(crate) fn count_rooms(&self, requests: &[(Resource, u64)], rooms: &mut [u16]) {
        let Some(((first, amount), others)) = requests.split_first() else {
            return rooms.fill(u16::MAX);
        };
        let divisor = Divisor::new(*amount);
        for (room, free) in rooms.iter_mut().zip(&self.columns[first.0 as usize].free) {
            *room = divisor.rooms((*free).max(0) as u64);
        }
        for &(resource, amount) in others {
            let divisor = Divisor::new(amount);
            for (room, free) in rooms.iter_mut().zip(&self.columns[resource.0 as usize].free) {
                let free = (*free).max(0) as u64;
                // Rarely: the scarce resource was counted first. The product cannot overflow where the first test fails.
                if amount > PRODUCTS_MAX || amount * u64::from(*room) > free {
                    *room = divisor.rooms(free).min(*room);
                }
            }
        }
    }

    /// The requests with the one that runs out first in front.
    pub(crate) fn scarce_first(&self, requests: &Amounts) -> Vec<(Resource, u64)> {
        let mut sorted: Vec<(Resource, u64)> = requests.iter().collect();
        sorted.sort_by_key(|&(resource, amount)| (self.total(resource) / amount, resource));
        sorted
    }
}

/// Amounts whose product with any room fits into 64 bits.
const PRODUCTS_MAX: u64 = u64::MAX >> 16;

/// Divides by one amount many times, without a division where the numbers are small: those take several times as long as
/// a product.
struct Divisor {
    amount: u64,
    /// 2^64 / amount, rounded up: its product with a number of 32 bits has the quotient in its upper half.
    reciprocal: Option<u64>,
}

impl Divisor {
    fn new(amount: u64) -> Self {
        let has_reciprocal = (2..=u64::from(u32::MAX)).contains(&amount);
        Divisor {
            amount,
            reciprocal: has_reciprocal.then(|| u64::MAX / amount + 1),
        }
    }

    /// How often the amount fits into what is free, as far as rooms are counted.
    fn rooms(&self, free: u64) -> u16 {
        let rooms = match self.reciprocal {
            Some(reciprocal) if free <= u64::from(u32::MAX) => {
                ((u128::from(free) * u128::from(reciprocal)) >> 64) as u64
            }
            _ => free / self.amount,
        };
        rooms.min(u64::from(u16::MAX)) as u16
    }
}

/// Amounts beyond what a signed number holds are as good as endless.
pub(crate) fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(list: &[(u32, u64)]) -> Amounts {
        list.iter()
            .map(|&(resource, amount)| (Resource(resource), amount))
            .collect()
    }

    #[test]
    fn amounts_are_sorted_merged_and_without_zeros() {
        let merged = amounts(&[(2, 1), (0, 3), (2, 4), (1, 0)]);
        assert_eq!(merged.iter().collect::<Vec<_>>(), [(Resource(0), 3), (Resource(2), 5)]);
    }

    #[test]
    fn a_large_pod_holds_the_place_of_several_small_ones() {
        assert_eq!(amounts(&[(0, 8), (1, 80)]).holds(&amounts(&[(0, 2), (1, 20)])), 4);
        assert_eq!(
            amounts(&[(0, 8)]).holds(&amounts(&[(0, 2), (1, 1)])),
            0,
            "it asks nothing of resource 1"
        );
        assert_eq!(amounts(&[(0, 8)]).holds(&amounts(&[])), 0);
    }

    #[test]
    fn a_node_that_shrinks_below_its_load_has_no_room() {
        let mut ledger = Ledger::default();
        let gpu = ledger.push_resource("gpu", 0, &[]);
        ledger.push_node();
        ledger.set_allocatable(0, Some(&amounts(&[(0, 8)])));
        ledger.change(0, gpu, -6);
        assert_eq!(ledger.room(0, &[(gpu, 1)], |_| 0), 2);
        ledger.set_allocatable(0, Some(&amounts(&[(0, 4)])));
        assert_eq!(ledger.free(0, gpu), -2);
        assert_eq!(ledger.room(0, &[(gpu, 1)], |_| 0), 0);
    }

    #[test]
    fn counting_by_reciprocal_equals_division() {
        let most = u64::from(u32::MAX);
        let frees = [
            0,
            1,
            7,
            8,
            79_999,
            80_000,
            most - 1,
            most,
            most + 1,
            1 << 40,
            (1 << 52) + 1,
            u64::MAX,
        ];
        for amount in [
            1,
            2,
            3,
            7,
            8,
            10_000,
            most - 1,
            most,
            most + 1,
            90 << 30,
            (1 << 45) + 1,
            u64::MAX,
        ] {
            let divisor = Divisor::new(amount);
            let around = [
                amount - 1,
                amount,
                amount.saturating_mul(3) - 1,
                amount.saturating_mul(3),
            ];
            for free in frees.into_iter().chain(around) {
                let expected = (free / amount).min(u64::from(u16::MAX));
                assert_eq!(u64::from(divisor.rooms(free)), expected, "{free} / {amount}");
            }
        }
    }

    #[test]
    fn every_node_has_one_of_each_port() {
        let mut ledger = Ledger::default();
        ledger.push_node();
        let port = ledger.push_resource("port/8080", 1, &[true]);
        ledger.push_node();
        ledger.set_allocatable(1, Some(&Amounts::default()));
        assert_eq!(
            [ledger.room(0, &[(port, 1)], |_| 0), ledger.room(1, &[(port, 1)], |_| 0)],
            [1, 1]
        );
    }
}
