//! Writes. Each is sent once, with what must hold for it to be right, and its answer goes into the store.
//!
//! Nothing is sent twice by itself: a request whose answer was lost may have been carried out, so the next look decides
//! with what is seen then. Names are computed, so a create that is repeated finds its own object.

use std::future::Future;

use futures::stream::{self, StreamExt};
use grove_runtime::{Notice, ObjectKey, Outcome, Stamp};
pub(crate) use grove_runtime::{WriteError, outcome};
use grove_workload::diff::{self, Content, holder};
use grove_workload::names::is_owned_by;
use grove_workload::status::Failure;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::object::HasStatus;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::SemaphorePermit;

use crate::affected::Affects;
use crate::key::Key;
use crate::kinds::Kind;
use crate::merge::{merge_difference, merged};
use crate::shell::Shell;

/// The name under which fields are written.
pub(crate) const FIELD_MANAGER: &str = "grove-operator";
/// The most writes that one look has under way at once.
const PARALLEL_MAX: usize = 32;
/// The most errors of one kind that are told: the first ones tell what is wrong.
const FAILURES_SHOWN_MAX: usize = 3;

/// The status of a kind.
pub(crate) type StatusOf<V> = <<V as Kind>::Object as HasStatus>::Status;

/// A status as it should be, and what goes with it.
#[derive(Debug)]
pub(crate) struct Report<S> {
    pub(crate) status: S,
    /// Whether something can go on as soon as the status is there: then it waits for no burst.
    pub(crate) is_waited_for: bool,
    /// What there is to tell when it is written.
    pub(crate) notices: Vec<Notice>,
}

impl Shell {
    fn api<V: Kind>(&self, namespace: &str) -> Api<V::Object> {
        V::api(self.client.clone(), namespace)
    }

    /// Reads an object as the API server has it now: what a watch has not brought yet is seen from here on.
    pub(crate) async fn fetch<V: Affects>(&self, key: &ObjectKey) -> Result<(), WriteError> {
        let _permit = self.permit().await;
        match self.api::<V>(&key.namespace).get(&key.name).await {
            Ok(object) => self.found::<V>(object),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(WriteError::new(key, error)),
        }
        Ok(())
    }

    /// Takes an object as the API server answered a write.
    fn answered<V: Affects>(&self, object: V::Object) {
        let (key, stamp) = (ObjectKey::of(object.meta()), Stamp::of(object.meta()));
        if let Some(change) = V::store(&self.view).put_answer(key, stamp, V::read(object)) {
            self.seen(&change);
        }
    }

    /// Takes an object that was read: it is there, whatever the watch has told or failed to tell.
    fn found<V: Affects>(&self, object: V::Object) {
        let (key, stamp) = (ObjectKey::of(object.meta()), Stamp::of(object.meta()));
        if let Some(change) = V::store(&self.view).put(key, stamp, V::read(object)) {
            self.seen(&change);
        }
    }

