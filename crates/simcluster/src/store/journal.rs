//! Where writes go to be kept: a queue to whoever keeps them, and how far that has come.
//!
//! A store with a journal shows nobody outside the process what is not kept yet: an answer waits for [`Store::settled`],
//! and a subscription ends at the last revision that is kept. So no client ever saw a revision that a crash takes back.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::{oneshot, watch};

use super::{Entry, Event, EventKind, Head, Inner, Key, ResourceName, Store, Table, decode};
use crate::clock::Clock;

/// How far the keeping has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Every write up to and including this revision outlives the process.
    UpTo(u64),
    /// Nothing can be kept any more, and why.
    Failed(Arc<str>),
}

/// What was written cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data directory cannot be written: {0}")]
pub struct NotKept(pub(crate) Arc<str>);

/// Something to keep.
#[derive(Debug)]
pub(crate) enum Note {
    /// The state of an object; `None` is gone.
    Write {
        resource: ResourceName,
        key: Arc<Key>,
        revision: u64,
        object: Option<Bytes>,
        at: Timestamp,
    },
    /// A fact about the cluster that is no object.
    Fact {
        name: String,
        value: Vec<u8>,
        kept: oneshot::Sender<()>,
    },
    /// Nothing follows.
    End,
}

/// The store's end of the queue.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) notes: mpsc::Sender<Note>,
    pub(crate) kept: watch::Receiver<Kept>,
    pub(crate) clock: Clock,
}

impl Journal {
    fn write(&self, resource: &ResourceName, event: &Event) {
        let object = (event.kind != EventKind::Deleted).then(|| event.object.clone());
        // Whoever keeps notes ends with the cluster, or has said that it failed.
        let _ = self.notes.send(Note::Write {
            resource: resource.clone(),
            key: event.key.clone(),
            revision: event.revision,
            object,
            at: self.clock.now(),
        });
    }
}

/// An object of a store, and where it is.
pub(crate) type Stored = (ResourceName, Arc<Key>, Entry);

impl Store {
    /// A store as it was when its last write was kept. What happened before is forgotten: who watches from there is told.
    pub(crate) fn restored(history_per_resource: usize, revision: u64, objects: Vec<Stored>) -> Self {
        let store = Self::new(history_per_resource);
        let mut inner = store.lock();
        (inner.revision, inner.oldest) = (revision, revision);
        for (resource, key, entry) in objects {
            inner.table(&resource).objects.insert(key, entry);
        }
        drop(inner);
        store
    }

    /// Every object there is, oldest write first.
    pub(crate) fn everything(&self) -> Vec<Stored> {
        self.lock().everything()
    }

    /// Notes every write from now on; the answer is what must be kept before the first of them.
    pub(crate) fn keep(&self, journal: Journal) -> (u64, Vec<Stored>) {
        let mut inner = self.lock();
        inner.journal = Some(journal);
        inner.visible = inner.revision;
        (inner.revision, inner.everything())
    }

    /// Shows subscribers what is kept by now.
    pub(crate) fn show(&self, revision: u64, changed: &BTreeSet<ResourceName>) {
        let mut inner = self.lock();
        inner.visible = revision;
        for resource in changed {
            inner.table(resource).signal.send_replace(revision);
        }
    }

    /// Tells all that is stored to who follows the writes, as if it were new: a cluster that goes on begins so.
    pub(crate) fn replay(&self) {
        let mut inner = self.lock();
        for (resource, key, entry) in inner.everything() {
            let event = Event {
                revision: entry.revision,
                kind: EventKind::Added,
                key,
                head: Arc::new(Head::of(&decode(&entry.bytes))),
                object: entry.bytes,
                previous: None,
            };
            inner.taps.retain(|tap| tap.pass(&resource, &event));
        }
    }

    /// Waits until every write so far is kept. In a store without a journal nothing is, and nobody waits.
    pub(crate) async fn settled(&self) -> Result<(), NotKept> {
        let (revision, mut kept) = {
            let inner = self.lock();
            match &inner.journal {
                Some(journal) => (inner.revision, journal.kept.clone()),
                None => return Ok(()),
            }
        };
        let reached = |kept: &Kept| match kept {
            Kept::UpTo(kept) => *kept >= revision,
            Kept::Failed(_) => true,
        };
        let ended = || NotKept("nobody writes to it any more".into());
        match &*kept.wait_for(reached).await.map_err(|_| ended())? {
            Kept::UpTo(_) => Ok(()),
            Kept::Failed(why) => Err(NotKept(why.clone())),
        }
    }
}

impl Inner {
    fn everything(&self) -> Vec<Stored> {
        let of = |(resource, table): (&ResourceName, &Table)| {
            let resource = resource.clone();
            let objects = table.objects.iter();
            objects
                .map(move |(key, entry)| (resource.clone(), key.clone(), entry.clone()))
                .collect::<Vec<_>>()
        };
        let mut all: Vec<Stored> = self.tables.iter().flat_map(of).collect();
        all.sort_by_key(|(_, _, entry)| entry.revision);
        all
    }

    /// The newest revision that may be shown.
    pub(super) fn visible(&self) -> u64 {
        match &self.journal {
            Some(_) => self.visible,
            None => self.revision,
        }
    }

    /// Notes a write, if writes are kept. Whether who is subscribed may see it at once.
    pub(super) fn note(&self, resource: &ResourceName, event: &Event) -> bool {
        if let Some(journal) = &self.journal {
            journal.write(resource, event);
        }
        self.journal.is_none()
    }
}
