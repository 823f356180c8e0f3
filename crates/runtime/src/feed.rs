//! One watch: from the API server into a store.
//!
//! An object that cannot be read is reported and left out; the others arrive. A watch that breaks is opened again,
//! after a wait that grows; what was missed meanwhile comes with the next list.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use kube::Resource;
use kube::api::Api;
use kube::core::{DeserializeGuard, ObjectMeta, TypeMeta};
use kube::runtime::watcher::{self, Event};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::store::{Change, Stamp, Store};
use crate::{Backoff, ObjectKey};

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub api_version: String,
    pub kind: String,
    pub key: ObjectKey,
    pub uid: String,
    pub reason: String,
}

/// Waits until everything that is watched has been seen once: half a view would look like things that are missing.
pub async fn all_synced(synced: Vec<watch::Receiver<bool>>) {
    for mut synced in synced {
        // An error means that the watch has ended, and then so does everything.
        let _ = synced.wait_for(|synced| *synced).await;
    }
}

/// What a watch brings: an object, or the reason why it cannot be read.
pub trait Arrival: Resource {
    type Object;

    fn open(self) -> Result<Self::Object, String>;
}

impl<K: Resource> Arrival for DeserializeGuard<K> {
    type Object = K;

    fn open(self) -> Result<K, String> {
        self.0.map_err(|invalid| invalid.error)
    }
}

/// An object of a kind that Kubernetes itself types and that therefore can always be read. The guard of other kinds
/// holds every object twice as a tree before it reads it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Trusted<K>(pub K);

impl<K: Resource> Resource for Trusted<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

impl<K: Resource> Arrival for Trusted<K> {
    type Object = K;

    fn open(self) -> Result<K, String> {
        Ok(self.0)
    }
}

/// A watch of `K` that fills a store of what is kept of it.
pub struct Feed<K, V, W = DeserializeGuard<K>> {
    /// What is watched, for messages.
    pub kind: TypeMeta,
    pub api: Api<W>,
    pub config: watcher::Config,
    /// What is kept of an object.
    pub read: fn(K) -> V,
    pub store: Arc<Store<V>>,
}

impl<K, V, W> Feed<K, V, W>
where
    W: Arrival<Object = K> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: 'static,
{
    /// Feeds for ever. Every change goes to `changed`, and `synced` becomes true after the first whole list.
    pub async fn run(
        self,
        synced: &watch::Sender<bool>,
        changed: impl Fn(&Change<V>),
        unreadable: impl Fn(Unreadable),
    ) {
        let kind = &self.kind;
        let mut events = std::pin::pin!(watcher::watcher(self.api, self.config));
        let (mut listed, mut reached) = (BTreeSet::new(), 0);
        let mut failures = 0;
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    failures += 1;
                    if is_not_served(&error) {
                        // An older cluster does not have the kind, so there are no objects of it either.
                        synced.send_replace(true);
                    }
                    let wait = Backoff::WATCH.after(failures);
                    // A list that has expired is how every long watch ends some day.
                    tracing::debug!(kind = kind.kind, %error, ?wait, "watch broke; opening it again");
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            // A list that is about to be asked for may still fail.
            if !matches!(event, Event::Init) {
                failures = 0;
            }
            match event {
                Event::Init => (listed, reached) = (BTreeSet::new(), 0),
                Event::InitApply(object) => {
                    reached = reached.max(Stamp::of(object.meta()).version);
                    listed.insert(ObjectKey::of(object.meta()));
                    take((kind, &self.store), object, self.read, &changed, &unreadable);
                }
                Event::InitDone => {
                    self.store
                        .keep_only(&std::mem::take(&mut listed), reached)
                        .iter()
                        .for_each(&changed);
                    synced.send_replace(true);
                }
                Event::Apply(object) => {
                    let version = Stamp::of(object.meta()).version;
                    take((kind, &self.store), object, self.read, &changed, &unreadable);
                    self.store.reach(version);
                }
                Event::Delete(object) => {
                    let Stamp { uid, version } = Stamp::of(object.meta());
                    let ended = self.store.remove(&ObjectKey::of(object.meta()), &uid);
                    self.store.reach(version);
                    ended.iter().for_each(&changed);
                }
            }
        }
    }
}

fn is_not_served(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

fn take<W: Arrival, V>(
    (kind, store): (&TypeMeta, &Store<V>),
    object: W,
    read: fn(W::Object) -> V,
    changed: &impl Fn(&Change<V>),
    unreadable: &impl Fn(Unreadable),
) {
    let (key, stamp) = (ObjectKey::of(object.meta()), Stamp::of(object.meta()));
    match object.open() {
        Ok(object) => store.put(key, stamp, read(object)).iter().for_each(changed),
        Err(reason) => unreadable(Unreadable {
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
            key,
            uid: stamp.uid,
            reason,
        }),
    }
}

impl<K, V, W> Debug for Feed<K, V, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
