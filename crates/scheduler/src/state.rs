//! What is known of the cluster: the mirror that the engine works on, and the pods and gangs that are to be placed.
//!
//! It takes objects as they come and notes in a [`Stir`] whom a change concerns and where it made room. It decides
//! nothing, and holds nothing that a restart would miss but the binds that are under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grove_api::labels::annotation;
use grove_api::podgang::{GangTopologyConstraint, NamespacedName, PodGroup};
use grove_api::{ClusterTopology, ClusterTopologyBinding, PodGang, PodGangSpec, TopologyDomain, labels};
use grove_kubeplace::{GangRequest, Holding, Mirror, NodeResourceTopology, NotPlaceable, PodKey};
use grove_placement::{Mark, NodeId};
use grove_runtime::ObjectKey;
use grove_topology::Topology;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::budgets::Budgets;
use crate::core::Policy;
use crate::hand::{Bounds, Hand};
use crate::pod::KeptPod;
use crate::queue::Unit;
use crate::seen::Seen;

/// Namespace, set and index of a PodCliqueSet replica, whose gangs share a domain.
type ReplicaKey = (String, String, String);

/// What a change set in motion.
#[derive(Debug, Default)]
pub(crate) struct Stir {
    /// Units that changed themselves.
    pub(crate) units: BTreeSet<Unit>,
    /// Nodes on which there is, or may be, more room than before.
    pub(crate) room: BTreeSet<NodeId>,
    /// Marks that keep pods apart and of which there may be less somewhere: that helps in a whole domain, wherever in it
    /// there is room.
    pub(crate) marks: BTreeSet<Mark>,
    /// A node came or changed, or a topology did.
    pub(crate) nodes: bool,
    /// Nodes that changed or went: what is held on them may be of no use any more.
    pub(crate) changed: BTreeSet<NodeId>,
    /// Nothing is kept any more for one that has waited long: the next may have it.
    pub(crate) is_unkept: bool,
    /// Pods may be evicted that could not be before: a disruption budget lets them go, or their priority is lower.
    pub(crate) victims: bool,
    /// A pod is on its way out: what it leaves can be counted on.
    pub(crate) is_leaving: bool,
    /// A pod came that is to be placed, or one that was held back is not any more.
    pub(crate) is_birth: bool,
}

impl Stir {
    pub(crate) fn is_empty(&self) -> bool {
        let is_any = self.nodes || self.victims || self.is_unkept || self.is_leaving;
        !is_any && self.units.is_empty() && self.room.is_empty() && self.marks.is_empty() && self.changed.is_empty()
    }
}

#[derive(Debug, Default)]
struct Topologies {
    cluster: BTreeMap<String, Arc<ClusterTopology>>,
    bindings: BTreeMap<String, Arc<ClusterTopologyBinding>>,
    domains: BTreeMap<String, Arc<TopologyDomain>>,
}

impl Topologies {
    /// The topology of a name: a ClusterTopology hides the others.
    fn named(&self, name: &str) -> Option<Topology> {
        let own = self.cluster.get(name).map(|object| Topology::from(&**object));
        let bound = || self.bindings.get(name).map(|object| Topology::from(&**object));
        let domain = || self.domains.get(name).map(|object| Topology::from(&**object));
        own.or_else(bound).or_else(domain)
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) mirror: Mirror,
    /// Name of the scheduler whose pods are placed.
    scheduler: String,
    hand: Hand,
    pub(crate) pods: BTreeMap<PodKey, Arc<KeptPod>>,
    pub(crate) gangs: BTreeMap<ObjectKey, Arc<PodGang>>,
    members: BTreeMap<ObjectKey, BTreeSet<PodKey>>,
    replicas: BTreeMap<ReplicaKey, BTreeSet<ObjectKey>>,
    nodes: BTreeMap<String, Arc<Node>>,
    priorities: BTreeMap<String, Arc<PriorityClass>>,
    pub(crate) budgets: Budgets,
    topologies: Topologies,
    pub(crate) stir: Stir,
}

