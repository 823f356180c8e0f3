//! What no placement can beat, found by counting: the fewest domains for pods of one kind, and the most gangs of a queue.

use std::collections::{BTreeMap, BinaryHeap};

/// A host: its domains broad to narrow, and how many of the pods it has room for.
#[derive(Clone, Debug)]
pub struct Room {
    pub path: Vec<u32>,
    pub pods: u32,
}

/// The least number of domains at each depth broad to narrow, hosts last, when all pods share one domain of depth
/// `together` (0: they need not); none if no such domain holds them.
///
/// The first level at which the pods spread is exact: the largest domains first are the fewest. Below it the number is a
/// lower bound, since the fewest of a narrow level need not lie in the fewest of the broader one.
pub fn least_domains(hosts: &[Room], pods: u32, together: usize) -> Option<Vec<u32>> {
    let mut places: BTreeMap<&[u32], Vec<&Room>> = BTreeMap::new();
    for host in hosts {
        if let Some(place) = host.path.get(..together) {
            places.entry(place).or_default().push(host);
        }
    }
    let levels = hosts.first().map_or(0, |host| host.path.len());
    let inside = places.values().filter_map(|hosts| {
        let above = std::iter::repeat_n(Some(1), together);
        let below = (together + 1..=levels).map(|depth| fewest(domains(hosts, depth), pods));
        let on_hosts = fewest(hosts.iter().map(|host| u64::from(host.pods)).collect(), pods);
        above.chain(below).chain([on_hosts]).collect::<Option<Vec<u32>>>()
    });
    inside.min()
}

/// What the domains of a depth hold in sum.
fn domains(hosts: &[&Room], depth: usize) -> Vec<u64> {
    let mut sums: BTreeMap<&[u32], u64> = BTreeMap::new();
    for host in hosts {
        *sums.entry(&host.path[..depth]).or_default() += u64::from(host.pods);
    }
    sums.into_values().collect()
}

/// How many of these rooms hold the pods, the largest first.
fn fewest(mut rooms: Vec<u64>, pods: u32) -> Option<u32> {
    rooms.sort_unstable_by(|one, other| other.cmp(one));
    let mut left = u64::from(pods);
    let mut count = 0;
    for room in rooms {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(room);
        count += 1;
    }
    (left == 0).then_some(count)
}

/// Alike pods of a gang.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    pub pods: u32,
    /// What each asks for of the one resource that counts.
    pub size: u64,
}

/// The most gangs, and the most of the resource, that hosts with so much free can serve, whatever order and levels the
/// gangs ask for; none unless each size is a multiple of the next smaller one.
///
/// With such sizes pods fit if and only if, for every size, what pods of at least that size ask for is no more than what
/// the hosts hold of it in whole pieces. Of gangs that compete for these nested amounts most are served by leaving out
/// the largest whenever an amount is exceeded.
pub fn most_served(free: &[u64], gangs: &[Demand]) -> Option<(usize, u64)> {
    let mut sizes: Vec<u64> = gangs.iter().map(|gang| gang.size).filter(|size| *size > 0).collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    sizes.dedup();
    if sizes.windows(2).any(|pair| pair[0] % pair[1] != 0) {
        return None;
    }
    let asked = |gang: &Demand| u64::from(gang.pods) * gang.size;
    let (mut served, mut taken): (BinaryHeap<u64>, u64) = (BinaryHeap::new(), 0);
    let mut most = gangs.iter().map(asked).sum::<u64>();
    for size in &sizes {
        let held: u64 = free.iter().map(|free| free / size * size).sum();
        for gang in gangs.iter().filter(|gang| gang.size == *size) {
            served.push(asked(gang));
            taken += asked(gang);
        }
        while taken > held {
            taken -= served.pop().unwrap_or(taken);
        }
        let smaller: u64 = gangs.iter().filter(|gang| gang.size < *size).map(asked).sum();
        most = most.min(held + smaller);
    }
    Some((served.len(), most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_domains_are_the_fewest() {
        // Block 0 has racks of 4 and 2, block 1 racks of 3 and 3.
        let room = |block: u32, rack: u32, pods: u32| Room {
            path: vec![block, rack],
            pods,
        };
        let hosts = [
            room(0, 0, 4),
            room(0, 1, 1),
            room(0, 1, 1),
            room(1, 2, 3),
            room(1, 3, 3),
        ];
        assert_eq!(least_domains(&hosts, 4, 0), Some(vec![1, 1, 1]));
        assert_eq!(
            least_domains(&hosts, 6, 1),
            Some(vec![1, 2, 2]),
            "block 1 needs two hosts, block 0 three"
        );
        assert_eq!(least_domains(&hosts, 7, 0), Some(vec![2, 2, 2]));
        assert_eq!(least_domains(&hosts, 5, 2), None);
        assert_eq!(least_domains(&hosts, 13, 0), None);
    }

    #[test]
    fn most_gangs_are_served_by_leaving_out_the_largest() {
        let gang = |pods, size| Demand { pods, size };
        // Two whole hosts of eight and one with five left: 16 in eights, 20 in fours, 21 in ones.
        let free = [8, 8, 5];
        assert_eq!(most_served(&free, &[gang(2, 8), gang(1, 4), gang(1, 1)]), Some((3, 21)));
        assert_eq!(most_served(&free, &[gang(2, 8), gang(1, 8), gang(1, 8)]), Some((2, 16)));
        assert_eq!(
            most_served(&free, &[gang(2, 8), gang(2, 4), gang(3, 1)]),
            Some((2, 21)),
            "without the eights, of which a part would fit"
        );
        assert_eq!(most_served(&free, &[gang(1, 3), gang(1, 2)]), None);
        assert_eq!(most_served(&free, &[]), Some((0, 0)));
    }
}
