//! `metadata.managedFields`: the entries of an object, decoded, sorted and capped as the API server does it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::fields_v1;
use super::fieldset::FieldSet;

/// More entries of updates than this are folded into one.
const UPDATE_ENTRIES_MAX: usize = 10;
const FOLDED_MANAGER: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// What tells one entry from another. An applier has one entry whatever version it writes, an updater one for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// Empty for an applier.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) api_version: String,
    /// Missing when the write changed owners only.
    pub(super) time: Option<Timestamp>,
    pub(super) fields: FieldSet,
}

/// The entries of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managed(pub(super) BTreeMap<Identity, Entry>);

impl Identity {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// How a conflict names this manager: `"m1" with subresource "status" using v1`.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            text += &format!(" using {}", self.api_version);
        }
        text
    }
}

/// The `managedFields` of an object, if it has any.
pub(super) fn raw(object: &Value) -> Option<&Value> {
    object
        .get("metadata")?
        .get("managedFields")
        .filter(|entries| !entries.is_null())
}

/// Whether a client asks to forget all entries: an empty list, or a list of one empty entry.
pub(super) fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

impl Managed {
    /// Reads the entries of an object; the error says what is wrong with them.
    pub(super) fn decode(object: &Value) -> Result<Self, String> {
        let Some(entries) = raw(object) else {
            return Ok(Self::default());
        };
        let entries = entries.as_array().ok_or("managedFields must be a list")?;
        let mut managed = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
            }
            let fields = entry
                .get("fieldsV1")
                .map(fields_v1::decode)
                .transpose()?
                .unwrap_or_default();
            let identity = Identity {
                manager: text("manager").to_owned(),
                ..Identity::new("", operation, text("apiVersion"), text("subresource"))
            };
            let entry = Entry {
                api_version: text("apiVersion").to_owned(),
                time: text("time").parse().ok(),
                fields,
            };
            managed.insert(identity, entry);
        }
        Ok(Self(managed))
    }

    /// The entries as JSON: appliers first, then by time and name. Nothing is written if there are none.
    pub(super) fn encode_into(&self, object: &mut Value) {
        let seconds = |entry: &Entry| entry.time.map_or(0, Timestamp::as_second);
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_key(|(id, entry)| {
            (
                id.operation,
                seconds(entry),
                &id.manager,
                &entry.api_version,
                &id.subresource,
            )
        });
        let entries: Vec<Value> = entries
            .into_iter()
            .map(|(identity, entry)| encode_entry(identity, entry))
            .collect();
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }

    /// Folds the oldest updates of each version into one entry, until there are no more than the limit.
    pub(super) fn cap_updates(&mut self) {
        let mut updates: Vec<Identity> = self
            .0
            .keys()
            .filter(|id| id.operation == Operation::Update)
            .cloned()
            .collect();
        let mut left = updates.len();
        updates.sort_by_key(|id| (self.0[id].time.map_or(0, Timestamp::as_second), id.clone()));
        let mut first_of_version: BTreeMap<String, Identity> = BTreeMap::new();
        for identity in updates {
            if left <= UPDATE_ENTRIES_MAX {
                return;
            }
            let version = identity.api_version.clone();
            let Some(first) = first_of_version.get(&version).cloned() else {
                first_of_version.insert(version, identity);
                continue;
            };
            let Some(entry) = self.0.remove(&identity) else {
                continue;
            };
            let bucket = Identity::new(FOLDED_MANAGER, Operation::Update, &version, "");
            let folded = self.0.remove(&bucket).or_else(|| self.0.remove(&first));
            let fields = folded
                .map_or_else(FieldSet::default, |folded| folded.fields)
                .union(entry.fields);
            let (api_version, time) = (entry.api_version, entry.time);
            self.0.insert(
                bucket,
                Entry {
                    api_version,
                    time,
                    fields,
                },
            );
            left -= 1;
        }
    }
}

fn encode_entry(identity: &Identity, entry: &Entry) -> Value {
    let operation = if identity.operation == Operation::Apply {
        "Apply"
    } else {
        "Update"
    };
    let mut object = json!({
        "manager": identity.manager,
        "operation": operation,
        "apiVersion": entry.api_version,
    });
    if let Some(time) = entry.time {
        object["time"] = Value::from(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    object["fieldsType"] = Value::from("FieldsV1");
    object["fieldsV1"] = fields_v1::encode(&entry.fields);
    if !identity.subresource.is_empty() {
        object["subresource"] = Value::from(identity.subresource.as_str());
    }
    object
}
