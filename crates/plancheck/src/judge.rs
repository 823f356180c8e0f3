//! Judges a placement: which rules it breaks, and how good it is.

use crate::{Instance, Put};

/// A rule that a placement breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A group or host that does not exist, or no pods.
    Nonsense {
        put: usize,
    },
    Ineligible {
        group: usize,
        host: usize,
    },
    Overcommitted {
        host: usize,
        resource: usize,
    },
    /// Fewer than the minimum, or more than is wanted.
    Count {
        group: usize,
        pods: u32,
    },
    /// The pods of a scope are not in one domain of its required level, or not where its running pods are.
    Split {
        scope: usize,
    },
    /// Pods are held in a cell that does not exist, or that no scope of theirs asks for and lies in as a whole.
    Cell {
        put: usize,
    },
    /// Pods that must not share a domain do.
    Together {
        apart: usize,
    },
}

/// All rules that a placement of the gang's pods breaks.
pub fn check(instance: &Instance, puts: &[Put]) -> Vec<Fault> {
    let makes_sense = |put: &Put| put.group < instance.groups.len() && put.host < instance.hosts.len() && put.pods > 0;
    if let Some(put) = puts.iter().position(|put| !makes_sense(put)) {
        return vec![Fault::Nonsense { put }];
    }
    let mut faults = Vec::new();
    for put in puts {
        if !instance.groups[put.group].eligible[put.host] {
            faults.push(Fault::Ineligible {
                group: put.group,
                host: put.host,
            });
        }
    }
    faults.extend(overcommitted(instance, puts));
    for (index, group) in instance.groups.iter().enumerate() {
        let pods: u32 = puts.iter().filter(|put| put.group == index).map(|put| put.pods).sum();
        if pods < group.minimum || pods > group.desired.max(group.minimum) {
            faults.push(Fault::Count { group: index, pods });
        }
    }
    for scope in 0..instance.scopes.len() {
        let mut hosts = hosts_of(instance, puts, scope);
        if !hosts.is_empty() {
            hosts.extend(instance.anchors(scope));
            if !is_met(instance, puts, (scope, &hosts), instance.scopes[scope].required) {
                faults.push(Fault::Split { scope });
            }
        }
    }
    let astray = (0..puts.len()).filter(|put| {
        puts[*put]
            .cell
            .is_some_and(|cell| is_astray(instance, puts, *put, cell))
    });
    faults.extend(astray.map(|put| Fault::Cell { put }));
    let broken = (0..instance.aparts.len()).filter(|apart| is_together(instance, puts, *apart));
    faults.extend(broken.map(|apart| Fault::Together { apart }));
    faults
}

/// Whether the pods of a scope, new ones and those on `hosts`, lie in one domain of a depth. Which cells running pods
/// use is not known: they speak for their host.
fn is_met(instance: &Instance, puts: &[Put], (scope, hosts): (usize, &[usize]), depth: usize) -> bool {
    instance.is_one_domain(hosts, depth) && (!instance.is_cell(depth) || instance.is_one_cell(puts, scope))
}

fn is_astray(instance: &Instance, puts: &[Put], put: usize, cell: usize) -> bool {
    let put = &puts[put];
    let asks = |scope: &usize| {
        let stated = &instance.scopes[*scope];
        instance.is_member(put.group, *scope) && instance.is_cell(stated.required.max(stated.preferred))
    };
    let mut asking = (0..instance.scopes.len()).filter(asks);
    cell >= instance.hosts[put.host].cells.len() || !asking.any(|scope| instance.is_one_cell(puts, scope))
}

/// Whether a pod that avoids shares a domain with another that is avoided. Pods that run are not moved: only pairs with
/// a new one count.
fn is_together(instance: &Instance, puts: &[Put], apart: usize) -> bool {
    let apart = &instance.aparts[apart];
    // One entry per new pod, then the running ones.
    let new = puts.iter().flat_map(|put| {
        let (avoids, avoided) = apart.groups[put.group];
        (0..put.pods).map(move |_| (put.host, avoids, avoided))
    });
    let new: Vec<(usize, bool, bool)> = new.collect();
    let shares = |one: usize, other: usize| {
        let has_domain = apart.depth > instance.levels || instance.hosts[one].path.is_some();
        has_domain && instance.is_together(one, other, apart.depth)
    };
    let clash = |one: &(usize, bool, bool), other: &(usize, bool, bool)| {
        shares(one.0, other.0) && (one.1 && other.2 || one.2 && other.1)
    };
    new.iter().enumerate().any(|(index, one)| {
        let others = new[index + 1..].iter().chain(&apart.running);
        others.into_iter().any(|other| clash(one, other))
    })
}

