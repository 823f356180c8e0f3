//! The store: every object as encoded bytes, one revision counter, and a bounded history of changes.
//!
//! ```text
//! Store ── lock ── Inner ── revision
//!                    ├── tables: ResourceName → Table { objects, history, signal }
//!                    └── taps:   readers of every write, in order
//! ```
//!
//! Invariants: a revision is given to exactly one write; a table's history is ordered by revision and holds every
//! change after `compacted`; nothing awaits while the lock is held; a write costs `O(log n)`.
//!
//! The store knows nothing of Kubernetes' rules. It writes `metadata.resourceVersion` because only it knows the
//! revision, and it leaves `apiVersion` and `kind` out of the bytes, so that one stored object can be served in every
//! version of its kind by putting another prefix before it.

mod head;
mod journal;
mod subscription;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

pub use head::{Head, Owner};
pub use journal::NotKept;
pub(crate) use journal::{Journal, Kept, Note, Stored};
pub use subscription::Subscription;
use table::Table;

/// Where a kind's objects live: API group and plural name, without a version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Plural name, as in the path.
    pub plural: Arc<str>,
}

impl ResourceName {
    /// Whether this is the collection `plural` of `group`.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        &*self.plural == plural && &*self.group == group
    }

    /// Names the collection `plural` of `group`.
    pub fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }
}

/// `pods`, `widgets.demo.test`: how the API server names a resource in its messages.
impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.is_empty() {
            true => f.write_str(&self.plural),
            false => write!(f, "{}.{}", self.plural, self.group),
        }
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Namespace and name of an object; the namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key from its parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// A stored object: its revision and its bytes (JSON without `apiVersion` and `kind`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Revision of the last write.
    pub revision: u64,
    /// The encoded object.
    pub bytes: Bytes,
}

impl Entry {
    /// Decodes the object.
    pub fn value(&self) -> Value {
        decode(&self.bytes)
    }
}

/// Decodes bytes that came out of the store.
pub fn decode(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("the store holds only JSON that it encoded itself")
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object is new.
    Added,
    /// The object was there before.
    Modified,
    /// The object is gone; the event carries its last state under a new revision.
    Deleted,
}

/// One write, as watchers see it.
#[derive(Clone, Debug)]
pub struct Event {
    /// Revision that the write got.
    pub revision: u64,
    /// What happened.
    pub kind: EventKind,
    /// Whose object.
    pub key: Arc<Key>,
    /// The object after the write, or its last state if it was deleted.
    pub object: Bytes,
    /// What there is to know about the object at first sight.
    pub head: Arc<Head>,
    /// The object before the write.
    pub previous: Option<Entry>,
}

/// What a writer believes to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No object under that key.
    Absent,
    /// An object last written at this revision.
    Revision(u64),
}

/// The writer's belief was wrong: somebody else wrote in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored object is not the expected one")]
pub struct Mismatch;

/// A revision lies before the history that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision is older than {oldest}, the oldest one kept")]
pub struct Compacted {
    /// Oldest revision that can still be read or watched from.
    pub oldest: u64,
}

/// Part of a collection in key order.
#[derive(Clone, Debug)]
pub struct Page {
    /// Revision of the store that the page shows.
    pub revision: u64,
    /// Objects in order of namespace and name.
    pub items: Vec<(Arc<Key>, Entry)>,
    /// How many objects follow after the last item.
    pub remaining: usize,
}

/// What to read of a collection.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageRequest<'a> {
    /// Only this namespace; `None` is all.
    pub namespace: Option<&'a str>,
    /// Only objects after this key.
    pub after: Option<&'a Key>,
    /// At most so many; `None` is all.
    pub limit: Option<usize>,
    /// The state as of this revision; `None` is now.
    pub at: Option<u64>,
}

/// The store. Shared by reference; every method is short and never waits for anything but the lock.
pub struct Store {
    inner: Mutex<Inner>,
    history_per_resource: usize,
}

struct Inner {
    revision: u64,
    /// Nothing is known of what happened up to here.
    oldest: u64,
    tables: BTreeMap<ResourceName, Table>,
    taps: Vec<Tap>,
    observer: Option<Box<Observer>>,
    /// Where writes are kept, if they are, and the last one that is.
    journal: Option<Journal>,
    visible: u64,
}

