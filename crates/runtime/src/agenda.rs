//! What is to be looked at, and when: the queue without its waiting.
//!
//! - One look at a time for each key: a key that is added while it is being worked on is looked at once more, after.
//! - Adding a key that is already due changes nothing; adding one that is due later brings it forward.
//! - After a failure a key waits, longer each time. A change of what is observed does not wait: it may be the cure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::Backoff;

/// The keys that are due, that will be due, and that are being worked on.
#[derive(Debug)]
pub struct Agenda<K> {
    /// Due now, in the order in which they became so.
    due: BTreeMap<u64, K>,
    place: BTreeMap<K, u64>,
    next_place: u64,
    /// Due later.
    later: BTreeSet<(Instant, K)>,
    later_at: BTreeMap<K, Instant>,
    running: BTreeSet<K>,
    /// Added while running: due as soon as the present look has ended.
    again: BTreeSet<K>,
    failures: BTreeMap<K, u32>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            place: BTreeMap::new(),
            next_place: 0,
            later: BTreeSet::new(),
            later_at: BTreeMap::new(),
            running: BTreeSet::new(),
            again: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Ord> Agenda<K> {
    /// Makes the key due now.
    pub fn add(&mut self, key: K) {
        self.forget_later(&key);
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if !self.place.contains_key(&key) {
            self.place.insert(key.clone(), self.next_place);
            self.due.insert(self.next_place, key);
            self.next_place += 1;
        }
    }

    /// Makes the key due at `at`, unless it is due earlier anyhow.
    pub fn add_at(&mut self, key: K, at: Instant) {
        if self.place.contains_key(&key) || self.again.contains(&key) {
            return;
        }
        match self.later_at.get(&key) {
            Some(earlier) if *earlier <= at => {}
            _ => {
                self.forget_later(&key);
                self.later_at.insert(key.clone(), at);
                self.later.insert((at, key));
            }
        }
    }

    fn forget_later(&mut self, key: &K) {
        if let Some(at) = self.later_at.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
    }

    /// The next key to work on. Until [`Agenda::done`] it is nobody else's.
    pub fn take(&mut self, now: Instant) -> Option<K> {
        while let Some((at, key)) = self.later.first().cloned() {
            if at > now {
                break;
            }
            self.forget_later(&key);
            self.add(key);
        }
        let (_, key) = self.due.pop_first()?;
        self.place.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// When the first of the keys that are not due yet will be.
    pub fn next_at(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Ends the work on a key that went well.
    pub fn done(&mut self, key: &K) {
        self.failures.remove(key);
        self.end(key);
    }

    /// Ends the work on a key that failed, and returns how long it waits.
    pub fn failed(&mut self, key: &K, backoff: Backoff, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let wait = backoff.after(*failures);
        self.end(key);
        self.add_at(key.clone(), now + wait);
        wait
    }

    fn end(&mut self, key: &K) {
        self.running.remove(key);
        if self.again.remove(key) {
            self.add(key.clone());
        }
    }

    /// Whether nothing is due or being worked on. Keys that are due later do not count.
    pub fn is_idle(&self) -> bool {
        self.due.is_empty() && self.running.is_empty()
    }

    /// How many keys of each class are due.
    pub fn depths<C: Ord>(&self, class: impl Fn(&K) -> C) -> BTreeMap<C, usize> {
        let mut depths = BTreeMap::new();
        for key in self.due.values() {
            *depths.entry(class(key)).or_default() += 1;
        }
        depths
    }

    /// How many keys are due, and how many are being worked on.
    pub fn load(&self) -> (usize, usize) {
        (self.due.len(), self.running.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agenda(keys: &[&'static str]) -> Agenda<&'static str> {
        let mut agenda = Agenda::default();
        keys.iter().for_each(|key| agenda.add(*key));
        agenda
    }

    #[test]
    fn keys_come_in_the_order_in_which_they_became_due_and_once() {
        let now = Instant::now();
        let mut agenda = agenda(&["b", "a", "b"]);
        assert_eq!(
            (agenda.take(now), agenda.take(now), agenda.take(now)),
            (Some("b"), Some("a"), None)
        );
    }

    #[test]
    fn a_key_is_worked_on_once_at_a_time_and_no_change_is_lost() {
        let now = Instant::now();
        let mut agenda = agenda(&["a"]);
        agenda.take(now);
        agenda.add("a");
        agenda.add("a");
        assert_eq!(agenda.take(now), None);
        agenda.done(&"a");
        assert_eq!(agenda.take(now), Some("a"));
        agenda.done(&"a");
        assert!(agenda.take(now).is_none() && agenda.is_idle());
    }

    #[test]
    fn what_waits_is_counted_by_its_class() {
        let mut agenda = agenda(&["a1", "a2", "b1"]);
        agenda.take(Instant::now());
        let depths = agenda.depths(|key| key.chars().next());
        assert_eq!(depths, BTreeMap::from([(Some('a'), 1), (Some('b'), 1)]));
    }

    #[test]
    fn the_earliest_time_counts() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut agenda = Agenda::default();
        agenda.add_at("a", now + 5 * second);
        agenda.add_at("a", now + second);
        agenda.add_at("a", now + 9 * second);
        assert_eq!(agenda.next_at(), Some(now + second));
        assert_eq!(agenda.take(now), None);
        assert_eq!(agenda.take(now + second), Some("a"));
        assert_eq!(agenda.next_at(), None);
    }

    #[test]
    fn a_change_does_not_wait_for_the_end_of_a_backoff() {
        let now = Instant::now();
        let mut agenda = agenda(&["a"]);
        agenda.take(now);
        let wait = agenda.failed(&"a", Backoff::OBJECT, now);
        assert_eq!(agenda.take(now), None);
        agenda.add("a");
        assert_eq!(agenda.take(now), Some("a"));
        assert!(agenda.failed(&"a", Backoff::OBJECT, now) > wait);
        agenda.take(now + Duration::from_secs(1));
        agenda.done(&"a");
        agenda.add("a");
        agenda.take(now);
        assert_eq!(agenda.failed(&"a", Backoff::OBJECT, now), wait, "a success starts anew");
    }
}
