//! Between the version in which custom resources are stored and the one that a request works with.
//!
//! ```text
//! store ─ defaults, in the stored version ─ webhook, if the versions differ ─ pruning ─ request
//! request ─ webhook ─ pruning ─ store
//! ```
//!
//! Kinds with one version, and those whose versions differ by name only, pass as the bytes that they are.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::output::Document;
use super::webhook::client::{Expected, NoAnswer, Remote, post};
use super::{Call, Server};
use crate::registry::{Conversion, Resource};
use crate::rules::metadata;
use crate::status::ApiError;
use crate::store::{self, Entry, Expect, Key, ResourceName};

/// How long a webhook may take to convert.
const TIMEOUT: Duration = Duration::from_secs(30);
const EXPECTED: Expected = Expected {
    kind: "ConversionReview",
    api_version: "apiextensions.k8s.io/v1",
};

/// The servers that convert, by kind, each with the configuration that it was read from.
pub(crate) type Converters = std::collections::BTreeMap<ResourceName, (Value, Arc<Remote>)>;

/// A new object has no revision yet, and no past.
pub(crate) const NEW: u64 = u64::MAX;

/// The rules by which an object of this revision must be converted; `None` if it is served as it is stored.
fn rules(resource: &Resource, revision: u64) -> Option<&Conversion> {
    let conversion = resource.conversion.as_deref()?;
    (!conversion.serves_as_stored(revision)).then_some(conversion)
}

/// A stored object as the request works with it.
pub(crate) async fn load(call: &Call, entry: &Entry) -> Result<Value, ApiError> {
    match rules(call.resource(), entry.revision) {
        None => Ok(entry.value()),
        Some(_) => {
            let mut loaded = load_all(call, vec![(entry.revision, entry.bytes.clone())]).await?;
            Ok(loaded.pop().map(Document::into_value).unwrap_or_default())
        }
    }
}

/// Stored objects, each with the revision of its last write, as the request works with them.
pub(crate) async fn load_all(call: &Call, stored: Vec<(u64, Bytes)>) -> Result<Vec<Document>, ApiError> {
    let (resource, version) = (call.resource(), call.version().name.as_str());
    let mut loaded = Vec::with_capacity(stored.len());
    // Those that somebody else must convert, by the version in which they are.
    let mut foreign: std::collections::BTreeMap<&str, Vec<usize>> = std::collections::BTreeMap::new();
    for (revision, bytes) in stored {
        let Some(conversion) = rules(resource, revision) else {
            loaded.push(Document::Stored(bytes));
            continue;
        };
        let mut object = store::decode(&bytes);
        let from = conversion.stored_at(revision);
        if let Some(schema) = resource.schema(from) {
            schema.prune(&mut object);
            schema.default(&mut object);
        }
        if from != version {
            foreign.entry(from).or_default().push(loaded.len());
        }
        loaded.push(Document::Value(object));
    }
    for (from, places) in foreign {
        let objects = places.iter().map(|place| take(&mut loaded[*place])).collect();
        let converted = between(&call.server, resource, objects, (from, version)).await;
        let converted = converted.map_err(ApiError::plain)?;
        for (place, object) in places.into_iter().zip(converted) {
            loaded[place] = Document::Value(object);
        }
    }
    Ok(loaded)
}

fn take(document: &mut Document) -> Value {
    match document {
        Document::Value(value) => std::mem::take(value),
        Document::Stored(bytes) => store::decode(bytes),
    }
}

/// Writes an object in the stored version, over what is there. `None`: somebody else was first.
///
/// Afterwards `object` is what a read would show.
pub(crate) async fn put(
    call: &Call,
    key: &Key,
    over: Option<&Entry>,
    object: &mut Value,
) -> Result<Option<Entry>, ApiError> {
    let (store, resource) = (&call.server.store, call.resource());
    let expect = over.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
    let revision = over.map_or(NEW, |entry| entry.revision);
    let Some(conversion) = rules(resource, revision) else {
        return Ok(store.put(&resource.storage, key, expect, object).ok());
    };
    let versions = (call.version().name.as_str(), conversion.stored.as_str());
    let kept = between(&call.server, resource, vec![object.clone()], versions).await;
    let mut kept = kept.map_err(ApiError::plain)?.pop().unwrap_or_default();
    if let Some(unchanged) = over.filter(|entry| entry.value() == kept) {
        return Ok(Some(unchanged.clone()));
    }
    let Ok(entry) = store.put(&resource.storage, key, expect, &mut kept) else {
        return Ok(None);
    };
    *object = load(call, &entry).await?;
    Ok(Some(entry))
}

