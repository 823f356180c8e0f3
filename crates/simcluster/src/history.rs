//! The history of a run: every write and every request since the start, for tests to assert on.
//!
//! Kept only if asked for ([`crate::Builder::record_history`]), because it grows without bound. Writes of the cluster
//! itself are in it too; their user is empty. Requests are those that came through a door.

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::server::{Intent, Verb};
use crate::store::{Event, EventKind, Key, ResourceName, decode};

tokio::task_local! {
    /// The request that the running task serves. A write happens inside the task that serves its request, and the
    /// store, which knows nothing of requests, need not carry their names.
    static SERVED: Served;
}

struct Served {
    intent: Intent,
    writes: Cell<usize>,
}

/// One write, as the store did it.
#[derive(Clone, Debug)]
pub struct Write {
    /// Revision that it got.
    pub revision: u64,
    /// When, by the cluster's clock.
    pub time: Timestamp,
    /// Who asked for it; empty for the cluster itself.
    pub user: String,
    /// What was asked for; `None` for the cluster itself.
    pub verb: Option<Verb>,
    /// Subresource that was written through; empty for the object itself.
    pub subresource: String,
    /// The collection.
    pub resource: ResourceName,
    /// Namespace and name.
    pub key: Key,
    /// Uid of the object.
    pub uid: String,
    /// What happened to the object.
    pub kind: EventKind,
    before: Option<Bytes>,
    after: Bytes,
}

impl Write {
    /// The object before, without `apiVersion` and `kind`; `None` if there was none.
    pub fn before(&self) -> Option<Value> {
        self.before.as_deref().map(decode)
    }

    /// The object after, without `apiVersion` and `kind`; `None` if it is gone.
    pub fn after(&self) -> Option<Value> {
        (self.kind != EventKind::Deleted).then(|| decode(&self.after))
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The client got an answer of this code.
    Answered(u16),
    /// The client got no answer.
    Lost,
}

/// One request that came through a door.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When it ended, by the cluster's clock.
    pub time: Timestamp,
    /// What it asked for.
    pub intent: Intent,
    /// How it ended.
    pub outcome: Outcome,
    /// How many writes it made.
    pub writes: usize,
}

impl Asked {
    /// Whether it was sent to change something, succeeded, and changed nothing.
    pub fn is_no_op(&self) -> bool {
        let succeeded = matches!(self.outcome, Outcome::Answered(200..=299));
        self.intent.verb.is_write() && !self.intent.dry_run && succeeded && self.writes == 0
    }
}

/// Everything that happened so far.
#[derive(Debug, Default)]
pub struct History {
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    writes: Vec<Write>,
    requests: Vec<Asked>,
}

impl History {
    /// All writes so far.
    pub fn writes(&self) -> Writes {
        Writes(self.lock().writes.clone())
    }

    /// All requests that have ended so far.
    pub fn requests(&self) -> Requests {
        Requests(self.lock().requests.clone())
    }

