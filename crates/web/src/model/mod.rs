//! What the map shows: topologies as nested domains, hosts with their GPUs, and gangs.
//!
//! [`Map`] is told of every object that changes, and says what that changed on the page; the work is in proportion to
//! the change. A gang has a number, by which cells name it: names would be most of a large map. Which of its GPUs a pod
//! has, Kubernetes does not tell; the oldest pod of a host is drawn first.

mod domains;
mod gang;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grove_api::PodGang;
use grove_runtime::ObjectKey;
use grove_topology::{Topology, TopologyKind};
use jiff::Timestamp;
use serde::Serialize;

use crate::seen::{HostState, SeenNode, SeenPod};
pub use domains::{Domain, TopologyView};
pub use gang::{GangState, GangView, PodView, ScopeView};

/// The number of everything that holds GPUs and belongs to no gang.
const NO_GANG: u32 = 0;

/// A host on the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    pub name: String,
    pub gpus: u32,
    pub state: HostState,
    /// Who holds how many of its GPUs: a gang's number (0: no gang) and a count, one after the other.
    pub cells: Vec<u32>,
}

/// Everything that the page shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    pub topologies: Vec<TopologyView>,
    pub hosts: Vec<HostView>,
    pub gangs: Vec<GangView>,
}

/// What is different since the last time. Everything is told as it is now, so being told twice does no harm.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// All of them, when a domain came, went or changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topologies: Option<Vec<TopologyView>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts_gone: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gangs: Vec<GangView>,
    /// By number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gangs_gone: Vec<u32>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A host: pods can be seen before their node is.
#[derive(Debug, Default)]
struct Host {
    node: Option<Arc<SeenNode>>,
    pods: BTreeSet<(Timestamp, ObjectKey)>,
}

/// A gang: pods can be seen before their PodGang is.
#[derive(Debug)]
struct Gang {
    number: u32,
    object: Option<Arc<PodGang>>,
    pods: BTreeSet<ObjectKey>,
}

#[derive(Debug, Default)]
struct Dirty {
    topologies: bool,
    hosts: BTreeSet<String>,
    gangs: BTreeSet<ObjectKey>,
    /// Numbers of gangs of which nothing is left.
    gone: BTreeSet<u32>,
}

/// The map, kept equal to what was seen.
#[derive(Debug, Default)]
pub struct Map {
    topologies: BTreeMap<(TopologyKind, String), Topology>,
    hosts: BTreeMap<String, Host>,
    gangs: BTreeMap<ObjectKey, Gang>,
    pods: BTreeMap<ObjectKey, Arc<SeenPod>>,
    /// The last number that was given to a gang.
    last_number: u32,
    dirty: Dirty,
}

impl Map {
    /// A topology as it is now; none if it is gone.
    pub fn see_topology(&mut self, kind: TopologyKind, name: &str, topology: Option<Topology>) {
        let key = (kind, name.to_owned());
        let old = match topology.clone() {
            Some(topology) => self.topologies.insert(key, topology),
            None => self.topologies.remove(&key),
        };
        if old == topology {
            return;
        }
        self.dirty.topologies = true;
        // Gangs tell their constraints in the topology's words.
        let users = self.gangs.iter().filter(|(_, gang)| gang.uses(name));
        self.dirty.gangs.extend(users.map(|(key, _)| key.clone()));
    }

    pub fn see_node(&mut self, name: &str, node: Option<Arc<SeenNode>>) {
        let host = self.hosts.entry(name.to_owned()).or_default();
        let labels = |node: &Option<Arc<SeenNode>>| node.as_ref().map(|node| node.labels.clone());
        self.dirty.topologies |= labels(&host.node) != labels(&node);
        if host.node != node {
            self.dirty.hosts.insert(name.to_owned());
        }
        host.node = node;
        self.drop_empty_host(name);
    }

    pub fn see_gang(&mut self, key: &ObjectKey, object: Option<Arc<PodGang>>) {
        self.gang(key).object = object;
        self.dirty.gangs.insert(key.clone());
        self.drop_empty_gang(key);
    }

    pub fn see_pod(&mut self, key: &ObjectKey, pod: Option<Arc<SeenPod>>) {
        let old = match pod.clone() {
            Some(pod) => self.pods.insert(key.clone(), pod),
            None => self.pods.remove(key),
        };
        if old == pod {
            return;
        }
        if let Some(old) = old {
            self.detach(&old);
        }
        if let Some(pod) = pod {
            self.attach(&pod);
        }
    }

    fn attach(&mut self, pod: &SeenPod) {
        if let Some(gang) = &pod.gang {
            self.gang(gang).pods.insert(pod.key.clone());
            self.dirty.gangs.insert(gang.clone());
        }
        if pod.holds_room() {
            let host = self.hosts.entry(pod.node.clone()).or_default();
            host.pods.insert((pod.created_at, pod.key.clone()));
            self.dirty.hosts.insert(pod.node.clone());
        }
    }

