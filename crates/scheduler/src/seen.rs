//! What the watches bring: one kind of news for each kind of object, and what is kept of it.

use std::sync::Arc;

use grove_api::{ClusterTopology, ClusterTopologyBinding, PodGang, TopologyDomain};
use grove_kubeplace::NodeResourceTopology;
use grove_runtime::ObjectKey;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;

/// An object as it is now; none if it is gone.
#[derive(Clone, Debug)]
pub enum Seen {
    Node(ObjectKey, Option<Arc<Node>>),
    Cells(ObjectKey, Option<Arc<NodeResourceTopology>>),
    Pod(ObjectKey, Option<Arc<Pod>>),
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
pub(crate) trait Kept: Sized {
    fn seen(key: ObjectKey, object: Option<Arc<Self>>) -> Seen;
    /// Drops what is never read: on a large cluster that is most of it.
    fn slim(object: Self) -> Self;
}

macro_rules! kept {
    ($($kind:ty => $seen:ident),* $(,)?) => {$(
        impl Kept for $kind {
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
    fn seen(key: ObjectKey, object: Option<Arc<Self>>) -> Seen {
        Seen::Pod(key, object)
    }

    fn slim(mut object: Self) -> Self {
        object.metadata.managed_fields = None;
        object.metadata.annotations = None;
        let containers = object.spec.iter_mut().flat_map(|spec| {
            let init = spec.init_containers.iter_mut().flatten();
            init.chain(&mut spec.containers)
        });
        for container in containers {
            container.env = None;
            container.command = None;
            container.args = None;
            container.volume_mounts = None;
        }
        if let Some(status) = &mut object.status {
            let init = status.init_container_statuses.iter_mut().flatten();
            for container in status.container_statuses.iter_mut().flatten().chain(init) {
                // What it holds while it is being resized; the rest is the operator's business.
                *container = ContainerStatus {
                    name: std::mem::take(&mut container.name),
                    resources: container.resources.take(),
                    allocated_resources: container.allocated_resources.take(),
                    ..ContainerStatus::default()
                };
            }
        }
        object
    }
}
