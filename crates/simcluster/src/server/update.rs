//! Update and patch, of an object or of its status.

use serde_json::{Value, json};

use super::create::{check_namespace, check_size, create_object};
use super::decode::{self, Source};
use super::media::{APPLY_PATCH, media_type};
use super::output::{Document, Reply};
use super::patch::Patch;
use super::webhook::{self, Operation, Write};
use super::{Call, admission, apply, convert, custom, escalation, quota, scale};
use crate::registry::{Form, Subresource};
use crate::rules::{kinds, metadata};
use crate::status::{ApiError, FieldError};
use crate::store::Entry;

/// How often a write starts again because another one came first.
const ATTEMPTS_MAX: usize = 64;

pub(crate) async fn put(call: &Call) -> Result<Reply, ApiError> {
    let dry_run = call.query.dry_run("UpdateOptions")?;
    let decoded = decode::object(call, "UpdateOptions")?;
    let sent = decoded.object;
    let name = metadata::text(&sent, "name");
    check_place(call, &sent)?;
    let exists = call.server.store.get(&call.resource().storage, &call.key()).is_some();
    if !exists && call.resource().traits.put_creates && call.place.subresource.is_none() {
        return Ok(put_new(call, sent, dry_run)
            .await
            .unwrap_or_else(|error| Reply::error(&error))
            .with_warnings(decoded.warnings));
    }
    if call.resource().traits.locked_update && metadata::text(&sent, "resourceVersion").is_empty() && exists {
        let error = FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
        let error = ApiError::invalid(
            &call.resource().name.group,
            &call.resource().name.plural,
            name,
            &[error],
        );
        return Ok(Reply::error(&error).with_warnings(decoded.warnings));
    }
    let written = rewrite(call, dry_run, |old| {
        check_uid(call, old, &sent)?;
        Ok(sent.clone())
    })
    .await;
    Ok(told(call, written, decoded.warnings))
}

/// Creates what a PUT found missing. The revision that it names is of no matter; a dry run shows it all the same.
async fn put_new(call: &Call, mut sent: Value, dry_run: bool) -> Result<Reply, ApiError> {
    let named = metadata::of(&mut sent).remove("resourceVersion");
    let made = create_object(call, sent, dry_run).await?;
    Ok(match (made, named) {
        (Document::Value(mut object), Some(named)) => {
            metadata::of(&mut object).insert("resourceVersion".to_owned(), named);
            call.reply(201, Document::Value(object))
        }
        (made, _) => call.reply(201, made),
    })
}

/// An object is written where its name and namespace say that it is.
pub(crate) fn check_place(call: &Call, object: &Value) -> Result<(), ApiError> {
    check_namespace(call, object)?;
    let (name, place) = (metadata::text(object, "name"), call.name());
    match name {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({place} based on URL) was undeterminable: name must be provided"
        ))),
        name if name != place => Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({place})"
        ))),
        _ => Ok(()),
    }
}

/// A PUT for another object of the same name is a conflict, not a change of the uid.
pub(crate) fn check_uid(call: &Call, old: &Value, sent: &Value) -> Result<(), ApiError> {
    let (sent, stored) = (metadata::text(sent, "uid"), metadata::text(old, "uid"));
    if sent.is_empty() || sent == stored {
        return Ok(());
    }
    Err(other_uid(call, sent, stored))
}

/// The request is for an object of another uid than the one that is stored.
pub(crate) fn other_uid(call: &Call, sent: &str, stored: &str) -> ApiError {
    let key = call.key();
    let namespace = if key.namespace.is_empty() {
        String::new()
    } else {
        format!("{}/", key.namespace)
    };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{namespace}{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}",
        call.resource().name.plural,
        key.name
    );
    ApiError::conflict(&call.resource().name, &key.name, why)
}