/// Whether an object that was last written at this revision is served as it is stored.
pub(crate) fn is_served_as_stored(call: &Call, revision: u64) -> bool {
    rules(call.resource(), revision).is_none()
}

/// Objects of one version in another one, pruned by its schema; else what went wrong.
pub(crate) async fn between(
    server: &Server,
    resource: &Resource,
    mut objects: Vec<Value>,
    (from, to): (&str, &str),
) -> Result<Vec<Value>, String> {
    let webhook = resource
        .conversion
        .as_ref()
        .and_then(|conversion| conversion.webhook.as_ref());
    if let Some(webhook) = webhook.filter(|_| from != to && !objects.is_empty()) {
        objects = ask(server, resource, webhook, objects, (from, to)).await?;
    }
    if let Some(schema) = resource.schema(to).filter(|_| from != to) {
        for object in &mut objects {
            schema.prune(object);
        }
    }
    Ok(objects)
}

async fn ask(
    server: &Server,
    resource: &Resource,
    webhook: &Value,
    objects: Vec<Value>,
    (from, to): (&str, &str),
) -> Result<Vec<Value>, String> {
    let (kind, wanted) = (&resource.kind, resource.api_version(to));
    let subject = format!("conversion webhook for {}, Kind={kind}", resource.api_version(from));
    let uid = server.entropy.uid();
    let sent: Vec<Value> = objects.iter().map(|object| shown(resource, object, from)).collect();
    let request = json!({"uid": uid, "desiredAPIVersion": wanted, "objects": sent});
    let response = json!({"uid": "", "convertedObjects": null, "result": {"metadata": {}}});
    let review = json!({"kind": EXPECTED.kind, "apiVersion": EXPECTED.api_version, "request": request,
                        "response": response});
    let remote = server.converter(resource, webhook);
    let answer = post(server, &resource.name.to_string(), &remote, &review, EXPECTED).await;
    let answer = answer.map_err(|error| match error {
        NoAnswer::Client(why) | NoAnswer::Call(why) => format!("{subject} failed: {why}"),
    })?;
    let converted = converted(&answer, &uid).map_err(|why| format!("{subject} failed: {why}"))?;
    if converted.len() != objects.len() {
        let (got, expected) = (converted.len(), objects.len());
        return Err(format!("{subject} returned {got} objects, expected {expected}"));
    }
    let pairs = objects.into_iter().zip(converted).enumerate();
    pairs
        .map(|(i, (object, converted))| {
            let whole = check_kind(&converted, kind, &wanted).map_err(|why| format!("object at index {i}: {why}"));
            let checked = whole.and_then(|()| check_same(&object, &converted));
            checked.map_err(|why| format!("{subject} returned invalid {why}"))?;
            restored(object, converted).map_err(|why| format!("{subject} returned invalid metadata: {why}"))
        })
        .collect()
}

/// An object as a webhook sees it: without a revision, which it does not have in the store.
fn shown(resource: &Resource, object: &Value, version: &str) -> Value {
    let mut shown = object.clone();
    metadata::of(&mut shown).remove("resourceVersion");
    shown["apiVersion"] = json!(resource.api_version(version));
    shown["kind"] = json!(resource.kind);
    shown
}

/// The objects of an answer; else why there are none.
fn converted(answer: &Value, uid: &str) -> Result<Vec<Value>, String> {
    let response = &answer["response"];
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let echoed = response["uid"].as_str().unwrap_or_default();
    if echoed != uid {
        return Err(format!("expected response.uid={uid:?}, got {echoed:?}"));
    }
    let text = |field: &str| response["result"][field].as_str().unwrap_or_default();
    match (text("status"), text("message")) {
        ("Success", _) => Ok(response["convertedObjects"].as_array().cloned().unwrap_or_default()),
        (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, why) => Err(why.to_owned()),
    }
}

