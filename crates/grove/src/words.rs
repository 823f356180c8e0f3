//! Words that several commands use in the same way.

use jiff::Timestamp;

/// How long something has been so: `41s`, `4m12s`, `2h05m`, `3d07h`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// That a name does not exist, with the nearest one that does.
pub(crate) fn not_found(kind: &str, name: &str, namespace: &str, known: &[String]) -> String {
    match nearest(name, known) {
        Some(other) => format!("{kind} \"{name}\" not found in namespace {namespace}; did you mean \"{other}\"?"),
        None => format!("{kind} \"{name}\" not found in namespace {namespace}; check -n"),
    }
}

/// What to try instead of a name that does not exist: the nearest one that does, or all that there are.
pub(crate) fn proposal(name: &str, known: &[String]) -> String {
    match nearest(name, known) {
        Some(other) => format!("did you mean \"{other}\"?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("known: {}", known.join(", ")),
    }
}

/// The name that takes the fewest slips of the finger to get to, if they are few, or one that begins as this one does.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    let slips = |other: &&String| match other.as_str() {
        longer if name.len() > 2 && longer.starts_with(name) => 0,
        shorter if shorter.len() > 2 && name.starts_with(shorter) => 1,
        other => strsim::damerau_levenshtein(other, name),
    };
    let few = 1 + name.chars().count() / 5;
    known
        .iter()
        .filter(|other| slips(other) <= few)
        .min_by_key(|other| (slips(other), *other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_proposed() {
        let known = ["llama", "llama-large", "train", "b-something"].map(str::to_owned);
        let near = |name: &str| nearest(name, &known).map(String::as_str);
        assert_eq!(
            [near("lama"), near("llmaa"), near("trian")],
            [Some("llama"), Some("llama"), Some("train")]
        );
        assert_eq!([near("llama-l"), near("train-0")], [Some("llama-large"), Some("train")]);
        assert_eq!([near("a"), near("serve"), near("")], [None; 3]);
        let known = ["llama".to_owned()];
        let told = not_found("PodCliqueSet", "lama", "demo", &known);
        assert_eq!(
            told,
            "PodCliqueSet \"lama\" not found in namespace demo; did you mean \"llama\"?"
        );
    }

    #[test]
    fn ages_have_two_units_at_most() {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let told = [
            "2026-01-09T23:59:19Z",
            "2026-01-09T23:55:48Z",
            "2026-01-09T21:55:00Z",
            "2026-01-06T17:00:00Z",
        ]
        .map(|since| age(since.parse().unwrap(), now));
        assert_eq!(told, ["41s", "4m12s", "2h05m", "3d07h"]);
    }
}
