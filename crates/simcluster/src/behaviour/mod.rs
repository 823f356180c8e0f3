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
use crate::user::User;

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
    let acting = |user: User| Actor {
        server: server.clone(),
        user,
    };
    let controller = |name: &str| acting(User::controller(name));
    let tap = || server.store.tap();
    tasks.spawn(definitions::run(
        acting(User::named(
            "system:apiserver",
            &["system:masters", "system:authenticated"],
        )),
        tap(),
    ));
    tasks.spawn(disruption::run(controller("disruption-controller"), tap()));
    tasks.spawn(garbage::run(controller("generic-garbage-collector"), tap()));
    tasks.spawn(namespaces::run(controller("namespace-controller"), tap()));
    if options.binder {
        tasks.spawn(binder::run(
            acting(User::named("system:kube-scheduler", &["system:authenticated"])),
            tap(),
        ));
    }
    let (fleet, run) = fleet::new(controller("node-controller"), tap(), options.fleet);
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
    /// In whose name it writes.
    user: User,
}

impl Actor {
    /// The same hand in another name.
    fn named(&self, user: User) -> Self {
        let server = self.server.clone();
        Self { server, user }
    }

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

    /// Deletes an object as a request would. Returns whether there is nothing left to do.
    async fn delete(&self, resource: &ResourceName, key: &Key, options: &DeleteOptions) -> bool {
        match self.server.delete_internal(&self.user, resource, key, options).await {
            Ok(()) => true,
            // Gone, or replaced by another object of that name.
            Err(ApiError { code: 404 | 409, .. }) => true,
            Err(error) => {
                tracing::warn!(%resource, namespace = key.namespace, name = key.name, %error, "cannot delete");
                false
            }
        }
    }

    /// Creates an object as a request would; one that exists is left alone.
    async fn create(&self, resource: &ResourceName, namespace: &str, object: Value) {
        match self
            .server
            .create_internal(&self.user, resource, namespace, object)
            .await
        {
            Ok(_) => {}
            Err(error) if error.reason == "AlreadyExists" => {}
            Err(error) => tracing::warn!(%resource, namespace, %error, "cannot create"),
        }
    }

    /// Removes a finalizer, which may end the object.
    async fn release(&self, resource: &ResourceName, key: &Key, finalizer: &str) {
        if let Err(error) = self.server.remove_finalizer(&self.user, resource, key, finalizer).await
            && error.code != 404
        {
            tracing::warn!(%resource, namespace = key.namespace, name = key.name, %error, "cannot remove a finalizer");
        }
    }
}
