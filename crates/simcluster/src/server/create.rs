//! Create.

use serde_json::{Value, json};

use super::output::{Document, Reply};
use super::{Call, admission, decode};
use crate::rules::{kinds, metadata};
use crate::status::ApiError;
use crate::store::{Expect, Key};

/// How often a taken generated name is drawn again.
const NAME_DRAWS_MAX: usize = 8;
/// Longest part of a generated name that the client chooses.
const GENERATE_NAME_BYTES: usize = 58;
/// Largest object that is stored, as etcd has it.
const STORED_BYTES_MAX: usize = 3 * 512 * 1024;

pub(crate) async fn create(call: &Call) -> Result<Reply, ApiError> {
    let dry_run = call.query.dry_run("CreateOptions")?;
    let decoded = decode::object(call, "CreateOptions")?;
    let object = create_object(call, decoded.object, dry_run)?;
    Ok(call.reply(201, Document::Value(object)).with_warnings(decoded.warnings))
}

/// Creates an object that has the shape of the request's kind.
pub(crate) fn create_object(call: &Call, object: Value, dry_run: bool) -> Result<Value, ApiError> {
    check_namespace(call, &object)?;
    let generated = metadata::text(&object, "name").is_empty() && !metadata::text(&object, "generateName").is_empty();
    let mut draws = if generated { NAME_DRAWS_MAX } else { 1 };
    loop {
        let mut candidate = object.clone();
        if generated {
            let prefix = metadata::text(&object, "generateName");
            let prefix: String = prefix.chars().take(GENERATE_NAME_BYTES).collect();
            metadata::of(&mut candidate).insert("name".into(), json!(prefix + &call.server.entropy.suffix()));
        }
        prepare(call, &mut candidate)?;
        draws -= 1;
        match store(call, &mut candidate, dry_run) {
            Err(error) if error.reason == "AlreadyExists" && draws > 0 => {}
            result => return result.map(|()| candidate),
        }
    }
}

fn prepare(call: &Call, object: &mut Value) -> Result<(), ApiError> {
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
    kinds::prepare_create(resource, object, call.now);
    admission::create(call, object)?;
    let mut errors = metadata::validate(resource, object);
    errors.extend(kinds::validate(resource, object));
    match errors.is_empty() {
        true => Ok(()),
        false => Err(call.invalid(metadata::text(object, "name"), &errors)),
    }
}

fn store(call: &Call, object: &mut Value, dry_run: bool) -> Result<(), ApiError> {
    check_size(object)?;
    let resource = call.resource();
    let key = Key::new(metadata::text(object, "namespace"), metadata::text(object, "name"));
    let taken = |terminating| ApiError::already_exists(&resource.name, &key.name, terminating);
    let existing = || call.server.store.get(&resource.storage, &key);
    if dry_run {
        return existing().map_or(Ok(()), |entry| Err(taken(metadata::is_terminating(&entry.value()))));
    }
    match call.server.store.put(&resource.storage, &key, Expect::Absent, object) {
        Ok(_) => Ok(()),
        Err(_) => Err(taken(
            existing().is_some_and(|entry| metadata::is_terminating(&entry.value())),
        )),
    }
}

/// The store of a real cluster refuses large objects.
pub(crate) fn check_size(object: &Value) -> Result<(), ApiError> {
    // Only what could be too large is measured.
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let counted = serde_json::to_writer(&mut count, object);
    match counted.is_ok() && count.0 <= STORED_BYTES_MAX {
        true => Ok(()),
        false => Err(ApiError::plain("etcdserver: request is too large")),
    }
}

fn check_namespace(call: &Call, object: &Value) -> Result<(), ApiError> {
    let sent = metadata::text(object, "namespace");
    match sent.is_empty() || Some(sent) == call.place.namespace.as_deref() {
        true => Ok(()),
        false => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}
