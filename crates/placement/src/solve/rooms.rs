//! Rooms of domains or hosts, and how few of them hold some pods.

use std::cmp::Reverse;

/// Rooms of which the fewest are wanted: counted where they are small, sorted where they are large.
#[derive(Debug)]
pub(crate) struct Rooms {
    counted: [u32; COUNTED_MAX],
    large: Vec<u32>,
    most: usize,
}

const COUNTED_MAX: usize = 256;

/// Where the fewest rooms that hold some pods end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    /// The smallest room that is needed.
    pub(crate) room: u32,
    /// How many of its size are.
    pub(crate) alike: u32,
    /// Pods that the last of them takes.
    pub(crate) rest: u32,
}

impl Default for Rooms {
    fn default() -> Self {
        Rooms {
            counted: [0; COUNTED_MAX],
            large: Vec::new(),
            most: 0,
        }
    }
}

impl Rooms {
    pub(crate) fn clear(&mut self) {
        self.counted[..=self.most].fill(0);
        self.large.clear();
        self.most = 0;
    }

    pub(crate) fn add(&mut self, room: u32) {
        match self.counted.get_mut(room as usize) {
            Some(count) => {
                *count += 1;
                self.most = self.most.max(room as usize);
            }
            None => self.large.push(room),
        }
    }

    /// Becomes the same as others.
    pub(crate) fn copy(&mut self, other: &Rooms) {
        let most = self.most.max(other.most);
        self.counted[..=most].copy_from_slice(&other.counted[..=most]);
        self.most = other.most;
        self.large.clone_from(&other.large);
    }

    /// Exchanges some of the rooms for others.
    pub(crate) fn exchange(&mut self, from: &[u32], to: &[u32]) {
        for room in from {
            match self.counted.get_mut(*room as usize) {
                Some(count) => *count -= 1,
                None => {
                    if let Some(at) = self.large.iter().position(|known| known == room) {
                        self.large.swap_remove(at);
                    }
                }
            }
        }
        for room in to {
            self.add(*room);
        }
    }

    /// The fewest that add up to `pods`, or all of them if they do not.
    pub(crate) fn fewest(&mut self, pods: u32) -> u32 {
        let mut taken = 0;
        self.take_largest(pods, |_, count, _| taken += count);
        taken
    }

    /// Where the fewest that add up to `pods` end; all of them leave so many pods if they do not.
    pub(crate) fn last_of_fewest(&mut self, pods: u32) -> Result<Last, u32> {
        let mut last = Last::default();
        let left = self.take_largest(pods, |room, count, left| {
            let alike = if room == last.room { last.alike } else { 0 };
            last = Last {
                room,
                alike: alike + count,
                rest: left.saturating_sub((count - 1) * room),
            };
        });
        if left == 0 { Ok(last) } else { Err(left) }
    }

    /// Takes the largest until they hold `pods`, and tells of each size how many, and how many pods were left before
    /// them. Returns how many are left in the end.
    fn take_largest(&mut self, pods: u32, mut tell: impl FnMut(u32, u32, u32)) -> u32 {
        let mut left = pods;
        self.large.sort_unstable_by_key(|room| Reverse(*room));
        for room in &self.large {
            if left == 0 {
                return 0;
            }
            tell(*room, 1, left);
            left = left.saturating_sub(*room);
        }
        for room in (1..=self.most).rev() {
            if left == 0 {
                break;
            }
            if self.counted[room] == 0 {
                continue;
            }
            let count = left.div_ceil(room as u32).min(self.counted[room]);
            tell(room as u32, count, left);
            left = left.saturating_sub(count * room as u32);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_rooms_are_the_largest_whatever_their_size() {
        let mut rooms = Rooms::default();
        rooms.clear();
        for room in [3, 500, 8, 0, 8, 300] {
            rooms.add(room);
        }
        let fewest: Vec<u32> = [0, 1, 500, 501, 801, 810, 817, 819]
            .map(|pods| rooms.fewest(pods))
            .to_vec();
        assert_eq!(fewest, [0, 1, 1, 2, 3, 4, 5, 5]);
        rooms.clear();
        assert_eq!(rooms.fewest(1), 0);
    }

    #[test]
    fn a_copy_is_exchanged_without_the_original() {
        let (mut rooms, mut trial) = (Rooms::default(), Rooms::default());
        trial.add(200);
        for room in [3, 300, 8] {
            rooms.add(room);
        }
        trial.copy(&rooms);
        trial.exchange(&[300, 8], &[5, 5]);
        assert_eq!((trial.fewest(13), trial.fewest(14)), (3, 3));
        assert_eq!((rooms.fewest(13), rooms.fewest(308)), (1, 2));
    }

    #[test]
    fn the_fewest_rooms_end_with_the_smallest_of_them() {
        let mut rooms = Rooms::default();
        for room in [3, 300, 8, 0, 8, 300, 8] {
            rooms.add(room);
        }
        let last = |room, alike, rest| Ok(Last { room, alike, rest });
        assert_eq!(rooms.last_of_fewest(200), last(300, 1, 200));
        assert_eq!(rooms.last_of_fewest(600), last(300, 2, 300));
        assert_eq!(rooms.last_of_fewest(601), last(8, 1, 1));
        assert_eq!(rooms.last_of_fewest(619), last(8, 3, 3));
        assert_eq!(rooms.last_of_fewest(626), last(3, 1, 2));
        assert_eq!(rooms.last_of_fewest(630), Err(3));
    }
}
