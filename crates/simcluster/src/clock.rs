//! The cluster's time and its randomness, both decided by who starts the cluster.
//!
//! Time is tokio's clock moved to a base timestamp: on a paused runtime it is virtual. Uids and generated names come
//! from one seeded generator, so that the same sequence of requests gives the same objects.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time of the cluster. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    base: Timestamp,
    origin: Instant,
    /// By how much the clock was moved by hand.
    jumped_millis: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that shows `base` now and follows tokio's clock from here on.
    pub fn starting_at(base: Timestamp) -> Self {
        Self {
            base,
            origin: Instant::now(),
            jumped_millis: Arc::default(),
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        let jumped = SignedDuration::from_millis(self.jumped_millis.load(Ordering::Relaxed));
        self.base
            .saturating_add(elapsed.saturating_add(jumped))
            .expect("adding a signed duration saturates")
    }

    /// Moves the clock forward or, if `by` is negative, backward.
    pub(crate) fn jump(&self, by: SignedDuration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(if by.is_negative() { i64::MIN } else { i64::MAX });
        let moved = |jumped: i64| Some(jumped.saturating_add(millis));
        self.jumped_millis
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved)
            .expect("the closure always has a value");
    }

    /// The instant of tokio's clock at which this clock shows `time`; now, if that has passed.
    pub fn instant_of(&self, time: Timestamp) -> Instant {
        let wait = std::time::Duration::try_from(time.duration_since(self.now())).unwrap_or_default();
        Instant::now() + wait
    }
}

/// A timestamp as `metav1.Time` prints it: UTC, whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Source of uids and generated names.
#[derive(Debug)]
pub struct Entropy(Mutex<u64>);

impl Entropy {
    /// A generator whose whole sequence follows from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// SplitMix64: equidistributed, and one addition and three mixes are all it takes.
    fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An even draw from `0..n`; 0 if there is nothing to choose from.
    pub(crate) fn below(&self, n: u64) -> u64 {
        // The bias of the remainder is below 2^-32 for every n that occurs here.
        self.next().checked_rem(n).unwrap_or(0)
    }

    /// An even draw from `0.0..1.0`.
    fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// At most one of the choices, each with its probability. One draw, whatever the choices are.
    pub(crate) fn pick<T: Copy>(&self, choices: &[(f64, T)]) -> Option<T> {
        let mut left = self.fraction();
        for (probability, choice) in choices {
            if left < *probability {
                return Some(*choice);
            }
            left -= probability;
        }
        None
    }

    /// A version 4 UUID.
    pub fn uid(&self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }

    /// Five characters for a generated name, from Kubernetes' alphabet (no vowels: no words).
    pub fn suffix(&self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rest = self.next();
        let mut draw = || {
            let letter = ALPHABET[(rest % ALPHABET.len() as u64) as usize];
            rest /= ALPHABET.len() as u64;
            char::from(letter)
        };
        (0..5).map(|_| draw()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_runtime_gives_virtual_time() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        tokio::time::advance(std::time::Duration::from_secs(3600)).await;
        assert_eq!(seconds(clock.now()), "2026-01-01T01:00:00Z");
        let target: Timestamp = "2026-01-01T02:00:00Z".parse().unwrap();
        assert_eq!(
            clock.instant_of(target) - Instant::now(),
            std::time::Duration::from_secs(3600)
        );
    }

    #[test]
    fn choices_come_as_often_as_they_should() {
        let entropy = Entropy::seeded(3);
        let mut counts = [0_u32; 3];
        for _ in 0..10_000 {
            counts[entropy.pick(&[(0.1, 0), (0.3, 1)]).unwrap_or(2)] += 1;
        }
        let near = |count: u32, wanted: u32| count.abs_diff(wanted) < 300;
        assert!(
            near(counts[0], 1000) && near(counts[1], 3000) && near(counts[2], 6000),
            "{counts:?}"
        );
        assert_eq!(entropy.below(0), 0);
    }

    #[test]
    fn a_seed_decides_every_name() {
        let (a, b, other) = (Entropy::seeded(7), Entropy::seeded(7), Entropy::seeded(8));
        let draw = |e: &Entropy| (e.uid(), e.suffix(), e.uid());
        assert_eq!(draw(&a), draw(&b));
        assert_ne!(draw(&a), draw(&other));
        let uid = a.uid();
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"));
    }
}