    /// Waits until there is room for one more request. Whoever holds a permit asks for no other: all of them could wait.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.in_flight.acquire().await.ok()
    }

    /// Sends requests, one after the other, when there is room for one more.
    pub(crate) async fn in_turn<T>(&self, requests: impl Future<Output = T>) -> T {
        let _permit = self.permit().await;
        requests.await
    }

    /// Makes an object. If it exists already and is the owner's, that is as good.
    pub(crate) async fn create<V: Affects>(&self, object: &V::Object) -> Result<(), WriteError> {
        let _permit = self.permit().await;
        let key = ObjectKey::of(object.meta());
        let api = self.api::<V>(&key.namespace);
        match api.create(&creation(), object).await {
            Ok(made) => {
                self.answered::<V>(made);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => self.adopt::<V>(object).await,
            Err(error) => Err(WriteError::new(&key, error)),
        }
    }

    /// Looks at the object that already has the name.
    async fn adopt<V: Affects>(&self, wanted: &V::Object) -> Result<(), WriteError> {
        let key = ObjectKey::of(wanted.meta());
        let found = self.api::<V>(&key.namespace).get(&key.name).await;
        let found = found.map_err(|error| match error {
            // It went away again meanwhile.
            kube::Error::Api(status) if status.code == 404 => WriteError::Outdated(key.clone()),
            error => WriteError::new(&key, error),
        })?;
        let owners = wanted.meta().owner_references.iter().flatten();
        let is_ours = owners.into_iter().any(|owner| is_owned_by(found.meta(), &owner.uid));
        // One that is on its way out frees the name soon, whosever it is.
        if found.meta().deletion_timestamp.is_some() {
            self.answered::<V>(found);
            return Err(WriteError::Outdated(key));
        }
        if is_ours {
            return self.label_again::<V>(found, wanted).await;
        }
        Err(WriteError::Taken {
            kind: kind_of::<V>(),
            key,
            holder: holder(&found),
        })
    }

    /// Gives an object of ours its labels back. Without them the watch does not show it, so it looked like missing.
    async fn label_again<V: Affects>(&self, found: V::Object, wanted: &V::Object) -> Result<(), WriteError> {
        let key = ObjectKey::of(found.meta());
        let unreadable = |error: serde_json::Error| WriteError::Failed(format!("{key}: {error}"));
        let stored = serde_json::to_value(&found).map_err(unreadable)?;
        let mended = merged(
            stored.clone(),
            serde_json::to_value(wanted).map_err(unreadable)?,
            Content::Fixed,
        );
        let is_whole = |map: &str| mended["metadata"].get(map) == stored["metadata"].get(map);
        if is_whole("labels") && is_whole("annotations") {
            self.found::<V>(found);
            return Ok(());
        }
        let patch = json!({"metadata": {
            "labels": mended["metadata"]["labels"],
            "annotations": mended["metadata"]["annotations"],
            "resourceVersion": found.resource_version(),
        }});
        let api = self.api::<V>(&key.namespace);
        let answer = api.patch(&key.name, &patching(), &Patch::Merge(patch)).await;
        self.merged_answer::<V>(&key, answer)
    }

    /// Makes the stored object be `wanted`; what others wrote into its metadata stays.
    async fn replace<V>(&self, wanted: &V::Object, content: Content) -> Result<(), WriteError>
    where
        V: Affects + Clone + Into<V::Object>,
    {
        let _permit = self.permit().await;
        let key = ObjectKey::of(wanted.meta());
        let Some(stored) = V::store(&self.view).get(&key) else {
            return Err(WriteError::Outdated(key));
        };
        let stored: V::Object = V::clone(&stored).into();
        let unreadable = |error: serde_json::Error| WriteError::Failed(format!("{key}: {error}"));
        let merged = merged(
            serde_json::to_value(&stored).map_err(unreadable)?,
            serde_json::to_value(wanted).map_err(unreadable)?,
            content,
        );
        let object: V::Object = serde_json::from_value(merged).map_err(unreadable)?;
        let api = self.api::<V>(&key.namespace);
        let answer = api.replace(&key.name, &creation(), &object).await;
        self.answered::<V>(answer.map_err(|error| WriteError::new(&key, error))?);
        Ok(())
    }

    /// Deletes the object with this UID; one that is gone already is as good.
    pub(crate) async fn delete<V: Affects>(&self, key: &ObjectKey, uid: &str) -> Result<(), WriteError> {
        self.delete_if::<V>(key, (uid, None)).await
    }

    /// The same, if it is still as it was seen.
    pub(crate) async fn delete_as_seen<V: Affects>(&self, key: &ObjectKey, uid: &str) -> Result<(), WriteError> {
        let seen = V::store(&self.view).stamp(key).filter(|stamp| stamp.uid == uid);
        match seen {
            Some(stamp) => self.delete_if::<V>(key, (uid, Some(stamp.version.to_string()))).await,
            None => Err(WriteError::Outdated(key.clone())),
        }
    }

    async fn delete_if<V: Affects>(
        &self,
        key: &ObjectKey,
        (uid, resource_version): (&str, Option<String>),
    ) -> Result<(), WriteError> {
        let _permit = self.permit().await;
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version,
            }),
            ..DeleteParams::background()
        };
        match self.api::<V>(&key.namespace).delete(&key.name, &parameters).await {
            Ok(either) => {
                match either.left() {
                    Some(leaving) if leaving.meta().deletion_timestamp.is_some() => self.answered::<V>(leaving),
                    _ => self.gone::<V>(key, uid),
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.gone::<V>(key, uid);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => self.check_gone::<V>(key, uid).await,
            Err(error) => Err(WriteError::new(key, error)),
        }
    }

    /// Finds out what a deletion was refused for: the name may be another object's by now, so that ours is gone. But a
    /// webhook refuses with any code that it likes, and what is taken for gone is never seen again.
    async fn check_gone<V: Affects>(&self, key: &ObjectKey, uid: &str) -> Result<(), WriteError> {
        let found = self.api::<V>(&key.namespace).get_opt(&key.name).await;
        let found = found.map_err(|error| WriteError::new(key, error))?;
        if found.is_some_and(|found| found.meta().uid.as_deref() == Some(uid)) {
            return Err(WriteError::Outdated(key.clone()));
        }
        self.gone::<V>(key, uid);
        Ok(())
    }

    fn gone<V: Affects>(&self, key: &ObjectKey, uid: &str) {
        if let Some(change) = V::store(&self.view).forget(key, uid) {
            self.seen(&change);
        }
    }

    /// Changes an object by a merge patch that holds for the revision that was seen.
    pub(crate) async fn merge<V: Affects>(&self, seen: &V::Object, mut patch: Value) -> Result<(), WriteError> {
        let _permit = self.permit().await;
        let key = ObjectKey::of(seen.meta());
        patch["metadata"]["resourceVersion"] = json!(seen.resource_version());
        let answer = self
            .api::<V>(&key.namespace)
            .patch(&key.name, &patching(), &Patch::Merge(patch))
            .await;
        self.merged_answer::<V>(&key, answer)
    }

    /// Holds an object in place: puts our finalizer on it. What is written is seen at once, and looked at next.
    pub(crate) async fn hold<V: Affects>(&self, object: &V::Object, ours: &str) -> Outcome {
        let all: Vec<&str> = object.finalizers().iter().map(String::as_str).chain([ours]).collect();
        let result = self.merge::<V>(object, json!({"metadata": {"finalizers": all}})).await;
        outcome(result.err().as_slice())
    }

    /// Lets go of an object that is being deleted: takes our finalizer off it.
    pub(crate) async fn release<V: Affects>(&self, leaving: &V::Object, ours: &str) -> Outcome {
        let finalizers = leaving.finalizers();
        if !finalizers.iter().any(|finalizer| finalizer == ours) {
            return Outcome::Settled;
        }
        let kept: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != ours).collect();
        let patch = json!({"metadata": {"finalizers": kept}});
        let result = self.merge::<V>(leaving, patch).await;
        outcome(result.err().as_slice())
    }

    /// Writes the status of what `key` looks at, unless it is stored already or waits for its burst to end. What there is
    /// to tell is told with it.
    pub(crate) async fn keep_status<V>(&self, key: &Key, seen: &V::Object, report: Report<StatusOf<V>>) -> Outcome
    where
        V: Affects,
        V::Object: HasStatus<Status: PartialEq + Serialize>,
    {
        if seen.status() == Some(&report.status) {
            self.status_settled(key);
            return Outcome::Settled;
        }
        if let Some(wait) = self.status_wait(key, report.is_waited_for) {
            return Outcome::LookAgain(wait);
        }
        let result = self.write_status::<V>(seen, &report.status).await;
        if result.is_ok() {
            self.tell(report.notices);
        }
        outcome(result.err().as_slice())
    }

    /// Writes a status, from the one that was seen.
    pub(crate) async fn write_status<V>(&self, seen: &V::Object, status: &StatusOf<V>) -> Result<(), WriteError>
    where
        V: Affects,
        V::Object: HasStatus<Status: Serialize>,
    {
        let difference = merge_difference(&json!(seen.status()), &json!(status));
        // Times differ by less than the API tells: there is nothing to write.
        if difference.as_object().is_some_and(Map::is_empty) {
            return Ok(());
        }
        let _permit = self.permit().await;
        let key = ObjectKey::of(seen.meta());
        let patch = json!({
            "metadata": {"resourceVersion": seen.resource_version()},
            "status": difference,
        });
        let api = self.api::<V>(&key.namespace);
        let answer = api.patch_status(&key.name, &patching(), &Patch::Merge(patch)).await;
        self.merged_answer::<V>(&key, answer)
    }

    fn merged_answer<V: Affects>(
        &self,
        key: &ObjectKey,
        answer: Result<V::Object, kube::Error>,
    ) -> Result<(), WriteError> {
        match answer {
            Ok(object) => {
                self.answered::<V>(object);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Err(WriteError::Outdated(key.clone())),
            Err(error) => Err(WriteError::new(key, error)),
        }
    }

    /// Changes an object by a JSON patch, which tests itself what must hold.
    pub(crate) async fn json_patch<V: Affects>(&self, key: &ObjectKey, patch: Value) -> Result<(), WriteError> {
        let _permit = self.permit().await;
        let patch = serde_json::from_value(patch).map_err(|error| WriteError::Failed(error.to_string()))?;
        let patch = Patch::<()>::Json(patch);
        let answer = self
            .api::<V>(&key.namespace)
            .patch(&key.name, &patching(), &patch)
            .await;
        match answer {
            // A test that does not hold is answered with 422: what was seen is out of date.
            Err(kube::Error::Api(status)) if status.code == 422 => Err(WriteError::Outdated(key.clone())),
            answer => self.merged_answer::<V>(key, answer),
        }
    }

    /// Carries out changes, several at once, and returns what went wrong.
    pub(crate) async fn carry_out<V>(
        &self,
        namespace: &str,
        changes: Vec<diff::Change<V>>,
        content: Content,
    ) -> Vec<WriteError>
    where
        V: Affects + Kind<Object = V> + Clone,
    {
        let write = |change: diff::Change<V>| async move {
            match change {
                diff::Change::Create(object) => self.create::<V>(&object).await,
                diff::Change::Update(object) => self.replace::<V>(&object, content).await,
                diff::Change::Delete { name, uid } => self.delete::<V>(&ObjectKey::new(namespace, name), &uid).await,
                diff::Change::Conflict { name, holder } => Err(WriteError::Taken {
                    kind: kind_of::<V>(),
                    key: ObjectKey::new(namespace, name),
                    holder,
                }),
            }
        };
        in_parallel(changes, write).await
    }
}

