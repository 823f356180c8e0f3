//! Request bodies: from bytes to an object in stored form.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::media::media_type;
use super::patch::STRATEGIC;
use super::query::FieldValidation;
use super::{Body, Call, custom, syntax};
use crate::patch::{builtin_types, drop_empty_maps, go_text};
use crate::protobuf;
use crate::registry::Form;
use crate::schema::duplicate_fields;
use crate::status::{ApiError, FieldError};

/// How much of a body an error message repeats.
const EXCERPT_BYTES: usize = 30;
/// Before everything else, the API server wants to know what it has got.
const NO_KIND: &str = "couldn't get version/kind; json parse error: ";

/// An object in stored form, and what its sender should know.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// What a document was sent as; decides how errors about it are worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Body,
    Patch,
}

/// Why a body could not be read.
pub(crate) enum Unread {
    /// It is in no form that the server reads.
    Media(ApiError),
    /// What is wrong with its text.
    Text(String),
}

impl Unread {
    pub(crate) fn into_error(self, told: impl FnOnce(String) -> ApiError) -> ApiError {
        match self {
            Unread::Media(error) => error,
            Unread::Text(why) => told(why),
        }
    }
}

/// Reads a body as JSON, YAML or protobuf.
pub(crate) fn parse(body: &Body) -> Result<Value, Unread> {
    match media_type(&body.media_type) {
        "" | "application/json" | "*/*" => serde_json::from_slice(&body.bytes).map_err(|error| {
            let why = syntax::problem(&body.bytes).unwrap_or_else(|| error.to_string());
            Unread::Text(format!("{NO_KIND}{why}"))
        }),
        "application/yaml" => {
            let text = std::str::from_utf8(&body.bytes).map_err(|_| Unread::Text("yaml: invalid UTF-8".to_owned()))?;
            serde_saphyr::from_str(text).map_err(|error| Unread::Text(format!("yaml: {error}")))
        }
        "application/vnd.kubernetes.protobuf" => protobuf::decode(&body.bytes).map_err(|error| {
            Unread::Media(ApiError::bad_request(format!(
                "the object provided is unrecognized: {error}"
            )))
        }),
        _ => {
            let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
            Err(Unread::Media(ApiError::unsupported_media(accepted)))
        }
    }
}

/// Reads a body that should be of this kind. `null` is what Go takes it for: an object without fields.
pub(crate) fn value(body: &Body, kind: &str) -> Result<Value, ApiError> {
    match parse(body) {
        Ok(Value::Null) => Ok(json!({})),
        Ok(value) => Ok(value),
        Err(unread) => Err(unread.into_error(|why| unrecognized(kind, &why, &body.bytes))),
    }
}

pub(crate) fn unrecognized(kind: &str, why: &str, body: &[u8]) -> ApiError {
    let excerpt = excerpt(body);
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({excerpt})"
    ))
}

/// `apiVersion` and `kind` of a document, empty where it has none; else what is wrong with them.
pub(crate) fn type_meta(value: &Value) -> Result<(&str, &str), String> {
    let what = match value {
        Value::Null => return Ok(("", "")),
        Value::Object(fields) => {
            let text = |name: &str| match fields.get(name) {
                None | Some(Value::Null) => Ok(""),
                Some(Value::String(text)) => Ok(text.as_str()),
                Some(other) => Err(format!(
                    "{NO_KIND}json: cannot unmarshal {} into Go struct field .{name} of type string",
                    go_name(other)
                )),
            };
            return Ok((text("apiVersion")?, text("kind")?));
        }
        other => go_name(other),
    };
    Err(format!(
        "{NO_KIND}json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    ))
}

/// What Go's decoder calls a value.
fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `v1` of `apps/v1`.
pub(crate) fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or(api_version)
}

/// The beginning of a body: as text if it looks like JSON, else as hexadecimal digits.
fn excerpt(body: &[u8]) -> String {
    let shown = &body[..body.len().min(EXCERPT_BYTES)];
    let cut = if shown.len() < body.len() { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{cut}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{digits}{cut}")
        }
    }
}

/// Reads the object that a request carries.
pub(crate) fn object(call: &Call, options_kind: &str) -> Result<Decoded, ApiError> {
    let validation = call.query.field_validation(options_kind)?;
    let value = value(&call.body, &call.resource().kind)?;
    shape(call, value, validation, Source::Body)
}

