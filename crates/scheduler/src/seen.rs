//! What the watches bring: one kind of news for each kind of object, and what is kept of it.

use std::fmt::Debug;
use std::sync::Arc;

use grove_api::{ClusterTopology, ClusterTopologyBinding, PodGang, TopologyDomain};
use grove_kubeplace::NodeResourceTopology;
use grove_runtime::{Arrival, ObjectKey, Trusted};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Resource;
use kube::core::DeserializeGuard;
use serde::de::DeserializeOwned;

pub use crate::pod::KeptPod;

/// An object as it is now; none if it is gone.
#[derive(Clone, Debug)]
pub enum Seen {
    Node(ObjectKey, Option<Arc<Node>>),
    Cells(ObjectKey, Option<Arc<NodeResourceTopology>>),
    Pod(ObjectKey, Option<Arc<KeptPod>>),
    Gang(ObjectKey, Option<Arc<PodGang>>),
    ClusterTopology(ObjectKey, Option<Arc<ClusterTopology>>),
    TopologyBinding(ObjectKey, Option<Arc<ClusterTopologyBinding>>),
    TopologyDomain(ObjectKey, Option<Arc<TopologyDomain>>),
    PriorityClass(ObjectKey, Option<Arc<PriorityClass>>),
    DisruptionBudget(ObjectKey, Option<Arc<PodDisruptionBudget>>),
    Claim(ObjectKey, Option<Arc<PersistentVolumeClaim>>),
    Volume(ObjectKey, Option<Arc<PersistentVolume>>),
}

/// A kind that is watched.
pub(crate) trait Kept: Resource<DynamicType = ()> + Sized + 'static {
    /// The object as a watch reads it.
    type Watched: Arrival<Object = Self> + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send;
    /// What is kept of it.
    type Slim: Send + Sync + 'static;

    fn seen(key: ObjectKey, object: Option<Arc<Self::Slim>>) -> Seen;
    /// Drops what is never read: on a large cluster that is most of it.
    fn slim(object: Self) -> Self::Slim;
}

macro_rules! kept {
    ($($kind:ty => $seen:ident),* $(,)?) => {$(
        impl Kept for $kind {
            type Watched = DeserializeGuard<Self>;
            type Slim = Self;

            fn seen(key: ObjectKey, object: Option<Arc<Self>>) -> Seen {
                Seen::$seen(key, object)
            }

            fn slim(mut object: Self) -> Self {
                object.metadata.managed_fields = None;
                object
            }
        }
    )*};
}

kept! {
    NodeResourceTopology => Cells,
    PodGang => Gang,
    ClusterTopology => ClusterTopology,
    ClusterTopologyBinding => TopologyBinding,
    TopologyDomain => TopologyDomain,
    PriorityClass => PriorityClass,
    PodDisruptionBudget => DisruptionBudget,
    PersistentVolumeClaim => Claim,
    PersistentVolume => Volume,
}

impl Kept for Node {
    type Watched = Trusted<Self>;
    type Slim = Self;

    fn seen(key: ObjectKey, object: Option<Arc<Self>>) -> Seen {
        Seen::Node(key, object)
    }

    fn slim(mut object: Self) -> Self {
        object.metadata.managed_fields = None;
        object.metadata.annotations = None;
        if let Some(status) = &mut object.status {
            status.images = None;
            status.conditions = None;
        }
        object
    }
}

impl Kept for Pod {
    type Watched = Trusted<Self>;
    type Slim = KeptPod;

    fn seen(key: ObjectKey, object: Option<Arc<KeptPod>>) -> Seen {
        Seen::Pod(key, object)
    }

    fn slim(object: Self) -> KeptPod {
        object.into()
    }
}
