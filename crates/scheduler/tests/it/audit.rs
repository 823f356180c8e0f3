//! Replays the history of a run and judges it after every write with `plancheck`, which shares no code with what places.
//!
//! - No node holds more than it has.
//! - No scope that requires a level is split, the gangs of a replica that share a domain included.
//! - No gang is bound below its minimum, unless its newest bind is younger than the grace or it was whole before.

use std::collections::{BTreeMap, BTreeSet};

use grove_plancheck::{Fault, Host, Instance, PodGroup, Put, Scope, check};
use grove_simcluster::history::{History, Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::support::{GRACE, LEVELS};

/// Resources that are judged.
const RESOURCES: [&str; 3] = ["nvidia.com/gpu", "cpu", "pods"];

#[derive(Default)]
pub(crate) struct Audit {
    nodes: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    gangs: BTreeMap<String, Value>,
    /// Gangs that once had their minimum, and when a pod of a gang was last bound.
    whole: BTreeSet<String>,
    bound_at: BTreeMap<String, Timestamp>,
    pub(crate) binds: usize,
}

impl Audit {
    /// Judges every moment of a history. `spills`: gangs of a replica need not share its domain.
    pub(crate) fn of(history: &History, spills: bool) -> Self {
        let mut audit = Self::default();
        for write in history.writes().iter() {
            if audit.take(write) {
                audit.binds += 1;
                let gang = gang_of(&audit.pods[&write.key.name]);
                audit.bound_at.insert(gang.clone(), write.time);
                audit.judge(&gang, spills);
            }
            audit.judge_halves(write.time);
        }
        audit
    }

    /// Whether the write bound a pod.
    fn take(&mut self, write: &Write) -> bool {
        let objects = match &*write.resource.plural {
            "nodes" => &mut self.nodes,
            "pods" => &mut self.pods,
            "podgangs" => &mut self.gangs,
            _ => return false,
        };
        let Some(object) = write.after() else {
            objects.remove(&write.key.name);
            return false;
        };
        let has_node = node_of(&object).is_some();
        let before = objects.insert(write.key.name.clone(), object);
        &*write.resource.plural == "pods" && has_node && before.is_none_or(|before| node_of(&before).is_none())
    }

    /// Gangs that have some of their minimum and not all of it, for longer than the grace.
    fn judge_halves(&mut self, now: Timestamp) {
        for (name, gang) in &self.gangs {
            let (bound, is_whole) = self.standing(gang);
            if bound == 0 {
                self.whole.remove(name);
            } else if is_whole {
                self.whole.insert(name.clone());
            } else if !self.whole.contains(name) {
                let last = self.bound_at.get(name).copied().unwrap_or(now);
                // A second for the deletions to arrive.
                let limit = SignedDuration::try_from(GRACE).expect("a short time") + SignedDuration::from_secs(1);
                assert!(
                    now.duration_since(last) <= limit,
                    "gang {name} is half bound for too long"
                );
            }
        }
    }

    fn standing(&self, gang: &Value) -> (usize, bool) {
        let mut bound = 0;
        let mut is_whole = true;
        for group in list(&gang["spec"]["podgroups"]) {
            let here = self
                .members(group)
                .filter(|pod| is_live(pod) && node_of(pod).is_some())
                .count();
            bound += here;
            is_whole &= here as u64 >= group["minReplicas"].as_u64().unwrap_or(0);
        }
        (bound, is_whole)
    }

    fn members<'a>(&'a self, group: &'a Value) -> impl Iterator<Item = &'a Value> {
        let names = list(&group["podReferences"])
            .iter()
            .filter_map(|reference| reference["name"].as_str());
        names.filter_map(|name| self.pods.get(name))
    }

    /// Judges where the pods of a gang are, as one plan on a cluster in which all others run.
    fn judge(&self, name: &str, spills: bool) {
        let Some(gang) = self.gangs.get(name) else {
            return self.judge_capacity(&BTreeSet::new());
        };
        let names: Vec<&String> = self.nodes.keys().collect();
        let host = |node: &str| names.iter().position(|known| *known == node);
        let groups = list(&gang["spec"]["podgroups"]);
        let own: BTreeSet<&str> = groups
            .iter()
            .flat_map(|group| self.members(group))
            .map(name_of)
            .collect();
        let mut instance = Instance {
            levels: LEVELS.len() - 1,
            hosts: names.iter().map(|node| self.host(node, &own)).collect(),
            totals: vec![0; RESOURCES.len()],
            scopes: self.scopes(gang, spills),
            groups: Vec::new(),
            aparts: Vec::new(),
        };
        let mut puts = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let bound: Vec<&Value> = self
                .members(group)
                .filter(|pod| is_live(pod) && node_of(pod).is_some())
                .collect();
            let request = bound.first().map_or(vec![0; RESOURCES.len()], |pod| request(pod));
            let hosts = bound.iter().filter_map(|pod| host(node_of(pod)?));
            puts.extend(hosts.map(|host| Put {
                group: index,
                host,
                cell: None,
                pods: 1,
            }));
            instance.groups.push(PodGroup {
                scope: instance.scopes.len() - groups.len() + index,
                request,
                eligible: vec![true; names.len()],
                dislikes: vec![0; names.len()],
                minimum: 0,
                desired: u32::MAX,
                bound: Vec::new(),
            });
        }
        let faults: Vec<Fault> = check(&instance, &puts);
        assert!(faults.is_empty(), "gang {name}: {faults:?}");
    }

    /// The replica, the gang, its groups and its pod-groups.
    fn scopes(&self, gang: &Value, spills: bool) -> Vec<Scope> {
        let scope = |parent, required| Scope {
            parent,
            tier: 0,
            required,
            preferred: 0,
            others: Vec::new(),
        };
        let annotation = &gang["metadata"]["annotations"]["grove.io/replica-pack-required"];
        let mut replica = scope(None, if spills { 0 } else { depth(annotation) });
        if replica.required > 0 {
            replica.others = self.siblings(gang);
        }
        let mut scopes = vec![
            replica,
            scope(Some(0), required(gang.pointer("/spec/topologyConstraint"))),
        ];
        let configs = list(&gang["spec"]["topologyConstraintGroupConfigs"]);
        for config in configs {
            scopes.push(scope(Some(1), required(config.get("topologyConstraint"))));
        }
        for group in list(&gang["spec"]["podgroups"]) {
            let holds = |config: &Value| list(&config["podGroupNames"]).contains(&group["name"]);
            let parent = configs.iter().position(holds).map_or(1, |config| config + 2);
            scopes.push(scope(Some(parent), required(group.get("topologyConstraint"))));
        }
        scopes
    }

    /// Hosts of the pods of the replica's other gangs.
    fn siblings(&self, gang: &Value) -> Vec<usize> {
        let label = |object: &Value, key: &str| object["metadata"]["labels"][key].clone();
        let same = |pod: &&Value| {
            ["app.kubernetes.io/part-of", "grove.io/podcliqueset-replica-index"]
                .iter()
                .all(|key| label(pod, key) == label(gang, key))
                && gang_of(pod) != name_of(gang)
                && is_live(pod)
        };
        let nodes = self.pods.values().filter(same).filter_map(node_of);
        nodes
            .filter_map(|node| self.nodes.keys().position(|known| known == node))
            .collect()
    }

    fn host(&self, node: &str, without: &BTreeSet<&str>) -> Host {
        let object = &self.nodes[node];
        let others = self
            .pods
            .values()
            .filter(|pod| node_of(pod) == Some(node) && !has_ended(pod) && !without.contains(name_of(pod)));
        let taken: Vec<Vec<u64>> = others.map(request).collect();
        let free = RESOURCES.iter().enumerate().map(|(index, resource)| {
            let has = amount(&object["status"]["allocatable"][*resource]) as i64;
            has - taken.iter().map(|request| request[index] as i64).sum::<i64>()
        });
        let labels = &object["metadata"]["labels"];
        let values: Option<Vec<String>> = LEVELS[..LEVELS.len() - 1]
            .iter()
            .map(|(_, key)| labels[*key].as_str().map(str::to_owned))
            .collect();
        let code = |text: &String| {
            text.bytes()
                .fold(7_u32, |code, byte| code.wrapping_mul(31).wrapping_add(byte.into()))
        };
        Host {
            free: free.collect(),
            path: values.map(|values| values.iter().map(code).collect()),
            cells: vec![],
        }
    }

    /// No node holds more than it has.
    fn judge_capacity(&self, without: &BTreeSet<&str>) {
        for node in self.nodes.keys() {
            let free = self.host(node, without).free;
            assert!(
                free.iter().all(|free| *free >= 0),
                "node {node} is over capacity: {free:?} of {RESOURCES:?}"
            );
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn required(constraint: Option<&Value>) -> usize {
    constraint.map_or(0, |constraint| depth(&constraint["packConstraint"]["required"]))
}

fn depth(key: &Value) -> usize {
    LEVELS
        .iter()
        .position(|(_, known)| key == known)
        .map_or(0, |level| level + 1)
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn gang_of(pod: &Value) -> String {
    pod["metadata"]["labels"]["grove.io/podgang"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_live(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && !has_ended(pod)
}

/// What a pod of these tests asks for: they have plain containers only.
fn request(pod: &Value) -> Vec<u64> {
    let of = |resource: &&str| {
        let containers = list(&pod["spec"]["containers"]).iter();
        containers
            .map(|container| amount(&container["resources"]["requests"][*resource]))
            .sum::<u64>()
    };
    let mut request: Vec<u64> = RESOURCES.iter().map(of).collect();
    request[RESOURCES.len() - 1] = 1;
    request
}

/// In thousandths for `cpu`, whole for the rest: both sides of a comparison are read the same way.
fn amount(quantity: &Value) -> u64 {
    let text = quantity.as_str().unwrap_or("0");
    match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse().expect("a number"),
        None if text.chars().all(|digit| digit.is_ascii_digit()) => text.parse::<u64>().expect("a number"),
        None => panic!("quantities of these tests are plain: {text}"),
    }
}
