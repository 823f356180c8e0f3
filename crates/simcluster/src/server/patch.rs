//! Patches: a request's body as a change to part of an object.

use serde_json::{Value, json};

use super::media::media_type;
use super::{Call, syntax};
use crate::patch::{JsonPatch, JsonPatchError, MergePatchError, StrategicError, TypeSchema, builtin_types};
use crate::patch::{merge_patch, strategic_merge_patch};
use crate::status::ApiError;

pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A change to part of an object.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(JsonPatch),
    Merge(Value),
    /// Of built-in kinds only: their types say how lists merge.
    Strategic(Value, TypeSchema<'static>),
}

impl Patch {
    pub(crate) fn read(call: &Call) -> Result<Self, ApiError> {
        let body = || {
            serde_json::from_slice::<Value>(&call.body.bytes).map_err(|error| {
                let why = syntax::problem(&call.body.bytes).unwrap_or_else(|| error.to_string());
                match media_type(&call.body.media_type) {
                    STRATEGIC => ApiError::bad_request(why),
                    _ => ApiError::bad_request(format!("error decoding patch: {why}")),
                }
            })
        };
        let strategic = builtin_types()
            .kind(&call.api_version(), &call.resource().kind)
            .filter(|_| !call.resource().custom);
        match (media_type(&call.body.media_type), strategic) {
            ("application/json-patch+json", _) => JsonPatch::decode(&body()?).map(Patch::Json).map_err(json_error),
            ("application/merge-patch+json", _) => body().map(Patch::Merge),
            (STRATEGIC, Some(schema)) => Ok(Patch::Strategic(body()?, schema)),
            (STRATEGIC, None) => {
                let accepted =
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                Err(ApiError::unsupported_media(accepted))
            }
            _ => {
                let message = "415: Unsupported Media Type";
                Err(ApiError::new(415, "UnsupportedMediaType", message).with_details(json!({})))
            }
        }
    }

    pub(crate) fn apply(&self, mut object: Value) -> Result<Value, ApiError> {
        match self {
            Patch::Json(patch) => patch.apply(&mut object).map_err(json_error)?,
            Patch::Merge(patch) => {
                if let Value::Object(fields) = &mut object {
                    merge_patch(fields, patch).map_err(merge_error)?;
                }
            }
            Patch::Strategic(patch, schema) => {
                if let Value::Object(fields) = object {
                    object = Value::Object(strategic_merge_patch(fields, patch, *schema).map_err(strategic_error)?);
                }
            }
        }
        Ok(object)
    }
}

/// The API server keeps to itself what is wrong with such a patch.
fn rejected() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    ApiError::new(422, "Invalid", message).with_details(json!({}))
}

fn json_error(error: JsonPatchError) -> ApiError {
    match error {
        JsonPatchError::Decode(_) => ApiError::bad_request(error.to_string()),
        JsonPatchError::TooManyOperations(_) => ApiError::new(413, "RequestEntityTooLarge", error.to_string()),
        JsonPatchError::Apply(_) => rejected(),
    }
}

fn merge_error(error: MergePatchError) -> ApiError {
    ApiError::bad_request(error.to_string())
}

fn strategic_error(error: StrategicError) -> ApiError {
    match error {
        StrategicError::Format(why) => ApiError::bad_request(why),
        StrategicError::ListOfLists => rejected(),
        StrategicError::Content(why) => ApiError::plain(why),
    }
}
