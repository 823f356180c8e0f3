//! The engine's cluster, kept equal to what the API shows.
//!
//! Whoever watches hands over every object as it comes; nothing is read from here but through the engine. A pod takes
//! its place from the moment it has a node, or is about to ([`Mirror::assume`]), until it has ended or is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use grove_api::labels;
use grove_api::podgang::NamespacedName;
use grove_placement::{
    Amounts, Cluster, Mark, NodeId, Resource, Rules, Shape, ShapeId, Stance, TopologyId, TopologySpec,
};
use grove_topology::Topology;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};

use crate::apart::Term;
use crate::cells::{NodeResourceTopology, Publication};
use crate::rooms::{Rooms, is_gpu};
use crate::selector::Labels;
use crate::unsupported::{NotPlaceable, Unsupported};
use crate::view::{Placeable, PodView};
use crate::volumes::{Unready, Volumes};
use crate::{node, topology};

/// Namespace and name of a pod.
pub type PodKey = NamespacedName;

/// Gangs of one PodCliqueSet replica: namespace, set and index.
pub(crate) type ReplicaKey = (String, String, String);

/// A pod that holds a place on a node.
#[derive(Debug)]
struct Resident {
    node: String,
    /// `None` while the node is not known.
    on: Option<NodeId>,
    amounts: Amounts,
    marks: Vec<(Mark, Stance)>,
    labels: Arc<Labels>,
    /// Only said by us so far, not by the API.
    assumed: bool,
}

#[derive(Debug)]
pub struct Mirror {
    cluster: Cluster,
    default_topology: String,
    /// For gangs that use no topology.
    bare: TopologyId,
    topologies: BTreeMap<String, (TopologyId, TopologySpec)>,
    residents: BTreeMap<PodKey, Resident>,
    /// Residents whose node is not known, by name of the node.
    homeless: BTreeMap<String, Vec<PodKey>>,
    replicas: BTreeMap<ReplicaKey, Vec<PodKey>>,
    terms: Vec<(Term, Mark)>,
    volumes: Volumes,
    /// By node.
    cells: BTreeMap<String, Publication>,
    rooms: Rooms,
    /// Nobody who could bind a claim comes after.
    needs_bound_claims: bool,
    /// Whoever binds sees to the resource claims of pods.
    claims_are_others: bool,
}

/// A pod that holds a place, and what it holds there.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    pub pod: &'a PodKey,
    pub node: NodeId,
    pub amounts: &'a Amounts,
    pub labels: &'a BTreeMap<String, String>,
}

/// A place that a pod holds: its node, if that is known, what it takes there, and whom it keeps away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub node: Option<NodeId>,
    pub amounts: Amounts,
    pub marks: Vec<(Mark, Stance)>,
}

/// The name of the topology without levels; no object can have it.
const BARE: &str = "";

impl Mirror {
    /// A mirror of nothing yet. `default_topology` is the name of the topology of sets that name none.
    pub fn new(default_topology: &str) -> Self {
        let mut cluster = Cluster::new();
        let bare = cluster.set_topology(TopologySpec {
            name: BARE.to_owned(),
            levels: Vec::new(),
            host: None,
        });
        Mirror {
            cluster,
            default_topology: default_topology.to_owned(),
            bare,
            topologies: BTreeMap::new(),
            residents: BTreeMap::new(),
            homeless: BTreeMap::new(),
            replicas: BTreeMap::new(),
            terms: Vec::new(),
            volumes: Volumes::default(),
            cells: BTreeMap::new(),
            rooms: Rooms::default(),
            needs_bound_claims: false,
            claims_are_others: false,
        }
    }

    /// From now on a pod with a volume claim that is not bound is not placed: whoever binds the pods binds no claims.
    pub fn need_bound_claims(&mut self) {
        self.needs_bound_claims = true;
    }