fn kind_of<V: Kind>() -> String {
    V::Object::kind(&()).into_owned()
}

/// Does the same for many, several at once, and returns what went wrong.
pub(crate) async fn in_parallel<T, W>(items: Vec<T>, write: impl Fn(T) -> W) -> Vec<WriteError>
where
    W: Future<Output = Result<(), WriteError>>,
{
    let writes = stream::iter(items).map(write).buffer_unordered(PARALLEL_MAX);
    writes.filter_map(|result| async { result.err() }).collect().await
}

/// What a user reads about writes that failed. Being outdated is no failure: the next look is on its way.
pub(crate) fn failures(code: &str, errors: &[WriteError]) -> Vec<Failure> {
    let told = errors.iter().filter(|error| !matches!(error, WriteError::Outdated(_)));
    let mut texts: Vec<String> = told.map(WriteError::to_string).collect();
    texts.sort();
    texts.dedup();
    let more = texts.len().saturating_sub(FAILURES_SHOWN_MAX);
    texts.truncate(FAILURES_SHOWN_MAX);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    let failure = |description| Failure {
        code: code.to_owned(),
        description,
    };
    texts.into_iter().map(failure).collect()
}

/// How objects are written whole.
pub(crate) fn creation() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// How objects are patched.
pub(crate) fn patching() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
