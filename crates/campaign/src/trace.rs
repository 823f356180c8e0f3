//! Everything that was written in one run, read once.

use std::collections::BTreeMap;
use std::rc::Rc;

use grove_simcluster::history::History;
use grove_simcluster::server::Verb;
use jiff::Timestamp;
use serde_json::Value;

/// Kinds that are about other things and no things themselves, or are large and nobody's concern.
const PASSED_OVER: [&str; 4] = [
    "events",
    "customresourcedefinitions",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
];

/// Plural, namespace and name.
pub(crate) type Key = (String, String, String);

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) time: Timestamp,
    /// Who asked for it; empty for the cluster itself.
    pub(crate) user: String,
    pub(crate) verb: Option<Verb>,
    pub(crate) key: Key,
    pub(crate) before: Option<Rc<Value>>,
    /// None if it is gone.
    pub(crate) after: Option<Rc<Value>>,
}

impl Change {
    pub(crate) fn plural(&self) -> &str {
        &self.key.0
    }

    /// Whether the object was marked as leaving, or removed, by this write.
    pub(crate) fn is_deletion(&self) -> bool {
        let leaves = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        let is_leaving = self.before.as_deref().is_some_and(leaves);
        !is_leaving && self.after.as_deref().is_none_or(leaves)
    }

    /// `patch pods/default/w-0-a-x by somebody`.
    pub(crate) fn words(&self) -> String {
        let (plural, namespace, name) = &self.key;
        let verb = self.verb.map_or_else(|| "write".to_owned(), |verb| verb.to_string());
        let user = self.user.rsplit(':').next().unwrap_or_default();
        let revision = self.revision;
        format!(
            "{verb} {plural} {namespace}/{name} by {user} at {} (revision {revision})",
            self.time
        )
    }
}

/// All writes since the cluster began, in order.
pub(crate) fn read(history: &History) -> Vec<Change> {
    let writes = history.writes();
    let mut last: BTreeMap<Key, Rc<Value>> = BTreeMap::new();
    let read = |write: &grove_simcluster::history::Write| {
        let plural = write.resource.plural.to_string();
        let key = (plural, write.key.namespace.clone(), write.key.name.clone());
        let after = write.after().map(Rc::new);
        let before = match &after {
            Some(after) => last.insert(key.clone(), after.clone()),
            None => last.remove(&key),
        };
        Change {
            revision: write.revision,
            time: write.time,
            user: write.user.clone(),
            verb: write.verb,
            key,
            before,
            after,
        }
    };
    let wanted = writes
        .iter()
        .filter(|write| !PASSED_OVER.contains(&&*write.resource.plural));
    wanted.map(read).collect()
}

/// Everything that there is after these writes.
pub(crate) fn state(changes: &[Change]) -> BTreeMap<&Key, &Rc<Value>> {
    let mut state = BTreeMap::new();
    for change in changes {
        match &change.after {
            Some(object) => state.insert(&change.key, object),
            None => state.remove(&change.key),
        };
    }
    state
}
