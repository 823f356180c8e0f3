//! How long to wait after a failure: twice as long after each, up to a limit.

use std::time::Duration;

/// Waiting times that double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

impl Backoff {
    /// For work on one object: the first failure is most often somebody else's write in between.
    pub const OBJECT: Self = Self {
        first: Duration::from_millis(50),
        most: Duration::from_secs(60),
    };

    /// For a watch that cannot be opened.
    pub const WATCH: Self = Self {
        first: Duration::from_millis(200),
        most: Duration::from_secs(30),
    };

    /// How long to wait after this many failures in a row.
    pub fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_limit() {
        let times = [1, 2, 3, 11, 12, u32::MAX].map(|failures| Backoff::OBJECT.after(failures).as_millis());
        assert_eq!(times, [50, 100, 200, 51_200, 60_000, 60_000]);
    }
}