pub(crate) async fn patch(call: &Call) -> Result<Reply, ApiError> {
    if media_type(&call.body.media_type) == APPLY_PATCH {
        return apply::apply(call).await;
    }
    let dry_run = call.query.dry_run("PatchOptions")?;
    let validation = call.query.field_validation("PatchOptions")?;
    if call.query.has("force") {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    let patch = Patch::read(call).map_err(|error| {
        // Nobody looks into a patch for something that is not there.
        let is_there = call.server.store.get(&call.resource().storage, &call.key()).is_some();
        if is_there || error.code == 415 {
            error
        } else {
            call.not_found()
        }
    })?;
    let mut warnings = Vec::new();
    let written = rewrite(call, dry_run, |old| {
        let patched = patch.apply(served_form(call, old))?;
        let decoded = decode::shape(call, patched, validation, Source::Patch)?;
        check_place(call, &decoded.object)?;
        warnings = decoded.warnings;
        Ok(decoded.object)
    })
    .await;
    Ok(told(call, written, warnings))
}

/// The answer to a write. A refused one carries the warnings too.
fn told(call: &Call, written: Result<Written, ApiError>, warnings: Vec<String>) -> Reply {
    match written {
        Ok(written) => written.reply(call, warnings),
        Err(error) => Reply::error(&error).with_warnings(warnings),
    }
}

/// A stored object as the client of this request sees it.
pub(crate) fn served_form(call: &Call, stored: &Value) -> Value {
    let mut served = match &call.version().form {
        Form::Converted { serve, .. } => serve(stored.clone()),
        Form::Typed(_) | Form::Custom(_) => stored.clone(),
    };
    served["apiVersion"] = json!(call.api_version());
    served["kind"] = json!(call.resource().kind);
    served
}

/// What a write made of an object.
pub(crate) struct Written {
    pub(crate) object: Value,
    /// Rules that the object breaks where it did not change.
    warnings: Vec<String>,
}

impl Written {
    pub(crate) fn reply(self, call: &Call, mut warnings: Vec<String>) -> Reply {
        warnings.extend(self.warnings);
        call.reply(200, Document::Value(self.object)).with_warnings(warnings)
    }
}

/// Reads the object, changes it, and writes it back; starts again if somebody else wrote in between.
///
/// `change` gets the stored object and gives the whole new one, both in stored form.
pub(crate) async fn rewrite(
    call: &Call,
    dry_run: bool,
    mut change: impl FnMut(&Value) -> Result<Value, ApiError>,
) -> Result<Written, ApiError> {
    for _ in 0..ATTEMPTS_MAX {
        let entry = call
            .server
            .store
            .get(&call.resource().storage, &call.key())
            .ok_or_else(|| call.not_found())?;
        let old = convert::load(call, &entry).await?;
        let mut new = change(&old)?;
        check_revision(call, &old, &new)?;
        let mut warnings = prepare(call, &old, &mut new, dry_run).await?;
        warnings.extend(metadata::warnings(call.resource(), Some(&old), &new));
        check_size(&new, entry.bytes.len() + call.body.bytes.len())?;
        if dry_run || commit(call, &entry, &old, &mut new).await? {
            return Ok(Written { object: new, warnings });
        }
    }
    Err(ApiError::stale(&call.resource().name, call.name()))
}

/// A write that names a revision is for that revision only.
fn check_revision(call: &Call, old: &Value, new: &Value) -> Result<(), ApiError> {
    let named = metadata::text(new, "resourceVersion");
    match named.is_empty() || named == metadata::text(old, "resourceVersion") {
        true => Ok(()),
        false => Err(ApiError::stale(&call.resource().name, call.name())),
    }
}

/// Brings the new object in line with what this request may change, and judges it. Returns warnings.
async fn prepare(call: &Call, old: &Value, new: &mut Value, dry_run: bool) -> Result<Vec<String>, ApiError> {
    let resource = call.resource();
    complete(call, old, new);
    apply::track(call, old, new);
    admission::update(call, new);
    let options = webhook::options(call, Operation::Update, dry_run);
    if let Some(mutated) = mutate(call, old, new, (&options, dry_run)).await? {
        *new = mutated;
        // A webhook may change what the client may change, and nothing else.
        complete(call, old, new);
    }
    if writes_whole(call) && !kinds::keeps_generation(resource) {
        metadata::count_generation(resource, resource.has(Subresource::Status), old, new);
    }
    escalation::check(call, Some(old), new)?;
    let warnings = if new == old { Vec::new() } else { judge(call, old, new)? };
    validate(call, old, new, (&options, dry_run)).await?;
    quota::charge(call, new, Some(old), dry_run)?;
    Ok(warnings)
}

/// Takes back what this request may not change, and fills in what was left out.
fn complete(call: &Call, old: &Value, new: &mut Value) {
    confine(call, old, new);
    metadata::prepare_update(old, new);
    kinds::prepare_update(call.resource(), old, new);
    kinds::default(call.resource(), new);
    custom::default(call, new);
}

/// Whether the request writes the object itself, not a part of it that has rules of its own.
fn writes_whole(call: &Call) -> bool {
    matches!(call.place.subresource, None | Some(Subresource::Scale))
}

/// Judges a changed object by the rules of its kind. Returns warnings.
fn judge(call: &Call, old: &Value, new: &Value) -> Result<Vec<String>, ApiError> {
    let resource = call.resource();
    let mut errors = metadata::validate_update(old, new);
    // The API server judges metadata twice, before and within the kind's own rules, and lists the causes twice.
    errors.extend(errors.clone());
    errors.extend(metadata::validate(resource, new));
    errors.extend(match writes_whole(call) {
        true => kinds::validate_update(resource, old, new),
        false => kinds::validate_status(resource, new),
    });
    if writes_whole(call) {
        errors.extend(kinds::validate(resource, new));
    }
    let by_schema = custom::validate(call, new, Some(old));
    errors.extend(by_schema.errors);
    match errors.is_empty() {
        true => Ok(by_schema.warnings),
        false => Err(call.invalid(call.name(), &errors)),
    }
}

/// What the mutating webhooks make of the new object. They see the Scale where the client wrote that.
async fn mutate(call: &Call, old: &Value, new: &Value, how: (&Value, bool)) -> Result<Option<Value>, ApiError> {
    let Some(paths) = scale::shown_paths(call) else {
        let again = |object: &mut Value| {
            admission::update(call, object);
            Ok(())
        };
        return webhook::mutate(call, change(old, new, how), again).await;
    };
    let (old, shown) = (scale::scale_of(&paths, old), scale::scale_of(&paths, new));
    let mutated = webhook::mutate(call, change(&old, &shown, how), |_| Ok(())).await?;
    Ok(mutated.map(|scale| scale::with_replicas(&paths, new, &scale)))
}

/// Asks the validating webhooks, which see what the mutating ones see.
async fn validate(call: &Call, old: &Value, new: &Value, how: (&Value, bool)) -> Result<(), ApiError> {
    let Some(paths) = scale::shown_paths(call) else {
        return webhook::validate(call, change(old, new, how)).await;
    };
    let (old, new) = (scale::scale_of(&paths, old), scale::scale_of(&paths, new));
    webhook::validate(call, change(&old, &new, how)).await
}

/// An update with its options and whether it is a dry run, as admission looks at it.
fn change<'a>(old: &'a Value, new: &'a Value, (options, dry_run): (&'a Value, bool)) -> Write<'a> {
    Write {
        operation: Operation::Update,
        object: Some(new),
        old: Some(old),
        options,
        dry_run,
    }
}

