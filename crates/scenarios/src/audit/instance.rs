//! A gang and the cluster around it in the terms of `plancheck`.

use std::collections::{BTreeMap, BTreeSet};

use grove_plancheck::{Host, Instance, PodGroup, Put, Scope};
use serde_json::Value;

use super::object::{self, Levels, allocatable, has_ended, is_live, label, list, node_of, request};
use super::{Audit, Key};

impl Audit {
    /// The gang's pods as a plan, on the cluster without them. Pods that its constraints came after run already.
    pub(super) fn instance(&self, key: &Key, gang: &Value) -> (Instance, Vec<Put>) {
        let groups = list(&gang["spec"]["podgroups"]);
        let members = || groups.iter().flat_map(|group| self.bound_members(&key.0, group));
        let planned: BTreeSet<Key> = members()
            .map(|(pod, _)| pod)
            .filter(|pod| !self.settled.contains(pod))
            .collect();
        let topology = gang["spec"]["topologyRef"].as_str();
        let levels = Levels::of(topology.and_then(|name| self.topologies.get(name)));
        let hosts: Vec<Host> = (self.nodes.keys().zip(self.paths(&levels)))
            .map(|(node, path)| Host {
                free: self.free(node, &planned),
                path,
                cells: Vec::new(),
            })
            .collect();
        let mut instance = Instance {
            levels: levels.above_host.len(),
            totals: vec![0; hosts.first().map_or(0, |host| host.free.len())],
            scopes: self.scopes(key, gang, &levels),
            groups: Vec::new(),
            aparts: Vec::new(),
            hosts,
        };
        let mut puts = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let bound = self.bound_members(&key.0, group);
            let (new, old): (Vec<_>, Vec<_>) = bound.partition(|(pod, _)| planned.contains(pod));
            let hosts = new.iter().filter_map(|(_, pod)| self.host_of(pod));
            puts.extend(hosts.map(|host| Put {
                group: index,
                host,
                cell: None,
                pods: 1,
            }));
            instance.groups.push(PodGroup {
                scope: instance.scopes.len() - groups.len() + index,
                request: new
                    .first()
                    .map_or(vec![0; instance.totals.len()], |(_, pod)| request(pod)),
                eligible: vec![true; instance.hosts.len()],
                dislikes: vec![0; instance.hosts.len()],
                minimum: 0,
                desired: u32::MAX,
                bound: old.iter().filter_map(|(_, pod)| self.host_of(pod)).collect(),
            });
        }
        (instance, puts)
    }

    fn host_of(&self, pod: &Value) -> Option<usize> {
        let node = node_of(pod)?;
        self.nodes.keys().position(|known| known == node)
    }

    /// The replica, the gang, its groups and its pod-groups.
    fn scopes(&self, key: &Key, gang: &Value, levels: &Levels) -> Vec<Scope> {
        let scope = |parent, required| Scope {
            parent,
            tier: 0,
            required,
            preferred: 0,
            others: Vec::new(),
        };
        let required = |constraint: &Value| levels.depth(&constraint["packConstraint"]["required"]);
        let mut replica = scope(None, 0);
        if !self.terms.spills {
            replica.required = levels.depth(object::replica_level(gang));
            replica.others = self.siblings(key, gang);
        }
        let mut scopes = vec![replica, scope(Some(0), required(&gang["spec"]["topologyConstraint"]))];
        let configs = list(&gang["spec"]["topologyConstraintGroupConfigs"]);
        for config in configs {
            scopes.push(scope(Some(1), required(&config["topologyConstraint"])));
        }
        for group in list(&gang["spec"]["podgroups"]) {
            let holds = |config: &Value| list(&config["podGroupNames"]).contains(&group["name"]);
            let parent = configs.iter().position(holds).map_or(1, |config| config + 2);
            scopes.push(scope(Some(parent), required(&group["topologyConstraint"])));
        }
        scopes
    }

    /// Hosts of the pods of the replica's other gangs.
    fn siblings(&self, key: &Key, gang: &Value) -> Vec<usize> {
        let is_of_replica = |pod: &Value| {
            ["app.kubernetes.io/part-of", "grove.io/podcliqueset-replica-index"]
                .iter()
                .all(|key| label(pod, key) == label(gang, key))
        };
        let others = self.pods.iter().filter(|(pod, object)| {
            pod.0 == key.0 && is_of_replica(object) && object::gang_of(object) != *key && is_live(object)
        });
        others.filter_map(|(_, pod)| self.host_of(pod)).collect()
    }

    /// The domains of each node broad to narrow, told apart by where they stand among all of their level; none for a
    /// node that lacks a label.
    fn paths(&self, levels: &Levels) -> Vec<Option<Vec<u32>>> {
        let mut paths = vec![Some(Vec::new()); self.nodes.len()];
        for key in &levels.above_host {
            let names = || self.nodes.values().map(|node| label(node, key).as_str());
            let all: BTreeSet<&str> = names().flatten().collect();
            let numbers: BTreeMap<&str, u32> = all.into_iter().zip(0..).collect();
            for (path, name) in paths.iter_mut().zip(names()) {
                let number = name.map(|name| numbers[name]);
                match (path.as_mut(), number) {
                    (Some(path), Some(number)) => path.push(number),
                    _ => *path = None,
                }
            }
        }
        paths
    }

    /// What a node has left beside its pods, these not counted.
    pub(super) fn free(&self, node: &str, without: &BTreeSet<Key>) -> Vec<i64> {
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let mut free: Vec<i64> = allocatable(&self.nodes[node]).into_iter().map(signed).collect();
        let residents = self.residents.get(node).into_iter().flatten();
        let others = residents.filter(|key| !without.contains(*key));
        for pod in others
            .filter_map(|key| self.pods.get(key))
            .filter(|pod| !has_ended(pod))
        {
            for (free, taken) in free.iter_mut().zip(request(pod)) {
                *free -= signed(taken);
            }
        }
        free
    }
}