type Observer = dyn Fn(&ResourceName, &Event) + Send;

/// Which writes the reader of a tap wants.
pub(crate) type Wanted = fn(&ResourceName, EventKind) -> bool;

/// Where writes go as they are made.
struct Tap {
    sender: mpsc::UnboundedSender<(ResourceName, Event)>,
    wanted: Wanted,
    /// Revision of the last write that went there.
    last: Arc<AtomicU64>,
}

impl Tap {
    /// Whether anybody still reads.
    fn pass(&self, resource: &ResourceName, event: &Event) -> bool {
        if !(self.wanted)(resource, event.kind) {
            return !self.sender.is_closed();
        }
        self.last.store(event.revision, Ordering::Relaxed);
        self.sender.send((resource.clone(), event.clone())).is_ok()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store that keeps the last `history_per_resource` changes of each resource for watchers.
    pub fn new(history_per_resource: usize) -> Self {
        let inner = Inner {
            revision: 1,
            oldest: 0,
            tables: BTreeMap::new(),
            taps: Vec::new(),
            observer: None,
            journal: None,
            visible: 0,
        };
        Self {
            inner: Mutex::new(inner),
            history_per_resource: history_per_resource.max(1),
        }
    }

    /// Revision of the newest write.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// The object under `key`.
    pub fn get(&self, resource: &ResourceName, key: &Key) -> Option<Entry> {
        self.lock().tables.get(resource)?.objects.get(key).cloned()
    }

    /// The object under `key` as it was at an earlier revision, or at the oldest one kept.
    pub fn get_at(&self, resource: &ResourceName, key: &Key, revision: u64) -> Option<Entry> {
        self.lock().tables.get(resource)?.get_at(key, revision)
    }

    /// The oldest revision of a resource that can still be read or watched from.
    pub fn oldest(&self, resource: &ResourceName) -> u64 {
        let inner = self.lock();
        inner.tables.get(resource).map_or(inner.oldest, |t| t.history.oldest())
    }

    /// How many objects a resource has.
    pub fn count(&self, resource: &ResourceName) -> usize {
        self.lock().tables.get(resource).map_or(0, |t| t.objects.len())
    }

    /// Part of a collection, now or at an earlier revision.
    pub fn page(&self, resource: &ResourceName, request: PageRequest<'_>) -> Result<Page, Compacted> {
        let inner = self.lock();
        let now = inner.revision;
        let revision = request.at.map_or(now, |at| at.min(now));
        match inner.tables.get(resource) {
            Some(table) => table.page(revision, request),
            None if request.at.is_some_and(|at| at < inner.oldest) => Err(Compacted { oldest: inner.oldest }),
            None => Ok(Page {
                revision,
                items: Vec::new(),
                remaining: 0,
            }),
        }
    }

    /// All objects of a collection as they are now, with the revision that this view has.
    pub fn list(&self, resource: &ResourceName, namespace: Option<&str>) -> Page {
        self.page(
            resource,
            PageRequest {
                namespace,
                ..PageRequest::default()
            },
        )
        .expect("the present is never compacted")
    }

    /// Writes `object` if `expect` holds, and sets its `metadata.resourceVersion` to the revision it got.
    pub fn put(
        &self,
        resource: &ResourceName,
        key: &Key,
        expect: Expect,
        object: &mut Value,
    ) -> Result<Entry, Mismatch> {
        let mut inner = self.lock();
        let revision = inner.revision + 1;
        let table = inner.table(resource);
        let previous = table.check(key, expect)?;
        let entry = Entry {
            revision,
            bytes: encode(object, revision),
        };
        let kind = if previous.is_some() {
            EventKind::Modified
        } else {
            EventKind::Added
        };
        let key = table.insert(key, entry.clone());
        let event = Event {
            revision,
            kind,
            key,
            object: entry.bytes.clone(),
            head: Arc::new(Head::of(object)),
            previous,
        };
        inner.publish(resource, event, self.history_per_resource);
        Ok(entry)
    }

    /// Removes the object if it was last written at `expected`. The answer is its last state under a new revision.
    pub fn delete(&self, resource: &ResourceName, key: &Key, expected: u64) -> Result<Entry, Mismatch> {
        let mut inner = self.lock();
        let revision = inner.revision + 1;
        let table = inner.table(resource);
        let previous = table.check(key, Expect::Revision(expected))?;
        let mut last = previous.as_ref().map(Entry::value).unwrap_or_default();
        let entry = Entry {
            revision,
            bytes: encode(&mut last, revision),
        };
        let key = table.remove(key);
        let event = Event {
            revision,
            kind: EventKind::Deleted,
            key,
            object: entry.bytes.clone(),
            head: Arc::new(Head::of(&last)),
            previous,
        };
        inner.publish(resource, event, self.history_per_resource);
        Ok(entry)
    }

    /// Follows the changes of one resource after revision `from`.
    pub fn subscribe(self: &Arc<Self>, resource: &ResourceName, from: u64) -> Result<Subscription, Compacted> {
        let mut inner = self.lock();
        let table = inner.table(resource);
        table.history.check(from)?;
        let signal = table.signal.subscribe();
        drop(inner);
        Ok(Subscription::new(self.clone(), resource.clone(), signal, from))
    }

    /// Receives every write of every resource from now on, in order.
    ///
    /// The channel is unbounded: a tap is for the cluster's own behaviours and for tests that assert on the history of
    /// writes, both of which drain it.
    pub fn tap(&self) -> mpsc::UnboundedReceiver<(ResourceName, Event)> {
        self.tap_of(|_, _| true).0
    }

    /// The same for those writes only that the reader wants; beside it, the revision of the last of them.
    pub(crate) fn tap_of(&self, wanted: Wanted) -> (mpsc::UnboundedReceiver<(ResourceName, Event)>, Arc<AtomicU64>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let last = Arc::new(AtomicU64::new(0));
        self.lock().taps.push(Tap {
            sender,
            wanted,
            last: last.clone(),
        });
        (receiver, last)
    }

    /// Lets `observer` see every write from now on, in the task that writes and before the writer goes on.
    ///
    /// It runs while the store is locked: it must not come back to the store.
    pub(crate) fn observe(&self, observer: impl Fn(&ResourceName, &Event) + Send + 'static) {
        self.lock().observer = Some(Box::new(observer));
    }

    /// The revision of the newest change of a collection; 0 if nothing was ever written to it.
    pub(crate) fn changed(&self, resource: &ResourceName) -> u64 {
        let inner = self.lock();
        inner.tables.get(resource).map_or(0, |table| *table.signal.borrow())
    }

    /// Forgets the history up to and including `revision`; reads and watches from before it then end in 410.
    pub fn compact(&self, revision: u64) {
        let mut inner = self.lock();
        let revision = revision.min(inner.revision);
        for table in inner.tables.values_mut() {
            table.history.compact(revision);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every method leaves the maps whole at each step, so a panic of another thread does not spoil them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn table(&mut self, resource: &ResourceName) -> &mut Table {
        if !self.tables.contains_key(resource) {
            let table = Table::new(watch::Sender::new(self.revision), self.oldest);
            self.tables.insert(resource.clone(), table);
        }
        self.tables.get_mut(resource).expect("inserted above")
    }

    fn publish(&mut self, resource: &ResourceName, event: Event, history_max: usize) {
        self.revision = event.revision;
        if let Some(observer) = &self.observer {
            observer(resource, &event);
        }
        self.taps.retain(|tap| tap.pass(resource, &event));
        let is_visible = self.note(resource, &event);
        let table = self.table(resource);
        let revision = event.revision;
        table.history.push(event, history_max);
        if is_visible {
            table.signal.send_replace(revision);
        }
    }
}

fn encode(object: &mut Value, revision: u64) -> Bytes {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
    }
    let bytes = serde_json::to_vec(object).expect("a JSON value always encodes");
    // A boxed slice has no spare capacity: with many small objects that is a tenth of the memory.
    Bytes::from(bytes.into_boxed_slice())
}
