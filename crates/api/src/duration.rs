//! Durations as Kubernetes writes them (`4h`, `1h30m`, `500ms`).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A duration in the notation of Go, kept as it was written, so that reading and writing an object changes nothing.
///
/// The API server checks the notation, not this type: an object that slipped through must not stop a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DurationString(
    #[schemars(regex(pattern = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"))] pub String,
);

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDuration(String);

impl fmt::Display for InvalidDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a duration; write it like 30s, 1h30m or 500ms", self.0)
    }
}

impl std::error::Error for InvalidDuration {}

/// A signed length of time in nanoseconds: Go's durations may be negative, and the rule that refuses it is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanoseconds(pub i64);

impl DurationString {
    pub fn nanoseconds(&self) -> Result<Nanoseconds, InvalidDuration> {
        self.0.parse()
    }
}

impl FromStr for Nanoseconds {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
            .map(Nanoseconds)
            .ok_or_else(|| InvalidDuration(text.to_owned()))
    }
}

impl fmt::Display for Nanoseconds {
    /// Writes it as Go does: `1h30m0s`, `1.5s`, `250ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < SECOND {
            let (unit, name) = match nanos {
                n if n >= MILLISECOND => (MILLISECOND, "ms"),
                n if n >= MICROSECOND => (MICROSECOND, "µs"),
                _ => (1, "ns"),
            };
            return write!(f, "{}{name}", Decimal { value: nanos, unit });
        }
        let (hours, minutes) = (nanos / HOUR, nanos % HOUR / MINUTE);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(
            f,
            "{}s",
            Decimal {
                value: nanos % MINUTE,
                unit: SECOND
            }
        )
    }
}

/// `value / unit` without trailing zeros; `unit` is a power of ten.
struct Decimal {
    value: u64,
    unit: u64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value / self.unit)?;
        let digits = self.unit.ilog10() as usize;
        let fraction = format!("{:0digits$}", self.value % self.unit);
        match fraction.trim_end_matches('0') {
            "" => Ok(()),
            rest => write!(f, ".{rest}"),
        }
    }
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (nanos, tail) = parse_term(rest)?;
        total = total.checked_add(nanos)?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// One number with its unit, `1.5h`; fractions of a nanosecond are cut off.
fn parse_term(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => digits(after),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, tail) = rest.split_at(end);
    let scale = i128::from(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    });
    // Nineteen digits hold every i64; longer ones overflow or are beyond a nanosecond.
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse::<i64>().ok()?.into()
    };
    let fraction = &fraction[..fraction.len().min(18)];
    let part = match fraction {
        "" => 0,
        some => some.parse::<i128>().ok()? * scale / 10_i128.pow(u32::try_from(some.len()).ok()?),
    };
    Some((whole * scale + part, tail))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_go_reads() {
        let cases = [
            ("0", 0),
            ("4h", 4 * HOUR as i64),
            ("1h30m", 90 * MINUTE as i64),
            ("1.5h", 90 * MINUTE as i64),
            (".5s", 500_000_000),
            ("1.s", SECOND as i64),
            ("-2m", -(2 * MINUTE as i64)),
            ("+10us", 10_000),
            ("10µs", 10_000),
            ("1h0.5ns", HOUR as i64),
            ("7us3ns", 7_003),
            ("1.0000000000000000001s", SECOND as i64),
        ];
        for (text, nanos) in cases {
            assert_eq!(text.parse(), Ok(Nanoseconds(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "-",
            "1",
            "h",
            "1x",
            "1h 30m",
            ".s",
            "1..5s",
            "9999999999h",
            "4 h",
            "1hh",
            "NaN",
            "1e3s",
        ] {
            assert!(text.parse::<Nanoseconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn writes_as_go_writes() {
        for text in ["0s", "4h0m0s", "1h30m0s", "1m0.5s", "250ms", "1.5µs", "7ns", "-10s"] {
            assert_eq!(text.parse::<Nanoseconds>().expect(text).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn written_durations_read_back(nanos in any::<i64>()) {
            prop_assert_eq!(Nanoseconds(nanos).to_string().parse(), Ok(Nanoseconds(nanos)));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<Nanoseconds>();
        }
    }
}
