//! Durations of the configuration file.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::section::Setting;
use crate::duration::Nanoseconds;

/// A span of time that reads and writes as Go's `time.Duration` does. Never negative: no setting has use for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub Duration);

impl GoDuration {
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was read from a file fits; only a duration of 292 years made in code does not.
        Nanoseconds(i64::try_from(self.0.as_nanos()).unwrap_or(i64::MAX)).fmt(f)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Setting for GoDuration {
    fn expected() -> String {
        "a duration such as 15s or 1m30s".into()
    }

    fn from_value(value: &Value) -> Option<Self> {
        let Nanoseconds(nanos) = value.as_str()?.parse().ok()?;
        u64::try_from(nanos).ok().map(|nanos| Self(Duration::from_nanos(nanos)))
    }
}
