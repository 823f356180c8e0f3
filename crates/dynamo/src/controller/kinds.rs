//! The kinds that are watched, and whose graph each object is of.

use std::fmt::Debug;
use std::sync::Arc;

use grove_api::dynamo::words;
use grove_api::{
    DynamoGraphDeployment, DynamoGraphDeploymentScalingAdapter, PodClique, PodCliqueScalingGroup, PodCliqueSet, labels,
};
use grove_runtime::{ObjectKey, Shelf, Store};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind that is watched and kept.
pub(super) trait Kept:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Labels of the objects that are watched; none for all.
    const SELECTOR: Option<&'static str>;

    /// Its number of replicas is written once, and then whoever's that scales it.
    const IS_SCALED_BY_OTHERS: bool = false;

    fn store(view: &View) -> &Arc<Store<Self>>;

    /// The graph that the object is of.
    fn graph(&self, view: &View) -> Option<ObjectKey>;
}

/// Who wrote which field is never asked, and is often half of the object.
pub(super) fn read<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// The graph that a label names.
fn labelled<K: Resource>(object: &K) -> Option<ObjectKey> {
    let name = object.labels().get(words::GRAPH)?;
    Some(ObjectKey::new(object.namespace()?, name))
}

fn shelf_of_graph<K: Resource>(object: &K) -> Option<Shelf> {
    Some((labelled(object)?.to_string(), 0))
}

/// The set that a scaling group is of.
fn set_of(group: &PodCliqueScalingGroup) -> Option<ObjectKey> {
    let set = group.labels().get(labels::PART_OF)?;
    Some(ObjectKey::new(group.namespace()?, set))
}

/// Everything that is seen.
#[derive(Debug)]
pub(super) struct View {
    pub(super) graphs: Arc<Store<DynamoGraphDeployment>>,
    pub(super) sets: Arc<Store<PodCliqueSet>>,
    pub(super) cliques: Arc<Store<PodClique>>,
    /// By their sets: they carry no label of the graph.
    pub(super) groups: Arc<Store<PodCliqueScalingGroup>>,
    services: Arc<Store<Service>>,
    accounts: Arc<Store<ServiceAccount>>,
    roles: Arc<Store<Role>>,
    role_bindings: Arc<Store<RoleBinding>>,
    pub(super) adapters: Arc<Store<DynamoGraphDeploymentScalingAdapter>>,
}

impl Default for View {
    fn default() -> Self {
        fn store<K: Resource>() -> Arc<Store<K>> {
            Arc::new(Store::new(shelf_of_graph))
        }
        Self {
            graphs: Arc::new(Store::new(|_| None)),
            sets: store(),
            cliques: store(),
            groups: Arc::new(Store::new(|group| Some((set_of(group)?.to_string(), 0)))),
            services: store(),
            accounts: store(),
            roles: store(),
            role_bindings: store(),
            adapters: store(),
        }
    }
}

macro_rules! labelled_kinds {
    ($($kind:ty => $store:ident),* $(,)?) => {$(
        impl Kept for $kind {
            const SELECTOR: Option<&'static str> = Some(words::GRAPH);

            fn store(view: &View) -> &Arc<Store<Self>> {
                &view.$store
            }

            fn graph(&self, _: &View) -> Option<ObjectKey> {
                labelled(self)
            }
        }
    )*};
}

labelled_kinds! {
    PodCliqueSet => sets,
    PodClique => cliques,
    Service => services,
    ServiceAccount => accounts,
    Role => roles,
    RoleBinding => role_bindings,
}

impl Kept for DynamoGraphDeploymentScalingAdapter {
    const SELECTOR: Option<&'static str> = Some(words::GRAPH);
    const IS_SCALED_BY_OTHERS: bool = true;

    fn store(view: &View) -> &Arc<Store<Self>> {
        &view.adapters
    }

    fn graph(&self, _: &View) -> Option<ObjectKey> {
        labelled(self)
    }
}

impl Kept for DynamoGraphDeployment {
    const SELECTOR: Option<&'static str> = None;

    fn store(view: &View) -> &Arc<Store<Self>> {
        &view.graphs
    }

    fn graph(&self, _: &View) -> Option<ObjectKey> {
        Some(ObjectKey::of(&self.metadata))
    }
}

impl Kept for PodCliqueScalingGroup {
    const SELECTOR: Option<&'static str> = Some("app.kubernetes.io/managed-by=grove-operator");

    fn store(view: &View) -> &Arc<Store<Self>> {
        &view.groups
    }

    fn graph(&self, view: &View) -> Option<ObjectKey> {
        labelled(&*view.sets.get(&set_of(self)?)?)
    }
}
