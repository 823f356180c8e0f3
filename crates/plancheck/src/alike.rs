//! Gangs of alike pods that may go anywhere, one after the other on the same hosts: what measurements have judged.

use crate::{Host, Instance, PodGroup, Put, Scope};

/// Depth that must be one domain, and depth that should be; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Near {
    pub required: usize,
    pub preferred: usize,
}

/// Pods that are alike and all needed.
#[derive(Clone, Debug)]
pub struct Alike {
    pub near: Near,
    /// Per resource.
    pub request: Vec<u64>,
    pub pods: u32,
}

impl Alike {
    /// Pods that must be no nearer to each other than their gang.
    pub fn anywhere(request: Vec<u64>, pods: u32) -> Self {
        Self {
            near: Near::default(),
            request,
            pods,
        }
    }
}

impl Put {
    /// So many pods of the gang's only group on each of these hosts.
    pub fn alone(places: &[(usize, u32)]) -> Vec<Self> {
        let put = |(host, pods): &(usize, u32)| Self {
            group: 0,
            host: *host,
            cell: None,
            pods: *pods,
        };
        places.iter().map(put).collect()
    }
}

impl Instance {
    /// Hosts without a gang.
    pub fn of_hosts(levels: usize, hosts: Vec<Host>) -> Self {
        let resources = hosts.first().map_or(0, |host| host.free.len());
        Self {
            levels,
            hosts,
            totals: vec![0; resources],
            scopes: Vec::new(),
            groups: Vec::new(),
            aparts: Vec::new(),
        }
    }

    /// Puts a gang in the place of the one before.
    pub fn ask(&mut self, gang: Near, groups: impl IntoIterator<Item = Alike>) {
        let scope = |parent, tier, near: Near| Scope {
            parent,
            tier,
            required: near.required,
            preferred: near.preferred,
            others: Vec::new(),
        };
        let hosts = self.hosts.len();
        self.scopes = vec![scope(None, 0, gang)];
        self.groups.clear();
        for alike in groups {
            self.groups.push(PodGroup {
                scope: self.scopes.len(),
                request: alike.request,
                eligible: vec![true; hosts],
                dislikes: vec![0; hosts],
                minimum: alike.pods,
                desired: alike.pods,
                bound: Vec::new(),
            });
            self.scopes.push(scope(Some(0), 2, alike.near));
        }
    }

    /// The pods of the gang take their room.
    pub fn take(&mut self, puts: &[Put]) {
        self.shift(puts, |free, amount| free - amount);
    }

    /// They leave it.
    pub fn give_back(&mut self, puts: &[Put]) {
        self.shift(puts, |free, amount| free + amount);
    }

    fn shift(&mut self, puts: &[Put], by: impl Fn(i64, i64) -> i64) {
        for put in puts {
            let host = &mut self.hosts[put.host];
            for (free, request) in host.free.iter_mut().zip(&self.groups[put.group].request) {
                *free = by(*free, i64::from(put.pods) * *request as i64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, check};

    /// Two racks of one host with eight GPUs each.
    fn hosts() -> Instance {
        let host = |rack| Host {
            free: vec![8],
            path: Some(vec![rack]),
            cells: Vec::new(),
        };
        Instance::of_hosts(1, vec![host(0), host(1)])
    }

    fn ask(instance: &mut Instance, required: usize, gpus: u64, pods: u32) {
        let near = Near { required, preferred: 0 };
        instance.ask(near, [Alike::anywhere(vec![gpus], pods)]);
    }

    #[test]
    fn each_gang_is_judged_on_what_those_before_left() {
        let mut instance = hosts();
        ask(&mut instance, 1, 4, 2);
        assert_eq!(check(&instance, &Put::alone(&[(0, 2)])), []);
        assert_eq!(
            check(&instance, &Put::alone(&[(0, 1), (1, 1)])),
            [Fault::Split { scope: 0 }]
        );
        assert_eq!(
            check(&instance, &Put::alone(&[(0, 1)])),
            [Fault::Count { group: 0, pods: 1 }]
        );
        instance.take(&Put::alone(&[(0, 2)]));
        let full = Fault::Overcommitted { host: 0, resource: 0 };
        ask(&mut instance, 0, 1, 1);
        assert_eq!(check(&instance, &Put::alone(&[(0, 1)])), [full]);
        ask(&mut instance, 1, 4, 2);
        instance.give_back(&Put::alone(&[(0, 2)]));
        ask(&mut instance, 0, 8, 1);
        assert_eq!(check(&instance, &Put::alone(&[(0, 1)])), []);
    }
}