    /// Gives places to pods with resource claims too, for somebody else to match the claims near there.
    pub fn leave_claims_to_others(&mut self) {
        self.claims_are_others = true;
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// For solving, which brings counts up to date. Pods and nodes are changed through the mirror only.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// How much room there is, for people.
    pub fn rooms(&mut self) -> &mut Rooms {
        &mut self.rooms
    }

    /// Takes over a topology, new or changed.
    pub fn set_topology(&mut self, topology: &Topology) {
        let spec = topology::spec(topology);
        self.rooms.set_topology(&spec);
        let id = self.cluster.set_topology(spec.clone());
        self.topologies.insert(spec.name.clone(), (id, spec));
    }

    /// No gang can use the topology any more.
    pub fn remove_topology(&mut self, name: &str) {
        self.topologies.remove(name);
        self.rooms.remove_topology(name);
    }

    pub fn set_node(&mut self, node: &Node) {
        let spec = node::spec(&mut self.cluster, node);
        let name = spec.traits.name.clone();
        self.rooms
            .set_node(&spec.traits, gpus(&self.cluster, &spec.allocatable));
        let id = self.cluster.set_node(spec);
        for key in self.homeless.remove(&name).unwrap_or_default() {
            let resident = self.residents.get_mut(&key);
            if let Some(resident) = resident.filter(|resident| resident.on.is_none() && resident.node == name) {
                resident.on = Some(id);
                take(&mut self.cluster, resident);
            }
        }
        self.restate_cells(&name);
    }

    /// The node is gone. Its pods keep their places until they are gone too, should the node return.
    pub fn remove_node(&mut self, name: &str) {
        self.rooms.remove_node(name);
        if let Some(id) = self.cluster.node(name) {
            self.cluster.remove_node(id);
        }
    }

    /// Takes over what a node says of its NUMA cells. The pods that the API shows on the node are counted in it.
    pub fn set_cells(&mut self, published: &NodeResourceTopology) {
        let node = published.metadata.name.clone().unwrap_or_default();
        let residents = self.residents.iter();
        let on_node = residents.filter(|(_, resident)| resident.node == node && !resident.assumed);
        let counted = on_node.map(|(key, resident)| (key.clone(), resident.amounts.clone()));
        let publication = Publication::new(&mut self.cluster, published, counted.collect());
        self.cells.insert(node.clone(), publication);
        self.restate_cells(&node);
    }

    /// The node says nothing of cells any more: it is one.
    pub fn remove_cells(&mut self, node: &str) {
        self.cells.remove(node);
        self.restate_cells(node);
    }

    fn restate_cells(&mut self, node: &str) {
        if let Some(id) = self.cluster.node(node) {
            let cells = self.cells.get(node).map(Publication::cells).unwrap_or_default();
            self.cluster.set_cells(id, &cells);
        }
    }

    /// Takes over a pod, new or changed.
    pub fn set_pod(&mut self, pod: &impl Placeable) {
        let pod = &*pod.view();
        match &pod.node {
            _ if pod.has_ended => self.remove_pod(&pod.key),
            Some(node) => self.settle(pod, node, false),
            // A bind that is under way is older news to the API than to us.
            None if self.residents.get(&pod.key).is_some_and(|resident| resident.assumed) => {}
            None => self.remove_pod(&pod.key),
        }
    }

    /// The pod is about to be bound to a node: it holds its place there until the API says otherwise or it is removed.
    pub fn assume(&mut self, pod: &impl Placeable, node: &str) {
        self.settle(&pod.view(), node, true);
    }

    /// The pod is gone, or is not going to be bound after all.
    pub fn remove_pod(&mut self, key: &PodKey) {
        let Some(resident) = self.residents.remove(key) else {
            return;
        };
        give_back(&mut self.cluster, &resident);
        let gpus = gpus(&self.cluster, &resident.amounts);
        self.rooms.give_back(&resident.node, gpus);
        if let Some(homeless) = self.homeless.get_mut(&resident.node) {
            homeless.retain(|other| other != key);
            if homeless.is_empty() {
                self.homeless.remove(&resident.node);
            }
        }
        if self
            .cells
            .get_mut(&resident.node)
            .is_some_and(|cells| cells.counted.remove(key).is_some())
        {
            self.restate_cells(&resident.node);
        }
        if let Some(replica) = replica_of(&key.namespace, &resident.labels)
            && let Some(members) = self.replicas.get_mut(&replica)
        {
            members.retain(|member| member != key);
            if members.is_empty() {
                self.replicas.remove(&replica);
            }
        }
    }

    pub fn set_claim(&mut self, claim: &PersistentVolumeClaim) {
        self.volumes.set_claim(claim);
    }

    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        self.volumes.remove_claim(namespace, name);
    }

    pub fn set_volume(&mut self, volume: &PersistentVolume) {
        self.volumes.set_volume(volume);
    }

    pub fn remove_volume(&mut self, name: &str) {
        self.volumes.remove_volume(name);
    }

