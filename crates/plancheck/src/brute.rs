//! Tries every placement of the minimum.
//!
//! Host by host, every number of pods of every group that fits. Hosts that are alike in every respect are used in one
//! order only, and a way that is no better than the best known one before it ends is not followed: a placement only
//! gets worse by adding pods.

use crate::{Instance, Put, check, key};

/// The key of the best placement of the minimum, or none if there is no placement.
pub fn best(instance: &Instance) -> Option<Vec<u64>> {
    let missing = instance.groups.iter().map(|group| group.minimum).collect();
    let mut trial = Trial {
        instance,
        puts: Vec::new(),
        missing,
        best: None,
    };
    trial.next_host(0);
    trial.best
}

struct Trial<'a> {
    instance: &'a Instance,
    puts: Vec<Put>,
    missing: Vec<u32>,
    best: Option<Vec<u64>>,
}

impl Trial<'_> {
    fn next_host(&mut self, host: usize) {
        if self.missing.iter().all(|pods| *pods == 0) {
            let puts = &self.puts;
            if check(self.instance, puts).is_empty() {
                let key = key(self.instance, puts);
                if self.best.as_ref().is_none_or(|best| key < *best) {
                    self.best = Some(key);
                }
            }
            return;
        }
        if host == self.instance.hosts.len() || !self.rest_may_fit(host) || self.is_broken() || self.is_no_better() {
            return;
        }
        self.next_group(host, 0);
    }

    /// Every number of pods of a group on a host, most first: good placements early make bad ones short.
    fn next_group(&mut self, host: usize, group: usize) {
        if group == self.instance.groups.len() {
            if self.is_in_order(host) {
                self.next_host(host + 1);
            }
            return;
        }
        for pods in (1..=self.room(host, group).min(self.missing[group])).rev() {
            let cells = (0..self.cells(host, group)).map(Some);
            for cell in std::iter::once(None).chain(cells) {
                self.puts.push(Put {
                    group,
                    host,
                    cell,
                    pods,
                });
                self.missing[group] -= pods;
                self.next_group(host, group + 1);
                self.missing[group] += pods;
                self.puts.pop();
            }
        }
        self.next_group(host, group + 1);
    }

    /// Cells of a host that pods of a group may be held in.
    fn cells(&self, host: usize, group: usize) -> usize {
        let instance = self.instance;
        let asks = |scope: &crate::Scope| instance.is_cell(scope.required.max(scope.preferred));
        let mut around = (0..instance.scopes.len()).filter(|scope| instance.is_member(group, *scope));
        let may_be_held = around.any(|scope| asks(&instance.scopes[scope]));
        if may_be_held {
            instance.hosts[host].cells.len()
        } else {
            0
        }
    }

    /// Pods of a group that fit on a host beside what is on it.
    fn room(&self, host: usize, group: usize) -> u32 {
        let instance = self.instance;
        if !instance.groups[group].eligible[host] {
            return 0;
        }
        let mut room = u32::MAX;
        for (resource, request) in instance.groups[group]
            .request
            .iter()
            .enumerate()
            .filter(|(_, request)| **request > 0)
        {
            let here = self.puts.iter().filter(|put| put.host == host);
            let taken: i64 = here
                .map(|put| instance.groups[put.group].request[resource] as i64 * i64::from(put.pods))
                .sum();
            let free = (instance.hosts[host].free[resource] - taken).max(0) as u64;
            room = room.min(u32::try_from(free / request).unwrap_or(u32::MAX));
        }
        room
    }

    fn rest_may_fit(&self, from: usize) -> bool {
        (0..self.missing.len()).all(|group| {
            let rooms = (from..self.instance.hosts.len()).map(|host| u64::from(self.room(host, group)));
            rooms.sum::<u64>() >= u64::from(self.missing[group])
        })
    }

    /// More pods do not mend what is wrong already, unless it is their number.
    fn is_broken(&self) -> bool {
        check(self.instance, &self.puts)
            .iter()
            .any(|fault| !matches!(fault, crate::Fault::Count { .. }))
    }

    fn is_no_better(&self) -> bool {
        self.best
            .as_ref()
            .is_some_and(|best| key(self.instance, &self.puts) >= *best)
    }

    /// Of hosts that are alike, an earlier one gets at least as much as a later one.
    fn is_in_order(&self, host: usize) -> bool {
        let pods_on = |host: usize| -> Vec<(u32, Option<usize>)> {
            let on = |group| {
                let put = self.puts.iter().find(|put| put.host == host && put.group == group);
                put.map_or((0, None), |put| (put.pods, put.cell))
            };
            (0..self.missing.len()).map(on).collect()
        };
        let twin = (0..host).rev().find(|other| self.are_alike(*other, host));
        twin.is_none_or(|twin| pods_on(twin) >= pods_on(host))
    }

    fn are_alike(&self, one: usize, other: usize) -> bool {
        let hosts = &self.instance.hosts;
        let is_bound = |host: usize| {
            let bound = self.instance.groups.iter().any(|group| group.bound.contains(&host));
            let mut running = self.instance.aparts.iter().flat_map(|apart| &apart.running);
            bound
                || self.instance.scopes.iter().any(|scope| scope.others.contains(&host))
                || running.any(|(on, _, _)| *on == host)
        };
        hosts[one].free == hosts[other].free
            && hosts[one].path == hosts[other].path
            && hosts[one].cells == hosts[other].cells
            && self.instance.groups.iter().all(|group| {
                group.eligible[one] == group.eligible[other] && group.dislikes[one] == group.dislikes[other]
            })
            && !is_bound(one)
            && !is_bound(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Host, PodGroup, Scope};

    /// Two racks of two hosts with this many free; pods of one.
    fn instance(free: [i64; 4], pods: u32, required: usize, preferred: usize) -> Instance {
        let host = |(index, free): (usize, i64)| Host {
            free: vec![free],
            path: Some(vec![index as u32 / 2]),
            cells: vec![],
        };
        let scope = |parent, tier| Scope {
            parent,
            tier,
            required: 0,
            preferred: 0,
            others: vec![],
        };
        Instance {
            levels: 1,
            hosts: free.into_iter().enumerate().map(host).collect(),
            totals: vec![32],
            scopes: vec![
                Scope {
                    required,
                    preferred,
                    ..scope(None, 0)
                },
                scope(Some(0), 2),
            ],
            groups: vec![PodGroup {
                scope: 1,
                request: vec![1],
                eligible: vec![true; 4],
                dislikes: vec![0; 4],
                minimum: pods,
                desired: pods,
                bound: vec![],
            }],
            aparts: vec![],
        }
    }

    #[test]
    fn the_best_has_the_fewest_domains_then_hosts_and_is_then_the_tightest() {
        // Three pods: one host, host 3 (free 3) rather than host 0 (free 4).
        assert_eq!(
            best(&instance([4, 1, 2, 3], 3, 1, 0)),
            Some(vec![0, 0, 0, 1, 1, 0, 3, 5])
        );
        // Five pods: both racks hold them on two hosts; either opens five.
        assert_eq!(
            best(&instance([4, 1, 2, 3], 5, 1, 0)),
            Some(vec![0, 0, 0, 1, 2, 0, 5, 5])
        );
        // Six pods: no rack holds them.
        assert_eq!(
            best(&instance([4, 1, 2, 3], 6, 0, 1)),
            Some(vec![1, 0, 0, 2, 2, 0, 6, 10])
        );
        assert_eq!(best(&instance([4, 1, 2, 3], 6, 1, 0)), None);
        // A host is preferred: one level missed, the rack is still met.
        assert_eq!(
            best(&instance([4, 1, 2, 3], 5, 0, 2)),
            Some(vec![1, 0, 0, 1, 2, 0, 5, 5])
        );
    }

    #[test]
    fn without_a_level_the_least_loss_counts_first() {
        // Hosts 1 and 2 have no more free than host 3 alone, but they open a second rack.
        assert_eq!(
            best(&instance([4, 1, 2, 3], 3, 0, 0)),
            Some(vec![0, 0, 0, 0, 3, 5, 1, 1])
        );
        // Two hosts that are nearly full rather than an empty one.
        assert_eq!(
            best(&instance([8, 1, 8, 1], 2, 0, 0)),
            Some(vec![0, 0, 0, 0, 2, 18, 2, 2])
        );
    }

    #[test]
    fn preferred_hosts_count_after_their_number() {
        let mut picky = instance([4, 1, 2, 4], 3, 1, 0);
        picky.groups[0].dislikes = vec![7, 0, 0, 0];
        assert_eq!(best(&picky), Some(vec![0, 0, 0, 1, 1, 0, 4, 6]), "host 3");
        picky.groups[0].dislikes = vec![1, 0, 0, 2];
        assert_eq!(
            best(&picky),
            Some(vec![0, 0, 0, 1, 1, 3, 4, 5]),
            "host 0, not hosts 2 and 3"
        );
    }

    #[test]
    fn pods_are_kept_apart() {
        let mut apart = instance([4, 1, 2, 3], 2, 1, 0);
        apart.aparts = vec![crate::Apart {
            depth: 2,
            groups: vec![(true, true)],
            running: vec![],
        }];
        let put = |host, pods| Put {
            group: 0,
            host,
            cell: None,
            pods,
        };
        assert_eq!(check(&apart, &[put(0, 2)]), [Fault::Together { apart: 0 }]);
        assert_eq!(check(&apart, &[put(0, 1), put(1, 1)]), []);
        apart.aparts[0].running = vec![(1, false, true)];
        assert_eq!(check(&apart, &[put(0, 1), put(1, 1)]), [Fault::Together { apart: 0 }]);
        apart.aparts[0].depth = 1;
        assert_eq!(best(&apart), None, "one pod for each rack, and both in one");
    }

    #[test]
    fn every_rule_is_checked() {
        let mut tight = instance([4, 1, 2, 3], 5, 1, 0);
        tight.groups[0].eligible[1] = false;
        let put = |host, pods| Put {
            group: 0,
            host,
            cell: None,
            pods,
        };
        assert_eq!(
            check(&tight, &[put(0, 4), put(1, 1)]),
            [Fault::Ineligible { group: 0, host: 1 }]
        );
        assert_eq!(
            check(&tight, &[put(2, 1), put(3, 4)]),
            [Fault::Overcommitted { host: 3, resource: 0 }]
        );
        assert_eq!(check(&tight, &[put(2, 2)]), [Fault::Count { group: 0, pods: 2 }]);
        assert_eq!(check(&tight, &[put(0, 3), put(2, 2)]), [Fault::Split { scope: 0 }]);
        assert_eq!(check(&tight, &[put(7, 3)]), [Fault::Nonsense { put: 0 }]);
        assert_eq!(check(&tight, &[put(2, 2), put(3, 3)]), []);
        tight.groups[0].bound = vec![0];
        assert_eq!(
            check(&tight, &[put(2, 2), put(3, 3)]),
            [Fault::Split { scope: 0 }],
            "running pods pin the rack"
        );
        tight.groups[0].bound = vec![0, 3];
        assert_eq!(
            check(&tight, &[put(2, 2), put(3, 3)]),
            [],
            "unless they break the level themselves"
        );
    }

    #[test]
    fn a_cell_is_shared_as_a_whole_and_has_its_own_capacity() {
        // Host 0 has two cells of two; a cell is required.
        let mut held = instance([4, 1, 2, 3], 2, 3, 0);
        held.hosts[0].cells = vec![vec![Some(2)], vec![Some(2)]];
        let put = |host, cell, pods| Put {
            group: 0,
            host,
            cell,
            pods,
        };
        assert_eq!(check(&held, &[put(0, None, 2)]), [Fault::Split { scope: 0 }]);
        assert_eq!(check(&held, &[put(0, Some(1), 2)]), []);
        assert_eq!(check(&held, &[put(0, Some(2), 2)]), [Fault::Cell { put: 0 }]);
        let apart = [put(0, Some(0), 1), put(0, Some(1), 1)];
        assert!(check(&held, &apart).contains(&Fault::Split { scope: 0 }));
        assert_eq!(
            check(&held, &[put(2, None, 2)]),
            [],
            "a host that states no cells is one"
        );
        assert_eq!(
            best(&held),
            Some(vec![0, 0, 0, 1, 1, 0, 2, 5]),
            "host 2, which is full then"
        );
        held.groups[0].minimum = 3;
        held.groups[0].desired = 3;
        let overcommitted = Fault::Overcommitted { host: 0, resource: 0 };
        assert_eq!(check(&held, &[put(0, Some(0), 3)]), [overcommitted]);
        held.hosts[0].cells[0][0] = None;
        assert_eq!(check(&held, &[put(0, Some(0), 3)]), [], "only the host counts it");
        held.scopes[0].required = 2;
        assert_eq!(
            check(&held, &[put(0, Some(0), 3)]),
            [Fault::Cell { put: 0 }],
            "nobody asked"
        );
    }
}
