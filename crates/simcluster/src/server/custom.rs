//! What the schema of a custom resource does to an object on its way into the store.
//!
//! Built-in kinds pass all of this untouched: their types and [`crate::rules`] do the same for them.

use serde_json::{Value, json};

use super::Call;
use crate::registry::Form;
use crate::rules::metadata;
use crate::schema::{Schema, Validation};

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
    schema.validate(&named(object), old.map(named).as_ref())
}
