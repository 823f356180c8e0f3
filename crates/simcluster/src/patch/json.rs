//! JSON patch (RFC 6902) as the API server does it.
//!
//! The API server's library departs from the RFC, and clients rely on it (the finalizers of kube-rs test a missing path
//! against null), so the operations are written out here: a missing field equals null, `replace` of a missing field adds
//! it, `copy` of a missing field copies null, and an index may be negative and count from the end.

use serde_json::{Map, Value};
use thiserror::Error;

use super::go;

/// More operations than this in one patch are refused.
pub(super) const OPERATIONS_MAX: usize = 10_000;

/// A decoded patch.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Operation>,
}

#[derive(Debug, Clone, PartialEq)]
struct Operation {
    op: String,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

/// Why a patch cannot be decoded or applied, in the words of the API server's library.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum JsonPatchError {
    /// 400.
    #[error("error decoding patch: {0}")]
    Decode(String),
    /// 413.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// 422; of a request the API server withholds these words, of a webhook's patch it tells them.
    #[error("{0}")]
    Apply(String),
}

impl JsonPatch {
    /// Decodes a patch. Fields of an operation that mean nothing are ignored; null is a patch that does nothing.
    pub fn decode(patch: &Value) -> Result<Self, JsonPatchError> {
        let items = match patch {
            Value::Null => &Vec::new(),
            Value::Array(items) => items,
            other => return Err(wrong_type(other, "value", "[]handlers.jsonPatchOp")),
        };
        if items.len() > OPERATIONS_MAX {
            return Err(JsonPatchError::TooManyOperations(items.len()));
        }
        let operations = items.iter().map(operation).collect::<Result<_, _>>()?;
        Ok(Self { operations })
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Applies every operation in order; the first that fails leaves `object` half changed, so give it a copy.
    pub fn apply(&self, object: &mut Value) -> Result<(), JsonPatchError> {
        self.operations
            .iter()
            .try_for_each(|operation| operation.apply(object))
            .map_err(JsonPatchError::Apply)
    }
}

fn wrong_type(value: &Value, place: &str, wanted: &str) -> JsonPatchError {
    let found = go::json_name(value);
    JsonPatchError::Decode(format!(
        "json: cannot unmarshal {found} into Go {place} of type {wanted}"
    ))
}

fn operation(item: &Value) -> Result<Operation, JsonPatchError> {
    let empty = Map::new();
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => &empty,
        other => return Err(wrong_type(other, "value", "handlers.jsonPatchOp")),
    };
    let text = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Null) | None => Ok(None),
        Some(other) => Err(wrong_type(other, &format!("struct field jsonPatchOp.{name}"), "string")),
    };
    let op = text("op")?.unwrap_or_else(|| "unknown".to_owned());
    Ok(Operation {
        op,
        path: text("path")?,
        from: text("from")?,
        value: fields.get("value").cloned().unwrap_or_default(),
    })
}

