//! Watching pods come into being, lose their gates and get their nodes, reading as little of them as that takes.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use grove_api::labels;
use grove_workload::observed::PodFields;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};

/// The API server ends a watch after this many seconds.
const WATCH_SECS: u32 = 290;

/// When the last of a number of pods was there, and when the last gate was off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) created: Instant,
    pub(super) ungated: Instant,
}

/// When the first of a number of pods was bound, and when the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) first: Instant,
    pub(super) last: Instant,
}

/// A watch on pods.
pub(super) struct Follower {
    pods: Api<PodFields>,
    parameters: WatchParams,
    /// UIDs of the pods that were there before.
    before: BTreeSet<String>,
    /// What was seen last.
    version: String,
    events: BoxStream<'static, Result<WatchEvent<PodFields>, kube::Error>>,
}

impl Follower {
    /// Watches the operator's pods from now on.
    pub(super) async fn open(client: &Client, namespace: &str) -> Result<Self> {
        let selector = format!("{}={}", labels::MANAGED_BY, labels::MANAGED_BY_OPERATOR);
        Self::of(client, namespace, &selector).await
    }

    /// Watches the pods that a selector selects from now on.
    pub(super) async fn of(client: &Client, namespace: &str, selector: &str) -> Result<Self> {
        let pods = Api::<PodFields>::namespaced(client.clone(), namespace);
        let now = Api::<Pod>::namespaced(client.clone(), namespace)
            .list_metadata(&ListParams::default().labels(selector))
            .await?;
        let before = now.items.iter().filter_map(ResourceExt::uid).collect();
        let version = now.metadata.resource_version.unwrap_or_default();
        let parameters = WatchParams::default().labels(selector).timeout(WATCH_SECS);
        let events = pods.watch(&parameters, &version).await?.boxed();
        Ok(Self {
            pods,
            parameters,
            before,
            version,
            events,
        })
    }

    /// The next pod that came or changed. The API server cuts off who reads too slowly; then it goes on where it was.
    async fn next(&mut self) -> Result<PodFields> {
        let mut is_new = false;
        loop {
            match self.events.try_next().await? {
                Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                    self.version = pod.resource_version().unwrap_or_default();
                    return Ok(pod);
                }
                Some(WatchEvent::Error(status)) => bail!("the watch on pods broke: {}", status.message),
                Some(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_)) => {}
                None if is_new => bail!("no pod has changed for {WATCH_SECS} s"),
                None => {
                    self.events = self.pods.watch(&self.parameters, &self.version).await?.boxed();
                    is_new = true;
                }
            }
        }
    }

    /// Waits until this many pods have been made and none of them is held. Those that were there before are not counted,
    /// and one that takes another's name is another one.
    pub(super) async fn all(&mut self, pods: usize) -> Result<Times> {
        let (mut held, mut free) = (BTreeSet::new(), BTreeSet::new());
        let mut created = None;
        loop {
            let made = held.len() + free.len();
            let pod = self
                .next()
                .await
                .with_context(|| format!("{made} of {pods} pods were made, {} released", free.len()))?;
            let uid = pod.uid().unwrap_or_default();
            if self.before.contains(&uid) {
                continue;
            }
            match pod.spec.scheduling_gates.is_empty() {
                true => {
                    held.remove(&uid);
                    free.insert(uid);
                }
                false => drop(held.insert(uid)),
            }
            if held.len() + free.len() >= pods {
                created.get_or_insert_with(Instant::now);
            }
            if let (Some(created), true) = (created, free.len() >= pods) {
                let ungated = Instant::now();
                return Ok(Times { created, ungated });
            }
        }
    }

    /// Waits until this many pods have a node.
    pub(super) async fn bound(&mut self, pods: usize) -> Result<Bound> {
        let mut bound = BTreeSet::new();
        let mut first = None;
        loop {
            let pod = self
                .next()
                .await
                .with_context(|| format!("{} of {pods} pods were bound", bound.len()))?;
            if pod.spec.node_name.is_none() {
                continue;
            }
            let now = Instant::now();
            let first = *first.get_or_insert(now);
            bound.insert(pod.name_any());
            if bound.len() >= pods {
                return Ok(Bound { first, last: now });
            }
        }
    }
}
