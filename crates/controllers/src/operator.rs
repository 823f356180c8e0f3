//! The operator as a whole: watches on one side, workers on the other, the queue in between.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use grove_api::{
    ClusterTopology, ClusterTopologyBinding, ComputeDomain, PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang,
    TopologyDomain, labels,
};
use grove_runtime::{Arrival, Change, Feed, Notice, Outcome, Unreadable, all_synced, publish_until};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Client;
use kube::api::Api;
use kube::core::{DynamicObject, TypeMeta};
use kube::runtime::watcher;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::affected::{Affects, all_of_foreign, of_foreign};
use crate::key::Key;
use crate::kinds::KeptPod;
use crate::served::{ForeignKind, OptionalApi};
use crate::shell::{Settings, Shell, Telemetry};
use crate::write::FIELD_MANAGER;
use crate::{clique, compute_domain, gang, group, replica, set, topology};

type Watching = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long an operator that ends may go on telling what it did.
const TELL_MAX: Duration = Duration::from_secs(2);

/// The workload operator.
#[derive(Debug)]
pub struct Operator {
    shell: Arc<Shell>,
    notices: Mutex<UnboundedReceiver<Notice>>,
}

impl Operator {
    pub fn new(client: Client, settings: Settings) -> Self {
        Self::with_telemetry(client, settings, Telemetry::default())
    }

    /// One that tells about itself.
    pub fn with_telemetry(client: Client, settings: Settings, telemetry: Telemetry) -> Self {
        let (told, notices) = mpsc::unbounded_channel();
        Self {
            shell: Arc::new(Shell::new(client, (settings, telemetry), told)),
            notices: Mutex::new(notices),
        }
    }

    /// Works until told to stop. Writes that are under way then are finished, and what they did is told.
    pub async fn run(&self, stop: CancellationToken) {
        let mut synced = Vec::new();
        let watches: Vec<Watching> = vec![
            // Sets are the users': all of them are watched. Of everything else only what the operator made.
            self.watch::<PodCliqueSet>(None, &mut synced),
            self.watch::<PodCliqueScalingGroup>(MANAGED, &mut synced),
            self.watch::<PodClique>(MANAGED, &mut synced),
            self.watch::<PodGang>(MANAGED, &mut synced),
            self.watch::<KeptPod>(MANAGED, &mut synced),
            self.watch::<Service>(MANAGED, &mut synced),
            self.watch::<HorizontalPodAutoscaler>(MANAGED, &mut synced),
            self.watch::<ControllerRevision>(MANAGED, &mut synced),
            self.watch::<Role>(MANAGED, &mut synced),
            self.watch::<RoleBinding>(MANAGED, &mut synced),
            self.watch::<ResourceClaim>(MANAGED, &mut synced),
            // Topologies are the admins'.
            self.watch::<ClusterTopology>(None, &mut synced),
            self.watch_while_served::<ClusterTopologyBinding>(OptionalApi::ClusterTopologyBinding, None, &mut synced),
            self.watch_while_served::<TopologyDomain>(OptionalApi::TopologyDomain, None, &mut synced),
            self.watch_while_served::<ComputeDomain>(OptionalApi::ComputeDomain, MANAGED, &mut synced),
            self.follow_served(),
        ];
        let mut notices = self.notices.lock().await;
        let foreign = ForeignKind::ALL.map(|kind| self.watch_foreign(kind, &mut synced));
        let watches = watches.into_iter().chain(foreign);
        let (end, now) = (CancellationToken::new(), || self.shell.now());
        let publish = publish_until(&self.shell.client, FIELD_MANAGER, &mut notices, (now, &end));
        let mut publish = std::pin::pin!(publish.fuse());
        tokio::select! {
            // In this order every time: a run can be repeated.
            biased;
            _ = join_all(watches) => {}
            () = &mut publish => {}
            () = self.work(synced, &stop) => {}
        }
        // The last steps are told too, if that does not take long.
        end.cancel();
        let _ = timeout(TELL_MAX, publish).await;
    }

    /// Looks at what has changed, once everything has been seen.
    async fn work(&self, synced: Vec<watch::Receiver<bool>>, stop: &CancellationToken) {
        if stop.run_until_cancelled(all_synced(synced)).await.is_none() {
            return;
        }
        let workers = self.shell.settings.workers;
        let look = |key: Key| {
            let shell = self.shell.clone();
            async move {
                let (controller, begun) = (key.controller(), Instant::now());
                let outcome = look(&shell, key).await;
                let looks = shell.telemetry.metrics.looks();
                looks.looked(controller, &outcome, begun.elapsed());
                outcome
            }
        };
        self.shell.queue.work(workers, stop, look).await;
    }

    fn watch<V>(&self, selector: Selector, synced: &mut Synced) -> Watching
    where
        V: Affects,
    {
        let config = config(selector);
        let shell = self.shell.clone();
        let sender = sender(synced);
        Box::pin(async move {
            let seen = |change: &Change<V>| shell.seen(change);
            feed::<V>(&shell, config)
                .run(&sender, seen, |unreadable| report(&shell, &unreadable))
                .await;
        })
    }