    fn detach(&mut self, pod: &SeenPod) {
        if let Some(key) = &pod.gang {
            if let Some(gang) = self.gangs.get_mut(key) {
                gang.pods.remove(&pod.key);
            }
            self.dirty.gangs.insert(key.clone());
            self.drop_empty_gang(key);
        }
        if pod.holds_room() {
            if let Some(host) = self.hosts.get_mut(&pod.node) {
                host.pods.remove(&(pod.created_at, pod.key.clone()));
            }
            self.dirty.hosts.insert(pod.node.clone());
            self.drop_empty_host(&pod.node);
        }
    }

    fn gang(&mut self, key: &ObjectKey) -> &mut Gang {
        let last_number = &mut self.last_number;
        self.gangs.entry(key.clone()).or_insert_with(|| {
            *last_number += 1;
            Gang {
                number: *last_number,
                object: None,
                pods: BTreeSet::new(),
            }
        })
    }

    fn drop_empty_gang(&mut self, key: &ObjectKey) {
        let is_empty = |gang: &Gang| gang.object.is_none() && gang.pods.is_empty();
        if self.gangs.get(key).is_some_and(is_empty)
            && let Some(gang) = self.gangs.remove(key)
        {
            self.dirty.gangs.remove(key);
            self.dirty.gone.insert(gang.number);
        }
    }

    fn drop_empty_host(&mut self, name: &str) {
        let is_empty = |host: &Host| host.node.is_none() && host.pods.is_empty();
        if self.hosts.get(name).is_some_and(is_empty) {
            self.hosts.remove(name);
        }
    }

    /// Everything, as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            topologies: self.topology_views(),
            hosts: self.hosts.keys().filter_map(|name| self.host_view(name)).collect(),
            gangs: self.gangs.keys().filter_map(|key| self.gang_view(key)).collect(),
        }
    }

    /// What is different since the last call.
    pub fn take_change(&mut self) -> Change {
        let dirty = std::mem::take(&mut self.dirty);
        let (mut hosts, mut hosts_gone) = (Vec::new(), Vec::new());
        for name in dirty.hosts {
            match self.host_view(&name) {
                Some(host) => hosts.push(host),
                None => hosts_gone.push(name),
            }
        }
        Change {
            topologies: dirty.topologies.then(|| self.topology_views()),
            hosts,
            hosts_gone,
            gangs: dirty.gangs.iter().filter_map(|key| self.gang_view(key)).collect(),
            gangs_gone: dirty.gone.into_iter().collect(),
        }
    }

    /// The pods of a gang, clique by clique; none if there is no such gang.
    pub fn pods_of(&self, gang: &ObjectKey) -> Option<Vec<PodView>> {
        let pods = self.gangs.get(gang)?.pods.iter();
        let mut pods: Vec<&Arc<SeenPod>> = pods.filter_map(|key| self.pods.get(key)).collect();
        pods.sort_by_key(|pod| (&pod.clique, &pod.key));
        Some(pods.into_iter().map(|pod| PodView::new(pod)).collect())
    }

    fn topology_views(&self) -> Vec<TopologyView> {
        let nodes: Vec<&SeenNode> = self.hosts.values().filter_map(|host| host.node.as_deref()).collect();
        let hidden = |topology: &&Topology| {
            let twin = (TopologyKind::ClusterTopology, topology.name().to_owned());
            topology.kind() == TopologyKind::ClusterTopologyBinding && self.topologies.contains_key(&twin)
        };
        let shown = self.topologies.values().filter(|topology| !hidden(topology));
        shown.map(|topology| TopologyView::new(topology, &nodes)).collect()
    }

    fn host_view(&self, name: &str) -> Option<HostView> {
        let host = self.hosts.get(name)?;
        let node = host.node.as_ref()?;
        let mut cells: Vec<u32> = Vec::new();
        let pods = host.pods.iter().filter_map(|(_, key)| self.pods.get(key));
        for pod in pods.filter(|pod| pod.gpus > 0) {
            let gang = pod.gang.as_ref().and_then(|gang| self.gangs.get(gang));
            let number = gang.map_or(NO_GANG, |gang| gang.number);
            match cells.as_mut_slice() {
                [.., last, count] if *last == number => *count = count.saturating_add(pod.gpus),
                _ => cells.extend([number, pod.gpus]),
            }
        }
        Some(HostView {
            name: name.to_owned(),
            gpus: node.gpus,
            state: node.state(),
            cells,
        })
    }

    fn gang_view(&self, key: &ObjectKey) -> Option<GangView> {
        let gang = self.gangs.get(key)?;
        let pods = gang.pods.iter().filter_map(|key| self.pods.get(key));
        let pods: Vec<&SeenPod> = pods.map(|pod| &**pod).collect();
        let topology = gang.object.as_ref().and_then(|object| self.topology_of(object));
        Some(GangView::new(
            key,
            (gang.number, gang.object.as_deref()),
            &pods,
            topology,
        ))
    }

    /// The topology whose keys a gang's constraints use; a ClusterTopology comes before the others.
    fn topology_of(&self, gang: &PodGang) -> Option<&Topology> {
        let name = gang.spec.topology_ref.as_ref()?;
        self.topologies.values().find(|topology| topology.name() == name)
    }
}

impl Gang {
    fn uses(&self, topology: &str) -> bool {
        let object = self.object.as_ref();
        object.and_then(|object| object.spec.topology_ref.as_deref()) == Some(topology)
    }
}