fn check_kind(converted: &Value, kind: &str, api_version: &str) -> Result<(), String> {
    let text = |field: &str| converted[field].as_str().unwrap_or_default();
    let got = (text("apiVersion"), text("kind"));
    match got {
        (version, _) if version != api_version => Err(format!(
            "invalid groupVersion (expected {api_version}, received {version})"
        )),
        (_, other) if other != kind => Err(format!("invalid kind (expected {kind}, received {other})")),
        _ => Ok(()),
    }
}

/// Whose an object is, no conversion changes.
fn check_same(object: &Value, converted: &Value) -> Result<(), String> {
    for (field, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (was, is) = (metadata::text(object, field), metadata::text(converted, field));
        if was != is {
            return Err(format!("object: must have the same {word}: {was} != {is}"));
        }
    }
    Ok(())
}

/// The converted object with the metadata that it had: a webhook may change labels and annotations only.
fn restored(mut object: Value, mut converted: Value) -> Result<Value, String> {
    let mut kept = match object["metadata"].take() {
        Value::Object(kept) => kept,
        _ => Map::new(),
    };
    let told = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(told)) => told,
        Some(other) => {
            let kind = go_type(other);
            return Err(format!("invalid metadata of type {kind} in converted object"));
        }
    };
    for field in ["labels", "annotations"] {
        match told.get(field) {
            None | Some(Value::Null) => drop(kept.remove(field)),
            Some(Value::Object(texts)) => {
                if let Some((key, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
                    let kind = go_type(value);
                    return Err(format!(
                        "metadata.{field}[{key}] must be a string, but is {kind} in converted object"
                    ));
                }
                kept.insert(field.to_owned(), json!(texts));
            }
            Some(other) => {
                let kind = go_type(other);
                return Err(format!("invalid metadata.{field} of type {kind} in converted object"));
            }
        }
    }
    if let Some(fields) = converted.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
        fields.insert("metadata".to_owned(), Value::Object(kept));
    }
    Ok(converted)
}

/// What Go calls the type of a decoded value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

impl Server {
    /// Who converts a kind, read once for each configuration.
    fn converter(&self, resource: &Resource, webhook: &Value) -> Arc<Remote> {
        let mut converters = self.converters.lock().unwrap_or_else(PoisonError::into_inner);
        match converters.get(&resource.name) {
            Some((known, remote)) if known == webhook => remote.clone(),
            _ => {
                let remote = Arc::new(Remote::parse(&webhook["clientConfig"], TIMEOUT, self.clock.clone()));
                converters.insert(resource.name.clone(), (webhook.clone(), remote.clone()));
                remote
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_changes_labels_and_annotations_and_nothing_else_of_the_metadata() {
        let object = json!({"metadata": {"name": "a", "labels": {"l": "1"}, "generation": 3}, "spec": {"old": 1}});
        let answer = json!({"apiVersion": "g/v2", "kind": "K", "spec": {"new": 1},
                            "metadata": {"name": "a", "annotations": {"a": "b"}, "generation": 9}});
        let whole = restored(object.clone(), answer).unwrap();
        let metadata = json!({"name": "a", "annotations": {"a": "b"}, "generation": 3});
        assert_eq!(whole, json!({"metadata": metadata, "spec": {"new": 1}}));
        let bad = restored(object, json!({"metadata": {"labels": {"l": 1}}})).unwrap_err();
        assert_eq!(
            bad,
            "metadata.labels[l] must be a string, but is int64 in converted object"
        );
    }

    #[test]
    fn an_answer_without_objects_says_why() {
        let failure = |response: Value| converted(&json!({"response": response}), "u").unwrap_err();
        assert_eq!(failure(Value::Null), "no response provided");
        assert_eq!(failure(json!({"uid": "x"})), "expected response.uid=\"u\", got \"x\"");
        let silent = failure(json!({"uid": "u", "result": {"status": "Failure"}}));
        assert_eq!(silent, "response.result.status was 'Failure', not 'Success'");
        let told = failure(json!({"uid": "u", "result": {"status": "Failure", "message": "no"}}));
        assert_eq!(told, "no");
    }
}
