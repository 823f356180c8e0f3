//! The fewest domains that pods of one kind can be placed in, found by counting: a placement that reaches it is the
//! best there is.

use std::collections::BTreeMap;

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
}
