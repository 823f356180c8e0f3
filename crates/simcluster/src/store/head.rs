//! The few facts about an object that those who follow every write look at first.

use serde::Deserialize;
use serde_json::Value;

/// What is known of an object without decoding it: the store takes it from each object as it is written, so that none
/// of those who follow the writes must read the bytes for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Head {
    /// Its uid.
    pub uid: String,
    /// When it shall go, if it is being deleted.
    pub deletion_timestamp: Option<String>,
    /// What holds it.
    pub finalizers: Vec<String>,
    /// Who owns it.
    pub owner_references: Vec<Owner>,
    /// The node that it is on, if it is a pod.
    #[serde(skip)]
    pub node: String,
}

/// A reference to an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version of its kind.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it waits for this object when it goes in the foreground.
    pub block_owner_deletion: bool,
}

impl Head {
    pub(crate) fn of(object: &Value) -> Self {
        // A field of the wrong type says nothing; the rules let none in.
        let mut head = Head::deserialize(&object["metadata"]).unwrap_or_default();
        head.node = object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        head
    }

    /// Whether the object is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether a finalizer holds the object.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}
