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

    pub(crate) fn remove(&mut self, room: u32) {
        match self.counted.get_mut(room as usize) {
            Some(count) => *count -= 1,
            None => {
                if let Some(at) = self.large.iter().position(|known| *known == room) {
                    self.large.swap_remove(at);
                }
            }
        }
    }

    pub(crate) fn total(&self) -> u64 {
        let small = self
            .counted
            .iter()
            .zip(0_u64..)
            .map(|(count, room)| u64::from(*count) * room);
        small.sum::<u64>() + self.large.iter().map(|room| u64::from(*room)).sum::<u64>()
    }

    /// The fewest that add up to `pods`, or all of them if they do not.
    pub(crate) fn fewest(&mut self, pods: u32) -> u32 {
        let (mut left, mut taken) = (pods, 0);
        self.large.sort_unstable_by_key(|room| Reverse(*room));
        for room in &self.large {
            if left == 0 {
                return taken;
            }
            left = left.saturating_sub(*room);
            taken += 1;
        }
        for room in (1..=self.most).rev() {
            if left == 0 {
                break;
            }
            if self.counted[room] == 0 {
                continue;
            }
            let count = left.div_ceil(room as u32).min(self.counted[room]);
            taken += count;
            left = left.saturating_sub(count * room as u32);
        }
        taken
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
        assert_eq!(rooms.total(), 819);
        rooms.clear();
        assert_eq!((rooms.fewest(1), rooms.total()), (0, 0));
    }
}
