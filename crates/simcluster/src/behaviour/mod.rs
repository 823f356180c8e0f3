//! What a cluster does by itself: definitions become kinds, garbage goes, namespaces end, nodes run pods.
//!
//! Each behaviour is one task that follows the store's writes and reacts; none polls. They write through `Actor`,
//! which applies the same rules as requests do. What is not here: any controller of a workload.

mod binder;
mod definitions;
mod disruption;
mod fleet;
mod garbage;
mod namespaces;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::server::{DeleteOptions, Server};
use crate::status::ApiError;
pub use fleet::{Fleet, FleetOptions, InitRunner, NodeSpec};

use crate::store::{Event, Expect, Key, ResourceName};

/// Every write of the store, in order.
type Writes = UnboundedReceiver<(ResourceName, Event)>;

/// What a cluster does beyond what every cluster does.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) fleet: FleetOptions,
    /// Whether pods of `default-scheduler` are bound.
    pub(crate) binder: bool,
}

/// Starts everything that a cluster does by itself.
pub(crate) fn start(server: &Arc<Server>, options: Options, tasks: &mut JoinSet<()>) -> Fleet {
    let actor = Actor { server: server.clone() };
    let tap = || server.store.tap();
    tasks.spawn(definitions::run(actor.clone(), tap()));
    tasks.spawn(disruption::run(actor.clone(), tap()));
    tasks.spawn(garbage::run(actor.clone(), tap()));
    tasks.spawn(namespaces::run(actor.clone(), tap()));
    if options.binder {
        tasks.spawn(binder::run(actor.clone(), tap()));
    }
    let (fleet, run) = fleet::new(actor, tap(), options.fleet);
    tasks.spawn(run);
    fleet
}

/// The part of an object that behaviours look at most, read without decoding the rest.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    uid: String,
    deletion_timestamp: Option<String>,
    finalizers: Vec<String>,
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    block_owner_deletion: bool,
}

impl Head {
    fn of(bytes: &[u8]) -> Self {
        #[derive(Deserialize, Default)]
        struct Object {
            #[serde(default)]
            metadata: Head,
        }
        serde_json::from_slice::<Object>(bytes).unwrap_or_default().metadata
    }

    fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

/// A hand of the cluster itself.
#[derive(Clone, Debug)]
struct Actor {
    server: Arc<Server>,
}

impl Actor {
    fn get(&self, resource: &ResourceName, key: &Key) -> Option<Value> {
        self.server.store.get(resource, key).map(|entry| entry.value())
    }

    /// Changes an object in place, whoever else writes meanwhile. `change` says whether there is anything to write;
    /// the answer is whether something was written.
    fn modify(&self, resource: &ResourceName, key: &Key, mut change: impl FnMut(&mut Value) -> bool) -> bool {
        while let Some(entry) = self.server.store.get(resource, key) {
            let mut object = entry.value();
            if !change(&mut object) {
                return false;
            }
            if self
                .server
                .store
                .put(resource, key, Expect::Revision(entry.revision), &mut object)
                .is_ok()
            {
                return true;
            }
        }
        false
    }

    /// Deletes an object as a request would.
    fn delete(&self, resource: &ResourceName, key: &Key, options: &DeleteOptions) {
        match self.server.delete_internal(resource, key, options) {
            Ok(()) => {}
            // Gone, or replaced by another object of that name: nothing left to do.
            Err(ApiError { code: 404 | 409, .. }) => {}
            Err(error) => {
                tracing::warn!(%resource, namespace = key.namespace, name = key.name, %error, "cannot delete")
            }
        }
    }

    /// Creates an object as a request would; one that exists is left alone.
    fn create(&self, resource: &ResourceName, namespace: &str, object: Value) {
        match self.server.create_internal(resource, namespace, object) {
            Ok(_) => {}
            Err(error) if error.reason == "AlreadyExists" => {}
            Err(error) => tracing::warn!(%resource, namespace, %error, "cannot create"),
        }
    }

    /// Removes a finalizer, which may end the object.
    fn release(&self, resource: &ResourceName, key: &Key, finalizer: &str) {
        if let Err(error) = self.server.remove_finalizer(resource, key, finalizer)
            && error.code != 404
        {
            tracing::warn!(%resource, namespace = key.namespace, name = key.name, %error, "cannot remove a finalizer");
        }
    }
}
