//! Server-side apply, and who owns which field after any other write.
//!
//! What merging and ownership mean is in [`crate::patch`]; this module brings requests there and answers back.

use serde_json::{Value, json};

use super::create::create_object;
use super::decode::{self, Source};
use super::media::{APPLY_PATCH, media_type};
use super::output::Reply;
use super::query::FieldValidation;
use super::update::{rewrite, served_form};
use super::{Body, Call};
use crate::patch::{self, ApplyError, FieldSet, TypeSchema, Writer, builtin_types};
use crate::registry::{Form, Subresource};
use crate::rules::metadata;
use crate::status::{ApiError, FieldError};

pub(crate) async fn apply(call: &Call) -> Result<Reply, ApiError> {
    let dry_run = call.query.dry_run("PatchOptions")?;
    if call.query.text("fieldManager").is_empty() {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    let body = Body {
        media_type: "application/yaml".to_owned(),
        bytes: call.body.bytes.clone(),
    };
    let config = decode::value(&body, &call.resource().kind)?;
    let merge = |live: Option<&Value>| {
        let live = live.map(|live| served_form(call, live));
        let applied = merge(call, live.as_ref(), &config)?;
        // What the type does not know was refused by the merge.
        decode::shape(call, applied, FieldValidation::Ignore, Source::Patch)
    };
    if call.server.store.get(&call.resource().storage, &call.key()).is_none() {
        check_new(call, &config)?;
        let made = create_object(call, merge(None)?.object, dry_run).await?;
        return Ok(call.reply(201, made));
    }
    let written = rewrite(call, dry_run, |old| Ok(merge(Some(old))?.object)).await?;
    Ok(written.reply(call, Vec::new()))
}

/// Judges a configuration for which there is no object yet.
fn check_new(call: &Call, config: &Value) -> Result<(), ApiError> {
    let uid = metadata::text(config, "uid");
    if call.place.subresource.is_some() {
        return Err(call.not_found());
    }
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(ApiError::conflict(&call.resource().name, call.name(), why));
    }
    match metadata::text(config, "name") {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name()
        ))),
        name if name != call.name() => Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        ))),
        _ => Ok(()),
    }
}

fn merge(call: &Call, live: Option<&Value>, config: &Value) -> Result<Value, ApiError> {
    let schema = types(call).ok_or_else(|| ApiError::plain("no type is known of this kind"))?;
    let force = call.query.flag("force");
    as_writer(call, |writer| patch::apply(live, config, schema, writer, force)).map_err(refusal)
}

fn refusal(error: ApplyError) -> ApiError {
    let message = error.to_string();
    match error {
        ApplyError::BadRequest(_) => ApiError::bad_request(message),
        ApplyError::Schema(_) => ApiError::plain(message),
        ApplyError::Conflicts(conflicts) => {
            let cause = |conflict: &patch::Conflict| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", conflict.manager),
                       "field": conflict.field})
            };
            let causes: Vec<Value> = conflicts.iter().map(cause).collect();
            ApiError::new(409, "Conflict", message).with_details(json!({"causes": causes}))
        }
    }
}

/// Records the creator as the owner of what it sent and of the defaults. What admission adds later, nobody owns.
pub(crate) fn track_new(call: &Call, new: &mut Value) {
    record(call, None, new);
}

/// Records who owns what an update changed, on objects that are tracked.
pub(crate) fn track(call: &Call, old: &Value, new: &mut Value) {
    let tracked = |object: &Value| !object["metadata"]["managedFields"].is_null();
    if tracked(old) || tracked(new) {
        record(call, Some(old), new);
    }
}

fn record(call: &Call, old: Option<&Value>, new: &mut Value) {
    let is_apply = media_type(&call.body.media_type) == APPLY_PATCH;
    let Some(schema) = types(call).filter(|_| !is_apply) else {
        return;
    };
    let is_converted = matches!(call.version().form, Form::Converted { .. });
    if !is_converted {
        // Stored as it is served: there is nothing to convert and nothing to copy.
        let sent = std::mem::take(new);
        *new = as_writer(call, |writer| patch::track_update(old, sent, schema, writer));
        return;
    }
    let (live, sent) = (old.map(|old| served_form(call, old)), served_form(call, new));
    let mut owned = as_writer(call, |writer| patch::track_update(live.as_ref(), sent, schema, writer));
    match metadata::of(&mut owned).remove("managedFields") {
        Some(entries) => metadata::of(new).insert("managedFields".to_owned(), entries),
        None => metadata::of(new).remove("managedFields"),
    };
}

fn types(call: &Call) -> Option<TypeSchema<'_>> {
    let types = match &call.version().form {
        Form::Custom(version) => version.types.as_ref()?,
        Form::Typed(_) | Form::Converted { .. } => builtin_types(),
    };
    types.kind(&call.api_version(), &call.resource().kind)
}

fn as_writer<T>(call: &Call, write: impl FnOnce(&Writer<'_>) -> T) -> T {
    let resource = call.resource();
    let ignored = match call.place.subresource {
        None | Some(Subresource::Scale) if resource.has(Subresource::Status) => FieldSet::of_fields([&["status"]]),
        Some(Subresource::Status) if resource.custom => FieldSet::of_fields([&["metadata"], &["spec"]]),
        Some(Subresource::Status) => FieldSet::of_fields([&["spec"]]),
        _ => FieldSet::default(),
    };
    write(&Writer {
        manager: &call.manager,
        api_version: &call.api_version(),
        kind: &resource.kind,
        subresource: recorded_subresource(call),
        ignored: &ignored,
        now: call.now,
    })
}

/// The subresource that ownership is recorded under; writes through `scale` count as writes to the object.
fn recorded_subresource(call: &Call) -> &'static str {
    match call.place.subresource {
        None | Some(Subresource::Scale) => "",
        Some(subresource) => subresource.path(),
    }
}
