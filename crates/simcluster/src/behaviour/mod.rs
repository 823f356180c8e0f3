//! What a cluster does by itself: definitions become kinds, garbage goes, namespaces end, nodes run pods.
//!
//! Each behaviour is one task that follows the store's writes and reacts; none polls. They write through `Actor`,
//! which applies the same rules as requests do. What is not here: any controller of a workload.

mod aggregation;
mod autoscaler;
mod binder;
mod definitions;
mod disruption;
mod endpoints;
mod fleet;
mod garbage;
mod namespaces;
mod quotas;
mod tokens;

use std::sync::Arc;

use serde_json::Value;
use tokio::task::JoinSet;

use crate::server::{DeleteOptions, Server};
use crate::status::ApiError;
pub use fleet::{Fleet, FleetOptions, InitRunner, NodeSpec, Taint};

use crate::store::{Expect, Key, ResourceName, Wanted};
use crate::user::User;
use crate::vitals::Writes;

/// What a cluster does beyond what every cluster does.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) fleet: FleetOptions,
    /// Whether pods of `default-scheduler` are bound.
    pub(crate) binder: bool,
    /// Whether Services get endpoints.
    pub(crate) endpoints: bool,
    /// Whether autoscalers scale.
    pub(crate) autoscaling: bool,
}

/// Starts everything that a cluster does by itself.
pub(crate) fn start(server: &Arc<Server>, options: Options, tasks: &mut JoinSet<()>) -> Fleet {
    let acting = |user: User| Actor {
        server: server.clone(),
        user,
    };
    let controller = |name: &str| acting(User::controller(name));
    let writes = |task: &'static str, wanted: Wanted| server.vitals.follow(task, &server.store, wanted);
    let server_itself = User::named("system:apiserver", &["system:masters", "system:authenticated"]);
    tasks.spawn(aggregation::run(
        controller("clusterrole-aggregation-controller"),
        writes("aggregation", aggregation::wants),
    ));
    tasks.spawn(definitions::run(
        acting(server_itself),
        writes("definitions", definitions::wants),
    ));
    tasks.spawn(disruption::run(
        controller("disruption-controller"),
        writes("disruption", disruption::wants),
    ));
    tasks.spawn(garbage::run(
        controller("generic-garbage-collector"),
        writes("garbage", |_, _| true),
    ));
    tasks.spawn(namespaces::run(
        controller("namespace-controller"),
        writes("namespaces", namespaces::wants),
    ));
    tasks.spawn(quotas::run(
        controller("resourcequota-controller"),
        writes("quotas", |_, _| true),
    ));
    if options.endpoints {
        let actors = (
            controller("endpointslice-controller"),
            controller("endpoint-controller"),
        );
        tasks.spawn(endpoints::run(actors, writes("endpoints", endpoints::wants)));
    }
    if options.autoscaling {
        tasks.spawn(autoscaler::run(
            controller("horizontal-pod-autoscaler"),
            writes("autoscaler", |_, _| true),
        ));
    }
    tasks.spawn(tokens::run(
        controller("tokens-controller"),
        writes("tokens", tokens::wants),
    ));
    let on_nodes: Wanted = |resource, _| resource.is("", "pods") || resource.is("", "nodes");
    if options.binder {
        let scheduler = User::named("system:kube-scheduler", &["system:authenticated"]);
        tasks.spawn(binder::run(acting(scheduler), writes("binder", on_nodes)));
    }
    let (fleet, run) = fleet::new(controller("node-controller"), writes("fleet", on_nodes), options.fleet);
    tasks.spawn(run);
    fleet
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