fn overcommitted(instance: &Instance, puts: &[Put]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, host) in instance.hosts.iter().enumerate() {
        for (resource, free) in host.free.iter().enumerate() {
            let asked: i128 = puts
                .iter()
                .filter(|put| put.host == index)
                .map(|put| i128::from(instance.groups[put.group].request[resource]) * i128::from(put.pods))
                .sum();
            let in_cells =
                (0..host.cells.len()).any(|cell| is_cell_overcommitted(instance, puts, (index, cell), resource));
            if asked > 0 && asked > i128::from(*free) || in_cells {
                faults.push(Fault::Overcommitted { host: index, resource });
            }
        }
    }
    faults
}

/// Whether the pods that are held in a cell ask for more than it has.
fn is_cell_overcommitted(instance: &Instance, puts: &[Put], (host, cell): (usize, usize), resource: usize) -> bool {
    let held = puts.iter().filter(|put| put.host == host && put.cell == Some(cell));
    let asked: i128 = held
        .map(|put| i128::from(instance.groups[put.group].request[resource]) * i128::from(put.pods))
        .sum();
    let free = instance.hosts[host].cells[cell][resource];
    asked > 0 && free.is_some_and(|free| asked > i128::from(free))
}

fn hosts_of(instance: &Instance, puts: &[Put], scope: usize) -> Vec<usize> {
    let members = puts.iter().filter(|put| instance.is_member(put.group, scope));
    members.map(|put| put.host).collect()
}

/// How good a placement is; less is better, earlier numbers count first: levels that preferences are missed by (gang,
/// groups, pod-groups), domains per level broad to narrow with hosts last, what pods miss of the hosts that they prefer,
/// and what the domains had free of the scarcest resource, hosts first. A gang that states no level is placed by what it
/// takes from others: how many hosts and domains there are comes last.
pub fn key(instance: &Instance, puts: &[Put]) -> Vec<u64> {
    let mut key = vec![0; 3];
    for (index, scope) in instance.scopes.iter().enumerate() {
        let mut hosts = hosts_of(instance, puts, index);
        if scope.preferred > scope.required && !hosts.is_empty() {
            hosts.extend(instance.anchors(index));
            let met = (0..=scope.preferred)
                .rev()
                .find(|depth| is_met(instance, puts, (index, &hosts), *depth));
            key[scope.tier] += (scope.preferred - met.unwrap_or(0)) as u64;
        }
    }
    let bound = instance.groups.iter().flat_map(|group| group.bound.iter().copied());
    let used: Vec<usize> = puts.iter().map(|put| put.host).chain(bound).collect();
    let scarce = instance.scarcest();
    let mut opened = Vec::new();
    for depth in 1..=instance.levels + 1 {
        let mut domains: Vec<usize> = Vec::new();
        for host in &used {
            if !domains.iter().any(|known| instance.is_together(*known, *host, depth)) {
                domains.push(*host);
            }
        }
        let free_of = |host: usize| scarce.map_or(0, |resource| instance.hosts[host].free[resource].max(0) as u64);
        let in_use = |host: &usize| domains.iter().any(|known| instance.is_together(*known, *host, depth));
        opened.push((0..instance.hosts.len()).filter(in_use).map(free_of).sum());
        key.push(domains.len() as u64);
    }
    opened.reverse();
    let missed = |put: &Put| instance.groups[put.group].dislikes[put.host] * u64::from(put.pods);
    opened.insert(0, puts.iter().map(missed).sum());
    if instance.states_level() {
        key.extend(opened);
    } else {
        key.splice(3..3, opened);
    }
    key
}
