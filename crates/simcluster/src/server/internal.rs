//! The server's own requests: what the cluster does by itself obeys the same rules as what clients ask for.

use std::sync::Arc;

use serde_json::{Value, json};

use super::binding::bind_pod;
use super::create::create_object;
use super::delete::{DeleteOptions, delete_object};
use super::update::rewrite;
use super::{Body, Call, Place, Query, Server, scale};
use crate::registry::Subresource;
use crate::rules::metadata;
use crate::status::ApiError;
use crate::store::{Key, ResourceName};
use crate::user::User;

impl Server {
    fn call(self: &Arc<Self>, user: &User, resource: &ResourceName, key: &Key) -> Result<Call, ApiError> {
        let resource = self
            .registry()
            .get(resource)
            .cloned()
            .ok_or_else(ApiError::unknown_resource)?;
        // In the stored version, if it is served: nobody need convert what the cluster writes.
        let stored = resource
            .conversion
            .as_ref()
            .map(|conversion| conversion.stored.as_str());
        let version = stored
            .and_then(|stored| resource.version(stored))
            .or(resource.versions.first());
        let place = Place {
            version: version.map(|version| version.name.clone()).unwrap_or_default(),
            namespace: resource.namespaced.then(|| key.namespace.clone()),
            name: Some(key.name.clone()),
            subresource: None,
            resource,
        };
        Ok(Call {
            server: self.clone(),
            place,
            query: Query::default(),
            accepted: Default::default(),
            body: Body::default(),
            now: self.clock.now(),
            stale_by: None,
            manager: "simcluster".to_owned(),
            user: user.clone(),
            warnings: Arc::default(),
            asked_version: None,
        })
    }

    /// Deletes an object.
    pub(crate) async fn delete_internal(
        self: &Arc<Self>,
        user: &User,
        resource: &ResourceName,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let call = self.call(user, resource, key)?;
        delete_object(&call, key, options).await.map(drop)
    }

    /// Creates an object that is known to have the shape of its kind.
    pub(crate) async fn create_internal(
        self: &Arc<Self>,
        user: &User,
        resource: &ResourceName,
        namespace: &str,
        object: Value,
    ) -> Result<(), ApiError> {
        let key = Key::new(namespace, metadata::text(&object, "name"));
        let call = self.call(user, resource, &key)?;
        create_object(&call, object, false).await.map(drop)
    }

    /// Removes a finalizer; if it was the last one of a deleted object, the object goes.
    pub(crate) async fn remove_finalizer(
        self: &Arc<Self>,
        user: &User,
        resource: &ResourceName,
        key: &Key,
        finalizer: &str,
    ) -> Result<(), ApiError> {
        self.change_internal(user, (resource, key), None, |object| {
            let left = metadata::finalizers(object).into_iter().filter(|f| *f != finalizer);
            let left: Vec<String> = left.map(str::to_owned).collect();
            metadata::set_finalizers(object, &left);
        })
        .await
    }

    /// Binds a pod to a node.
    pub(crate) async fn bind_internal(
        self: &Arc<Self>,
        user: &User,
        pod: &Key,
        uid: &str,
        node: &str,
    ) -> Result<(), ApiError> {
        let mut call = self.call(user, &ResourceName::new("", "pods"), pod)?;
        call.place.subresource = Some(Subresource::Binding);
        let metadata = json!({"name": pod.name, "namespace": pod.namespace, "uid": uid});
        let binding = json!({"metadata": metadata, "target": {"kind": "Node", "name": node}});
        bind_pod(&call, binding, false).await
    }

    /// The Scale of an object.
    pub(crate) async fn scale_internal(
        self: &Arc<Self>,
        user: &User,
        (resource, key): (&ResourceName, &Key),
    ) -> Result<Value, ApiError> {
        let mut call = self.call(user, resource, key)?;
        call.place.subresource = Some(Subresource::Scale);
        scale::of(&call).await
    }

    /// Writes how many replicas an object shall have.
    pub(crate) async fn rescale_internal(
        self: &Arc<Self>,
        user: &User,
        (resource, key): (&ResourceName, &Key),
        replicas: i64,
    ) -> Result<(), ApiError> {
        let mut call = self.call(user, resource, key)?;
        call.place.subresource = Some(Subresource::Scale);
        scale::set(&call, replicas).await
    }

    /// Changes an object, or one of its subresources, under the rules of an update.
    pub(crate) async fn change_internal(
        self: &Arc<Self>,
        user: &User,
        (resource, key): (&ResourceName, &Key),
        subresource: Option<Subresource>,
        change: impl Fn(&mut Value),
    ) -> Result<(), ApiError> {
        let mut call = self.call(user, resource, key)?;
        call.place.subresource = subresource;
        let changed = rewrite(&call, false, |old| {
            let mut new = old.clone();
            change(&mut new);
            Ok(new)
        });
        changed.await.map(drop)
    }
}
