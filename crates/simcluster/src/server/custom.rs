//! What the schema of a custom resource does to an object on its way into the store.
//!
//! Built-in kinds pass all of this untouched: their types and [`crate::rules`] do the same for them.

use serde_json::{Value, json};

use super::Call;
use crate::registry::Form;
use crate::rules::metadata;
use crate::schema::{Schema, Validation};
use crate::status::FieldError;

pub(crate) fn schema(call: &Call) -> Option<&Schema> {
    match &call.version().form {
        Form::Custom(version) => version.schema.as_ref(),
        Form::Typed(_) | Form::Converted { .. } => None,
    }
}

/// Fills in what the schema gives to fields that were left out.
pub(crate) fn default(call: &Call, object: &mut Value) {
    if let Some(schema) = schema(call) {
        schema.default(object);
    }
}

/// Judges an object by its schema. `old` is what it replaces.
pub(crate) fn validate(call: &Call, object: &Value, old: Option<&Value>) -> Validation {
    let Some(schema) = schema(call) else {
        return Validation::default();
    };
    // Rules of a schema may look at the kind and the API version, which are not stored.
    let named = |object: &Value| {
        let mut named = object.clone();
        named["apiVersion"] = json!(call.api_version());
        named["kind"] = json!(call.resource().kind);
        metadata::of(&mut named);
        named
    };
    let mut validation = schema.validate(&named(object), old.map(named).as_ref());
    validation.errors.extend(scale_problem(call, object));
    validation
}

/// The field that holds the replicas of a scale is a number that a scale can show.
fn scale_problem(call: &Call, object: &Value) -> Option<FieldError> {
    let Form::Custom(version) = &call.version().form else {
        return None;
    };
    let path = &version.scale.as_ref()?.spec_replicas;
    let replicas = path.split('.').try_fold(object, |value, field| value.get(field))?;
    let path = format!(".{path}");
    let why = "should be a non-negative integer";
    match replicas {
        Value::Number(number) if number.as_i64().is_some() => {
            let negative = number.as_i64().is_some_and(|n| n < 0);
            negative.then(|| FieldError::invalid(path, replicas, why))
        }
        other => {
            let (kind, shown) = match other {
                Value::String(text) => ("string", text.clone()),
                Value::Number(_) => ("float64", other.to_string()),
                Value::Bool(_) => ("bool", other.to_string()),
                _ => return None,
            };
            let why = format!("{path} accessor error: {shown} is of the type {kind}, expected int64");
            Some(FieldError::invalid(path, json!(0), why))
        }
    }
}