impl State {
    pub(crate) fn new(policy: &Policy) -> Self {
        let mut mirror = Mirror::new(&policy.default_topology);
        match policy.hand {
            Hand::Binds => mirror.need_bound_claims(),
            Hand::Pins => mirror.leave_claims_to_others(),
        }
        Self {
            mirror,
            scheduler: policy.name.clone(),
            hand: policy.hand,
            pods: BTreeMap::new(),
            gangs: BTreeMap::new(),
            members: BTreeMap::new(),
            replicas: BTreeMap::new(),
            nodes: BTreeMap::new(),
            priorities: BTreeMap::new(),
            budgets: Budgets::default(),
            topologies: Topologies::default(),
            stir: Stir::default(),
        }
    }

    pub(crate) fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Node(key, node) => self.see_node(&key.name, node),
            Seen::Cells(key, cells) => self.see_cells(&key.name, cells.as_deref()),
            Seen::Pod(key, pod) => self.see_pod(pod_key(key), pod),
            Seen::Gang(key, gang) => self.see_gang(key, gang),
            Seen::ClusterTopology(key, object) => {
                put(&mut self.topologies.cluster, &key.name, object);
                self.topology_changed(&key.name);
            }
            Seen::TopologyBinding(key, object) => {
                put(&mut self.topologies.bindings, &key.name, object);
                self.topology_changed(&key.name);
            }
            Seen::TopologyDomain(key, object) => {
                put(&mut self.topologies.domains, &key.name, object);
                self.topology_changed(&key.name);
            }
            Seen::PriorityClass(key, class) => self.see_priority(&key.name, class),
            Seen::DisruptionBudget(key, budget) => self.stir.victims |= self.budgets.put(key, budget),
            Seen::Claim(key, claim) => {
                match &claim {
                    Some(claim) => self.mirror.set_claim(claim),
                    None => self.mirror.remove_claim(&key.namespace, &key.name),
                }
                self.claims_changed(&[key]);
            }
            Seen::Volume(key, volume) => {
                match &volume {
                    Some(volume) => self.mirror.set_volume(volume),
                    None => self.mirror.remove_volume(&key.name),
                }
                let claims = self.mirror.claims_on(&key.name);
                let claims: Vec<_> = claims
                    .map(|(namespace, name)| ObjectKey::new(namespace, name))
                    .collect();
                self.claims_changed(&claims);
            }
        }
    }

    /// Gangs that name a class have its priority: they may come earlier than before, evict more, or be evicted by more.
    fn see_priority(&mut self, name: &str, class: Option<Arc<PriorityClass>>) {
        let value = |class: &Arc<PriorityClass>| class.value;
        let (old, new) = (self.priorities.get(name).map(value), class.as_ref().map(value));
        put(&mut self.priorities, name, class);
        if old == new {
            return;
        }
        let names_it = |gang: &&PodGang| gang.spec.priority_class_name.as_deref() == Some(name);
        let gangs = self.gangs.iter().filter(|(_, gang)| names_it(&&***gang));
        let gangs: Vec<Unit> = gangs.map(|(key, _)| Unit::Gang(key.clone())).collect();
        self.stir.victims |= !gangs.is_empty();
        self.stir.units.extend(gangs);
    }

    fn see_node(&mut self, name: &str, node: Option<Arc<Node>>) {
        match &node {
            Some(new) => {
                let is_same = self.nodes.get(name).is_some_and(|old| is_same_node(old, new));
                if !is_same {
                    self.leaves_domains(name);
                    self.mirror.set_node(new);
                    self.stir.room.extend(self.mirror.cluster().node(name));
                    self.stir.nodes = true;
                }
            }
            None => {
                self.leaves_domains(name);
                self.mirror.remove_node(name);
            }
        }
        put(&mut self.nodes, name, node);
    }

    /// A node that changes may take those who keep others away out of their domain, and what is held on it with it.
    fn leaves_domains(&mut self, node: &str) {
        let cluster = self.mirror.cluster();
        let marks = cluster.node(node).into_iter().flat_map(|node| cluster.marks_on(node));
        self.stir.marks.extend(marks);
        self.stir.changed.extend(cluster.node(node));
    }

    /// A node says what its NUMA cells have left, or nothing any more. That may help whoever asks for cells; nobody else
    /// is the wiser.
    fn see_cells(&mut self, node: &str, published: Option<&NodeResourceTopology>) {
        match published {
            Some(published) => self.mirror.set_cells(published),
            None => self.mirror.remove_cells(node),
        }
        self.stir.room.extend(self.mirror.cluster().node(node));
    }

    fn see_pod(&mut self, key: PodKey, new: Option<Arc<KeptPod>>) {
        let old = self.pods.get(&key).cloned();
        if let Some(old) = &old
            && new.as_ref().is_none_or(|new| new.uid() != old.uid())
        {
            self.lose_pod(&key, old);
        }
        let Some(new) = new else { return };
        let old = self.pods.insert(key.clone(), new.clone());
        if old.as_ref().is_some_and(|old| old.is_same(&new)) {
            return;
        }
        let before = self.mirror.node_of(&key).map(str::to_owned);
        let held = self.mirror.holding(&key);
        self.mirror.set_pod(&*new);
        if let Some(node) = self.hand.destination(&new).filter(|_| new.node().is_none()) {
            self.mirror.assume(&*new, node);
        }
        let after = self.mirror.node_of(&key).map(str::to_owned);
        let leaves = |pod: &KeptPod| pod.leaves_at().is_some();
        self.stir.is_leaving |= leaves(&new) && !old.as_deref().is_some_and(leaves);
        // It may be gone from there, ask for less, or keep away others than before.
        if self.mirror.holding(&key) != held {
            self.leaves(held);
        }
        let Some(unit) = self.unit_of(&new) else { return };
        if let Unit::Gang(gang) = &unit {
            self.members.entry(gang.clone()).or_default().insert(key);
        }
        let hand = self.hand;
        let was_wanted = old.as_ref().map(|old| hand.is_wanted(old));
        // One that is new always comes with a change of its unit.
        self.stir.is_birth |= new.is_live() && was_wanted.is_none_or(|was| !was && hand.is_wanted(&new));
        let standing = |pod: &KeptPod, node: &Option<String>| (hand.is_wanted(pod), pod.is_live(), node.clone());
        if self.hand == Hand::Pins
            && new.has_place()
            && let Unit::Gang(gang) = &unit
        {
            // Now it is seen to be bound, which is what its status and its scaled gangs wait for.
            self.stir.units.extend(self.siblings(gang).into_iter().map(Unit::Gang));
            self.stir.units.insert(unit.clone());
        }
        // That a bind of ours is now seen moves nothing, and is no news.
        let is_news = old.is_none_or(|old| standing(&old, &before) != standing(&new, &after));
        if is_news || (before.is_none() && hand.is_wanted(&new)) {
            self.stir.units.insert(unit);
        }
    }

    /// What a pod held, somebody else may have.
    fn leaves(&mut self, held: Option<Holding>) {
        if let Some(held) = held {
            self.stir.room.extend(held.node);
            self.stir.marks.extend(held.marks.into_iter().map(|(mark, _)| mark));
        }
    }

    /// A pod is gone, or its name is another's now.
    fn lose_pod(&mut self, key: &PodKey, old: &KeptPod) {
        let held = self.mirror.holding(key);
        self.leaves(held);
        self.mirror.remove_pod(key);
        self.pods.remove(key);
        let Some(unit) = self.unit_of(old) else { return };
        if let Unit::Gang(gang) = &unit {
            drop_member(&mut self.members, gang, key);
            // The gangs of a replica hold each other in place.
            self.stir.units.extend(self.siblings(gang).into_iter().map(Unit::Gang));
        }
        self.stir.units.insert(unit);
    }

    fn see_gang(&mut self, key: ObjectKey, gang: Option<Arc<PodGang>>) {
        let old = self.gangs.get(&key);
        let is_same = |old: &PodGang, new: &PodGang| {
            old.metadata.uid == new.metadata.uid
                && old.spec == new.spec
                && old.metadata.annotations == new.metadata.annotations
                && old.metadata.labels == new.metadata.labels
                && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        };
        let is_news = match (old, &gang) {
            (Some(old), Some(new)) => !is_same(old, new),
            _ => true,
        };
        if let Some(replica) = old.and_then(|old| replica_of(old)) {
            drop_member(&mut self.replicas, &replica, &key);
        }
        if let Some(replica) = gang.as_ref().and_then(|gang| replica_of(gang)) {
            self.replicas.entry(replica).or_default().insert(key.clone());
        }
        match gang {
            Some(gang) => self.gangs.insert(key.clone(), gang),
            None => self.gangs.remove(&key),
        };
        if is_news {
            self.stir.units.insert(Unit::Gang(key));
        }
    }

    fn topology_changed(&mut self, name: &str) {
        match self.topologies.named(name) {
            Some(topology) => self.mirror.set_topology(&topology),
            None => self.mirror.remove_topology(name),
        }
        self.stir.nodes = true;
        let of_topology = |gang: &&ObjectKey| self.gangs[*gang].spec.topology_ref.as_deref() == Some(name);
        let gangs = self.gangs.keys().filter(of_topology).cloned();
        self.stir.units.extend(gangs.map(Unit::Gang).collect::<Vec<_>>());
    }

    /// Claims or their volumes changed: that may let their pods be placed, hold them to a node, or back.
    fn claims_changed(&mut self, claims: &[ObjectKey]) {
        let waits = |pod: &&Arc<KeptPod>| self.hand.is_wanted(pod) && claims.iter().any(|claim| pod.uses_claim(claim));
        let waiting = self.pods.values().filter(waits);
        let units: Vec<Unit> = waiting.filter_map(|pod| self.unit_of(pod)).collect();
        self.stir.units.extend(units);
    }

    /// A bind is about to be sent.
    pub(crate) fn assume(&mut self, key: &PodKey, node: &str) -> Option<Arc<KeptPod>> {
        let pod = self.pods.get(key)?.clone();
        self.mirror.assume(&*pod, node);
        Some(pod)
    }

    /// What a pod that is led to a node may not leave.
    pub(crate) fn bounds(&self, gang: &PodGang, pod: &KeptPod, node: &str) -> Bounds {
        if !pod.has_claims() {
            return Bounds::Node;
        }
        let Some(key) = narrowest_required(gang, pod.name()) else {
            return Bounds::None;
        };
        let labels = self.nodes.get(node).and_then(|node| node.metadata.labels.as_ref());
        match labels.and_then(|labels| labels.get(key)) {
            Some(value) => Bounds::Domain {
                key: key.to_owned(),
                value: value.clone(),
            },
            // Levels below the host have no label.
            None => Bounds::Node,
        }
    }

    /// The API server has the pod on a node. The watch may be late: until it has caught up, the pod is there. One that
    /// is gone as the watch knows is gone: nobody would ever take it from there.
    pub(crate) fn find(&mut self, pod: &KeptPod) {
        let known = self.pods.get(pod.key());
        let waits = known.is_some_and(|known| known.uid() == pod.uid() && known.is_live() && !known.has_place());
        if let Some(node) = pod.node().filter(|_| waits) {
            self.mirror.assume(pod, node);
        }
    }

    /// A bind was refused: the place is free again, unless the pod was seen there after all.
    pub(crate) fn forget(&mut self, key: &PodKey, uid: &str) {
        let known = self.pods.get(key);
        if known.is_some_and(|pod| pod.uid() != uid || pod.node().is_some()) {
            return;
        }
        let held = self.mirror.holding(key);
        self.leaves(held);
        self.mirror.remove_pod(key);
    }

    /// The unit that a pod is placed with; none if somebody else places it.
    pub(crate) fn unit_of(&self, pod: &KeptPod) -> Option<Unit> {
        if pod.scheduler() != self.scheduler {
            return None;
        }
        let key = |name: &str| ObjectKey::new(pod.namespace(), name);
        Some(match pod.label(labels::PODGANG) {
            Some(gang) => Unit::Gang(key(gang)),
            // Whoever binds the others binds it too.
            None if self.hand == Hand::Pins => return None,
            None => Unit::Pod(key(pod.name())),
        })
    }

    /// The UID of the object that a unit is now.
    pub(crate) fn uid_of(&self, unit: &Unit) -> Option<String> {
        match unit {
            Unit::Gang(key) => self.gangs.get(key)?.metadata.uid.clone(),
            Unit::Pod(key) => Some(self.pods.get(&pod_key(key.clone()))?.uid().to_owned()),
        }
    }

    /// The gang to place: of a pod without one, a gang of its own. None if there is none, or it is somebody else's.
    pub(crate) fn gang_of(&self, unit: &Unit) -> Option<Arc<PodGang>> {
        match unit {
            Unit::Gang(key) => {
                let gang = self.gangs.get(key)?;
                let scheduler = gang.labels().get(labels::SCHEDULER_NAME);
                let is_ours = match scheduler {
                    Some(name) => *name == self.scheduler,
                    None => self.members.get(key).is_some_and(|members| !members.is_empty()),
                };
                is_ours.then(|| gang.clone())
            }
            Unit::Pod(key) => {
                let pod = self.pods.get(&pod_key(key.clone()))?;
                pod.is_live().then(|| Arc::new(gang_of_one(pod)))
            }
        }
    }

    /// When the oldest pod was made that waits for a gang that does not exist. A pod that still has Grove's gate does
    /// not: its gang comes after its pods.
    pub(crate) fn orphaned_since(&self, unit: &Unit) -> Option<Timestamp> {
        let is_missing = matches!(unit, Unit::Gang(key) if !self.gangs.contains_key(key)) && self.hand == Hand::Binds;
        let waiting = if is_missing { self.waiting(unit) } else { Vec::new() };
        waiting.iter().filter_map(|pod| pod.created_at()).min()
    }

    /// The gang as the engine takes it. Pods that do not wait for this scheduler yet are not shown to it.
    pub(crate) fn request(&mut self, gang: &PodGang) -> Result<GangRequest, NotPlaceable> {
        let (pods, mirror) = (&self.pods, &mut self.mirror);
        let (scheduler, hand) = (&self.scheduler, self.hand);
        let is_shown = |pod: &&Arc<KeptPod>| {
            let takes_part = pod.has_place() || hand.is_wanted(pod) || hand.destination(pod).is_some();
            pod.is_live() && takes_part && pod.scheduler() == scheduler
        };
        mirror.gang(gang, |key| pods.get(key).filter(is_shown).map(|pod| &**pod))
    }

    /// Names of gangs and replicas of which something is known.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.members.len() + self.replicas.len()
    }

    /// The pods that a gang lists and that live, by pod-group.
    pub(crate) fn listed<'a>(&'a self, group: &'a PodGroup) -> impl Iterator<Item = &'a Arc<KeptPod>> {
        let pods = group
            .pod_references
            .iter()
            .filter_map(|reference| self.pods.get(reference));
        pods.filter(|pod| pod.is_live())
    }

    /// Whether a pod has a node, or is about to.
    pub(crate) fn is_placed(&self, pod: &KeptPod) -> bool {
        self.mirror.node_of(pod.key()).is_some()
    }

    /// The pods of a unit that wait for a node.
    pub(crate) fn waiting(&self, unit: &Unit) -> Vec<Arc<KeptPod>> {
        let waits = |pod: &&Arc<KeptPod>| self.hand.is_wanted(pod) && !self.is_placed(pod);
        match unit {
            Unit::Pod(key) => self
                .pods
                .get(&pod_key(key.clone()))
                .filter(waits)
                .cloned()
                .into_iter()
                .collect(),
            Unit::Gang(key) => {
                let members = self.members.get(key).into_iter().flatten();
                let pods = members.filter_map(|member| self.pods.get(member));
                pods.filter(waits).cloned().collect()
            }
        }
    }

    pub(crate) fn priority(&self, gang: &PodGang) -> i32 {
        let named = gang
            .spec
            .priority_class_name
            .as_ref()
            .and_then(|name| self.priorities.get(name));
        let of_pods = || {
            let pods = gang.spec.pod_groups.iter().flat_map(|group| self.listed(group));
            pods.filter_map(|pod| pod.priority()).max()
        };
        named.and_then(|class| class.value).or_else(of_pods).unwrap_or(0)
    }

    /// No unit has a lower priority than this.
    pub(crate) fn lowest_priority(&self) -> i32 {
        self.priorities
            .values()
            .filter_map(|class| class.value)
            .fold(0, i32::min)
    }

    /// The other gangs of the same replica.
    fn siblings(&self, gang: &ObjectKey) -> Vec<ObjectKey> {
        let replica = self.gangs.get(gang).and_then(|gang| replica_of(gang));
        let gangs = replica.and_then(|replica| self.replicas.get(&replica));
        gangs
            .into_iter()
            .flatten()
            .filter(|other| *other != gang)
            .cloned()
            .collect()
    }
}

