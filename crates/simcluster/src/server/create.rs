//! Create.

use serde_json::{Value, json};

use super::output::{Document, Reply};
use super::webhook::{self, Operation};
use super::{Call, admission, apply, convert, custom, decode, escalation, quota};
use crate::rules::{kinds, metadata};
use crate::status::ApiError;
use crate::store::Key;

/// How often a taken generated name is drawn again.
const NAME_DRAWS_MAX: usize = 8;
/// Longest part of a generated name that the client chooses.
const GENERATE_NAME_BYTES: usize = 58;
/// Deepest object that is stored; the decoder reads 127 levels.
const NESTING_MAX: usize = 120;
/// Largest object that is stored, as etcd has it.
const STORED_BYTES_MAX: usize = 3 * 512 * 1024;

pub(crate) async fn create(call: &Call) -> Result<Reply, ApiError> {
    let dry_run = call.query.dry_run("CreateOptions")?;
    let decoded = decode::object(call, "CreateOptions")?;
    let mut warnings = decoded.warnings;
    warnings.extend(metadata::warnings(call.resource(), None, &decoded.object));
    let made = create_object(call, decoded.object, dry_run).await;
    let reply = made.map(|made| call.reply(201, made));
    Ok(reply
        .unwrap_or_else(|error| Reply::error(&error))
        .with_warnings(warnings))
}

/// Creates an object that has the shape of the request's kind.
pub(crate) async fn create_object(call: &Call, mut object: Value, dry_run: bool) -> Result<Document, ApiError> {
    check_namespace(call, &object)?;
    let prefix = metadata::text(&object, "generateName");
    if !metadata::text(&object, "name").is_empty() || prefix.is_empty() {
        prepare(call, &mut object, dry_run).await?;
        return store(call, object, dry_run).await;
    }
    let prefix: String = prefix.chars().take(GENERATE_NAME_BYTES).collect();
    let mut draws = NAME_DRAWS_MAX;
    loop {
        let mut candidate = object.clone();
        let name = format!("{prefix}{}", call.server.entropy.suffix());
        metadata::of(&mut candidate).insert("name".into(), json!(name));
        prepare(call, &mut candidate, dry_run).await?;
        draws -= 1;
        match store(call, candidate, dry_run).await {
            Err(error) if error.reason == "AlreadyExists" && draws > 0 => {}
            result => return result,
        }
    }
}

async fn prepare(call: &Call, object: &mut Value, dry_run: bool) -> Result<(), ApiError> {
    let resource = call.resource();
    if !metadata::text(object, "resourceVersion").is_empty() {
        return Err(ApiError::plain(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if let Some(namespace) = &call.place.namespace {
        metadata::of(object).insert("namespace".into(), json!(namespace));
    }
    metadata::prepare_create(resource, object, call.server.entropy.uid(), call.now);
    kinds::default(resource, object);
    custom::default(call, object);
    apply::track_new(call, object);
    admission::create(call, object)?;
    let options = webhook::options(call, Operation::Create, dry_run);
    let again = |object: &mut Value| admission::create(call, object);
    if let Some(mutated) = webhook::mutate(call, webhook::creation(object, &options, dry_run), again).await? {
        *object = mutated;
    }
    escalation::check(call, None, object)?;
    kinds::prepare_create(resource, object, call.now);
    let mut errors = metadata::validate(resource, object);
    errors.extend(kinds::validate(resource, object));
    errors.extend(custom::validate(call, object, None).errors);
    if !errors.is_empty() {
        return Err(call.invalid(metadata::text(object, "name"), &errors));
    }
    call.warn(&kinds::warnings(resource, object));
    quota::check_limits(call, object)?;
    webhook::validate(call, webhook::creation(object, &options, dry_run)).await?;
    quota::charge(call, object, None, dry_run)
}

async fn store(call: &Call, mut object: Value, dry_run: bool) -> Result<Document, ApiError> {
    check_size(&object, call.body.bytes.len())?;
    let resource = call.resource();
    let key = Key::new(metadata::text(&object, "namespace"), metadata::text(&object, "name"));
    let taken = |terminating| ApiError::already_exists(&resource.name, &key.name, terminating);
    let existing = || call.server.store.get(&resource.storage, &key);
    if dry_run {
        return match existing() {
            Some(entry) => Err(taken(metadata::is_terminating(&entry.value()))),
            None => Ok(Document::Value(object)),
        };
    }
    match convert::put(call, &key, None, &mut object).await? {
        Some(entry) if convert::is_served_as_stored(call, convert::NEW) => Ok(Document::Stored(entry.bytes)),
        Some(_) => Ok(Document::Value(object)),
        None => Err(taken(
            existing().is_some_and(|entry| metadata::is_terminating(&entry.value())),
        )),
    }
}

/// The store of a real cluster refuses large objects. Only an object made of large parts (`parts_bytes`: the request,
/// and what was stored before) is measured; what the server adds is small. One that is nested deeper than it could be
/// read again is refused here.
pub(crate) fn check_size(object: &Value, parts_bytes: usize) -> Result<(), ApiError> {
    if !is_nested_within(object, NESTING_MAX) {
        return Err(ApiError::bad_request(format!(
            "the object is nested deeper than {NESTING_MAX} levels"
        )));
    }
    if parts_bytes < STORED_BYTES_MAX / 2 || object.to_string().len() <= STORED_BYTES_MAX {
        return Ok(());
    }
    Err(ApiError::plain("etcdserver: request is too large"))
}

fn is_nested_within(value: &Value, levels: usize) -> bool {
    let inner = |value: &Value| levels > 0 && is_nested_within(value, levels - 1);
    match value {
        Value::Array(items) => items.iter().all(inner),
        Value::Object(fields) => fields.values().all(inner),
        _ => true,
    }
}

pub(crate) fn check_namespace(call: &Call, object: &Value) -> Result<(), ApiError> {
    let sent = metadata::text(object, "namespace");
    match sent.is_empty() || Some(sent) == call.place.namespace.as_deref() {
        true => Ok(()),
        false => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}
