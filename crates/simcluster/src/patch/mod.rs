//! The four ways to change an object in part: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! Every function here is pure: objects in, object out. What a type says about itself (merge keys, list types) comes in
//! as a [`TypeSchema`]. Reading requests, optimistic locking, defaulting and validation are the caller's.

mod apply;
mod decode;
mod go;
mod json;
mod merge;
mod openapi;
mod strategic;
mod types;

pub use apply::{ApplyError, Conflict, FieldSet, Writer, apply, track_update};
pub use decode::{decode_builtin, drop_empty_maps, is_plain};
pub(crate) use go::plain as go_text;
pub use json::{JsonPatch, JsonPatchError};
pub use merge::{MergePatchError, merge_patch};
pub(crate) use openapi::OBJECT_META;
pub use openapi::{OpenApiError, builtin_types, published, reached};
pub use strategic::{StrategicError, strategic_merge_patch};
pub use types::{TypeSchema, Types};
