//! The objects of one kind that were last seen, by name, and by what they belong to.
//!
//! Two tell a store what there is: the watch, and the answers to our own writes. Either may be late, so an older
//! revision never replaces a newer one, and an object that we know to be gone does not come back under the same UID.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::core::ObjectMeta;

use crate::ObjectKey;

/// Which object, and which revision of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    pub uid: String,
    /// Since Kubernetes 1.35 the API defines the order of resource versions.
    pub version: u64,
}

impl Stamp {
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok())
                .unwrap_or(0),
        }
    }
}

/// What an object belongs to: a whole, and a numbered part of it.
pub type Shelf = (String, i32);

/// What became of an object; both at once if it changed.
#[derive(Debug)]
pub struct Change<V> {
    pub key: ObjectKey,
    pub old: Option<Arc<V>>,
    pub new: Option<Arc<V>>,
}

#[derive(Debug)]
struct Held<V> {
    stamp: Stamp,
    shelf: Option<Shelf>,
    value: Arc<V>,
}

#[derive(Debug)]
struct Inner<V> {
    held: BTreeMap<ObjectKey, Held<V>>,
    shelves: BTreeSet<(String, i32, ObjectKey)>,
    /// UIDs that we deleted and of which the watch may still report the past.
    gone: BTreeMap<ObjectKey, String>,
    /// How far the watch has come: everything up to this revision has been told.
    reached: u64,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<V> {
    inner: Mutex<Inner<V>>,
    shelf: fn(&V) -> Option<Shelf>,
}

impl<V> Store<V> {
    /// An empty store; `shelf` says what an object belongs to.
    pub fn new(shelf: fn(&V) -> Option<Shelf>) -> Self {
        let inner = Inner {
            held: BTreeMap::new(),
            shelves: BTreeSet::new(),
            gone: BTreeMap::new(),
            reached: 0,
        };
        Self {
            inner: Mutex::new(inner),
            shelf,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner<V>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.inner().held.get(key).map(|held| held.value.clone())
    }

    /// Which revision of an object is held.
    pub fn stamp(&self, key: &ObjectKey) -> Option<Stamp> {
        self.inner().held.get(key).map(|held| held.stamp.clone())
    }

    /// Everything that belongs to `whole`, part by part.
    pub fn of(&self, whole: &str) -> Vec<Arc<V>> {
        self.on_shelves(whole, i32::MIN..=i32::MAX)
    }

    /// Everything that belongs to one part of `whole`.
    pub fn of_part(&self, whole: &str, part: i32) -> Vec<Arc<V>> {
        self.on_shelves(whole, part..=part)
    }

    fn on_shelves(&self, whole: &str, parts: std::ops::RangeInclusive<i32>) -> Vec<Arc<V>> {
        let inner = self.inner();
        let first = (whole.to_owned(), *parts.start(), ObjectKey::new("", ""));
        let on = inner.shelves.range(first..);
        let on = on.take_while(|(other, part, _)| other == whole && parts.contains(part));
        on.filter_map(|(_, _, key)| inner.held.get(key).map(|held| held.value.clone()))
            .collect()
    }

    pub fn all(&self) -> Vec<Arc<V>> {
        self.inner().held.values().map(|held| held.value.clone()).collect()
    }

    pub fn len(&self) -> usize {
        self.inner().held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes an object that a watch told of, or that was read. None if it is no news.
    pub fn put(&self, key: ObjectKey, stamp: Stamp, value: V) -> Option<Change<V>> {
        self.insert(&mut self.inner(), (key, stamp), value)
    }

    /// Takes an object as the API server answered a write with it. An answer may come after the watch has told of the
    /// object's end: what the watch has passed and does not hold is gone.
    pub fn put_answer(&self, key: ObjectKey, stamp: Stamp, value: V) -> Option<Change<V>> {
        let mut inner = self.inner();
        if !inner.held.contains_key(&key) && stamp.version <= inner.reached {
            return None;
        }
        self.insert(&mut inner, (key, stamp), value)
    }

    /// Takes note of how far the watch has come.
    pub fn reach(&self, version: u64) {
        let mut inner = self.inner();
        inner.reached = inner.reached.max(version);
    }

    fn insert(&self, inner: &mut Inner<V>, (key, stamp): (ObjectKey, Stamp), value: V) -> Option<Change<V>> {
        if inner.gone.get(&key) == Some(&stamp.uid) {
            return None;
        }
        if inner
            .held
            .get(&key)
            .is_some_and(|held| held.stamp.version >= stamp.version)
        {
            return None;
        }
        let old = inner.take_out(&key);
        let shelf = (self.shelf)(&value);
        if let Some((whole, part)) = shelf.clone() {
            inner.shelves.insert((whole, part, key.clone()));
        }
        let value = Arc::new(value);
        let new = Some(value.clone());
        inner.held.insert(key.clone(), Held { stamp, shelf, value });
        Some(Change { key, old, new })
    }

    /// Takes note that an object is gone, as the watch says.
    pub fn remove(&self, key: &ObjectKey, uid: &str) -> Option<Change<V>> {
        let mut inner = self.inner();
        if inner.gone.get(key).is_some_and(|gone| gone == uid) {
            inner.gone.remove(key);
        }
        inner.drop_held(key, uid)
    }

    /// Takes note that we deleted an object, before the watch says so.
    pub fn forget(&self, key: &ObjectKey, uid: &str) -> Option<Change<V>> {
        let mut inner = self.inner();
        let change = inner.drop_held(key, uid)?;
        inner.gone.insert(key.clone(), uid.to_owned());
        Some(change)
    }

    /// Takes note that a new list holds these objects and no others, the newest of this revision.
    pub fn keep_only(&self, listed: &BTreeSet<ObjectKey>, version: u64) -> Vec<Change<V>> {
        let mut inner = self.inner();
        inner.gone.clear();
        inner.reached = inner.reached.max(version);
        let missing: Vec<ObjectKey> = inner.held.keys().filter(|key| !listed.contains(key)).cloned().collect();
        let changes = missing.into_iter().map(|key| Change {
            old: inner.take_out(&key),
            new: None,
            key,
        });
        changes.collect()
    }
}

impl<V> Inner<V> {
    fn take_out(&mut self, key: &ObjectKey) -> Option<Arc<V>> {
        let held = self.held.remove(key)?;
        if let Some((whole, part)) = held.shelf {
            self.shelves.remove(&(whole, part, key.clone()));
        }
        Some(held.value)
    }

    fn drop_held(&mut self, key: &ObjectKey, uid: &str) -> Option<Change<V>> {
        self.held.get(key).filter(|held| held.stamp.uid == uid)?;
        let old = self.take_out(key);
        Some(Change {
            key: key.clone(),
            old,
            new: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store<(&'static str, i32)> {
        Store::new(|(whole, part)| Some(((*whole).to_owned(), *part)))
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    fn stamp(uid: &str, version: u64) -> Stamp {
        Stamp {
            uid: uid.into(),
            version,
        }
    }

    #[test]
    fn an_older_revision_never_replaces_a_newer_one() {
        let store = store();
        assert!(store.put(key("a"), stamp("u", 5), ("w", 1)).is_some());
        assert!(
            store.put(key("a"), stamp("u", 5), ("w", 2)).is_none(),
            "the same is no news"
        );
        assert!(store.put(key("a"), stamp("u", 4), ("w", 2)).is_none());
        assert_eq!(*store.get(&key("a")).unwrap(), ("w", 1));
        let change = store.put(key("a"), stamp("u", 6), ("w", 2)).unwrap();
        assert_eq!((*change.old.unwrap(), *change.new.unwrap()), (("w", 1), ("w", 2)));
    }

    #[test]
    fn what_we_deleted_does_not_come_back_from_a_late_watch() {
        let store = store();
        store.put(key("a"), stamp("u", 5), ("w", 1));
        assert!(store.forget(&key("a"), "u").is_some());
        assert!(store.put(key("a"), stamp("u", 9), ("w", 1)).is_none());
        // The same name, made anew, is another object.
        assert!(store.put(key("a"), stamp("v", 10), ("w", 1)).is_some());
        assert!(
            store.remove(&key("a"), "u").is_none(),
            "the end of the first is not the end of the second"
        );
        assert!(store.get(&key("a")).is_some());
    }

    /// The object came and went while the watch was broken: the list does not have it, and says how far it knows.
    #[test]
    fn an_answer_that_comes_after_a_list_without_its_object_does_not_bring_it_back() {
        let store = store();
        store.put(key("b"), stamp("v", 9), ("w", 1));
        store.keep_only(&BTreeSet::from([key("b")]), 9);
        assert!(store.put_answer(key("a"), stamp("u", 7), ("w", 1)).is_none());
        assert!(store.put_answer(key("a"), stamp("u", 10), ("w", 1)).is_some());
    }

    /// The last finalizer is lifted: the watch tells of the end before the answer to the patch is there.
    #[test]
    fn an_answer_that_comes_after_the_end_of_its_object_does_not_bring_it_back() {
        let store = store();
        store.put(key("a"), stamp("u", 5), ("w", 1));
        store.remove(&key("a"), "u");
        store.reach(7);
        assert!(store.put_answer(key("a"), stamp("u", 7), ("w", 1)).is_none());
        assert!(store.get(&key("a")).is_none());
        assert!(
            store.put_answer(key("a"), stamp("v", 8), ("w", 1)).is_some(),
            "what the watch has not come to yet is news"
        );
    }

    #[test]
    fn parts_are_found_by_what_they_belong_to() {
        let store = store();
        for (name, shelf) in [("a", ("w", 1)), ("b", ("w", 2)), ("c", ("x", 1)), ("d", ("w", 1))] {
            store.put(key(name), stamp(name, 1), shelf);
        }
        assert_eq!(store.of("w").len(), 3);
        assert_eq!(store.of_part("w", 1).len(), 2);
        store.put(key("a"), stamp("a", 2), ("x", 1));
        assert_eq!((store.of("w").len(), store.of("x").len()), (2, 2));
        store.remove(&key("d"), "d");
        assert!(store.of_part("w", 1).is_empty());
    }

    #[test]
    fn a_new_list_ends_what_it_does_not_hold() {
        let store = store();
        store.put(key("a"), stamp("a", 1), ("w", 1));
        store.put(key("b"), stamp("b", 1), ("w", 1));
        let ended = store.keep_only(&BTreeSet::from([key("b")]), 0);
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].key, key("a"));
        assert_eq!(store.len(), 1);
    }
}