/// The main resource cannot change the status, and the status subresource nothing else.
fn confine(call: &Call, old: &Value, new: &mut Value) {
    let keep = |new: &mut Value, field: &str| match (old.get(field), new.as_object_mut()) {
        (Some(value), Some(new)) => drop(new.insert(field.to_owned(), value.clone())),
        (None, Some(new)) => drop(new.remove(field)),
        (_, None) => {}
    };
    match call.place.subresource {
        None => {
            if call.resource().has(Subresource::Status) {
                keep(new, "status");
            }
            // A namespace's spec is its list of finalizers, which have a subresource of their own.
            if call.resource().has(Subresource::Finalize) {
                keep(new, "spec");
            }
        }
        Some(Subresource::Status) => {
            let fields: Vec<String> = old
                .as_object()
                .into_iter()
                .flatten()
                .map(|(field, _)| field.clone())
                .collect();
            let added = new.as_object().into_iter().flatten().map(|(field, _)| field.clone());
            let all: std::collections::BTreeSet<String> = added.chain(fields).collect();
            for field in all.iter().filter(|field| *field != "status" && *field != "metadata") {
                keep(new, field);
            }
            if call.resource().custom {
                // Who owns the status is part of the metadata, but not the client's to keep as it was.
                let owners = metadata::of(new).remove("managedFields");
                keep(new, "metadata");
                if let Some(owners) = owners {
                    metadata::of(new).insert("managedFields".to_owned(), owners);
                }
            }
        }
        Some(Subresource::Finalize) => {
            let finalizers = new["spec"]["finalizers"].take();
            for field in ["metadata", "spec", "status"] {
                keep(new, field);
            }
            new["spec"]["finalizers"] = finalizers;
        }
        _ => {}
    }
}

/// Writes the object, or removes it if the last thing that kept it is gone. `false`: somebody else was first.
async fn commit(call: &Call, entry: &Entry, old: &Value, new: &mut Value) -> Result<bool, ApiError> {
    let (store, resource) = (&call.server.store, call.resource());
    if new == old && convert::is_served_as_stored(call, entry.revision) {
        return Ok(true);
    }
    if kinds::is_released(resource, old, new) {
        // Watchers get the object as it was stored; the writer gets what it wrote.
        return Ok(store.delete(&resource.storage, &call.key(), entry.revision).is_ok());
    }
    let written = convert::put(call, &call.key(), Some(entry), new).await?;
    Ok(written.is_some())
}
