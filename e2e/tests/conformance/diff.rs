//! Where two transcripts differ, one line for each place.

use std::fmt::Write as _;

use serde_json::Value;

use crate::case::Transcript;

/// A long list of differences helps nobody.
const LINES_MAX: usize = 12;

/// Empty if there is no difference.
pub(crate) fn differences(real: &Transcript, embedded: &Transcript) -> String {
    let mut report = String::new();
    for (index, (real, embedded)) in real.iter().zip(embedded).enumerate() {
        let mut found = Vec::new();
        compare(Some(&real.answer), Some(&embedded.answer), "", &mut found);
        // What went wrong tells more than what is missing because of it.
        found.sort_by_key(|(path, ..)| !(path == "/code" || path == "/body/message"));
        if found.is_empty() {
            continue;
        }
        let _ = writeln!(report, "  step {} {}", index + 1, real.request);
        for (path, real, embedded) in found.iter().take(LINES_MAX) {
            let _ = writeln!(report, "    {path}\n      real     {real}\n      embedded {embedded}");
        }
        if found.len() > LINES_MAX {
            let _ = writeln!(report, "    and {} more", found.len() - LINES_MAX);
        }
    }
    if real.len() != embedded.len() {
        let _ = writeln!(report, "  {} steps and {}", real.len(), embedded.len());
    }
    report
}

fn compare(real: Option<&Value>, embedded: Option<&Value>, path: &str, found: &mut Vec<(String, String, String)>) {
    match (real, embedded) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                compare(a.get(key), b.get(key), &format!("{path}/{key}"), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                compare(a.get(index), b.get(index), &format!("{path}/{index}"), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => {
            let text = |value: Option<&Value>| value.map_or_else(|| "(absent)".to_owned(), Value::to_string);
            found.push((path.to_owned(), text(a), text(b)));
        }
    }
}
