//! One resource's objects and the history of their changes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Compacted, Entry, Event, Expect, Key, Mismatch, Page, PageRequest};

#[derive(Debug)]
pub(super) struct Table {
    pub(super) objects: BTreeMap<Arc<Key>, Entry>,
    pub(super) history: History,
    /// Tells subscriptions the revision of the newest change.
    pub(super) signal: watch::Sender<u64>,
}

impl Table {
    /// An empty table that knows nothing of what happened up to `oldest`.
    pub(super) fn new(signal: watch::Sender<u64>, oldest: u64) -> Self {
        let history = History {
            compacted: oldest,
            ..History::default()
        };
        Self {
            objects: BTreeMap::new(),
            history,
            signal,
        }
    }

    /// The stored object, if it is the one that the writer expects.
    pub(super) fn check(&self, key: &Key, expect: Expect) -> Result<Option<Entry>, Mismatch> {
        let stored = self.objects.get(key);
        match (stored, expect) {
            (None, Expect::Absent) => Ok(None),
            (Some(entry), Expect::Revision(revision)) if entry.revision == revision => Ok(Some(entry.clone())),
            _ => Err(Mismatch),
        }
    }

    /// The object as it was at `revision`, or at the oldest one kept.
    pub(super) fn get_at(&self, key: &Key, revision: u64) -> Option<Entry> {
        match self.history.first_after(revision, key) {
            Some(event) => event.previous.clone(),
            None => self.objects.get(key).cloned(),
        }
    }

    pub(super) fn insert(&mut self, key: &Key, entry: Entry) -> Arc<Key> {
        let shared = match self.objects.get_key_value(key) {
            Some((shared, _)) => shared.clone(),
            None => Arc::new(key.clone()),
        };
        self.objects.insert(shared.clone(), entry);
        shared
    }

    pub(super) fn remove(&mut self, key: &Key) -> Arc<Key> {
        match self.objects.remove_entry(key) {
            Some((shared, _)) => shared,
            None => Arc::new(key.clone()),
        }
    }

    pub(super) fn page(&self, revision: u64, request: PageRequest<'_>) -> Result<Page, Compacted> {
        let undone = match request.at {
            Some(at) => self.history.undo_to(at)?,
            None => BTreeMap::new(),
        };
        let first = match (request.after, request.namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        let inside = |key: &Key| request.namespace.is_none_or(|namespace| key.namespace == namespace);
        let range = (first, Bound::Unbounded);
        let live = self
            .objects
            .range::<Key, _>(range.clone())
            .filter(|(key, _)| !undone.contains_key(*key));
        let live = live
            .take_while(|(key, _)| inside(key))
            .map(|(key, entry)| (key.clone(), entry.clone()));
        let old = undone.range::<Key, _>(range).take_while(|(key, _)| inside(key));
        let mut old = old
            .filter_map(|(key, entry)| Some((key.clone(), entry.clone()?)))
            .peekable();
        let mut live = live.peekable();
        let merged = std::iter::from_fn(|| match (live.peek(), old.peek()) {
            (Some((a, _)), Some((b, _))) if a > b => old.next(),
            (Some(_), _) => live.next(),
            (None, _) => old.next(),
        });
        let mut page = Page {
            revision,
            items: Vec::new(),
            remaining: 0,
        };
        let limit = request.limit.unwrap_or(usize::MAX);
        for item in merged {
            match page.items.len() < limit {
                true => page.items.push(item),
                false => page.remaining += 1,
            }
        }
        Ok(page)
    }
}

/// The changes of one resource, oldest first, without gaps after `compacted`.
#[derive(Debug, Default)]
pub(super) struct History {
    events: VecDeque<Event>,
    /// Changes up to and including this revision are forgotten.
    compacted: u64,
}

impl History {
    pub(super) fn push(&mut self, event: Event, max: usize) {
        self.events.push_back(event);
        while self.events.len() > max {
            let dropped = self.events.pop_front().expect("longer than max, which is at least 1");
            self.compacted = dropped.revision;
        }
    }

    pub(super) fn compact(&mut self, revision: u64) {
        let keep_from = self.events.partition_point(|event| event.revision <= revision);
        self.events.drain(..keep_from);
        self.compacted = self.compacted.max(revision);
    }

    /// The oldest revision from which every change is known.
    pub(super) fn oldest(&self) -> u64 {
        self.compacted
    }

    /// The first change of an object after `revision`.
    fn first_after(&self, revision: u64, key: &Key) -> Option<&Event> {
        let start = self.events.partition_point(|event| event.revision <= revision);
        self.events.range(start..).find(|event| *event.key == *key)
    }

    /// Whether every change after `revision` is still known.
    pub(super) fn check(&self, revision: u64) -> Result<(), Compacted> {
        match revision < self.compacted {
            true => Err(Compacted { oldest: self.compacted }),
            false => Ok(()),
        }
    }

    /// Up to `max` changes after `revision`.
    pub(super) fn after(&self, revision: u64, max: usize) -> Result<Vec<Event>, Compacted> {
        self.check(revision)?;
        let start = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(start..).take(max).cloned().collect())
    }

    /// The objects that differ between now and `revision`, as they were then (`None`: did not exist).
    fn undo_to(&self, revision: u64) -> Result<BTreeMap<Arc<Key>, Option<Entry>>, Compacted> {
        self.check(revision)?;
        let newer = self.events.iter().rev().take_while(|event| event.revision > revision);
        Ok(newer.map(|event| (event.key.clone(), event.previous.clone())).collect())
    }
}
