//! What happened on a real control plane, in the order in which it happened.
//!
//! Each kind has a watch of its own, and watches overtake each other. Their objects share one storage, whose revisions
//! tell the order.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, pin_mut};
use grove_api::{ClusterTopology, PodGang};
use grove_e2e::eventually;
use grove_scenarios::audit::Moment;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

const LIMIT: Duration = Duration::from_secs(30);

type Log = Arc<Mutex<Vec<(u64, Moment)>>>;

/// Ends its watches when dropped.
pub(crate) struct Record {
    log: Log,
    _watches: JoinSet<()>,
}

impl Record {
    pub(crate) fn start(client: &Client) -> Self {
        let log = Log::default();
        let mut watches = JoinSet::new();
        watches.spawn(follow::<Node>(client.clone(), log.clone()));
        watches.spawn(follow::<Pod>(client.clone(), log.clone()));
        watches.spawn(follow::<PodGang>(client.clone(), log.clone()));
        watches.spawn(follow::<ClusterTopology>(client.clone(), log.clone()));
        Self { log, _watches: watches }
    }

    /// Everything up to now.
    pub(crate) async fn moments(&self, client: &Client) -> Result<Vec<Moment>> {
        let bound = || -> BTreeSet<String> {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let bound = log.iter().filter_map(|(_, moment)| moment.object.as_ref());
            let bound = bound.filter(|object| object["spec"]["nodeName"].is_string());
            bound
                .filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned))
                .collect()
        };
        // Others may go on binding: what is bound by now is waited for, not what will be.
        let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?;
        let has_node = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        eventually(
            "the record to hold all pods that are bound",
            LIMIT,
            async || -> Result<()> {
                let seen = bound();
                for pod in pods.items.iter().filter(has_node) {
                    let uid = pod.uid().context("a pod without a UID")?;
                    ensure!(seen.contains(&uid), "{} is not in it", pod.name_any());
                }
                Ok(())
            },
        )
        .await?;
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        log.sort_by_key(|(revision, _)| *revision);
        Ok(log.into_iter().map(|(_, moment)| moment).collect())
    }
}

async fn follow<K>(client: Client, log: Log)
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let (object, is_there) = match event {
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => (object, true),
            Ok(watcher::Event::Delete(object)) => (object, false),
            // An interrupted watch goes on where it was.
            Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => continue,
        };
        let revision = object.resource_version().and_then(|revision| revision.parse().ok());
        let moment = Moment {
            resource: K::plural(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            object: is_there.then(|| serde_json::to_value(&object).expect("an object is JSON")),
            time: Timestamp::now(),
        };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push((revision.unwrap_or_default(), moment));
    }
}
