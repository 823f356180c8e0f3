//! `fieldsV1`, the JSON in which a field set is stored: `f:` names a field, `k:` a list item by its keys, `v:` a member
//! of a set, `i:` an index; `.` says that the path itself is in the set.

use serde_json::{Map, Value};

use super::fieldset::{FieldSet, Item, PathElement};

pub(super) fn encode(set: &FieldSet) -> Value {
    Value::Object(contents(set))
}

fn contents(set: &FieldSet) -> Map<String, Value> {
    let mut elements: Vec<&PathElement> = set.members.iter().chain(set.children.keys()).collect();
    elements.sort();
    elements.dedup();
    let mut object = Map::new();
    for element in elements {
        let mut inner = Map::new();
        if let Some(child) = set.children.get(element) {
            if set.members.contains(element) {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            inner.extend(contents(child));
        }
        object.insert(encode_element(element), Value::Object(inner));
    }
    object
}

fn encode_element(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(keys) => {
            let keys: Vec<String> = keys
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.0))
                .collect();
            format!("k:{{{}}}", keys.join(","))
        }
        PathElement::Value(value) => format!("v:{}", value.0),
        PathElement::Index(index) => format!("i:{index}"),
    }
}

/// Reads a field set; the error says which key is wrong.
pub(super) fn decode(fields: &Value) -> Result<FieldSet, String> {
    let Value::Object(fields) = fields else {
        return Err(format!("fieldsV1 must be an object, not {fields}"));
    };
    let mut set = FieldSet::default();
    for (key, inner) in fields {
        // What a newer server may write is skipped.
        if key == "." {
            continue;
        }
        let Some(element) = decode_element(key)? else { continue };
        let child = decode(inner)?;
        if child.is_empty() || inner.get(".").is_some() {
            set.members.insert(element.clone());
        }
        if !child.is_empty() {
            set.children.insert(element, child);
        }
    }
    Ok(set)
}

fn decode_element(key: &str) -> Result<Option<PathElement>, String> {
    let Some((kind, rest)) = key.split_once(':') else {
        return Err(format!("missing colon: {key}"));
    };
    let json = || serde_json::from_str::<Value>(rest).map_err(|error| format!("parsing {key}: {error}"));
    match kind {
        "f" => Ok(Some(PathElement::Field(rest.to_owned()))),
        "v" => json().map(|value| Some(PathElement::Value(Item(value)))),
        "i" => rest
            .parse()
            .map(|index| Some(PathElement::Index(index)))
            .map_err(|error| format!("parsing {key}: {error}")),
        "k" => match json()? {
            Value::Object(keys) => Ok(Some(key_element(keys.into_iter().collect()))),
            _ => Err(format!("parsing {key}: keys must be an object")),
        },
        _ => Ok(None),
    }
}

pub(super) fn key_element(mut keys: Vec<(String, Value)>) -> PathElement {
    keys.sort_by(|(a, _), (b, _)| a.cmp(b));
    PathElement::Key(keys.into_iter().map(|(name, value)| (name, Item(value))).collect())
}
