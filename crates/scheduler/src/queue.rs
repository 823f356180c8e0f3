//! Who is tried next, and what would make it worth trying somebody again who did not fit.
//!
//! A unit is tried when it changed itself, or when something happened that could help it; never because time has
//! passed, save the wait after a bind that was refused. So units that cannot be placed cost nothing while nothing
//! changes, and a new one finds the queue empty. The queue knows no pods and no nodes; its caller says what happened.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use grove_placement::ShapeId;
use grove_runtime::ObjectKey;
use jiff::Timestamp;

/// What is placed as a whole: a gang, or a pod that belongs to none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    Gang(ObjectKey),
    Pod(ObjectKey),
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gang(key) => write!(f, "gang {key}"),
            Self::Pod(key) => write!(f, "pod {key}"),
        }
    }
}

/// Who comes first; less is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// A gang that runs and lacks a member comes before all that do not run.
    pub is_new: bool,
    pub priority: Reverse<i32>,
    /// A gang that has its minimum wants more of itself: those that have not come before it.
    pub is_surplus: bool,
    /// When it was made: the older first.
    pub since: Timestamp,
}

/// What could help a unit that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hope {
    /// Room on a node for a pod of one of these shapes, or less of what keeps such pods away.
    Room(Vec<ShapeId>),
    /// A node that comes or changes: what runs elsewhere and ends does not help.
    Nodes,
    /// Nothing but a change of its own objects.
    Own,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Parked(Hope),
    /// After a failure: not before this time, whatever happens.
    Later(Timestamp),
}

/// The units that have something to be placed.
#[derive(Debug, Default)]
pub struct Queue {
    units: BTreeMap<Unit, (Rank, Place)>,
    ready: BTreeSet<(Rank, Unit)>,
    later: BTreeSet<(Timestamp, Unit)>,
}

impl Queue {
    /// The unit changed: it is to be tried, unless it waits after a failure.
    pub fn add(&mut self, unit: Unit, rank: Rank) {
        match self.leave(&unit) {
            Some((_, Place::Later(at))) => self.enter(unit, rank, Place::Later(at)),
            _ => self.enter(unit, rank, Place::Ready),
        }
    }

    /// The unit did not fit: it is tried again when this happens.
    pub fn park(&mut self, unit: Unit, rank: Rank, hope: Hope) {
        self.leave(&unit);
        self.enter(unit, rank, Place::Parked(hope));
    }

    /// Something failed: the unit is tried again at this time.
    pub fn wait(&mut self, unit: Unit, rank: Rank, until: Timestamp) {
        self.leave(&unit);
        self.enter(unit, rank, Place::Later(until));
    }

    /// Nothing of the unit is to be placed any more.
    pub fn forget(&mut self, unit: &Unit) {
        self.leave(unit);
    }

    /// The next unit to try. It leaves the queue.
    pub fn take(&mut self, now: Timestamp) -> Option<(Unit, Rank)> {
        while let Some((at, unit)) = self.later.first().cloned() {
            if at > now {
                break;
            }
            if let Some((rank, _)) = self.leave(&unit) {
                self.enter(unit, rank, Place::Ready);
            }
        }
        let (rank, unit) = self.ready.first().cloned()?;
        self.leave(&unit);
        Some((unit, rank))
    }

    /// When the first of those who wait after a failure is due.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Makes ready all who hoped for what happened.
    pub fn wake(&mut self, happened: impl Fn(&Hope) -> bool) {
        let hopeful = self.units.iter().filter_map(|(unit, (rank, place))| match place {
            Place::Parked(hope) if happened(hope) => Some((unit.clone(), *rank)),
            _ => None,
        });
        for (unit, rank) in hopeful.collect::<Vec<_>>() {
            self.leave(&unit);
            self.enter(unit, rank, Place::Ready);
        }
    }

    /// What a unit that is in the queue hopes for.
    pub fn hope(&self, unit: &Unit) -> Option<&Hope> {
        match self.units.get(unit) {
            Some((_, Place::Parked(hope))) => Some(hope),
            _ => None,
        }
    }