    /// Namespace and name of the claims that are bound to a volume.
    pub fn claims_on(&self, volume: &str) -> impl Iterator<Item = &(String, String)> {
        self.volumes.claims_on(volume)
    }

    /// The node that a pod holds a place on.
    pub fn node_of(&self, pod: &PodKey) -> Option<&str> {
        self.residents.get(pod).map(|resident| resident.node.as_str())
    }

    /// What a pod holds: whoever waits may be helped when that changes.
    pub fn holding(&self, pod: &PodKey) -> Option<Holding> {
        self.residents.get(pod).map(|resident| Holding {
            node: resident.on,
            amounts: resident.amounts.clone(),
            marks: resident.marks.clone(),
        })
    }

    fn settle(&mut self, pod: &PodView, node: &str, assumed: bool) {
        let (key, labels) = (pod.key.clone(), pod.labels.clone());
        let marks = self.marks(pod);
        let amounts = self.amounts(pod);
        if let Some(known) = self.residents.get_mut(&key)
            && (known.node.as_str(), &known.amounts, &known.labels) == (node, &amounts, &labels)
            && known.marks == marks
        {
            known.assumed &= assumed;
            return;
        }
        self.remove_pod(&key);
        let on = self.cluster.node(node);
        if on.is_none() {
            self.homeless.entry(node.to_owned()).or_default().push(key.clone());
        }
        if let Some(replica) = replica_of(&key.namespace, &labels) {
            self.replicas.entry(replica).or_default().push(key.clone());
        }
        let resident = Resident {
            node: node.to_owned(),
            on,
            amounts,
            marks,
            labels,
            assumed,
        };
        take(&mut self.cluster, &resident);
        self.rooms.take(node, gpus(&self.cluster, &resident.amounts));
        self.residents.insert(key, resident);
    }

    /// All that a pod takes on its node.
    fn amounts(&mut self, pod: &PodView) -> Amounts {
        let mut amounts: Vec<(Resource, u64)> = Vec::new();
        for (name, amount) in &pod.holds.amounts {
            amounts.push((self.cluster.resource(name), *amount));
        }
        for port in &pod.holds.ports {
            let resource = self.cluster.resource_everywhere(&port.resource, port.everywhere);
            amounts.push((resource, port.amount));
        }
        amounts.into_iter().collect()
    }

    /// How a pod stands to all terms that are known, its own included.
    fn marks(&mut self, pod: &PodView) -> Vec<(Mark, Stance)> {
        let own = &pod.holds.terms;
        for term in own {
            self.learn_term(term);
        }
        let stances = self.terms.iter().map(|(term, mark)| {
            let stance = Stance {
                avoids: own.contains(term),
                bears: term.matches(&pod.key.namespace, &pod.labels),
            };
            (*mark, stance)
        });
        stances.filter(|(_, stance)| *stance != Stance::default()).collect()
    }

    /// A term that is new marks the pods that it speaks of, which run already.
    fn learn_term(&mut self, term: &Term) {
        if self.terms.iter().any(|(known, _)| known == term) {
            return;
        }
        let mark = self.cluster.mark(&format!("apart/{}", self.terms.len()), &term.key);
        let bears = Stance {
            avoids: false,
            bears: true,
        };
        for (key, resident) in &mut self.residents {
            if term.matches(&key.namespace, &resident.labels) {
                resident.marks.push((mark, bears));
                if let Some(on) = resident.on {
                    self.cluster.set_mark(on, mark, bears);
                }
            }
        }
        self.terms.push((term.clone(), mark));
    }

    /// The shape of a pod that waits for a place; `inside` keeps it on nodes of a topology.
    pub(crate) fn shape(&mut self, pod: &PodView, inside: Option<TopologyId>) -> Result<Shape, Unsupported> {
        let Some(wants) = &pod.wants else {
            return Ok(Shape::default());
        };
        if wants.has_resource_claims && !self.claims_are_others {
            return Err(Unsupported::ResourceClaims);
        }
        if let Some(unsupported) = &wants.unsupported {
            return Err(unsupported.clone());
        }
        let rules = Rules {
            inside,
            allowed_nodes: self.reached_by_volumes(pod),
            ..wants.rules.clone()
        };
        Ok(Shape {
            requests: self.amounts(pod),
            rules,
            marks: self.marks(pod),
        })
    }

