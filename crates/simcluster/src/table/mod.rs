//! Tables as the API server prints them for `kubectl get`: columns and cells, without layout.
//!
//! A [`Printer`] knows the columns of one kind and makes a row of an object. What the server adds around the rows (list
//! metadata, watch events) is the caller's; [`table`] puts the common parts together.

mod age;
mod builtin;
mod endpoints;
mod jsonpath;
mod pod;
mod workloads;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use thiserror::Error;

pub use self::age::human_duration;
use self::builtin::Cells;
use self::jsonpath::JsonPath;

/// The columns of the built-in kinds, by kind, as kube-apiserver 1.36 sends them.
const BUILTIN_COLUMNS: &str = include_str!("../../openapi/table-columns.json");

/// How much of each object a row carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeObject {
    #[default]
    Metadata,
    Object,
    None,
}

/// Why a table cannot be made as asked.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TableError {
    /// 400.
    #[error(
        "Unable to convert to Table as requested: includeObject: Invalid value: {0:?}: must be 'Metadata', 'Object', 'None', or empty"
    )]
    IncludeObject(String),
    #[error("unrecognized column definition {0:?}")]
    Column(String),
}

impl std::str::FromStr for IncludeObject {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(TableError::IncludeObject(other.to_owned())),
        }
    }
}

/// Makes rows for the objects of one kind.
#[derive(Debug)]
pub struct Printer {
    columns: Value,
    cells: Source,
}

#[derive(Debug)]
enum Source {
    Builtin(Cells),
    /// The type and path of every column after the name.
    Custom(Vec<(String, JsonPath)>),
}

impl Printer {
    /// The printer of a built-in kind; a kind without its own columns shows its name and when it was created.
    pub fn builtin(kind: &str) -> Self {
        static COLUMNS: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
        let columns = COLUMNS.get_or_init(|| {
            serde_json::from_str(BUILTIN_COLUMNS).expect("the columns are part of the program and tested")
        });
        // Roles have no columns of their own.
        let known = columns.get(kind).or_else(|| columns.get("Role"));
        Self {
            columns: known.cloned().unwrap_or_default(),
            cells: Source::Builtin(builtin::cells_of(kind)),
        }
    }

    /// The printer of a custom resource, from its `additionalPrinterColumns`; without any it shows the age.
    pub fn custom(columns: &[Value]) -> Result<Self, TableError> {
        let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})];
        let columns = if columns.is_empty() { &age } else { columns };
        let mut headers = vec![Self::builtin("Role").columns[0].clone()];
        let mut paths = Vec::new();
        for column in columns {
            let text = |name: &str| column[name].as_str().unwrap_or_default();
            let path = text("jsonPath");
            let parsed = JsonPath::parse(path).ok_or_else(|| TableError::Column(path.to_owned()))?;
            let described = format!("Custom resource definition column (in JSONPath format): {path}");
            headers.push(json!({
                "name": text("name"),
                "type": text("type"),
                "format": text("format"),
                "description": Some(text("description")).filter(|text| !text.is_empty()).unwrap_or(&described),
                "priority": column["priority"].as_i64().unwrap_or_default(),
            }));
            paths.push((text("type").to_owned(), parsed));
        }
        Ok(Self {
            columns: Value::Array(headers),
            cells: Source::Custom(paths),
        })
    }

    /// The `columnDefinitions`.
    pub fn columns(&self) -> &Value {
        &self.columns
    }

    /// The row of one object, which must carry its kind and version.
    pub fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let cells = match &self.cells {
            Source::Builtin(cells) => cells(object, now),
            Source::Custom(paths) => {
                let cell = |(ty, path): &(String, JsonPath)| custom_cell(ty, path.first(object), now);
                let name = object["metadata"]["name"].clone();
                [name].into_iter().chain(paths.iter().map(cell)).collect()
            }
        };
        let mut row = Map::new();
        row.insert("cells".to_owned(), Value::Array(cells));
        if let Some(conditions) = builtin::conditions_of(object) {
            row.insert("conditions".to_owned(), conditions);
        }
        let carried = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Object => object.clone(),
            IncludeObject::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
            }
        };
        row.insert("object".to_owned(), carried);
        Value::Object(row)
    }
}

/// A whole Table. `metadata` is that of the list, or of the one object.
pub fn table<'a>(
    printer: &Printer,
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| printer.row(object, include, now))
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": printer.columns,
        "rows": rows,
    })
}

/// A cell keeps its JSON type; a value of another type than the column's is left out.
fn custom_cell(ty: &str, value: Option<&Value>, now: Timestamp) -> Value {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Value::Null;
    };
    match (ty, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Number(number)) if number.is_f64() => {
            Value::from(number.as_f64().unwrap_or_default().to_string())
        }
        ("string", other) => Value::from(other.to_string()),
        ("integer", Value::Number(number)) => {
            let whole = number
                .as_i64()
                .or_else(|| number.as_f64().map(|value| value.trunc() as i64));
            whole.map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => Value::from(
            text.parse()
                .map_or_else(|_| "<invalid>".to_owned(), |time| age::since(Some(time), now)),
        ),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
