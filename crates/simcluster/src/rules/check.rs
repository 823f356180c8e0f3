//! Findings about an object, and the questions that many kinds ask of their fields.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::kinds::items;
use super::names;
use crate::status::FieldError;

pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// A text; empty if there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What is wrong with an object.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) errors: Vec<FieldError>,
}

impl Findings {
    pub(super) fn invalid(&mut self, at: impl Into<String>, value: &Value, why: &str) {
        self.errors.push(FieldError::invalid(at, value, why));
    }

    pub(super) fn required(&mut self, at: impl Into<String>, why: &str) {
        self.errors.push(FieldError::required(at, why));
    }

    pub(super) fn forbidden(&mut self, at: impl Into<String>, why: &str) {
        self.errors.push(FieldError::forbidden(at, why));
    }

    /// Something must stand here. Tells whether it does.
    pub(super) fn needs(&mut self, at: impl Into<String>, value: &Value) -> bool {
        let is_there = !text(value).is_empty();
        if !is_there {
            self.required(at, "");
        }
        is_there
    }

    /// A text must fit a rule of names.
    pub(super) fn fits(&mut self, at: impl Into<String>, value: &Value, problem: fn(&str) -> Option<String>) {
        if let Some(why) = problem(text(value)) {
            self.errors.push(FieldError::invalid(at, text(value), why));
        }
    }

    /// A text must be there, and fit a rule of names.
    pub(super) fn named(&mut self, at: &str, value: &Value, problem: fn(&str) -> Option<String>) {
        if self.needs(at, value) {
            self.fits(at, value, problem);
        }
    }

    /// A value that is there must be one of these.
    pub(super) fn one_of(&mut self, at: impl Into<String>, value: &Value, allowed: &[&str]) {
        if !value.is_null() && !allowed.contains(&text(value)) {
            self.errors.push(FieldError::not_supported(at, value, allowed));
        }
    }

    /// A number that is there must lie in between.
    pub(super) fn between(&mut self, at: impl Into<String>, value: &Value, least: i64, most: i64) {
        if value.as_i64().is_some_and(|number| !(least..=most).contains(&number)) {
            let why = format!("must be between {least} and {most}, inclusive");
            self.invalid(at, value, &why);
        }
    }

    /// A port, which is 0 where there is none.
    pub(super) fn port(&mut self, at: impl Into<String>, value: &Value) {
        let number = if value.is_null() { &json!(0) } else { value };
        self.between(at, number, 1, 65_535);
    }

    /// A port, by its number or by its name.
    pub(super) fn port_or_name(&mut self, at: impl Into<String>, value: &Value) {
        match value {
            Value::String(_) => self.fits(at, value, port_name_problem),
            number => self.port(at, number),
        }
    }

    pub(super) fn not_negative(&mut self, at: impl Into<String>, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.invalid(at, value, NOT_NEGATIVE);
        }
    }

    pub(super) fn address(&mut self, at: impl Into<String>, value: &Value) {
        if text(value).parse::<IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            self.errors.push(FieldError::invalid(at, text(value), why));
        }
    }

    pub(super) fn network(&mut self, at: impl Into<String>, value: &Value) {
        let is_network = text(value).split_once('/').is_some_and(|(address, bits)| {
            let most = address.parse::<IpAddr>().map(|ip| if ip.is_ipv4() { 32 } else { 128 });
            most.is_ok_and(|most| bits.parse::<u8>().is_ok_and(|bits| bits <= most))
        });
        if !is_network {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            self.errors.push(FieldError::invalid(at, text(value), why));
        }
    }

    /// A number, or a part of a hundred.
    pub(super) fn amount(&mut self, at: &str, value: &Value) {
        match value {
            Value::String(share) => {
                let digits = share.strip_suffix('%').unwrap_or_default();
                if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                    let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                    self.invalid(at, value, why);
                }
            }
            number => self.not_negative(at, number),
        }
    }

    /// Labels, which are told as one field.
    pub(super) fn labels(&mut self, at: &str, labels: &Value) {
        for (key, value) in labels.as_object().into_iter().flatten() {
            self.fits(at, &json!(key), names::label_key_problem);
            self.fits(at, value, names::label_value_problem);
        }
    }

    /// A selector of labels.
    pub(super) fn selector(&mut self, at: &str, selector: &Value) {
        self.labels(&format!("{at}.matchLabels"), &selector["matchLabels"]);
        for (i, expression) in items(selector, "matchExpressions").enumerate() {
            let at = format!("{at}.matchExpressions[{i}]");
            let values = items(expression, "values").count();
            match text(&expression["operator"]) {
                "In" | "NotIn" if values == 0 => {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    self.required(format!("{at}.values"), why);
                }
                "Exists" | "DoesNotExist" if values > 0 => {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    self.forbidden(format!("{at}.values"), why);
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => self.invalid(format!("{at}.operator"), &json!(other), "not a valid selector operator"),
            }
            self.fits(format!("{at}.key"), &expression["key"], names::label_key_problem);
            for (j, value) in items(expression, "values").enumerate() {
                self.fits(format!("{at}.values[{j}]"), value, names::label_value_problem);
            }
        }
    }
}

/// What is wrong with the name of a port, if anything.
pub(super) fn port_name_problem(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.len() > 15 {
        return Some("must be no more than 15 characters".to_owned());
    }
    if name.is_empty() || !name.chars().all(plain) {
        return Some("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.chars().any(|c| c.is_ascii_lowercase()) {
        return Some("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        return Some("must not contain consecutive hyphens".to_owned());
    }
    (name.starts_with('-') || name.ends_with('-')).then(|| "must not begin or end with a hyphen".to_owned())
}

/// What is wrong with the key of a value in a ConfigMap or Secret, if anything.
pub(super) fn config_key_problem(key: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    (key.is_empty() || !key.chars().all(legal)).then(|| why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(check: impl FnOnce(&mut Findings)) -> usize {
        let mut found = Findings::default();
        check(&mut found);
        found.errors.len()
    }

    #[test]
    fn networks_ports_and_amounts_are_read_as_kubernetes_reads_them() {
        for (network, wrong) in [("2001:db8::/64", 0), ("10.0.0.0/8", 0), ("10.0.0.0/33", 1), ("x", 1)] {
            assert_eq!(errors(|found| found.network("f", &json!(network))), wrong, "{network}");
        }
        let names = [("http", 0), ("8080", 1), ("A B", 1), ("a--b", 1), ("-a", 1), ("", 1)];
        for (name, wrong) in names {
            assert_eq!(errors(|found| found.port_or_name("f", &json!(name))), wrong, "{name}");
        }
        for (amount, wrong) in [
            (json!(0), 0),
            (json!(-1), 1),
            (json!("25%"), 0),
            (json!("25"), 1),
            (json!("%"), 1),
        ] {
            assert_eq!(errors(|found| found.amount("f", &amount)), wrong, "{amount}");
        }
    }
}
