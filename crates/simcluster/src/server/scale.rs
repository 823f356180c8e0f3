//! The scale subresource: one number, wherever the kind keeps it.

use serde_json::{Value, json};

use super::output::Reply;
use super::patch::Patch;
use super::update::{check_place, check_uid, rewrite};
use super::{Call, convert, part};
use crate::registry::custom::ScalePaths;
use crate::registry::{Form, Subresource};
use crate::rules::metadata;
use crate::selector::LabelSelector;
use crate::status::{ApiError, FieldError};

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    Ok(Reply::json(200, &of(call).await?))
}

/// The Scale of the object that the call names.
pub(crate) async fn of(call: &Call) -> Result<Value, ApiError> {
    let paths = paths(call)?;
    let entry = call
        .server
        .store
        .get(&call.resource().storage, &call.key())
        .ok_or_else(|| call.not_found())?;
    Ok(scale_of(&paths, &convert::load(call, &entry).await?))
}

/// Sets the replicas of the object that the call names.
pub(crate) async fn set(call: &Call, replicas: i64) -> Result<(), ApiError> {
    let change = |mut scale: Value| {
        scale["spec"]["replicas"] = json!(replicas);
        Ok(scale)
    };
    write(call, false, change).await.map(drop)
}

pub(crate) async fn put(call: &Call) -> Result<Reply, ApiError> {
    let validation = call.query.field_validation("UpdateOptions")?;
    let (sent, warnings) = part::SCALE
        .read(&call.body, validation)
        .map_err(|error| match error.code {
            // The real server cannot tell what is wrong with a Scale: its machinery of errors does not know the type.
            400 => ApiError::bad_request(
                "no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\"",
            ),
            _ => error,
        })?;
    call.warn(&warnings);
    write(call, call.query.dry_run("UpdateOptions")?, |_| Ok(sent.clone())).await
}

pub(crate) async fn patch(call: &Call) -> Result<Reply, ApiError> {
    let patch = Patch::read(call)?;
    write(call, call.query.dry_run("PatchOptions")?, |scale| {
        let patched = patch.apply(scale)?;
        part::SCALE.check(&patched).map_err(|why| {
            let whole = json!(patched.to_string());
            ApiError::invalid("", "", "", &[FieldError::invalid("patch", whole, why)])
        })?;
        Ok(patched)
    })
    .await
}

async fn write(
    call: &Call,
    dry_run: bool,
    change: impl Fn(Value) -> Result<Value, ApiError>,
) -> Result<Reply, ApiError> {
    let paths = paths(call)?;
    let written = rewrite(call, dry_run, |old| {
        let scale = change(scale_of(&paths, old))?;
        check_place(call, &scale)?;
        check_uid(call, old, &scale)?;
        let mut new = with_replicas(&paths, old, &scale);
        let version = metadata::text(&scale, "resourceVersion");
        if !version.is_empty() {
            metadata::of(&mut new).insert("resourceVersion".into(), json!(version));
        }
        Ok(new)
    })
    .await?;
    Ok(Reply::json(200, &scale_of(&paths, &written.object)))
}

fn paths(call: &Call) -> Result<ScalePaths, ApiError> {
    match &call.version().form {
        Form::Custom(version) => version.scale.clone().ok_or_else(ApiError::unknown_resource),
        Form::Typed(_) if call.resource().has(Subresource::Scale) => Ok(ScalePaths::builtin()),
        Form::Typed(_) | Form::Converted { .. } => Err(ApiError::unknown_resource()),
    }
}

/// The paths of a call that writes a Scale.
pub(crate) fn shown_paths(call: &Call) -> Option<ScalePaths> {
    paths(call)
        .ok()
        .filter(|_| call.place.subresource == Some(Subresource::Scale))
}

/// The object with the replicas of a Scale.
pub(crate) fn with_replicas(paths: &ScalePaths, object: &Value, scale: &Value) -> Value {
    let mut new = object.clone();
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    set_path(&mut new, &paths.spec_replicas, json!(replicas));
    new
}

pub(crate) fn scale_of(paths: &ScalePaths, object: &Value) -> Value {
    let at = |path: &str| path.split('.').try_fold(object, |value, field| value.get(field));
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = at(&paths.spec_replicas).filter(|replicas| *replicas != 0) {
        spec["replicas"] = replicas.clone();
    }
    let mut status = json!({"replicas": at(&paths.status_replicas).cloned().unwrap_or_else(|| json!(0))});
    match paths.label_selector.as_deref().and_then(at) {
        Some(selector @ Value::Object(_)) => {
            status["selector"] = json!(LabelSelector::from_object(selector).to_string());
        }
        Some(text) => status["selector"] = text.clone(),
        None => {}
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for field in path.split('.') {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[field];
    }
    *place = value;
}
