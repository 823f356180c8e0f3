//! Replays what happened on a cluster and judges every moment of it with `plancheck`, which shares no code with what
//! places.
//!
//! - No node holds more than it has.
//! - No scope that requires a level is split, the gangs of a replica that share a domain included.
//! - No gang is bound below its minimum, unless its newest bind is younger than the grace or it was whole before.
//! - No pod that has a node says that it has none.
//!
//! The moments come from the history of an embedded cluster, or from watches of a real one, put in order.

mod instance;
mod object;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grove_plancheck::{Fault, check};
use grove_simcluster::history::History;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use object::{is_live, list, node_of};

/// The kinds that are judged by.
pub const RESOURCES: [&str; 4] = ["nodes", "pods", "podgangs", "clustertopologies"];

/// What the deletions of a gang that is released take to arrive.
const ARRIVAL: SignedDuration = SignedDuration::from_secs(1);

/// What the judge goes by.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Gangs of a replica need not share its domain.
    pub spills: bool,
    /// How long a gang that never was whole may keep pods below its minimum, until they are gone.
    pub grace: SignedDuration,
}

impl Terms {
    /// Those of a cluster on which everybody answers, and whose scheduler is configured with this grace.
    pub fn calm(grace: Duration) -> Self {
        let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
        Self {
            spills: false,
            grace: grace.saturating_add(ARRIVAL),
        }
    }
}

/// What no moment may show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("gang {0:?} is half bound for {1}")]
    HalfBound(Key, SignedDuration),
    #[error("gang {0:?}: {1:?}")]
    Placement(Key, Vec<Fault>),
    #[error("pod {0:?} has a node and says PodScheduled=False: {1}")]
    Denied(Key, String),
    #[error("node {0} is over capacity: {1:?}")]
    OverCapacity(String, Vec<i64>),
}

impl Wrong {
    /// Whether a node holds more than it has.
    pub fn is_overcommitment(&self) -> bool {
        match self {
            Self::HalfBound(..) | Self::Denied(..) => false,
            Self::Placement(_, faults) => faults.iter().any(|fault| matches!(fault, Fault::Overcommitted { .. })),
            Self::OverCapacity(..) => true,
        }
    }
}

/// One write.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Plural name of the kind.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// The object as it is now; none if it is gone.
    pub object: Option<Value>,
    pub time: Timestamp,
}

/// Namespace and name.
type Key = (String, String);

/// A cluster at one moment of its history.
#[derive(Debug)]
pub struct Audit {
    nodes: BTreeMap<String, Value>,
    topologies: BTreeMap<String, Value>,
    pods: BTreeMap<Key, Value>,
    /// The pods on each node.
    residents: BTreeMap<String, BTreeSet<Key>>,
    gangs: BTreeMap<Key, Value>,
    /// Gangs that once had their minimum, those that have a part of it and never had all, and when a pod of a gang was
    /// last bound.
    whole: BTreeSet<Key>,
    halves: BTreeSet<Key>,
    bound_at: BTreeMap<Key, Timestamp>,
    /// Pods that were bound before their gang got its present constraints: those are no promise to them.
    settled: BTreeSet<Key>,
    terms: Terms,
    /// Pods that were bound.
    pub binds: usize,
}

impl Audit {
    fn new(terms: Terms) -> Self {
        Self {
            nodes: BTreeMap::new(),
            topologies: BTreeMap::new(),
            pods: BTreeMap::new(),
            residents: BTreeMap::new(),
            gangs: BTreeMap::new(),
            whole: BTreeSet::new(),
            halves: BTreeSet::new(),
            bound_at: BTreeMap::new(),
            settled: BTreeSet::new(),
            terms,
            binds: 0,
        }
    }

    /// Judges every moment, in the order in which they were. The audit at the last of them; what was wrong, if something
    /// was.
    pub fn judged(moments: impl IntoIterator<Item = Moment>, terms: Terms) -> Result<Self, Wrong> {
        let mut audit = Self::new(terms);
        for moment in moments {
            let time = moment.time;
            judge_word(&moment)?;
            if let Some((gang, is_bind)) = audit.take(moment) {
                if is_bind {
                    audit.binds += 1;
                    audit.bound_at.insert(gang.clone(), time);
                    audit.judge(&gang)?;
                }
                audit.sort(gang);
            }
            audit.judge_halves(time)?;
        }
        Ok(audit)
    }