impl Operation {
    fn apply(&self, object: &mut Value) -> Result<(), String> {
        match self.op.as_str() {
            "add" => self.add(object),
            "remove" => self.remove(object),
            "replace" => self.replace(object),
            "move" => self.relocate(object),
            "test" => self.test(object),
            "copy" => self.copy(object),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn add(&self, object: &mut Value) -> Result<(), String> {
        let path = self
            .path
            .as_deref()
            .ok_or("add operation failed to decode path: missing value")?;
        let (parent, key) = find(object, path)
            .ok_or_else(|| format!("add operation does not apply: doc is missing path: \"{path}\": missing value"))?;
        insert(parent, &key, self.value.clone()).map_err(|error| format!("error in add for path: '{path}': {error}"))
    }

    fn remove(&self, object: &mut Value) -> Result<(), String> {
        let path = self
            .path
            .as_deref()
            .ok_or("remove operation failed to decode path: missing value")?;
        let (parent, key) = find(object, path).ok_or_else(|| {
            format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
        })?;
        take(parent, &key)
            .map(drop)
            .map_err(|error| format!("error in remove for path: '{path}': {error}"))
    }

    fn replace(&self, object: &mut Value) -> Result<(), String> {
        let missing = "replace operation failed to decode path: operation missing path field: missing value";
        let path = self.path.as_deref().ok_or(missing)?;
        if path.is_empty() {
            if !self.value.is_object() && !self.value.is_array() {
                return Err("replace operation value must be object or array".to_owned());
            }
            *object = self.value.clone();
            return Ok(());
        }
        let (parent, key) = find(object, path)
            .ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: missing value"))?;
        match parent {
            Parent::Object(fields) => {
                fields.insert(key, self.value.clone());
            }
            Parent::Array(items) => {
                let index = index_of(&key, items.len()).map_err(|_| {
                    format!("replace operation does not apply: doc is missing key: {path}: missing value")
                })?;
                items[index] = self.value.clone();
            }
        }
        Ok(())
    }

    fn relocate(&self, object: &mut Value) -> Result<(), String> {
        let missing = "move operation failed to decode from: operation, missing from field: missing value";
        let from = self.from.as_deref().ok_or(missing)?;
        let (parent, key) = find(object, from)
            .ok_or_else(|| format!("move operation does not apply: doc is missing from path: {from}: missing value"))?;
        let value = take(parent, &key).map_err(|error| format!("error in move for path: '{key}': {error}"))?;
        let missing = "move operation failed to decode path: operation missing path field: missing value";
        let path = self.path.as_deref().ok_or(missing)?;
        let (parent, key) = find(object, path).ok_or_else(|| {
            format!("move operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        insert(parent, &key, value).map_err(|error| format!("error in move for path: '{path}': {error}"))
    }

    fn test(&self, object: &mut Value) -> Result<(), String> {
        let missing = "test operation failed to decode path: operation missing path field: missing value";
        let path = self.path.as_deref().ok_or(missing)?;
        let found = if path.is_empty() {
            object.clone()
        } else {
            let (parent, key) = find(object, path)
                .ok_or_else(|| format!("test operation does not apply: is missing path: {path}: missing value"))?;
            get(parent, &key).map_err(|error| format!("error in test for path: '{path}': {error}"))?
        };
        if found == self.value {
            Ok(())
        } else {
            Err(format!("testing value {path} failed: test failed"))
        }
    }

    fn copy(&self, object: &mut Value) -> Result<(), String> {
        let missing = "copy operation failed to decode from: operation, missing from field: missing value";
        let from = self.from.as_deref().ok_or(missing)?;
        let (parent, key) = find(object, from)
            .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: missing value"))?;
        let value = get(parent, &key).map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
        let path = self
            .path
            .as_deref()
            .ok_or("copy operation failed to decode path: missing value")?;
        let (parent, key) = find(object, path).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        insert(parent, &key, value).map_err(|error| format!("error while adding value during copy: {error}"))
    }
}

enum Parent<'a> {
    Object(&'a mut Map<String, Value>),
    Array(&'a mut Vec<Value>),
}

/// The value that holds the path's last key, and that key. What is before the first `/` is ignored.
fn find<'a>(object: &'a mut Value, path: &str) -> Option<(Parent<'a>, String)> {
    let (_, keys) = path.split_once('/')?;
    let (parents, last) = keys
        .rsplit_once('/')
        .map_or((None, keys), |(parents, last)| (Some(parents), last));
    let mut place = object;
    for key in parents.into_iter().flat_map(|parents| parents.split('/')) {
        place = match place {
            Value::Object(fields) => fields.get_mut(&unescape(key))?,
            Value::Array(items) => {
                let index = index_of(&unescape(key), items.len()).ok()?;
                &mut items[index]
            }
            _ => return None,
        };
    }
    match place {
        Value::Object(fields) => Some((Parent::Object(fields), unescape(last))),
        Value::Array(items) => Some((Parent::Array(items), unescape(last))),
        _ => None,
    }
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

/// The position that `key` means in a list of `len` items.
fn index_of(key: &str, len: usize) -> Result<usize, String> {
    let index: i64 = key
        .parse()
        .map_err(|_| format!("strconv.Atoi: parsing {key:?}: invalid syntax"))?;
    let out_of_range = || format!("Unable to access invalid index: {index}: invalid index referenced");
    let from_start = if index < 0 {
        index.checked_add_unsigned(len as u64)
    } else {
        Some(index)
    };
    from_start
        .and_then(|index| usize::try_from(index).ok())
        .filter(|index| *index < len)
        .ok_or_else(out_of_range)
}

/// A missing field reads as null; a missing item is an error.
fn get(parent: Parent<'_>, key: &str) -> Result<Value, String> {
    match parent {
        Parent::Object(fields) => Ok(fields.get(key).cloned().unwrap_or_default()),
        Parent::Array(items) => index_of(key, items.len()).map(|index| items[index].clone()),
    }
}

fn take(parent: Parent<'_>, key: &str) -> Result<Value, String> {
    match parent {
        Parent::Object(fields) => fields
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Parent::Array(items) => index_of(key, items.len()).map(|index| items.remove(index)),
    }
}

fn insert(parent: Parent<'_>, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Parent::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        Parent::Array(items) if key == "-" => items.push(value),
        Parent::Array(items) => {
            let improper = |error: String| match error.starts_with("strconv") {
                true => format!("value was not a proper array index: '{key}': {error}"),
                false => error,
            };
            // One past the end is a place to add at.
            let index = index_of(key, items.len() + 1).map_err(improper)?;
            items.insert(index, value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(patch: Value) -> Result<Value, String> {
        let mut object = json!({"data": {"a": "1", "x/y": "2"}, "list": ["p", "q"]});
        let patch = JsonPatch::decode(&patch).map_err(|error| error.to_string())?;
        patch.apply(&mut object).map_err(|error| error.to_string())?;
        Ok(object)
    }

    /// Each patch with what becomes of `data` and `list`, seen on kube-apiserver 1.36.3.
    #[test]
    fn operations_do_what_the_api_server_does() {
        let data = |data| json!({"data": data, "list": ["p", "q"]});
        let list = |list| json!({"data": {"a": "1", "x/y": "2"}, "list": list});
        let unchanged = list(json!(["p", "q"]));
        let cases = [
            (
                json!([{"op": "test", "path": "/data/zz", "value": null}]),
                unchanged.clone(),
            ),
            (json!([{"op": "test", "path": "/data/zz"}]), unchanged.clone()),
            (
                json!([{"op": "replace", "path": "/data/b", "value": "x"}]),
                data(json!({"a": "1", "b": "x", "x/y": "2"})),
            ),
            (
                json!([{"op": "add", "path": "/data/b"}]),
                data(json!({"a": "1", "b": null, "x/y": "2"})),
            ),
            (
                json!([{"op": "copy", "from": "/data/z", "path": "/data/b"}]),
                data(json!({"a": "1", "b": null, "x/y": "2"})),
            ),
            (json!([{"op": "remove", "path": "/data/x~1y"}]), data(json!({"a": "1"}))),
            (
                json!([{"op": "move", "from": "/data/a", "path": "/data/b"}]),
                data(json!({"b": "1", "x/y": "2"})),
            ),
            (
                json!([{"op": "add", "path": "/list/-", "value": "r"}]),
                list(json!(["p", "q", "r"])),
            ),
            (
                json!([{"op": "add", "path": "/list/2", "value": "r"}]),
                list(json!(["p", "q", "r"])),
            ),
            (
                json!([{"op": "add", "path": "/list/0", "value": "r"}]),
                list(json!(["r", "p", "q"])),
            ),
            (json!([{"op": "remove", "path": "/list/-1"}]), list(json!(["p"]))),
            (
                json!([{"op": "replace", "path": "/list/1", "value": "r"}]),
                list(json!(["p", "r"])),
            ),
            (
                json!([{"op": "replace", "path": "", "value": {"a": 1}}]),
                json!({"a": 1}),
            ),
            (Value::Null, unchanged),
        ];
        for (patch, expected) in cases {
            assert_eq!(patched(patch.clone()), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn what_fails_is_told_in_the_words_of_the_library() {
        let cases = [
            (
                json!([{"op": "remove", "path": "/nope/x"}]),
                "remove operation does not apply: doc is missing path: \"/nope/x\": missing value",
            ),
            (
                json!([{"op": "remove", "path": "/data/x"}]),
                "error in remove for path: '/data/x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                json!([{"op": "test", "path": "/data/zz/y", "value": null}]),
                "test operation does not apply: is missing path: /data/zz/y: missing value",
            ),
            (
                json!([{"op": "test", "path": "/data/a", "value": "2"}]),
                "testing value /data/a failed: test failed",
            ),
            (
                json!([{"op": "add", "path": ""}]),
                "add operation does not apply: doc is missing path: \"\": missing value",
            ),
            (
                json!([{"op": "add"}]),
                "add operation failed to decode path: missing value",
            ),
            (
                json!([{"op": "add", "path": "/list/3", "value": 1}]),
                "error in add for path: '/list/3': Unable to access invalid index: 3: invalid index referenced",
            ),
            (json!([{"op": "zzz", "path": "/a"}]), "Unexpected kind: zzz"),
            (
                json!([{"op": "replace", "path": ""}]),
                "replace operation value must be object or array",
            ),
            (
                json!({}),
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                json!([1]),
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            (
                json!([{"op": 1}]),
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
        ];
        for (patch, words) in cases {
            assert_eq!(patched(patch.clone()), Err(words.to_owned()), "{patch}");
        }
    }

    #[test]
    fn a_patch_of_too_many_operations_is_refused() {
        let patch = Value::Array(vec![json!({"op": "test", "path": "/a"}); OPERATIONS_MAX + 1]);
        assert_eq!(
            JsonPatch::decode(&patch),
            Err(JsonPatchError::TooManyOperations(10_001))
        );
    }
}