    /// Follows which of the APIs that can be missing are served.
    fn follow_served(&self) -> Watching {
        let shell = self.shell.clone();
        Box::pin(async move { shell.served.follow(shell.client.clone()).await })
    }

    /// As [`Self::watch`], for a kind whose API can be missing: then there are none of it.
    fn watch_while_served<V>(&self, api: OptionalApi, selector: Selector, synced: &mut Synced) -> Watching
    where
        V: Affects,
    {
        let shell = self.shell.clone();
        let sender = sender(synced);
        let config = config(selector);
        Box::pin(async move {
            let seen = |change: &Change<V>| shell.seen(change);
            let mut known = None;
            loop {
                let version = shell.served.changed(api, known.as_ref()).await;
                known = Some(version.clone());
                V::awaited_by(&shell.view)
                    .into_iter()
                    .for_each(|key| shell.queue.add(key));
                if version.is_none() {
                    V::store(&shell.view)
                        .keep_only(&BTreeSet::new(), 0)
                        .iter()
                        .for_each(seen);
                    sender.send_replace(true);
                    continue;
                }
                let feed = feed::<V>(&shell, config.clone());
                tokio::select! {
                    biased;
                    _ = shell.served.changed(api, known.as_ref()) => {}
                    () = feed.run(&sender, seen, |unreadable| report(&shell, &unreadable)) => {}
                }
            }
        })
    }

    /// Watches a kind of another scheduler. That its API comes or goes concerns everything that is told to it.
    fn watch_foreign(&self, kind: ForeignKind, synced: &mut Synced) -> Watching {
        let shell = self.shell.clone();
        let sender = sender(synced);
        Box::pin(async move {
            let api = OptionalApi::Foreign(kind);
            let store = shell.view.foreign(kind);
            let send_for = |keys: Vec<Key>| keys.into_iter().for_each(|key| shell.queue.add(key));
            let seen = |change: &Change<DynamicObject>| send_for(of_foreign(kind, &change.key, &shell.view));
            let mut known = None;
            loop {
                let version = shell.served.changed(api, known.as_ref()).await;
                known = Some(version.clone());
                send_for(all_of_foreign(kind, &shell.view));
                let Some(version) = version else {
                    store.keep_only(&BTreeSet::new(), 0);
                    sender.send_replace(true);
                    continue;
                };
                let resource = kind.resource(&version);
                let feed = Feed::<DynamicObject, DynamicObject> {
                    kind: TypeMeta {
                        api_version: resource.api_version.clone(),
                        kind: resource.kind.clone(),
                    },
                    api: Api::all_with(shell.client.clone(), &resource),
                    config: watcher::Config::default(),
                    read: |mut object| {
                        object.metadata.managed_fields = None;
                        object
                    },
                    store: store.clone(),
                };
                tokio::select! {
                    biased;
                    _ = shell.served.changed(api, known.as_ref()) => {}
                    () = feed.run(&sender, seen, |unreadable| report(&shell, &unreadable)) => {}
                }
            }
        })
    }
}

/// Flags that must be up before work begins.
type Synced = Vec<watch::Receiver<bool>>;

/// A label that objects must have to be watched; none for all objects of a kind.
type Selector = Option<(&'static str, &'static str)>;

const MANAGED: Selector = Some((labels::MANAGED_BY, labels::MANAGED_BY_OPERATOR));

fn config(selector: Selector) -> watcher::Config {
    match selector {
        Some((label, value)) => watcher::Config::default().labels(&format!("{label}={value}")),
        None => watcher::Config::default(),
    }
}

/// A new flag among those that must be up before work begins.
fn sender(synced: &mut Synced) -> watch::Sender<bool> {
    let (sender, receiver) = watch::channel(false);
    synced.push(receiver);
    sender
}

fn feed<V: Affects>(shell: &Shell, config: watcher::Config) -> Feed<<V::Watched as Arrival>::Object, V, V::Watched> {
    Feed {
        kind: TypeMeta::resource::<V::Object>(),
        api: Api::all(shell.client.clone()),
        config,
        read: V::read_watched,
        store: V::store(&shell.view).clone(),
    }
}

/// Tells of an object that cannot be read, on that object: nobody else would know why nothing happens.
fn report(shell: &Shell, unreadable: &Unreadable) {
    let Unreadable {
        kind, key, uid, reason, ..
    } = unreadable;
    tracing::error!(%key, uid, reason, "{kind} cannot be read and is left alone; correct it");
    shell.tell([Notice::unreadable(unreadable)]);
}

async fn look(shell: &Shell, key: Key) -> Outcome {
    match key {
        Key::Set(key) => set::look(shell, &key).await,
        Key::Replica(key, index) => replica::look(shell, &key, index).await,
        Key::Group(key) => group::look(shell, &key).await,
        Key::Clique(key) => clique::look(shell, &key).await,
        Key::Gang(set, replica, name) => gang::look(shell, &set, replica, &name).await,
        Key::ComputeDomain(key) => compute_domain::look(shell, &key).await,
        Key::Topology(kind, name) => topology::look(shell, kind, &name).await,
    }
}
