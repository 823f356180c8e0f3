//! A recording of all pods of a place, to be looked at moment by moment: what held at every one of them, and not only when
//! somebody happened to look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::task::JoinHandle;

use crate::support::{Place, images, is_ready};

/// The API server ends a watch after this many seconds; no test takes as long.
const WATCH_SECS: u32 = 290;

/// A running recording. It ends when this is dropped.
pub(crate) struct Film {
    begin: BTreeMap<String, Pod>,
    events: Arc<Mutex<Vec<WatchEvent<Pod>>>>,
    task: JoinHandle<()>,
}

impl Drop for Film {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Film {
    /// Begins with the pods that are there now.
    pub(crate) async fn start(place: &Place) -> Result<Self> {
        let pods = place.all::<Pod>();
        let now = pods.list(&ListParams::default()).await?;
        let version = now.metadata.resource_version.clone().unwrap_or_default();
        let parameters = WatchParams::default().timeout(WATCH_SECS);
        let mut watch = pods.watch(&parameters, &version).await?.boxed();
        let events = Arc::new(Mutex::new(Vec::new()));
        let kept = events.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(event)) = watch.try_next().await {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(event);
            }
        });
        Ok(Self {
            begin: now.items.into_iter().map(|pod| (pod.name_any(), pod)).collect(),
            events,
            task,
        })
    }

    /// Shows how all pods stood after each change so far.
    pub(crate) fn replay(&self, mut check: impl FnMut(&Scene)) {
        let mut scene = Scene(self.begin.clone());
        check(&scene);
        for event in self.events.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => drop(scene.0.insert(pod.name_any(), pod.clone())),
                WatchEvent::Deleted(pod) => drop(scene.0.remove(&pod.name_any())),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => panic!("the watch broke: {}", status.message),
            }
            check(&scene);
        }
    }
}

/// All pods at one moment, by name.
pub(crate) struct Scene(BTreeMap<String, Pod>);

impl Scene {
    fn of(&self, prefix: &str) -> impl Iterator<Item = &Pod> {
        let pods = self.0.iter().filter(move |(name, _)| name.starts_with(prefix));
        pods.map(|(_, pod)| pod)
    }

    /// How many pods of cliques whose name begins so are ready.
    pub(crate) fn ready(&self, prefix: &str) -> usize {
        self.of(prefix).filter(|pod| is_ready(pod)).count()
    }

    /// How many of them run an image and are not told to go.
    pub(crate) fn with_image(&self, prefix: &str, image: &str) -> usize {
        let image = |pod: &&Pod| images(std::slice::from_ref(*pod)).contains(image);
        let live = self.of(prefix).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        live.filter(image).count()
    }

    pub(crate) fn uids(&self, prefix: &str) -> BTreeSet<String> {
        self.of(prefix).filter_map(ResourceExt::uid).collect()
    }
}