    /// The only nodes that a pod's volumes can be used on, if they say so.
    fn reached_by_volumes(&self, pod: &PodView) -> Option<Vec<String>> {
        let reach = self.volumes.of_pod(pod);
        if reach.is_empty() {
            return None;
        }
        let allows = |rules: &Rules, node: NodeId| rules.affinity_holds(self.cluster.traits(node));
        let rules: Vec<Rules> = reach
            .into_iter()
            .map(|terms| Rules {
                affinity: terms.clone(),
                ..Rules::default()
            })
            .collect();
        let nodes = self
            .cluster
            .nodes()
            .filter(|node| rules.iter().all(|rules| allows(rules, *node)));
        Some(nodes.map(|node| self.cluster.node_name(node).to_owned()).collect())
    }

    /// Whether all claims of a pod say where they can be used, if that must be known before it is placed.
    pub(crate) fn check_claims(&self, pod: &PodView) -> Result<(), NotPlaceable> {
        let unready = self.volumes.unready(pod).filter(|_| self.needs_bound_claims);
        let pod = pod.key.clone();
        match unready {
            None => Ok(()),
            Some(Unready::Unbound { claim }) => Err(NotPlaceable::UnboundClaim { pod, claim }),
            Some(Unready::NoVolume { claim, volume }) => Err(NotPlaceable::NoVolume { pod, claim, volume }),
        }
    }

    /// Everybody who holds a place on a node that is known.
    pub fn holders(&self) -> impl Iterator<Item = Holder<'_>> {
        self.residents.iter().filter_map(|(pod, resident)| {
            Some(Holder {
                pod,
                node: resident.on?,
                amounts: &resident.amounts,
                labels: &resident.labels,
            })
        })
    }

    /// Where a pod is, and what it takes there as a shape.
    pub fn footprint(&mut self, pod: &PodKey) -> Option<(NodeId, ShapeId)> {
        let resident = self.residents.get(pod)?;
        let shape = Shape {
            requests: resident.amounts.clone(),
            rules: Rules::default(),
            marks: resident.marks.clone(),
        };
        Some((resident.on?, self.cluster.shape(&shape)))
    }

    /// A topology by name, or the one of gangs that name none.
    pub(crate) fn topology(&self, name: Option<&str>) -> Option<(TopologyId, Option<&TopologySpec>)> {
        match name {
            Some(name) => self.topologies.get(name).map(|(id, spec)| (*id, Some(spec))),
            None => {
                let default = self.topologies.get(&self.default_topology);
                Some(default.map_or((self.bare, None), |(id, spec)| (*id, Some(spec))))
            }
        }
    }

    pub(crate) fn is_default_topology(&self, name: &str) -> bool {
        self.default_topology == name
    }

    pub(crate) fn resident_node(&self, pod: &PodKey) -> Option<NodeId> {
        self.residents.get(pod).and_then(|resident| resident.on)
    }

    /// Where the pods of a PodCliqueSet replica sit, those of one gang left out.
    pub(crate) fn nodes_of_replica(&self, replica: &ReplicaKey, except_gang: &str) -> Vec<NodeId> {
        let members = self.replicas.get(replica).into_iter().flatten();
        let residents = members.filter_map(|key| self.residents.get(key));
        let others =
            residents.filter(|resident| resident.labels.get(labels::PODGANG).map(String::as_str) != Some(except_gang));
        let mut nodes: Vec<NodeId> = others.filter_map(|resident| resident.on).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

pub(crate) fn replica_of(namespace: &str, labels: &Labels) -> Option<ReplicaKey> {
    let set = labels.get(labels::PART_OF)?;
    let index = labels.get(labels::PCS_REPLICA_INDEX)?;
    Some((namespace.to_owned(), set.clone(), index.clone()))
}

fn gpus(cluster: &Cluster, amounts: &Amounts) -> u64 {
    let gpus = amounts
        .iter()
        .filter(|(resource, _)| is_gpu(cluster.resource_name(*resource)));
    gpus.fold(0, |sum, (_, amount)| sum.saturating_add(amount))
}

/// A pod takes its place, once its node is known.
fn take(cluster: &mut Cluster, resident: &Resident) {
    let Some(on) = resident.on else { return };
    cluster.take(on, &resident.amounts);
    for (mark, stance) in &resident.marks {
        cluster.set_mark(on, *mark, *stance);
    }
}

fn give_back(cluster: &mut Cluster, resident: &Resident) {
    let Some(on) = resident.on else { return };
    cluster.give_back(on, &resident.amounts);
    for (mark, stance) in &resident.marks {
        cluster.clear_mark(on, *mark, *stance);
    }
}