    /// One number for all writes and requests, in order: equal histories have equal hashes.
    pub fn hash(&self) -> u64 {
        let log = self.lock();
        // This hasher has fixed keys.
        let mut hasher = DefaultHasher::new();
        for write in &log.writes {
            (write.revision, write.time, &write.user, &write.resource, &write.key).hash(&mut hasher);
            write.after.hash(&mut hasher);
        }
        for asked in &log.requests {
            let intent = &asked.intent;
            (asked.time, &intent.user, intent.verb, &intent.resource).hash(&mut hasher);
            (&intent.namespace, &intent.name, asked.outcome).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Takes down a write. Called by the store, in the task that writes.
    pub(crate) fn record(&self, resource: &ResourceName, event: &Event, time: Timestamp) {
        let served = SERVED.try_with(|served| {
            served.writes.set(served.writes.get() + 1);
            served.intent.clone()
        });
        let intent = served.ok();
        let write = Write {
            revision: event.revision,
            time,
            verb: intent.as_ref().map(|intent| intent.verb),
            resource: resource.clone(),
            key: (*event.key).clone(),
            uid: uid_of(&event.object),
            kind: event.kind,
            before: event.previous.as_ref().map(|entry| entry.bytes.clone()),
            after: event.object.clone(),
            subresource: intent
                .as_ref()
                .map(|intent| intent.subresource.clone())
                .unwrap_or_default(),
            user: intent.map(|intent| intent.user).unwrap_or_default(),
        };
        self.lock().writes.push(write);
    }

    /// Takes down a request that has ended, or will never be answered.
    pub(crate) fn record_request(&self, intent: &Intent, time: Timestamp, outcome: Outcome, writes: usize) {
        self.lock().requests.push(Asked {
            time,
            intent: intent.clone(),
            outcome,
            writes,
        });
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs what serves a request, so that its writes are known to be its own. Also tells how many there were.
pub(crate) async fn attribute<T>(intent: &Intent, serving: impl Future<Output = T>) -> (T, usize) {
    let served = Served {
        intent: intent.clone(),
        writes: Cell::new(0),
    };
    let counted = async {
        let result = serving.await;
        (result, SERVED.with(|served| served.writes.get()))
    };
    SERVED.scope(served, counted).await
}

fn uid_of(object: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        uid: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object {
        metadata: Metadata,
    }
    serde_json::from_slice::<Object>(object)
        .unwrap_or_default()
        .metadata
        .uid
}

/// Some of the writes, in order.
#[derive(Clone, Debug, Default)]
pub struct Writes(Vec<Write>);

impl Writes {
    /// Those that this user asked for; the cluster itself has no name.
    pub fn by_user(self, user: &str) -> Self {
        self.only(|write| write.user == user)
    }

    /// Those to this resource, by group and plural name.
    pub fn of_kind(self, group: &str, plural: &str) -> Self {
        let resource = ResourceName::new(group, plural);
        self.only(|write| write.resource == resource)
    }

    /// Those that were asked for with one of these verbs.
    pub fn verbs(self, verbs: &[Verb]) -> Self {
        self.only(|write| write.verb.is_some_and(|verb| verbs.contains(&verb)))
    }

    /// Those after a revision.
    pub fn after(self, revision: u64) -> Self {
        self.only(|write| write.revision > revision)
    }

    /// Those that a test thinks of.
    pub fn only(mut self, wanted: impl Fn(&Write) -> bool) -> Self {
        self.0.retain(wanted);
        self
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// One by one.
    pub fn iter(&self) -> std::slice::Iter<'_, Write> {
        self.0.iter()
    }
}

/// Some of the requests, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub struct Requests(Vec<Asked>);

impl Requests {
    /// Those of this user.
    pub fn by_user(self, user: &str) -> Self {
        self.only(|asked| asked.intent.user == user)
    }

    /// Those to this resource, by group and plural name.
    pub fn of_kind(self, group: &str, plural: &str) -> Self {
        let resource = ResourceName::new(group, plural);
        self.only(|asked| asked.intent.resource == resource)
    }

    /// Those with one of these verbs.
    pub fn verbs(self, verbs: &[Verb]) -> Self {
        self.only(|asked| verbs.contains(&asked.intent.verb))
    }

    /// Those that ended so.
    pub fn ended(self, outcome: Outcome) -> Self {
        self.only(|asked| asked.outcome == outcome)
    }

    /// Those that were sent to change something, succeeded, and changed nothing.
    pub fn no_ops(self) -> Self {
        self.only(Asked::is_no_op)
    }

    /// Those that a test thinks of.
    pub fn only(mut self, wanted: impl Fn(&Asked) -> bool) -> Self {
        self.0.retain(wanted);
        self
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// One by one.
    pub fn iter(&self) -> std::slice::Iter<'_, Asked> {
        self.0.iter()
    }
}
