//! Ages as people read them.

use jiff::{SignedDuration, Timestamp};

/// How long ago something was; `<unknown>` if it never was.
pub(super) fn since(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(
        || "<unknown>".to_owned(),
        |time| human_duration(now.duration_since(time)),
    )
}

/// A duration with one or two units, the fewer the longer it is: `45s`, `3m20s`, `12m`, `5h7m`, `30h`, `6d3h`, `400d`,
/// `3y4d`. Up to two seconds in the future count as now.
pub fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    let years = days / 365;
    let two = |most: i64, unit: char, rest: i64, smaller: char| match rest {
        0 => format!("{most}{unit}"),
        rest => format!("{most}{unit}{rest}{smaller}"),
    };
    match seconds {
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, 'd', hours % 24, 'h'),
        _ if days < 730 => format!("{days}d"),
        _ if years < 8 => two(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_coarser() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (18_420, "5h7m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (529_200, "6d3h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (94_953_600, "3y4d"),
            (252_288_000, "8y"),
            (315_360_000, "10y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(
                human_duration(SignedDuration::from_secs(seconds)),
                expected,
                "{seconds}"
            );
        }
    }
}