    /// Those who did not fit, best rank first.
    pub fn parked(&self) -> Vec<(Rank, Unit)> {
        let parked = self.units.iter().filter_map(|(unit, (rank, place))| match place {
            Place::Parked(_) => Some((*rank, unit.clone())),
            _ => None,
        });
        let mut parked: Vec<_> = parked.collect();
        parked.sort();
        parked
    }

    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// How many are ready, and how many wait after a failure; the others are parked.
    pub fn depths(&self) -> (usize, usize) {
        (self.ready.len(), self.later.len())
    }

    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    fn enter(&mut self, unit: Unit, rank: Rank, place: Place) {
        match &place {
            Place::Ready => drop(self.ready.insert((rank, unit.clone()))),
            Place::Later(at) => drop(self.later.insert((*at, unit.clone()))),
            Place::Parked(_) => {}
        }
        self.units.insert(unit, (rank, place));
    }

    fn leave(&mut self, unit: &Unit) -> Option<(Rank, Place)> {
        let (rank, place) = self.units.remove(unit)?;
        match &place {
            Place::Ready => drop(self.ready.remove(&(rank, unit.clone()))),
            Place::Later(at) => drop(self.later.remove(&(*at, unit.clone()))),
            Place::Parked(_) => {}
        }
        Some((rank, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str) -> Unit {
        Unit::Gang(ObjectKey::new("ns", name))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn rank(is_new: bool, priority: i32, since: i64) -> Rank {
        Rank {
            is_new,
            priority: Reverse(priority),
            is_surplus: false,
            since: at(since),
        }
    }

    fn order(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.take(at(1_000)))
            .map(|(unit, _)| unit.to_string())
            .collect()
    }

    #[test]
    fn missing_members_come_first_then_priority_then_minimums_then_age() {
        let mut queue = Queue::default();
        let surplus = Rank {
            is_surplus: true,
            ..rank(true, 0, 0)
        };
        queue.add(unit("surplus"), surplus);
        queue.add(unit("old"), rank(true, 0, 1));
        queue.add(unit("young"), rank(true, 0, 2));
        queue.add(unit("important"), rank(true, 100, 3));
        queue.add(unit("runs"), rank(false, -5, 9));
        assert_eq!(
            order(&mut queue),
            [
                "gang ns/runs",
                "gang ns/important",
                "gang ns/old",
                "gang ns/young",
                "gang ns/surplus"
            ]
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn who_does_not_fit_is_tried_when_what_it_hopes_for_happens() {
        let mut queue = Queue::default();
        queue.park(unit("room"), rank(true, 0, 1), Hope::Room(vec![]));
        queue.park(unit("nodes"), rank(true, 0, 2), Hope::Nodes);
        queue.park(unit("own"), rank(true, 0, 3), Hope::Own);
        assert_eq!(queue.take(at(0)), None);
        queue.wake(|hope| matches!(hope, Hope::Room(_)));
        assert_eq!(order(&mut queue), ["gang ns/room"]);
        queue.add(unit("own"), rank(true, 0, 3));
        assert_eq!(order(&mut queue), ["gang ns/own"]);
        assert_eq!(queue.parked().len(), 1);
    }

    #[test]
    fn after_a_failure_nothing_shortens_the_wait() {
        let mut queue = Queue::default();
        queue.wait(unit("a"), rank(true, 0, 1), at(10));
        queue.add(unit("a"), rank(true, 0, 1));
        queue.wake(|_| true);
        assert_eq!(queue.take(at(9)), None);
        assert_eq!(queue.next_at(), Some(at(10)));
        assert_eq!(queue.take(at(10)), Some((unit("a"), rank(true, 0, 1))));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_unit_is_in_one_place_only() {
        let mut queue = Queue::default();
        queue.add(unit("a"), rank(true, 0, 1));
        queue.add(unit("a"), rank(true, 7, 1));
        queue.park(unit("a"), rank(true, 7, 1), Hope::Nodes);
        assert_eq!(queue.take(at(0)), None);
        queue.forget(&unit("a"));
        queue.wake(|_| true);
        assert!(queue.is_empty() && queue.take(at(0)).is_none());
    }
}