fn put<V>(map: &mut BTreeMap<String, Arc<V>>, name: &str, object: Option<Arc<V>>) {
    match object {
        Some(object) => map.insert(name.to_owned(), object),
        None => map.remove(name),
    };
}

/// Takes one out of a set, and the set with the last of it: names never come back.
fn drop_member<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, member: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(member);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

pub(crate) fn pod_key(key: ObjectKey) -> PodKey {
    NamespacedName {
        namespace: key.namespace,
        name: key.name,
    }
}

fn replica_of(gang: &PodGang) -> Option<ReplicaKey> {
    let label = |key: &str| gang.labels().get(key).cloned();
    Some((
        gang.namespace().unwrap_or_default(),
        label(labels::PART_OF)?,
        label(labels::PCS_REPLICA_INDEX)?,
    ))
}

/// Node label of the narrowest level that a pod's scopes require, from its pod-group outwards.
fn narrowest_required<'a>(gang: &'a PodGang, pod: &str) -> Option<&'a str> {
    let is_listed = |group: &&PodGroup| group.pod_references.iter().any(|reference| reference.name == pod);
    let group = gang.spec.pod_groups.iter().find(is_listed)?;
    let mut configs = gang.spec.topology_constraint_group_configs.iter();
    let config = configs.find(|config| config.pod_group_names.contains(&group.name));
    let scopes = [
        group.topology_constraint.as_ref(),
        config.and_then(|config| config.topology_constraint.as_ref()),
        gang.spec.topology_constraint.as_ref(),
    ];
    let required = |scope: &'a GangTopologyConstraint| scope.pack_constraint.as_ref()?.required.as_deref();
    let of_replica = || gang.annotations().get(annotation::REPLICA_PACK_REQUIRED);
    let mut keys = scopes.into_iter().flatten().filter_map(required);
    keys.next().or_else(|| of_replica().map(String::as_str))
}

/// Whether nothing changed that placement looks at; a kubelet reports much else.
fn is_same_node(old: &Node, new: &Node) -> bool {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    old.metadata.labels == new.metadata.labels && old.spec == new.spec && allocatable(old) == allocatable(new)
}

/// A pod that belongs to no gang is a gang of one.
fn gang_of_one(pod: &KeptPod) -> PodGang {
    let group = PodGroup {
        name: pod.name().to_owned(),
        pod_references: vec![pod.key().clone()],
        min_replicas: 1,
        topology_constraint: None,
    };
    let mut gang = PodGang::new(
        pod.name(),
        PodGangSpec {
            pod_groups: vec![group],
            ..PodGangSpec::default()
        },
    );
    gang.metadata.namespace = Some(pod.namespace().to_owned());
    gang.metadata.creation_timestamp = pod.created_at().map(Time);
    gang
}
