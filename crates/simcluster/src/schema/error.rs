//! Errors about fields, worded as the API server words them in the causes of a 422.

use std::fmt;

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
}

/// One thing that is wrong with a field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub kind: ErrorKind,
    /// The path of the field; empty for the object itself.
    pub field: String,
    /// The value that is told; `None` where it would be too long or says nothing.
    pub value: Option<Value>,
    pub detail: String,
}

impl FieldError {
    fn new(kind: ErrorKind, field: &str, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self {
            kind,
            field: field.to_owned(),
            value,
            detail: detail.into(),
        }
    }

    pub(super) fn required(field: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Required, field, None, detail)
    }

    pub(super) fn invalid(field: &str, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, field, Some(value.into()), detail)
    }

    pub(super) fn invalid_whole(field: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, field, None, detail)
    }

    pub(super) fn type_invalid(field: &str, value: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::TypeInvalid, field, Some(value.into()), detail)
    }

    pub(super) fn not_supported(field: &str, value: Value, supported: &[Value]) -> Self {
        let quoted = |value: &Value| match value {
            Value::String(text) => format!("{text:?}"),
            other => format!("{:?}", other.to_string()),
        };
        let supported: Vec<String> = supported.iter().map(quoted).collect();
        Self::new(
            ErrorKind::NotSupported,
            field,
            Some(value),
            format!("supported values: {}", supported.join(", ")),
        )
    }

    pub(super) fn duplicate(field: &str, value: Option<Value>) -> Self {
        Self::new(ErrorKind::Duplicate, field, value, "")
    }

    pub(super) fn forbidden(field: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, field, None, detail)
    }

    pub(super) fn too_long(field: &str, bytes_max: u64) -> Self {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        Self::new(
            ErrorKind::TooLong,
            field,
            None,
            format!("may not be more than {bytes_max} {unit}"),
        )
    }

    pub(super) fn too_many(field: &str, count: usize, count_max: u64) -> Self {
        let unit = if count_max == 1 { "item" } else { "items" };
        Self::new(
            ErrorKind::TooMany,
            field,
            Some(count.into()),
            format!("must have at most {count_max} {unit}"),
        )
    }

    pub(super) fn rules_not_checked() -> Self {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        Self::invalid("", Value::Null, detail)
    }

    /// Whether rules cannot be evaluated on an object with this error.
    pub(super) fn hides_others(&self) -> bool {
        use ErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
        matches!(self.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
    }

    /// The reason of the cause: `FieldValueInvalid`.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            ErrorKind::Required => "FieldValueRequired",
            ErrorKind::Invalid => "FieldValueInvalid",
            ErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            ErrorKind::NotSupported => "FieldValueNotSupported",
            ErrorKind::Duplicate => "FieldValueDuplicate",
            ErrorKind::Forbidden => "FieldValueForbidden",
            ErrorKind::TooLong => "FieldValueTooLong",
            ErrorKind::TooMany => "FieldValueTooMany",
        }
    }

    /// The field as it is told; the object itself is `<nil>`.
    pub fn field_or_nil(&self) -> &str {
        if self.field.is_empty() { "<nil>" } else { &self.field }
    }

    /// The message of the cause, without the path.
    pub fn message(&self) -> String {
        let mut text = match self.kind {
            ErrorKind::Required => "Required value",
            ErrorKind::Invalid | ErrorKind::TypeInvalid => "Invalid value",
            ErrorKind::NotSupported => "Unsupported value",
            ErrorKind::Duplicate => "Duplicate value",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::TooLong => "Too long",
            ErrorKind::TooMany => "Too many",
        }
        .to_owned();
        match &self.value {
            None => {}
            Some(Value::String(value)) => text += &format!(": {value:?}"),
            Some(Value::Number(value)) => text += &format!(": {}", number(value)),
            Some(value) => text += &format!(": {value}"),
        }
        if !self.detail.is_empty() {
            text += &format!(": {}", self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field_or_nil(), self.message())
    }
}

/// A number as Go prints it: no `.0` behind whole floats.
pub(super) fn number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(value) if number.is_f64() => value.to_string(),
        _ => number.to_string(),
    }
}