/// Gives a document the shape of the request's kind: right types, known fields only, stored form.
pub(crate) fn shape(
    call: &Call,
    mut value: Value,
    validation: FieldValidation,
    source: Source,
) -> Result<Decoded, ApiError> {
    check_kind(call, &value)?;
    check_times(call, &value)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    let kind = &call.resource().kind;
    let unfit = |value: &Value, error: serde_json::Error| match source {
        Source::Body => ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: json: {error}",
            call.version().name
        )),
        Source::Patch => bad_patch(call, value, &format!("json: {error}")),
    };
    let mut served = match &call.version().form {
        Form::Typed(decode) | Form::Converted { decode, .. } => {
            strip_kind(decode(&value).map_err(|error| unfit(&value, error))?)
        }
        Form::Custom(_) => {
            let metadata = value.get("metadata").unwrap_or(&Value::Null);
            let metadata = Option::<ObjectMeta>::deserialize(metadata)
                .map_err(|error| unfit(&value, error))?
                .unwrap_or_default();
            let mut served = value.clone();
            served["metadata"] = serde_json::to_value(metadata).map_err(|error| unfit(&value, error))?;
            served
        }
    };
    let mut unknown = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn | FieldValidation::Strict => unknown_fields(&value, &served),
    };
    // Definitions are left alone: an empty map there (`status: {}`) is a struct without fields.
    let is_definition = kind == "CustomResourceDefinition";
    if let Some(schema) = builtin_types()
        .kind(&call.api_version(), kind)
        .filter(|_| !call.resource().custom && !is_definition)
    {
        drop_empty_maps(&mut served, schema);
    }
    if let Some(schema) = custom::schema(call) {
        let pruned = schema.prune(&mut served);
        if validation != FieldValidation::Ignore {
            unknown.extend(pruned);
        }
    }
    let mut repeated = match (validation, source) {
        (FieldValidation::Warn | FieldValidation::Strict, Source::Body) => duplicate_fields(&call.body.bytes),
        (FieldValidation::Ignore, _) | (_, Source::Patch) => Vec::new(),
    };
    if !call.resource().custom {
        // Go's decoder does not look into what it does not know.
        let is_within = |path: &str, field: &String| {
            path.strip_prefix(field)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        repeated.retain(|path| !unknown.iter().any(|field| is_within(path, field)));
    }
    let repeated = repeated.iter().map(|path| format!("duplicate field \"{path}\""));
    let unknown = unknown.iter().map(|path| format!("unknown field \"{path}\""));
    let warnings: Vec<String> = repeated.chain(unknown).collect();
    if validation == FieldValidation::Strict && !warnings.is_empty() {
        return Err(strict(call, &value, &warnings, source));
    }
    let object = match &call.version().form {
        Form::Converted { store, .. } => store(served),
        Form::Typed(_) | Form::Custom(_) => served,
    };
    Ok(Decoded { object, warnings })
}

fn strict(call: &Call, patched: &Value, unknown: &[String], source: Source) -> ApiError {
    let what = format!("strict decoding error: {}", unknown.join(", "));
    match source {
        Source::Body => {
            let kind = &call.resource().kind;
            let version = &call.version().name;
            ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {what}"
            ))
        }
        // Of a strategic patch the answer repeats the patch, not what it made.
        Source::Patch if media_type(&call.body.media_type) == STRATEGIC => {
            let patch: Value = serde_json::from_slice(&call.body.bytes).unwrap_or_default();
            let told = FieldError::invalid("patch", json!(go_text(&patch)), what);
            ApiError::invalid("", "", "", &[told])
        }
        Source::Patch => bad_patch(call, patched, &what),
    }
}

/// The answer to a patch that makes something impossible repeats the whole of it.
fn bad_patch(call: &Call, patched: &Value, why: &str) -> ApiError {
    let mut whole = patched.clone();
    whole["apiVersion"] = json!(call.api_version());
    whole["kind"] = json!(call.resource().kind);
    ApiError::invalid(
        "",
        "",
        "",
        &[FieldError::invalid("patch", json!(whole.to_string()), why)],
    )
}

/// `apiVersion` and `kind` must be those of the path; built-in kinds may leave them out.
fn check_kind(call: &Call, value: &Value) -> Result<(), ApiError> {
    let resource = call.resource();
    let expected = call.api_version();
    let (version, kind) = type_meta(value).map_err(|why| unrecognized(&resource.kind, &why, &call.body.bytes))?;
    if resource.custom {
        if kind.is_empty() {
            let (whole, excerpt) = (String::from_utf8_lossy(&call.body.bytes), excerpt(&call.body.bytes));
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{whole}' ({excerpt})",
                resource.kind
            )));
        }
        if kind != resource.kind {
            let error = FieldError::invalid("kind", json!(kind), format!("must be {}", resource.kind));
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::invalid(&resource.name.group, kind, name, &[error]));
        }
    }
    if !version.is_empty() && version != expected && !resource.custom && !kind.is_empty() {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"",
            version_of(version),
            resource.kind
        )));
    }
    if !version.is_empty() && version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if !kind.is_empty() && kind != resource.kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: converting (v1.{kind}) to (core.{}): unknown conversion",
            call.version().name,
            resource.kind,
            resource.kind
        )));
    }
    Ok(())
}

/// Times of leases and events carry microseconds, and Kubernetes takes no others.
fn check_times(call: &Call, value: &Value) -> Result<(), ApiError> {
    let kind = &call.resource().kind;
    let fields: &[&str] = match (kind.as_str(), call.resource().custom) {
        ("Lease", false) => &["/spec/acquireTime", "/spec/renewTime"],
        ("Event", false) => &["/eventTime"],
        _ => &[],
    };
    let texts = fields
        .iter()
        .filter_map(|field| value.pointer(field).and_then(Value::as_str));
    for text in texts {
        let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits < 6 {
            let version = &call.version().name;
            let why = format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {:?} as \".000000\"",
                text.get(19..).unwrap_or_default()
            );
            let message = format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}");
            return Err(ApiError::bad_request(message));
        }
    }
    Ok(())
}

fn strip_kind(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    value
}

/// Paths of fields that were sent with a value and are not there any more.
///
/// Paths are put together on the way back, because nearly always there are none.
pub(crate) fn unknown_fields(sent: &Value, kept: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (key, value) in sent {
                match kept.get(key) {
                    Some(kept) => unknown.extend(below(key, unknown_fields(value, kept))),
                    None if value.is_null() || value.as_array().is_some_and(Vec::is_empty) => {}
                    None => unknown.push(key.clone()),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (i, (sent, kept)) in sent.iter().zip(kept).enumerate() {
                let inside = unknown_fields(sent, kept);
                if !inside.is_empty() {
                    unknown.extend(below(&format!("[{i}]"), inside));
                }
            }
        }
        _ => {}
    }
    unknown
}

fn below(parent: &str, paths: Vec<String>) -> impl Iterator<Item = String> {
    paths.into_iter().map(move |path| match path.starts_with('[') {
        true => format!("{parent}{path}"),
        false => format!("{parent}.{path}"),
    })
}
