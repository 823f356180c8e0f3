//! What goes wrong, in Kubernetes' words: the `Status` object, its reasons, and field errors.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::store::ResourceName;

/// An answer other than success. It becomes a `Status` object on the wire.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// `reason` of the Status; empty where the API server gives none.
    pub reason: Cow<'static, str>,
    /// `message` of the Status.
    pub message: String,
    /// `details` of the Status; null where there are none.
    pub details: Value,
    /// `metadata.continue`: where an expired list can go on, inconsistently.
    pub continue_token: Option<String>,
}

impl ApiError {
    /// An error without details.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: Value::Null,
            continue_token: None,
        }
    }

    /// The same error with details.
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 500 as the API server gives it for plain errors: no reason.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 404: no such object.
    pub fn not_found(resource: &ResourceName, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).with_details(named(resource, name))
    }

    /// 404: no such resource in a group and version that exist.
    pub fn unknown_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: &ResourceName, name: &str, terminating: bool) -> Self {
        let prefix = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{resource} \"{name}\" already exists");
        Self::new(409, "AlreadyExists", message).with_details(named(resource, name))
    }

    /// 409: the write cannot be done on the object as it is.
    pub fn conflict(resource: &ResourceName, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message).with_details(named(resource, name))
    }

    /// 409: somebody else wrote since the version that the request names.
    pub fn stale(resource: &ResourceName, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 403: allowed in general, but not this.
    pub fn forbidden(resource: &ResourceName, name: &str, why: impl fmt::Display) -> Self {
        let subject = if name.is_empty() {
            resource.to_string()
        } else {
            format!("{resource} \"{name}\"")
        };
        let message = format!("{subject} is forbidden: {why}");
        Self::new(403, "Forbidden", message).with_details(named(resource, name))
    }

    /// 422: the object breaks rules; all of them are told.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            _ => format!("[{}]", texts.join(", ")),
        };
        let subject = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
        let mut details = json!({"name": name, "group": group, "kind": kind, "causes": causes});
        drop_empty(&mut details);
        Self::new(422, "Invalid", format!("{subject} \"{name}\" is invalid: {list}")).with_details(details)
    }

    /// 410: the revision is no longer known.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: bodies above the limit.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 415: a body in a format that this resource does not take.
    pub fn unsupported_media(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        status
    }
}

/// `details` that name an object by its resource.
pub fn named(resource: &ResourceName, name: &str) -> Value {
    let mut details = json!({"name": name, "group": &*resource.group, "kind": &*resource.plural});
    drop_empty(&mut details);
    details
}

fn drop_empty(details: &mut Value) {
    if let Some(map) = details.as_object_mut() {
        map.retain(|_, value| value.as_str() != Some(""));
    }
}

/// Which kind of rule a field breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRule {
    /// Must be set.
    Required,
    /// Has a wrong value.
    Invalid,
    /// Has a value of the wrong type.
    TypeInvalid,
    /// Is not one of the allowed values.
    NotSupported,
    /// May not be set or changed.
    Forbidden,
    /// Occurs twice.
    Duplicate,
    /// Names something that is not there.
    NotFound,
    /// Is too long.
    TooLong,
    /// Has too many elements.
    TooMany,
}

/// One broken rule: where, which, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Path of the field, as in `spec.containers[0].name`; empty for the object itself.
    pub field: String,
    /// Kind of rule.
    pub rule: FieldRule,
    /// Message without the path.
    pub message: String,
}

