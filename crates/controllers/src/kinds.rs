//! The kinds that are watched: what is kept of each, and what it belongs to.

use std::fmt::Debug;
use std::sync::Arc;

use grove_api::config::TopologyAwareScheduling;
use grove_api::{
    ClusterTopology, ClusterTopologyBinding, ComputeDomain, PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang,
    TopologyDomain, labels,
};
use grove_runtime::{Arrival, ObjectKey, Shelf, Store, Trusted};
use grove_topology::backend::Backend;
use grove_topology::resolve::{self, Found};
use grove_topology::{Resolution, TopologyReference};
use grove_workload::names::index_label;
use grove_workload::observed::{ObservedPod, PodFields};
use grove_workload::pod::compute_domain_of;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::{DeserializeGuard, DynamicObject, ObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::key::Key;
use crate::served::ForeignKind;

/// A kind of object that is kept in a [`Store`].
pub(crate) trait Kind: Send + Sync + 'static {
    /// The object as the API server has it.
    type Object: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The object as a watch reads it.
    type Watched: Arrival<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static;

    /// Where one object is written; `namespace` is empty for objects of the whole cluster.
    fn api(client: Client, namespace: &str) -> Api<Self::Object>;
    /// What is kept of an object that the API server answers a write with.
    fn read(object: Self::Object) -> Self;
    /// What is kept of an object that a watch brings.
    fn read_watched(object: <Self::Watched as Arrival>::Object) -> Self;
    fn store(view: &View) -> &Arc<Store<Self>>
    where
        Self: Sized;
}

/// The last part on a shelf that holds what belongs to a set as a whole.
const WHOLE_SET: i32 = -1;

/// The shelf of everything that belongs to a set; its parts are the set's replicas.
pub(crate) fn set_shelf(set: &ObjectKey) -> String {
    set.to_string()
}

fn shelf(meta: &ObjectMeta) -> Option<Shelf> {
    let set = Key::set_of(meta)?;
    let replica = index_label(meta, labels::PCS_REPLICA_INDEX).unwrap_or(WHOLE_SET);
    Some((set_shelf(&set), replica))
}

/// A pod: the few fields that decisions and writes need.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptPod {
    pub(crate) seen: ObservedPod,
    pub(crate) clique: Option<ObjectKey>,
    pub(crate) clique_uid: String,
    pub(crate) gang: Option<Key>,
    /// Where Grove's gate stands in the list of gates.
    pub(crate) gate: Option<usize>,
    /// The ComputeDomain of which it claims a channel.
    pub(crate) compute_domain: Option<ObjectKey>,
}

impl KeptPod {
    fn new(pod: &PodFields) -> Self {
        let namespace = pod.namespace().unwrap_or_default();
        let owner = pod
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true));
        let mut gates = pod.spec.scheduling_gates.iter();
        let here = |name: &str| ObjectKey::new(namespace.clone(), name);
        Self {
            seen: ObservedPod::from(pod),
            clique: pod.labels().get(labels::PODCLIQUE).map(|name| here(name)),
            clique_uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            gang: Key::gang_of(&pod.metadata),
            gate: gates.position(|gate| gate.name == labels::SCHEDULING_GATE),
            compute_domain: compute_domain_of(&pod.spec).map(here),
        }
    }

    fn shelf(&self) -> Option<Shelf> {
        Some((self.clique_uid.clone(), 0))
    }
}

/// Everything that is seen.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) sets: Arc<Store<PodCliqueSet>>,
    pub(crate) groups: Arc<Store<PodCliqueScalingGroup>>,
    pub(crate) cliques: Arc<Store<PodClique>>,
    pub(crate) gangs: Arc<Store<PodGang>>,
    pub(crate) pods: Arc<Store<KeptPod>>,
    pub(crate) services: Arc<Store<Service>>,
    pub(crate) autoscalers: Arc<Store<HorizontalPodAutoscaler>>,
    pub(crate) revisions: Arc<Store<ControllerRevision>>,
    pub(crate) roles: Arc<Store<Role>>,
    pub(crate) role_bindings: Arc<Store<RoleBinding>>,
    pub(crate) claims: Arc<Store<ResourceClaim>>,
    pub(crate) compute_domains: Arc<Store<ComputeDomain>>,
    pub(crate) cluster_topologies: Arc<Store<ClusterTopology>>,
    pub(crate) topology_bindings: Arc<Store<ClusterTopologyBinding>>,
    pub(crate) topology_domains: Arc<Store<TopologyDomain>>,
    kai_topologies: Arc<Store<DynamicObject>>,
    kueue_topologies: Arc<Store<DynamicObject>>,
    kai_pod_groups: Arc<Store<DynamicObject>>,
    /// What the configuration says about topologies: it decides which of them a set uses.
    pub(crate) tas: TopologyAwareScheduling,
}

