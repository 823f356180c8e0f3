//! Every request that changes something. Objects are applied: several write to them, and each keeps to its own fields.
//!
//! What is there under a name that is not the graph's is never touched: an object that is changed is named by its UID too,
//! and one that is made takes no field from anybody who was quicker. Nothing is sent again by itself: a request whose
//! answer was lost may have been carried out, so the next look decides with what is seen then.

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::{Component, words};
use grove_runtime::{ObjectKey, Stamp, WriteError};
use grove_workload::diff::{self, Change, Content, holder};
use grove_workload::meta::uid;
use grove_workload::names::is_owned_by;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde::Serialize;
use serde_json::{Value, json};

use super::kinds::{Kept, read};
use super::{FIELD_MANAGER, Shell};
use crate::translate::hash;

/// Whether it stays until somebody does something about it.
pub(super) fn is_for_people(error: &WriteError) -> bool {
    matches!(error, WriteError::Taken { .. } | WriteError::Refused(_))
}

impl Shell {
    fn api<K: Kept>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes the graph's objects of a kind be these.
    pub(super) async fn carry_out<K: Kept>(
        &self,
        graph: &DynamoGraphDeployment,
        mut wanted: Vec<K>,
    ) -> Vec<WriteError> {
        for object in &mut wanted {
            // Whose it is has no part in what it says: restored from a backup, a graph has another UID.
            let owners = object.meta_mut().owner_references.take();
            let text = serde_json::to_string(object).unwrap_or_default();
            object.meta_mut().owner_references = owners;
            object
                .annotations_mut()
                .insert(words::APPLIED_HASH.to_owned(), hash(&text));
        }
        let changes = self.changes(graph, wanted);
        self.write(graph, changes).await
    }

    /// What must be written of a kind.
    pub(super) fn changes<K: Kept>(&self, graph: &DynamoGraphDeployment, wanted: Vec<K>) -> Vec<Change<K>> {
        let observed = K::store(&self.view).of(&ObjectKey::of(&graph.metadata).to_string());
        diff::changes(uid(graph), wanted, &observed, Content::Written)
    }

    pub(super) async fn write<K: Kept>(
        &self,
        graph: &DynamoGraphDeployment,
        changes: Vec<Change<K>>,
    ) -> Vec<WriteError> {
        let namespace = graph.namespace().unwrap_or_default();
        let mut errors = Vec::new();
        for change in changes {
            let written = match change {
                Change::Create(object) => self.create(graph, object).await,
                Change::Update(object) => self.update(object).await,
                Change::Delete { name, uid } => self.delete::<K>(&ObjectKey::new(&*namespace, name), &uid).await,
                Change::Conflict { name, holder } => Err(WriteError::Taken {
                    kind: K::kind(&()).into_owned(),
                    key: ObjectKey::new(&*namespace, name),
                    holder,
                }),
            };
            errors.extend(written.err());
        }
        errors
    }

    /// Makes an object whose name is free, or already the graph's.
    async fn create<K: Kept>(&self, graph: &DynamoGraphDeployment, object: K) -> Result<(), WriteError> {
        let key = ObjectKey::of(object.meta());
        match self.api::<K>(&key.namespace).get(&key.name).await {
            Err(kube::Error::Api(status)) if status.code == 404 => self.apply(object, None).await,
            Err(error) => Err(WriteError::new(&key, error)),
            // One that is on its way out frees the name soon, whosever it is.
            Ok(found) if found.meta().deletion_timestamp.is_some() => Err(WriteError::Outdated(key)),
            Ok(found) if is_owned_by(found.meta(), uid(graph)) => self.apply(object, Some(uid(&found))).await,
            Ok(found) => Err(WriteError::Taken {
                kind: K::kind(&()).into_owned(),
                holder: holder(&found),
                key,
            }),
        }
    }

    /// Makes the object that was seen be this one.
    async fn update<K: Kept>(&self, object: K) -> Result<(), WriteError> {
        let key = ObjectKey::of(object.meta());
        match K::store(&self.view).get(&key) {
            Some(seen) => self.apply(object, Some(uid(&*seen))).await,
            None => Err(WriteError::Outdated(key)),
        }
    }