    /// The same in a test, which fails if something was wrong.
    pub fn of(moments: impl IntoIterator<Item = Moment>, terms: Terms) -> Self {
        Self::judged(moments, terms).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    /// Judges every moment of an embedded cluster.
    pub fn of_history(history: &History, terms: Terms) -> Self {
        let writes = history.writes();
        let judged = writes
            .iter()
            .filter(|write| RESOURCES.contains(&&*write.resource.plural));
        let moments = judged.map(|write| Moment {
            resource: write.resource.plural.to_string(),
            namespace: write.key.namespace.clone(),
            name: write.key.name.clone(),
            object: write.after(),
            time: write.time,
        });
        Self::of(moments, terms)
    }

    /// Takes a write over. The gang that it concerns, and whether it bound a pod of it.
    fn take(&mut self, moment: Moment) -> Option<(Key, bool)> {
        let key = (moment.namespace, moment.name);
        match moment.resource.as_str() {
            "nodes" => {
                put(&mut self.nodes, key.1, moment.object);
                None
            }
            "clustertopologies" => {
                put(&mut self.topologies, key.1, moment.object);
                None
            }
            "podgangs" => {
                self.take_gang(&key, moment.object);
                Some((key, false))
            }
            "pods" => self.take_pod(key, moment.object),
            _ => None,
        }
    }

    fn take_gang(&mut self, key: &Key, gang: Option<Value>) {
        let is_other = |new: &Value| {
            let old = self.gangs.get(key);
            old.is_some_and(|old| object::constraints(old) != object::constraints(new))
        };
        if gang.as_ref().is_some_and(is_other) {
            let bound = self.pods.iter().filter(|(_, pod)| node_of(pod).is_some());
            let members = bound.filter(|(_, pod)| object::gang_of(pod) == *key);
            let members: Vec<Key> = members.map(|(pod, _)| pod.clone()).collect();
            self.settled.extend(members);
        }
        put(&mut self.gangs, key.clone(), gang);
    }

    fn take_pod(&mut self, key: Key, pod: Option<Value>) -> Option<(Key, bool)> {
        let node = |pod: &Option<Value>| pod.as_ref().and_then(node_of).map(str::to_owned);
        if pod.is_none() {
            self.settled.remove(&key);
        }
        let to = node(&pod);
        let gang = pod.as_ref().map(object::gang_of);
        let before = put(&mut self.pods, key.clone(), pod);
        let from = node(&before);
        if from != to {
            if let Some(residents) = from.as_ref().and_then(|node| self.residents.get_mut(node)) {
                residents.remove(&key);
            }
            if let Some(node) = &to {
                self.residents.entry(node.clone()).or_default().insert(key);
            }
        }
        let gang = gang.or_else(|| before.as_ref().map(object::gang_of))?;
        Some((gang, from.is_none() && to.is_some()))
    }

    /// Notes whether a gang has its minimum.
    fn sort(&mut self, key: Key) {
        let (bound, is_whole) = self
            .gangs
            .get(&key)
            .map_or((0, false), |gang| self.standing(&key, gang));
        self.halves.remove(&key);
        if bound == 0 {
            self.whole.remove(&key);
        } else if is_whole {
            self.whole.insert(key);
        } else if !self.whole.contains(&key) {
            self.halves.insert(key);
        }
    }

    /// Gangs that have some of their minimum and not all of it, for longer than the grace.
    fn judge_halves(&self, now: Timestamp) -> Result<(), Wrong> {
        for key in &self.halves {
            let last = self.bound_at.get(key).copied().unwrap_or(now);
            let since = now.duration_since(last);
            if since > self.terms.grace {
                return Err(Wrong::HalfBound(key.clone(), since));
            }
        }
        Ok(())
    }

    /// How many pods of a gang are bound, and whether every pod-group has its minimum.
    fn standing(&self, key: &Key, gang: &Value) -> (usize, bool) {
        let mut bound = 0;
        let mut is_whole = true;
        for group in list(&gang["spec"]["podgroups"]) {
            let here = self.bound_members(&key.0, group).count();
            bound += here;
            is_whole &= here as u64 >= group["minReplicas"].as_u64().unwrap_or(0);
        }
        (bound, is_whole)
    }

    fn bound_members<'a>(&'a self, namespace: &str, group: &'a Value) -> impl Iterator<Item = (Key, &'a Value)> {
        let namespace = namespace.to_owned();
        let names = list(&group["podReferences"])
            .iter()
            .filter_map(|reference| reference["name"].as_str());
        names.filter_map(move |name| {
            let key = (namespace.clone(), name.to_owned());
            let pod = self
                .pods
                .get(&key)
                .filter(|pod| is_live(pod) && node_of(pod).is_some())?;
            Some((key, pod))
        })
    }

    /// Judges where the pods of a gang are, as one plan on a cluster in which all others run.
    fn judge(&self, key: &Key) -> Result<(), Wrong> {
        let Some(gang) = self.gangs.get(key) else {
            return self.judge_capacity();
        };
        let (instance, puts) = self.instance(key, gang);
        let faults = check(&instance, &puts);
        match faults.is_empty() {
            true => Ok(()),
            false => Err(Wrong::Placement(key.clone(), faults)),
        }
    }