impl View {
    pub(crate) fn new(tas: TopologyAwareScheduling) -> Self {
        fn store<V: Resource>() -> Arc<Store<V>> {
            Arc::new(Store::new(|object: &V| shelf(object.meta())))
        }
        Self {
            sets: store(),
            groups: store(),
            cliques: store(),
            gangs: store(),
            pods: Arc::new(Store::new(KeptPod::shelf)),
            services: store(),
            autoscalers: store(),
            revisions: store(),
            roles: store(),
            role_bindings: store(),
            claims: store(),
            compute_domains: store(),
            cluster_topologies: store(),
            topology_bindings: store(),
            topology_domains: store(),
            kai_topologies: Arc::new(Store::new(|_| None)),
            kueue_topologies: Arc::new(Store::new(|_| None)),
            kai_pod_groups: Arc::new(Store::new(|_| None)),
            tas,
        }
    }

    /// The objects of another scheduler.
    pub(crate) fn foreign(&self, kind: ForeignKind) -> &Arc<Store<DynamicObject>> {
        match kind {
            ForeignKind::Topology(Backend::Kai) => &self.kai_topologies,
            ForeignKind::Topology(Backend::Kueue) => &self.kueue_topologies,
            ForeignKind::KaiPodGroup => &self.kai_pod_groups,
        }
    }

    /// What became of a topology.
    pub(crate) fn resolve(&self, reference: Option<TopologyReference<'_>>) -> Resolution {
        let key = ObjectKey::new("", reference.map_or("", |reference| reference.name));
        let cluster_topology = self.cluster_topologies.get(&key);
        let (binding, topology_domain) = (self.topology_bindings.get(&key), self.topology_domains.get(&key));
        let found = Found {
            cluster_topology: cluster_topology.as_deref(),
            binding: binding.as_deref(),
            topology_domain: topology_domain.as_deref(),
        };
        resolve::resolve(reference, &self.tas, &found)
    }
}

fn in_namespace<K>(client: Client, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client, namespace)
}

fn cluster_wide<K>(client: Client, _: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
{
    Api::all(client)
}

macro_rules! kept_whole {
    ($api:ident: $($kind:ty => $store:ident),* $(,)?) => {$(
        impl Kind for $kind {
            type Object = Self;
            type Watched = DeserializeGuard<Self>;

            fn api(client: Client, namespace: &str) -> Api<Self> {
                $api(client, namespace)
            }

            fn read(mut object: Self) -> Self {
                // Who wrote which field is never asked, and is often half of the object.
                object.metadata.managed_fields = None;
                object
            }

            fn read_watched(object: Self) -> Self {
                Self::read(object)
            }

            fn store(view: &View) -> &Arc<Store<Self>> {
                &view.$store
            }
        }
    )*};
}

kept_whole! { in_namespace:
    PodCliqueSet => sets,
    PodCliqueScalingGroup => groups,
    PodClique => cliques,
    PodGang => gangs,
    Service => services,
    HorizontalPodAutoscaler => autoscalers,
    ControllerRevision => revisions,
    Role => roles,
    RoleBinding => role_bindings,
    ResourceClaim => claims,
    ComputeDomain => compute_domains,
}

kept_whole! { cluster_wide:
    ClusterTopology => cluster_topologies,
    ClusterTopologyBinding => topology_bindings,
    TopologyDomain => topology_domains,
}

impl Kind for KeptPod {
    type Object = Pod;
    type Watched = Trusted<PodFields>;

    fn api(client: Client, namespace: &str) -> Api<Pod> {
        in_namespace(client, namespace)
    }

    fn read(object: Pod) -> Self {
        Self::new(&PodFields::from(object))
    }

    fn read_watched(object: PodFields) -> Self {
        Self::new(&object)
    }

    fn store(view: &View) -> &Arc<Store<Self>> {
        &view.pods
    }
}