    /// Applies to the object with this UID; without one, makes an object.
    async fn apply<K: Kept>(&self, mut object: K, stored: Option<&str>) -> Result<(), WriteError> {
        let key = ObjectKey::of(object.meta());
        object.meta_mut().resource_version = None;
        object.meta_mut().uid = stored.map(str::to_owned);
        let mut patch = serde_json::to_value(&object).map_err(|error| WriteError::Failed(format!("{key}: {error}")))?;
        patch["apiVersion"] = json!(K::api_version(&()));
        patch["kind"] = json!(K::kind(&()));
        let (params, patch) = match stored {
            // An apply without the number would take it away, and one with it would overrule whoever scales.
            Some(_) if K::IS_SCALED_BY_OTHERS => {
                if let Some(spec) = patch["spec"].as_object_mut() {
                    spec.remove("replicas");
                }
                (managed(), Patch::Merge(patch))
            }
            stored => {
                let params = PatchParams {
                    force: stored.is_some(),
                    ..PatchParams::apply(FIELD_MANAGER)
                };
                (params, Patch::Apply(patch))
            }
        };
        let api = self.api::<K>(&key.namespace);
        match api.patch(&key.name, &params, &patch).await {
            Ok(answer) => {
                self.answered(answer);
                Ok(())
            }
            Err(error) if is_another(&error) => Err(WriteError::Outdated(key)),
            Err(error) => Err(WriteError::new(&key, error)),
        }
    }

    /// Takes an object as the API server answered a write.
    fn answered<K: Kept>(&self, object: K) {
        let (key, stamp) = (ObjectKey::of(object.meta()), Stamp::of(object.meta()));
        if let Some(change) = K::store(&self.view).put_answer(key, stamp, read(object)) {
            self.seen(&change);
        }
    }

    /// Deletes the object with this UID; one that is gone already is as good.
    async fn delete<K: Kept>(&self, key: &ObjectKey, uid: &str) -> Result<(), WriteError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match self.api::<K>(&key.namespace).delete(&key.name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(WriteError::new(key, error)),
        }
    }

    /// Asks for a number of replicas, as an autoscaler does. What does not exist yet is scaled when it does.
    pub(super) async fn scale<K: Kept>(&self, key: &ObjectKey, replicas: i32) -> Result<(), WriteError> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let api = self.api::<K>(&key.namespace);
        let asked = api.patch_scale(&key.name, &managed(), &patch).await;
        asked.map(drop).map_err(|error| gone_or(key, error))
    }

    /// Writes the components of a graph, from the one that was seen.
    pub(super) async fn write_components(
        &self,
        graph: &DynamoGraphDeployment,
        components: &[Component],
    ) -> Result<(), WriteError> {
        let key = ObjectKey::of(&graph.metadata);
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": graph.resource_version()},
            "spec": {"components": components},
        }));
        let api = self.api::<DynamoGraphDeployment>(&key.namespace);
        let answer = api.patch(&key.name, &managed(), &patch).await;
        self.answered(answer.map_err(|error| gone_or(&key, error))?);
        Ok(())
    }

    /// Writes a status, from the one that was seen.
    pub(super) async fn write_status<K: Kept>(&self, object: &K, status: &impl Serialize) -> Result<(), WriteError> {
        let key = ObjectKey::of(object.meta());
        let mut written = json!(status);
        let fields = json!(object)["status"].take();
        // A merge leaves alone what it does not name.
        for field in fields.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if written.get(field).is_none() {
                written[field] = Value::Null;
            }
        }
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": object.resource_version()},
            "status": written,
        }));
        let api = self.api::<K>(&key.namespace);
        let answer = api.patch_status(&key.name, &managed(), &patch).await;
        self.answered(answer.map_err(|error| gone_or(&key, error))?);
        Ok(())
    }
}

/// A merge under our name.
fn managed() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// What a failed write to an object that was seen means: one that is gone was deleted meanwhile.
fn gone_or(key: &ObjectKey, error: kube::Error) -> WriteError {
    match error {
        kube::Error::Api(status) if status.code == 404 => WriteError::Outdated(key.clone()),
        error => WriteError::new(key, error),
    }
}

/// Whether the API server refused because the name is another object's by now.
fn is_another(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.any(|cause| cause.field == "metadata.uid")
}
