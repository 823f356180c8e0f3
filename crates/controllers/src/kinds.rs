//! The kinds that are watched: what is kept of each, and what it belongs to.

use std::fmt::Debug;
use std::sync::Arc;

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, labels};
use grove_workload::names::index_label;
use grove_workload::observed::ObservedPod;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::key::Key;
use crate::runtime::{ObjectKey, Shelf, Store};

/// A kind of object that is kept in a [`Store`].
pub(crate) trait Kind: Send + Sync + 'static {
    /// The object as the API server has it.
    type Object: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;

    fn read(object: Self::Object) -> Self;
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
}

impl KeptPod {
    fn new(pod: &Pod) -> Self {
        let namespace = pod.namespace().unwrap_or_default();
        let owner = pod
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true));
        let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        Self {
            seen: ObservedPod::from(pod),
            clique: pod
                .labels()
                .get(labels::PODCLIQUE)
                .map(|name| ObjectKey::new(namespace, name)),
            clique_uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            gang: Key::gang_of(&pod.metadata),
            gate: gates.into_iter().position(|gate| gate.name == labels::SCHEDULING_GATE),
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
}

impl Default for View {
    fn default() -> Self {
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
        }
    }
}

macro_rules! kept_whole {
    ($($kind:ty => $store:ident),* $(,)?) => {$(
        impl Kind for $kind {
            type Object = Self;

            fn read(mut object: Self) -> Self {
                // Who wrote which field is never asked, and is often half of the object.
                object.metadata.managed_fields = None;
                object
            }

            fn store(view: &View) -> &Arc<Store<Self>> {
                &view.$store
            }
        }
    )*};
}

kept_whole! {
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
}

impl Kind for KeptPod {
    type Object = Pod;

    fn read(object: Pod) -> Self {
        Self::new(&object)
    }

    fn store(view: &View) -> &Arc<Store<Self>> {
        &view.pods
    }
}
