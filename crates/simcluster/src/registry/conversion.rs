//! In which version the objects of a custom kind are stored, and who turns one version into another.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use crate::schema::Schema;

/// What a CustomResourceDefinition says about its versions as a whole.
#[derive(Debug)]
pub struct Conversion {
    /// The version in which objects are written.
    pub stored: String,
    /// `spec.conversion.webhook`, if somebody else converts; without, only the name of the version changes.
    pub webhook: Option<Value>,
    /// Versions in which objects were written that are older than a revision, oldest first.
    earlier: Vec<(u64, String)>,
    /// Objects that are older may lack defaults of the schemas, or have fields that they do not know.
    fresh_from: u64,
    /// Whether all versions have one schema.
    is_uniform: bool,
    has_one_version: bool,
    /// Schemas of versions that are not served, but may be stored.
    unserved: BTreeMap<String, Schema>,
    /// Tells whether the schemas are those of another definition.
    fingerprint: u64,
}

impl Conversion {
    /// Reads a definition.
    pub fn of(definition: &Value) -> Self {
        let spec = &definition["spec"];
        let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let schema = |version: &'_ Value| version["schema"]["openAPIV3Schema"].clone();
        let name = |version: &Value| version["name"].as_str().unwrap_or_default().to_owned();
        let unserved = versions.iter().filter(|version| version["served"] != true);
        let mut hasher = DefaultHasher::new();
        for version in versions {
            (name(version), schema(version).to_string()).hash(&mut hasher);
        }
        Self {
            stored: versions
                .iter()
                .find(|v| v["storage"] == true)
                .map(name)
                .unwrap_or_default(),
            webhook: (spec["conversion"]["strategy"] == "Webhook").then(|| spec["conversion"]["webhook"].clone()),
            earlier: Vec::new(),
            fresh_from: 0,
            is_uniform: versions.windows(2).all(|pair| schema(&pair[0]) == schema(&pair[1])),
            has_one_version: versions.len() < 2,
            unserved: unserved
                .filter_map(|version| Some((name(version), Schema::compile("", &schema(version)).ok()?)))
                .collect(),
            fingerprint: hasher.finish(),
        }
    }

    /// The same for a kind that was defined otherwise until `revision`.
    pub fn after(mut self, before: &Self, revision: u64) -> Self {
        self.earlier.clone_from(&before.earlier);
        if before.stored != self.stored {
            self.earlier.push((revision, before.stored.clone()));
        }
        self.fresh_from = match before.fingerprint == self.fingerprint {
            true => before.fresh_from,
            false => revision,
        };
        self
    }

    /// What must be remembered beside the definition, so that older objects can be read after a restart.
    pub(crate) fn lineage(&self) -> Option<Value> {
        (!self.earlier.is_empty()).then(|| json!({"stored": self.stored, "earlier": self.earlier}))
    }

    /// The same after a restart: all objects are from before `revision`, and `lineage` is what was remembered.
    pub(crate) fn resumed(mut self, definition: &Value, lineage: Option<&Value>, revision: u64) -> Self {
        let earlier = lineage.and_then(|lineage| serde_json::from_value(lineage["earlier"].clone()).ok());
        self.earlier = earlier.unwrap_or_default();
        // The definition may have changed just before the end, and nothing was written by the new one.
        let first = &definition["status"]["storedVersions"][0];
        let before = lineage.map_or(first, |lineage| &lineage["stored"]).as_str();
        if let Some(before) = before.filter(|before| *before != self.stored) {
            self.earlier.push((revision, before.to_owned()));
        }
        // How the schemas were at the time of each write, nobody remembers.
        self.fresh_from = revision;
        self
    }

    /// The version in which an object was stored that was last written at `revision`.
    pub fn stored_at(&self, revision: u64) -> &str {
        let earlier = self.earlier.iter().find(|(until, _)| revision <= *until);
        earlier.map_or(&self.stored, |(_, version)| version)
    }

    /// Whether an object that was last written at `revision` is served in every version as it is stored.
    pub fn serves_as_stored(&self, revision: u64) -> bool {
        revision > self.fresh_from && (self.has_one_version || (self.is_uniform && self.webhook.is_none()))
    }

    /// The schema of a version that is not served.
    pub(super) fn unserved(&self, version: &str) -> Option<&Schema> {
        self.unserved.get(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(stored: &str, old_fields: Value) -> Value {
        let version = |name: &str, fields: Value| {
            json!({"name": name, "served": true, "storage": name == stored,
                   "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}}})
        };
        json!({"spec": {"versions": [version("v1", old_fields), version("v2", json!({}))]}})
    }

    #[test]
    fn an_object_is_stored_in_the_version_of_its_time() {
        let first = Conversion::of(&definition("v1", json!({})));
        assert_eq!((first.stored_at(1), first.stored_at(99)), ("v1", "v1"));
        let second = Conversion::of(&definition("v2", json!({}))).after(&first, 10);
        assert_eq!((second.stored_at(10), second.stored_at(11)), ("v1", "v2"));
        let third = Conversion::of(&definition("v1", json!({}))).after(&second, 20);
        let at = [10, 11, 20, 21].map(|revision| third.stored_at(revision).to_owned());
        assert_eq!(at, ["v1", "v2", "v2", "v1"]);
    }

    #[test]
    fn objects_are_looked_at_again_after_a_change_of_schemas() {
        let first = Conversion::of(&definition("v1", json!({})));
        assert!(first.serves_as_stored(1), "both versions have one schema");
        let same = Conversion::of(&definition("v2", json!({}))).after(&first, 10);
        assert!(same.serves_as_stored(1));
        let other = Conversion::of(&definition("v1", json!({"x": {"type": "string"}}))).after(&first, 10);
        assert!(!other.serves_as_stored(1) && !other.serves_as_stored(11));
    }

    #[test]
    fn a_restart_forgets_no_version() {
        let first = Conversion::of(&definition("v1", json!({})));
        assert_eq!(first.lineage(), None);
        let second = Conversion::of(&definition("v2", json!({}))).after(&first, 10);
        let lineage = second.lineage();
        let mut stored = definition("v2", json!({}));
        stored["status"] = json!({"storedVersions": ["v1", "v2"]});
        let again = Conversion::of(&stored).resumed(&stored, lineage.as_ref(), 20);
        assert_eq!((again.stored_at(10), again.stored_at(11)), ("v1", "v2"));
        // Killed between the change of the definition and the note about it.
        let early = Conversion::of(&stored).resumed(&stored, None, 20);
        assert_eq!((early.stored_at(20), early.stored_at(21)), ("v1", "v2"));
    }
}
