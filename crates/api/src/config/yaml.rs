//! Bytes of a file to a tree of values, within limits that no honest configuration comes near.
//!
//! Everything that makes YAML ambiguous or dangerous ends here: other encodings, several documents, duplicate keys,
//! YAML 1.1 booleans, alias bombs, deep nesting. What comes out is a plain JSON tree. No key is known here.

use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error, NonFiniteFloatPolicy, Options};

use super::ConfigError;

/// A ConfigMap, where this file lives in a cluster, holds no more.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

pub(super) fn tree(file: &[u8]) -> Result<Map<String, Value>, ConfigError> {
    if file.len() > FILE_BYTES_MAX {
        return Err(ConfigError::File(format!(
            "the file is larger than {} MiB; an OperatorConfiguration is a few KiB, check that this is the right file",
            FILE_BYTES_MAX / 1024 / 1024
        )));
    }
    let text = std::str::from_utf8(file).map_err(|error| not_utf8(file, error.valid_up_to()))?;
    // A byte order mark is how some editors say "UTF-8".
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match serde_saphyr::from_str_with_options(text, options()) {
        Ok(Value::Object(tree)) => Ok(tree),
        Ok(Value::Null) => Err(empty()),
        Ok(_) => Err(ConfigError::File(
            "the file is not a mapping; it must hold `key: value` lines such as `kind: OperatorConfiguration`".into(),
        )),
        // The parser sees no document at all in a file of nothing but comments.
        Err(Error::Eof { .. }) => Err(empty()),
        Err(error) => Err(syntax(&error)),
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            flow_nesting_limit: 32,
            max_events: 50_000,
            max_nodes: 25_000,
            max_aliases: 100,
            max_anchors: 100,
            max_merge_keys: 100,
            max_recorded_anchor_events: 50_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn empty() -> ConfigError {
    ConfigError::File(
        "the file is empty; it must at least say `apiVersion: operator.config.grove.io/v1alpha1` and \
         `kind: OperatorConfiguration`"
            .into(),
    )
}

fn not_utf8(file: &[u8], valid_up_to: usize) -> ConfigError {
    let before = &file[..valid_up_to];
    let line_start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |newline| newline + 1);
    ConfigError::Syntax {
        line: before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1,
        column: (valid_up_to - line_start) as u64 + 1,
        message: "the file is not UTF-8 text; save it as UTF-8".into(),
    }
}

fn syntax(error: &Error) -> ConfigError {
    let location = error.location().map(|location| (location.line(), location.column()));
    let message = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!(
                "duplicate key {}; keep one of the two",
                super::shown(&key.as_str().into())
            )
        }
        Error::MultipleDocuments { .. } => {
            "several YAML documents; keep one OperatorConfiguration and remove the others".into()
        }
        other => format!("not valid YAML: {}", bare(&other.to_string(), location)),
    };
    match location {
        Some((line, column)) => ConfigError::Syntax { line, column, message },
        None => ConfigError::File(message),
    }
}

/// The parser's sentence on one line, without the place at its end: that is said first.
fn bare(text: &str, location: Option<(u64, u64)>) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let place = location
        .map(|(line, column)| format!(" at line {line}, column {column}"))
        .unwrap_or_default();
    line.strip_suffix(&place).unwrap_or(&line).to_owned()
}