impl FieldError {
    /// A field that must be set.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(field, FieldRule::Required, join("Required value", detail))
    }

    /// A field with a wrong value, which is told.
    pub fn invalid(field: impl Into<String>, value: impl Serialize, detail: impl fmt::Display) -> Self {
        let head = format!("Invalid value: {}", shown(value));
        Self::new(field, FieldRule::Invalid, join(&head, detail))
    }

    /// A field with a wrong value that would be too long to tell.
    pub fn invalid_whole(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(field, FieldRule::Invalid, join("Invalid value", detail))
    }

    /// A field with a wrong value, which is told as this text.
    pub fn invalid_text(field: impl Into<String>, value: &str, detail: impl fmt::Display) -> Self {
        Self::new(
            field,
            FieldRule::Invalid,
            join(&format!("Invalid value: {value}"), detail),
        )
    }

    /// A field that names something that is not there.
    pub fn not_found(field: impl Into<String>, value: impl Serialize) -> Self {
        Self::new(field, FieldRule::NotFound, join("Not found", shown(value)))
    }

    /// A field of the wrong type; `value` is what was found in its place.
    pub fn type_invalid(field: impl Into<String>, value: &str, detail: impl fmt::Display) -> Self {
        let head = format!("Invalid value: {}", shown(value));
        Self::new(field, FieldRule::TypeInvalid, join(&head, detail))
    }

    /// A field that may not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(field, FieldRule::Forbidden, join("Forbidden", detail))
    }

    /// A field whose value is not in the list.
    pub fn not_supported<T: Serialize>(field: impl Into<String>, value: impl Serialize, allowed: &[T]) -> Self {
        let quoted = |value: &T| match serde_json::to_value(value) {
            Ok(Value::String(text)) => format!("{text:?}"),
            other => format!("{:?}", shown(other.unwrap_or_default())),
        };
        let allowed: Vec<String> = allowed.iter().map(quoted).collect();
        let head = format!("Unsupported value: {}", shown(value));
        let detail = format!("supported values: {}", allowed.join(", "));
        Self::new(field, FieldRule::NotSupported, join(&head, detail))
    }

    /// A value that occurs twice; null where it would be too long to tell.
    pub fn duplicate(field: impl Into<String>, value: impl Serialize) -> Self {
        let value = shown(value);
        let told = if value == "null" { "" } else { value.as_str() };
        Self::new(field, FieldRule::Duplicate, join("Duplicate value", told))
    }

    /// A text of too many bytes.
    pub fn too_long(field: impl Into<String>, bytes_max: u64) -> Self {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {bytes_max} {unit}");
        Self::new(field, FieldRule::TooLong, message)
    }

    /// A list or map of too many elements.
    pub fn too_many(field: impl Into<String>, count: usize, count_max: u64) -> Self {
        let unit = if count_max == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {count_max} {unit}");
        Self::new(field, FieldRule::TooMany, message)
    }

    fn new(field: impl Into<String>, rule: FieldRule, message: String) -> Self {
        Self {
            field: field.into(),
            rule,
            message,
        }
    }

    /// The reason of the cause: `FieldValueInvalid`.
    pub fn reason(&self) -> &'static str {
        match self.rule {
            FieldRule::Required => "FieldValueRequired",
            FieldRule::Invalid => "FieldValueInvalid",
            FieldRule::TypeInvalid => "FieldValueTypeInvalid",
            FieldRule::NotSupported => "FieldValueNotSupported",
            FieldRule::Forbidden => "FieldValueForbidden",
            FieldRule::Duplicate => "FieldValueDuplicate",
            FieldRule::NotFound => "FieldValueNotFound",
            FieldRule::TooLong => "FieldValueTooLong",
            FieldRule::TooMany => "FieldValueTooMany",
        }
    }

    /// The field as it is told; the object itself is `<nil>`.
    pub fn field_or_nil(&self) -> &str {
        if self.field.is_empty() { "<nil>" } else { &self.field }
    }

    fn cause(&self) -> Value {
        json!({"reason": self.reason(), "message": self.message, "field": self.field_or_nil()})
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field_or_nil(), self.message)
    }
}

/// A value as Go prints it: JSON, but no `.0` behind whole floats, and texts as in a program.
fn shown(value: impl Serialize) -> String {
    match serde_json::to_value(&value).unwrap_or_default() {
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        Value::String(text) => quoted(&text),
        // Fields in the order of the type, where it is one.
        _ => serde_json::to_string(&value).unwrap_or_default(),
    }
}

/// A text as Go prints it with `%q`.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || c != ' ' && c.is_whitespace() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn join(head: &str, detail: impl fmt::Display) -> String {
    let detail = detail.to_string();
    if detail.is_empty() {
        head.to_owned()
    } else {
        format!("{head}: {detail}")
    }
}
