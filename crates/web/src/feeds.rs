//! The watches that keep a map equal to a cluster.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use grove_api::labels::annotation;
use grove_api::{ClusterTopology, ClusterTopologyBinding, PodGang, TopologyDomain};
use grove_runtime::{Arrival, Change, Feed, ObjectKey, Store, Trusted, Unreadable};
use grove_topology::{Topology, TopologyKind};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::core::{DeserializeGuard, TypeMeta};
use kube::runtime::watcher;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};

use crate::model::Map;
use crate::seen::{SeenNode, SeenPod};

type Watching = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A map that watches fill and requests read.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    map: Mutex<Map>,
    pub(crate) changed: Notify,
}

impl Shared {
    pub(crate) fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept of an object.
type Read<W, V> = fn(<W as Arrival>::Object) -> V;

/// What is watched, for whom, and which watches have seen everything once.
struct Watched<'a> {
    client: &'a Client,
    shared: &'a Arc<Shared>,
    flags: Vec<watch::Receiver<bool>>,
}

/// Follows the cluster for ever; `synced` becomes true when everything has been seen once.
pub(crate) async fn follow(client: &Client, shared: &Arc<Shared>, synced: &watch::Sender<bool>) {
    let mut to = Watched {
        client,
        shared,
        flags: Vec::new(),
    };
    let node = |map: &mut Map, key: &ObjectKey, node| map.see_node(&key.name, node);
    let topology = |kind: TopologyKind| {
        move |map: &mut Map, key: &ObjectKey, topology: Option<Arc<Topology>>| {
            map.see_topology(kind, &key.name, topology.as_deref().cloned());
        }
    };
    let (own, bound, free) = (
        topology(TopologyKind::ClusterTopology),
        topology(TopologyKind::ClusterTopologyBinding),
        topology(TopologyKind::TopologyDomain),
    );
    let watches: Vec<Watching> = vec![
        feed::<Trusted<Node>, _>(&mut to, SeenNode::new, node),
        feed::<Trusted<Pod>, _>(&mut to, SeenPod::new, Map::see_pod),
        feed::<DeserializeGuard<PodGang>, _>(&mut to, slim, Map::see_gang),
        feed::<DeserializeGuard<ClusterTopology>, _>(&mut to, |object| Topology::from(&object), own),
        feed::<DeserializeGuard<ClusterTopologyBinding>, _>(&mut to, |object| Topology::from(&object), bound),
        feed::<DeserializeGuard<TopologyDomain>, _>(&mut to, |object| Topology::from(&object), free),
    ];
    tokio::join!(join_all(watches), all(to.flags, synced));
}

async fn all(flags: Vec<watch::Receiver<bool>>, synced: &watch::Sender<bool>) {
    for mut flag in flags {
        // An error means that the watch has ended, and then so does everything.
        let _ = flag.wait_for(|is_up| *is_up).await;
    }
    synced.send_replace(true);
}

/// Drops what the page does not show, and the names of the pods, which are most of a large gang.
fn slim(mut gang: PodGang) -> PodGang {
    gang.metadata.managed_fields = None;
    if let Some(annotations) = &mut gang.metadata.annotations {
        annotations.retain(|name, _| name == annotation::PREFERRED_BY_POLICY);
    }
    for group in &mut gang.spec.pod_groups {
        group.pod_references = vec![];
    }
    gang
}

fn feed<W, V>(
    to: &mut Watched<'_>,
    read: Read<W, V>,
    see: impl Fn(&mut Map, &ObjectKey, Option<Arc<V>>) + Send + Sync + 'static,
) -> Watching
where
    W: Arrival + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    W::Object: Send + 'static,
    V: Send + Sync + 'static,
{
    let (is_synced, flag) = watch::channel(false);
    to.flags.push(flag);
    let feed: Feed<W::Object, V, W> = Feed {
        kind: TypeMeta::resource::<W>(),
        api: Api::all(to.client.clone()),
        config: watcher::Config::default(),
        read,
        store: Arc::new(Store::new(|_: &V| None)),
    };
    let shared = to.shared.clone();
    Box::pin(async move {
        let changed = |change: &Change<V>| {
            see(&mut shared.map(), &change.key, change.new.clone());
            shared.changed.notify_one();
        };
        feed.run(&is_synced, changed, report).await;
    })
}

fn report(unreadable: Unreadable) {
    let Unreadable { kind, key, reason, .. } = unreadable;
    tracing::warn!(kind, %key, reason, "an object cannot be read and is not on the map");
}