    /// No node holds more than it has.
    fn judge_capacity(&self) -> Result<(), Wrong> {
        for node in self.nodes.keys() {
            let free = self.free(node, &BTreeSet::new());
            if free.iter().any(|free| *free < 0) {
                return Err(Wrong::OverCapacity(node.clone(), free));
            }
        }
        Ok(())
    }
}

/// A pod that has a node does not say that it has none.
fn judge_word(moment: &Moment) -> Result<(), Wrong> {
    let pod = moment.object.as_ref().filter(|_| moment.resource == "pods");
    let Some(pod) = pod.filter(|pod| node_of(pod).is_some()) else {
        return Ok(());
    };
    match object::complaint(pod) {
        Some(why) => {
            let key = (moment.namespace.clone(), moment.name.clone());
            Err(Wrong::Denied(key, why.to_owned()))
        }
        None => Ok(()),
    }
}

fn put<K: Ord>(objects: &mut BTreeMap<K, Value>, key: K, object: Option<Value>) -> Option<Value> {
    match object {
        Some(object) => objects.insert(key, object),
        None => objects.remove(&key),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOPOLOGY: &str = "grove-topology";

    fn moment(resource: &str, name: &str, second: i64, object: Value) -> Moment {
        let namespace = if ["pods", "podgangs"].contains(&resource) {
            "ns"
        } else {
            ""
        };
        Moment {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            object: Some(object),
            time: Timestamp::from_second(second).unwrap(),
        }
    }

    fn bound(name: &str, node: &str, second: i64) -> Moment {
        let container = json!({"resources": {"requests": {"nvidia.com/gpu": "8", "cpu": "100m"}}});
        let gang = if name == "other" { "" } else { "w-0" };
        let labels = json!({"grove.io/podgang": gang});
        let pod = json!({"metadata": {"namespace": "ns", "name": name, "labels": labels},
                         "spec": {"nodeName": node, "containers": [container]}});
        moment("pods", name, second, pod)
    }

    /// Two racks of two hosts, and a gang of two pods that shall share a rack.
    fn scene() -> Vec<Moment> {
        let levels = json!([{"domain": "rack", "key": "rack"}, {"domain": "host", "key": "kubernetes.io/hostname"}]);
        let mut moments = vec![moment(
            "clustertopologies",
            TOPOLOGY,
            0,
            json!({"spec": {"levels": levels}}),
        )];
        for (name, rack) in [("n0", "a"), ("n1", "a"), ("n2", "b")] {
            let has = json!({"nvidia.com/gpu": "8", "cpu": "4", "pods": "10"});
            let node = json!({"metadata": {"labels": {"rack": rack}}, "status": {"allocatable": has}});
            moments.push(moment("nodes", name, 0, node));
        }
        let pods = json!([{"name": "p0"}, {"name": "p1"}]);
        let gang = json!({"spec": {
            "topologyRef": TOPOLOGY, "topologyConstraint": {"packConstraint": {"required": "rack"}},
            "podgroups": [{"name": "w-0-a", "minReplicas": 2, "podReferences": pods}],
        }});
        moments.push(moment("podgangs", "w-0", 0, gang));
        moments
    }

    fn judged(binds: [Moment; 2]) -> Audit {
        let mut moments = scene();
        moments.extend(binds);
        Audit::of(moments, Terms::calm(Duration::from_secs(5)))
    }

    #[test]
    fn a_whole_gang_in_one_rack_passes() {
        assert_eq!(judged([bound("p0", "n0", 1), bound("p1", "n1", 2)]).binds, 2);
    }

    #[test]
    #[should_panic(expected = "Split")]
    fn a_rack_that_is_split_is_found() {
        judged([bound("p0", "n0", 1), bound("p1", "n2", 2)]);
    }

    #[test]
    #[should_panic(expected = "Overcommitted")]
    fn a_node_that_holds_too_much_is_found() {
        judged([bound("p0", "n0", 1), bound("p1", "n0", 2)]);
    }

    #[test]
    #[should_panic(expected = "has a node and says PodScheduled=False: no room")]
    fn a_bound_pod_that_says_it_is_not_is_found() {
        let mut denied = bound("p1", "n1", 2);
        let said = json!([{"type": "PodScheduled", "status": "False", "message": "no room"}]);
        denied.object.as_mut().unwrap()["status"]["conditions"] = said;
        judged([bound("p0", "n0", 1), denied]);
    }

    #[test]
    fn half_a_gang_is_found_after_the_grace_of_its_scheduler() {
        let half = |second: i64| {
            let binds = [bound("p0", "n0", 1), bound("other", "n2", second)];
            Audit::judged(scene().into_iter().chain(binds), Terms::calm(Duration::from_secs(5)))
        };
        assert!(half(7).is_ok(), "its deletions are on their way");
        assert!(matches!(half(8), Err(Wrong::HalfBound(..))));
    }
}
