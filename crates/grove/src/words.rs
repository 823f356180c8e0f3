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
    match known.iter().find(|other| is_close(other, name)) {
        Some(other) => format!("{kind} \"{name}\" not found in namespace {namespace}; did you mean \"{other}\"?"),
        None => format!("{kind} \"{name}\" not found in namespace {namespace}; check -n"),
    }
}

/// Whether one letter was left out, added or mistaken, or one name begins with the other.
fn is_close(one: &str, other: &str) -> bool {
    let common = one
        .chars()
        .zip(other.chars())
        .take_while(|(one, other)| one == other)
        .count();
    let rest = |text: &str, from: usize| text.chars().skip(from).collect::<String>();
    let (one_rest, other_rest) = (rest(one, common), rest(other, common));
    let after = |text: &str| rest(text, 1);
    after(&one_rest) == other_rest
        || one_rest == after(&other_rest)
        || after(&one_rest) == after(&other_rest)
        || (common > 2 && (one_rest.is_empty() || other_rest.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_proposed() {
        assert!(is_close("llama", "lama") && !is_close("train", "trian") && is_close("llama-0", "llama"));
        assert!(!is_close("a", "b-something"));
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
