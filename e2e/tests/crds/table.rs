//! The table of rules in `rules.yaml`: how it is read, and how an answer is compared with it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::core::Status;
use serde::Deserialize;
use serde_json::{Value, json};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    objects: BTreeMap<String, Value>,
    cases: Vec<Row>,
}

/// One entry of the file. With `at` it stands for several cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    rule: String,
    kind: String,
    #[serde(default)]
    at: Vec<String>,
    #[serde(default)]
    set: BTreeMap<String, Value>,
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    status: bool,
    #[serde(default)]
    update: bool,
    refused: Option<Refused>,
    #[serde(default)]
    stored: BTreeMap<String, Value>,
}

/// How a case must be refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    /// Path of the field, as in the causes of the answer.
    pub(crate) field: String,
    /// Part of the text about it.
    pub(crate) message: String,
    /// Machine-readable reason, where it is part of the rule.
    reason: Option<String>,
}

/// One object to send and what the API server must answer.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) rule: String,
    /// The object of the kind as the table has it.
    pub(crate) base: Value,
    /// The object with the changes of the case.
    pub(crate) changed: Value,
    /// Whether the base is stored first and then changed.
    pub(crate) after_create: bool,
    /// Whether the change is made to the status.
    pub(crate) status: bool,
    pub(crate) refused: Option<Refused>,
    /// Values that the stored object has, by JSON pointer.
    pub(crate) stored: BTreeMap<String, Value>,
}

impl Table {
    pub(crate) fn read() -> Result<Self> {
        Ok(serde_saphyr::from_str(include_str!("rules.yaml"))?)
    }

    pub(crate) fn cases(&self) -> Vec<Case> {
        let places = |row: &Row| {
            if row.at.is_empty() {
                vec![String::new()]
            } else {
                row.at.clone()
            }
        };
        self.cases
            .iter()
            .flat_map(|row| places(row).into_iter().map(|place| self.case(row, &place)))
            .collect()
    }

    /// The object of a kind as the table has it.
    pub(crate) fn object(&self, kind: &str) -> &Value {
        self.objects
            .get(kind)
            .unwrap_or_else(|| panic!("no object for kind {kind}"))
    }

    fn case(&self, row: &Row, place: &str) -> Case {
        let base = self.object(&row.kind).clone();
        let mut changed = base.clone();
        for (pointer, value) in &row.set {
            set(&mut changed, &format!("{place}{pointer}"), expanded(value));
        }
        for pointer in &row.remove {
            set(&mut changed, &format!("{place}{pointer}"), Value::Null);
        }
        let field_prefix = as_field(place);
        Case {
            rule: row.rule.clone(),
            base,
            changed,
            after_create: row.status || row.update,
            status: row.status,
            refused: row.refused.clone().map(|refused| Refused {
                field: format!("{field_prefix}{}", refused.field),
                ..refused
            }),
            stored: row
                .stored
                .iter()
                .map(|(pointer, value)| (format!("{place}{pointer}"), value.clone()))
                .collect(),
        }
    }
}

impl Case {
    pub(crate) fn kind(&self) -> &str {
        self.base["kind"].as_str().unwrap_or_default()
    }

    pub(crate) fn compare_stored(&self, object: &Value) -> Result<()> {
        for (pointer, wanted) in &self.stored {
            let found = object.pointer(pointer);
            ensure!(found == Some(wanted), "{pointer} should be {wanted}, but is {found:?}");
        }
        Ok(())
    }
}

impl Refused {
    pub(crate) fn compare(&self, status: &Status) -> Result<()> {
        let causes = status
            .details
            .as_ref()
            .map(|details| details.causes.as_slice())
            .unwrap_or_default();
        let cause = causes
            .iter()
            .find(|cause| cause.field == self.field && cause.message.contains(&self.message));
        let cause =
            cause.with_context(|| format!("wanted {}: {}\n    got {}", self.field, self.message, status.message))?;
        if let Some(reason) = &self.reason {
            ensure!(
                cause.reason == *reason,
                "the reason should be {reason}, but is {}",
                cause.reason
            );
        }
        Ok(())
    }
}

/// `"*64"` stands for a text of 64 letters.
fn expanded(value: &Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix('*').and_then(|digits| digits.parse().ok()) {
            Some(length) => json!("a".repeat(length)),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(expanded).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name.clone(), expanded(field)))
            .collect(),
        other => other.clone(),
    }
}

/// Sets the value at a pointer; null removes it. The parent must exist.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer
        .rsplit_once('/')
        .unwrap_or_else(|| panic!("{pointer} is no pointer"));
    let parent = object
        .pointer_mut(parent)
        .unwrap_or_else(|| panic!("{pointer} has no parent"));
    match (parent, value) {
        (Value::Object(fields), Value::Null) => drop(fields.remove(name)),
        (Value::Object(fields), value) => drop(fields.insert(name.to_owned(), value)),
        (parent, value) => parent[name.parse::<usize>().unwrap_or_else(|_| panic!("{pointer}: no index"))] = value,
    }
}

/// `/spec/levels/0` as the API server writes it, `spec.levels[0].`, ready to be continued.
fn as_field(pointer: &str) -> String {
    let mut field = String::new();
    for step in pointer.split('/').skip(1) {
        match step.parse::<usize>() {
            Ok(index) => {
                field.pop();
                field.push_str(&format!("[{index}]."));
            }
            Err(_) => field.push_str(&format!("{step}.")),
        }
    }
    field
}

/// The first path of `wanted` that `object` lacks or has otherwise; what the API server adds is no difference.
pub(crate) fn missing(object: &Value, wanted: &Value, path: &str) -> Option<String> {
    match (object, wanted) {
        (Value::Object(object), Value::Object(wanted)) => wanted.iter().find_map(|(name, field)| {
            let path = format!("{path}.{name}");
            object
                .get(name)
                .map_or_else(|| Some(path.clone()), |found| missing(found, field, &path))
        }),
        (Value::Array(object), Value::Array(wanted)) if object.len() == wanted.len() => {
            let pairs = object.iter().zip(wanted).enumerate();
            pairs
                .into_iter()
                .find_map(|(i, (found, field))| missing(found, field, &format!("{path}[{i}]")))
        }
        (object, wanted) => (object != wanted).then(|| path.to_owned()),
    }
}
