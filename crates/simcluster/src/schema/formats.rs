//! The string and number formats that the API server checks; others are ignored.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use regex::Regex;
use serde_json::Value;

/// A format of which values are checked.
#[derive(Debug)]
pub(super) struct Format {
    /// As the schema spells it (`date-time`), for messages.
    pub(super) name: String,
    check: Check,
}

#[derive(Debug)]
enum Check {
    Pattern(Regex),
    Function(fn(&str) -> bool),
    /// A format of numbers: what it means is in the range check.
    Number,
}

impl Format {
    pub(super) fn parse(schema: &Value) -> Option<Self> {
        let name = schema["format"].as_str()?;
        let check = match schema["type"].as_str() {
            None | Some("string") => text_check(&name.replace('-', "")),
            Some("integer") => matches!(name, "int32" | "int64").then_some(Check::Number),
            Some("number") => matches!(name, "float" | "double").then_some(Check::Number),
            Some(_) => None,
        };
        Some(Self {
            name: name.to_owned(),
            check: check?,
        })
    }

    /// Whether a text is of this format.
    pub(super) fn accepts(&self, text: &str) -> bool {
        match &self.check {
            Check::Pattern(pattern) => pattern.is_match(text),
            Check::Function(function) => function(text),
            Check::Number => true,
        }
    }
}

/// The check of a format, spelled without dashes.
fn text_check(name: &str) -> Option<Check> {
    let function: fn(&str) -> bool = match name {
        "datetime" => is_date_time,
        "date" => is_date,
        "duration" => is_duration,
        "byte" => |text| !text.is_empty() && STANDARD.decode(text).is_ok(),
        "ipv4" => |text| text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => |text| text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "uri" => is_request_uri,
        "hostname" => is_hostname,
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "password" => |_| true,
        _ => {
            return pattern_of(name)
                .and_then(|pattern| Regex::new(pattern).ok())
                .map(Check::Pattern);
        }
    };
    Some(Check::Function(function))
}

fn pattern_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "uuid" => "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
        "uuid3" => "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
        "uuid4" => "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
        "uuid5" => "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
        "email" => r#"^([^<>@\s]+|"[^"]*")@[^<>@\s]+$|^[^<>]*<[^<>@\s]+@[^<>@\s]+>$"#,
        "bsonobjectid" => "^[0-9a-fA-F]{24}$",
        "ssn" => r"^\d{3}[- ]?\d{2}[- ]?\d{4}$",
        "hexcolor" => "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$",
        "rgbcolor" => {
            r"^rgb\((\s*(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])\s*,){2}\s*(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])\s*\)$"
        }
        "mac" => {
            r"(?i)^(([0-9a-f]{2}[:-]){5}([0-9a-f]{2}[:-][0-9a-f]{2}[:-])?[0-9a-f]{2}|([0-9a-f]{4}\.){2}[0-9a-f]{4})$"
        }
        "creditcard" => {
            r"^\D*(4\d{12}(\d{3})?|5[1-5]\d{14}|6(011|5\d\d)\d{12}|3[47]\d{13}|3(0[0-5]|[68]\d)\d{11}|(2131|1800|35\d{3})\d{11})\D*$"
        }
        "k8sshortname" => "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        "k8slongname" => r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        _ => return None,
    })
}

/// A pattern of this file, compiled when it is first needed.
macro_rules! fixed_pattern {
    ($pattern:expr) => {
        LazyLock::new(|| Regex::new($pattern).expect("a fixed pattern that the tests compile"))
    };
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    static CLOCK: LazyLock<Regex> =
        fixed_pattern!(r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$");
    let text = text.to_ascii_lowercase();
    text.split_once('t')
        .is_some_and(|(date, clock)| is_date(date) && CLOCK.is_match(clock))
}

/// Go's notation (`1h30m`), or numbers with words (`5 minutes`, `22 ns`).
fn is_duration(text: &str) -> bool {
    static GO: LazyLock<Regex> = fixed_pattern!(r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$");
    static WORDS: LazyLock<Regex> =
        fixed_pattern!(r"(?i)[0-9]+\s*(ns|nano|us|micro|µs|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|week|wk)");
    GO.is_match(text) || WORDS.is_match(text)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let is_plain = !bits.is_empty() && bits.bytes().all(|digit| digit.is_ascii_digit());
    let Ok(bits) = bits.parse::<u8>() else { return false };
    let fits = |address: &str| {
        (address.parse::<Ipv4Addr>().is_ok() && bits <= 32) || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
    };
    is_plain && fits(address)
}

/// An absolute path or a URI with a scheme, without blanks or control characters.
fn is_request_uri(text: &str) -> bool {
    static SCHEME: LazyLock<Regex> = fixed_pattern!("^[a-zA-Z][a-zA-Z0-9+.-]*:.");
    let is_clean = !text.chars().any(|letter| letter.is_control() || letter == ' ');
    is_clean && (text.starts_with('/') || SCHEME.is_match(text))
}

fn is_hostname(text: &str) -> bool {
    static NAME: LazyLock<Regex> = fixed_pattern!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.))+([a-zA-Z\p{L}]){2,63})$"
    );
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && NAME.is_match(text)
}

fn is_isbn10(text: &str) -> bool {
    let plain = text.replace(['-', ' '], "");
    let digit = |(at, letter): (usize, char)| match letter {
        'X' | 'x' if at == 9 => Some(10),
        letter => letter.to_digit(10),
    };
    let digits: Option<Vec<u32>> = plain.chars().enumerate().map(digit).collect();
    digits.is_some_and(|digits| {
        let sum: u32 = digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum();
        digits.len() == 10 && sum.is_multiple_of(11)
    })
}

fn is_isbn13(text: &str) -> bool {
    let plain = text.replace(['-', ' '], "");
    let digits: Option<Vec<u32>> = plain.chars().map(|letter| letter.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let sum: u32 = digits
            .iter()
            .zip([1, 3].into_iter().cycle())
            .map(|(digit, weight)| digit * weight)
            .sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_accept_what_they_describe_and_nothing_else() {
        let cases = [
            ("date-time", "2026-11-15T20:00:00.5+01:00", "2026-11-15T24:00:00Z"),
            ("date", "2026-02-28", "2026-02-30"),
            ("duration", "1h30m", "soon"),
            ("duration", "5 minutes", ""),
            ("byte", "YWI=", "***"),
            ("ipv4", "10.0.0.1", "::1"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uri", "https://a/b", "a b"),
            ("email", "a@b.c", "a"),
            ("hostname", "a-b.example", "a_b"),
            ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123"),
            (
                "uuid4",
                "123e4567-e89b-42d3-a456-426614174000",
                "123e4567-e89b-12d3-a456-426614174000",
            ),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("isbn", "0321751043", "abc"),
            ("hexcolor", "#FFFFFF", "#FFFFF"),
            ("rgbcolor", "rgb(255, 0, 1)", "rgb(256,0,1)"),
            ("mac", "01:23:45:67:89:ab", "01:23"),
            ("ssn", "111-22-3333", "1"),
            ("creditcard", "4111111111111111", "1"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "5"),
            ("k8s-short-name", "a-b", "A"),
            ("k8s-long-name", "a.b-c", "a..b"),
        ];
        for (name, good, bad) in cases {
            let format = Format::parse(&json!({"type": "string", "format": name})).unwrap();
            assert!(format.accepts(good), "{name} {good}");
            assert!(!format.accepts(bad), "{name} {bad}");
        }
        assert!(Format::parse(&json!({"type": "string", "format": "int32"})).is_none());
        assert!(Format::parse(&json!({"type": "integer", "format": "int32"})).is_some());
    }
}
