//! Every request that changes something. Objects are applied: several write to them, and each keeps to its own fields.
//!
//! What is there under a name that is not the graph's is never touched. Nothing is sent again by itself: a request whose
//! answer was lost may have been carried out, so the next look decides with what is seen then.

use std::time::Duration;

use grove_api::dynamo::words;
use grove_api::{DynamoGraphDeployment, DynamoGraphDeploymentStatus};
use grove_runtime::{ObjectKey, Outcome, Stamp};
use grove_workload::diff::{self, Change, Content};
use grove_workload::meta::uid;
use grove_workload::names::is_owned_by;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::kinds::{Kept, read};
use super::{FIELD_MANAGER, Shell};
use crate::translate::hash;

/// How long a look waits for what somebody else wrote.
const OUTDATED_WAIT: Duration = Duration::from_millis(100);

/// Why a write was not made, or is not known to have been.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("{0} was changed by somebody else meanwhile")]
    Outdated(ObjectKey),
    #[error("{kind} {key} already exists and belongs to {holder}; rename or delete it")]
    Taken {
        kind: String,
        key: ObjectKey,
        holder: String,
    },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

impl WriteError {
    fn new(key: &ObjectKey, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 422 => Self::Refused(status.message.clone()),
            kube::Error::Api(status) if status.code == 409 => Self::Outdated(key.clone()),
            kube::Error::Api(status) => Self::Failed(format!("{key}: {}", status.message)),
            error => Self::Failed(format!("{key}: {error}")),
        }
    }

    /// Whether it stays until somebody does something about it.
    pub(super) fn is_for_people(&self) -> bool {
        matches!(self, Self::Taken { .. } | Self::Refused(_))
    }
}

/// How a look ended in which these writes failed.
pub(super) fn outcome(errors: &[WriteError]) -> Outcome {
    let ends = errors.iter().map(|error| match error {
        WriteError::Refused(_) => Outcome::Settled,
        WriteError::Outdated(_) => Outcome::LookAgain(OUTDATED_WAIT),
        WriteError::Taken { .. } | WriteError::Failed(_) => Outcome::Failed(error.to_string()),
    });
    ends.fold(Outcome::Settled, |worst, end| match worst {
        Outcome::Failed(_) => worst,
        _ => worst.and(end),
    })
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
            let text = serde_json::to_string(object).unwrap_or_default();
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
                Change::Update(object) => self.apply(object).await,
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
            Err(kube::Error::Api(status)) if status.code == 404 => self.apply(object).await,
            Err(error) => Err(WriteError::new(&key, error)),
            // One that is on its way out frees the name soon, whosever it is.
            Ok(found) if found.meta().deletion_timestamp.is_some() => Err(WriteError::Outdated(key)),
            Ok(found) if is_owned_by(found.meta(), uid(graph)) => self.apply(object).await,
            Ok(found) => Err(WriteError::Taken {
                kind: K::kind(&()).into_owned(),
                holder: holder(&found),
                key,
            }),
        }
    }

    async fn apply<K: Kept>(&self, mut object: K) -> Result<(), WriteError> {
        let key = ObjectKey::of(object.meta());
        object.meta_mut().resource_version = None;
        let mut patch = serde_json::to_value(&object).map_err(|error| WriteError::Failed(format!("{key}: {error}")))?;
        patch["apiVersion"] = json!(K::api_version(&()));
        patch["kind"] = json!(K::kind(&()));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let answer = self
            .api::<K>(&key.namespace)
            .patch(&key.name, &params, &Patch::Apply(patch))
            .await;
        self.answered(answer.map_err(|error| WriteError::new(&key, error))?);
        Ok(())
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
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            Err(error) => Err(WriteError::new(key, error)),
        }
    }

    /// Asks for a number of replicas, as an autoscaler does. What does not exist yet is scaled when it does.
    pub(super) async fn scale<K: Kept>(&self, key: &ObjectKey, replicas: i32) -> Result<(), WriteError> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match self
            .api::<K>(&key.namespace)
            .patch_scale(&key.name, &params, &patch)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(WriteError::Outdated(key.clone())),
            Err(error) => Err(WriteError::new(key, error)),
        }
    }

    /// Writes a status, from the one that was seen.
    pub(super) async fn write_status(
        &self,
        graph: &DynamoGraphDeployment,
        status: &DynamoGraphDeploymentStatus,
    ) -> Result<(), WriteError> {
        let key = ObjectKey::of(&graph.metadata);
        let mut written = json!(status);
        let fields = json!(graph.status);
        // A merge leaves alone what it does not name.
        for field in fields.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if written.get(field).is_none() {
                written[field] = Value::Null;
            }
        }
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": graph.resource_version()},
            "status": written,
        }));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = self.api::<DynamoGraphDeployment>(&key.namespace);
        match api.patch_status(&key.name, &params, &patch).await {
            Ok(answer) => {
                self.answered(answer);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Err(WriteError::Outdated(key)),
            Err(error) => Err(WriteError::new(&key, error)),
        }
    }
}

fn holder<K: Resource>(object: &K) -> String {
    let mut owners = object
        .owner_references()
        .iter()
        .filter(|owner| owner.controller == Some(true));
    owners
        .next()
        .map_or_else(|| "nobody".to_owned(), |owner| format!("{} {}", owner.kind, owner.name))
}
