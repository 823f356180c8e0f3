//! The query of a request.

use std::collections::BTreeMap;
use std::num::{IntErrorKind, ParseIntError};

use percent_encoding::percent_decode_str;
use serde_json::json;

use crate::status::{ApiError, FieldError};

/// Parameters by name; of a repeated parameter the first counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let mut parameters = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.entry(decode(name)).or_insert_with(|| decode(value));
        }
        Self(parameters)
    }

    /// A parameter; empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a parameter is there and not `0` or `false`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0
            .get(name)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Whether a parameter is there at all.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A number; `None` if it is missing or empty.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|error| ApiError::bad_request(unreadable_number("ParseInt", text, &error))),
        }
    }

    /// Whether nothing shall be stored; what is wrong with the manager of the fields is told here too.
    pub(crate) fn dry_run(&self, options_kind: &str) -> Result<bool, ApiError> {
        let dry_run = self.text("dryRun");
        let mut errors = match options_kind {
            "DeleteOptions" => Vec::new(),
            _ => manager_problems(self.text("fieldManager")),
        };
        if !matches!(dry_run, "" | "All") {
            errors.push(FieldError::not_supported("dryRun", json!([dry_run]), &["All"]));
        }
        match errors.is_empty() {
            true => Ok(dry_run == "All"),
            false => Err(ApiError::invalid("meta.k8s.io", options_kind, "", &errors)),
        }
    }

    /// What to do about unknown fields.
    pub(crate) fn field_validation(&self, options_kind: &str) -> Result<FieldValidation, ApiError> {
        match self.text("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let allowed = ["", "Ignore", "Strict", "Warn"];
                let error = FieldError::not_supported("fieldValidation", json!(other), &allowed);
                Err(ApiError::invalid("meta.k8s.io", options_kind, "", &[error]))
            }
        }
    }
}

/// What happens to fields that a kind does not have; in any case they are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Nothing more.
    Ignore,
    /// A warning in the answer.
    Warn,
    /// The request fails.
    Strict,
}

/// The longest name of a manager.
const MANAGER_BYTES_MAX: usize = 128;

/// The name of a manager is short and can be printed.
fn manager_problems(manager: &str) -> Vec<FieldError> {
    let too_long = manager.len() > MANAGER_BYTES_MAX;
    let too_long = too_long.then(|| FieldError::too_long("fieldManager", MANAGER_BYTES_MAX as u64));
    let is_printed = |c: char| c == ' ' || !c.is_control() && !c.is_whitespace();
    let unprintable = manager.char_indices().filter(|(_, c)| !is_printed(*c));
    let odd = unprintable.map(|(at, c)| {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        FieldError::invalid("fieldManager", json!(manager), why)
    });
    too_long.into_iter().chain(odd).collect()
}

/// What Go says about a text that should be a number.
pub(crate) fn unreadable_number(function: &str, text: &str, error: &ParseIntError) -> String {
    let why = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch=1&limit=5&watch=0&x");
        assert_eq!(query.text("labelSelector"), "a=b,c in (d)");
        assert!(query.flag("watch") && query.flag("x") && !query.flag("y"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert!(Query::parse("limit=five").number("limit").is_err());
        let error = Query::parse("dryRun=Foo").dry_run("CreateOptions").unwrap_err();
        assert_eq!(
            error.message,
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\""
        );
        let managed = |manager: &str| Query::parse(&format!("fieldManager={manager}")).dry_run("PatchOptions");
        assert!(!managed("a%20name").unwrap());
        assert_eq!(
            managed("a%07b").unwrap_err().message,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\ab\": invalid character U+0007 (at position 1)"
        );
        assert!(managed(&"x".repeat(129)).is_err());
        assert!(Query::parse("fieldManager=%07").dry_run("DeleteOptions").is_ok());
    }
}
