//! One mapping of the file while it is read: typed access by key, and a problem for everything that does not fit.
//!
//! A reader asks for every key that it knows; what nobody asked for is unknown. A wrong value is recorded and its
//! default returned, so that one pass finds every problem. No rule of any block lives here.

use std::net::IpAddr;
use std::num::NonZeroU32;

use serde_json::{Map, Value};

use super::ConfigError;

/// The longest value or foreign key that a message repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// A value that can stand in the file.
pub(super) trait Setting: Sized {
    /// What a good value is, to end the sentence "must be …".
    fn expected() -> String;

    fn from_value(value: &Value) -> Option<Self>;
}

pub(super) struct Section<'a> {
    /// Where this mapping is, such as `server.webhooks`; empty for the whole file.
    path: String,
    /// `None` for a mapping that is absent: every key of it is then absent too.
    entries: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
    problems: &'a mut Vec<ConfigError>,
}

impl<'a> Section<'a> {
    /// Reads the whole file.
    pub(super) fn root<T>(
        tree: &'a Map<String, Value>,
        problems: &'a mut Vec<ConfigError>,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        Section::new(String::new(), Some(tree), problems).read(read)
    }

    fn new(path: String, entries: Option<&'a Map<String, Value>>, problems: &'a mut Vec<ConfigError>) -> Self {
        Section {
            path,
            entries,
            known: Vec::new(),
            problems,
        }
    }

    fn read<T>(mut self, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let result = read(&mut self);
        self.report_unknown_keys();
        result
    }

    fn report_unknown_keys(&mut self) {
        let unknown = self
            .entries
            .into_iter()
            .flat_map(Map::keys)
            .filter(|key| !self.known.contains(&key.as_str()));
        let message = match self.known.as_slice() {
            [] => "unknown key; nothing can be set here, remove it".to_owned(),
            known => format!("unknown key; the keys known here are {}", known.join(", ")),
        };
        let problems: Vec<_> = unknown
            .map(|key| ConfigError::Setting {
                path: self.path_of(&shown_key(key)),
                message: message.clone(),
            })
            .collect();
        self.problems.extend(problems);
    }

    /// The path of `key`, which may go deeper (`levels[1].key`).
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Records a problem with `key` of this mapping.
    pub(super) fn problem(&mut self, key: &str, message: String) {
        let path = self.path_of(key);
        self.problem_at(&path, message);
    }

    /// Records a problem at a full path, for rules that compare settings of several blocks, and for flags.
    pub(super) fn problem_at(&mut self, path: &str, message: String) {
        self.problems.push(ConfigError::Setting {
            path: path.to_owned(),
            message,
        });
    }

    /// Whether `key` has a value. As in Kubernetes, null is the same as absent.
    pub(super) fn has(&mut self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entries?.get(key).filter(|value| !value.is_null())
    }

    /// The value of `key`, if it is there and good.
    pub(super) fn optional<T: Setting>(&mut self, key: &'static str) -> Option<T> {
        let value = self.value(key)?;
        let setting = T::from_value(value);
        if setting.is_none() {
            self.must_be(key, &T::expected(), value);
        }
        setting
    }

    pub(super) fn or<T: Setting>(&mut self, key: &'static str, default: T) -> T {
        self.optional(key).unwrap_or(default)
    }

    pub(super) fn or_else<T: Setting>(&mut self, key: &'static str, default: impl FnOnce() -> T) -> T {
        self.optional(key).unwrap_or_else(default)
    }

    /// The value of `key`; its absence is a problem.
    pub(super) fn required<T: Setting>(&mut self, key: &'static str) -> Option<T> {
        if !self.has(key) {
            self.problem(key, format!("missing; it must be {}", T::expected()));
        }
        self.optional(key)
    }

    /// The mapping under `key`; an absent one reads as an empty one.
    pub(super) fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let entries = self.value(key).and_then(|value| {
            let entries = value.as_object();
            if entries.is_none() {
                self.must_be(key, "a mapping", value);
            }
            entries
        });
        let path = self.path_of(key);
        Section::new(path, entries, self.problems).read(read)
    }

    /// The list of mappings under `key`, each with its index, since an item that is no mapping is left out.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_>) -> T,
    ) -> Vec<(usize, T)> {
        let mut items = Vec::new();
        for (index, value) in self.items(key).iter().enumerate() {
            let item = format!("{key}[{index}]");
            match value.as_object() {
                None => self.must_be(&item, "a mapping", value),
                entries => {
                    let path = self.path_of(&item);
                    let section = Section::new(path, entries, self.problems);
                    items.push((index, section.read(&mut read)));
                }
            }
        }
        items
    }

    /// The list of strings under `key`, none of them empty.
    pub(super) fn strings(&mut self, key: &'static str) -> Vec<String> {
        let mut strings = Vec::new();
        for (index, value) in self.items(key).iter().enumerate() {
            match value {
                Value::String(string) if !string.trim().is_empty() => strings.push(string.clone()),
                other => self.must_be(&format!("{key}[{index}]"), "a string that is not empty", other),
            }
        }
        strings
    }

    fn items(&mut self, key: &'static str) -> &'a [Value] {
        match self.value(key) {
            None => &[],
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.must_be(key, "a list", other);
                &[]
            }
        }
    }

    fn must_be(&mut self, key: &str, expected: &str, value: &Value) {
        self.problem(key, format!("must be {expected}, not {}", shown(value)));
    }
}

impl Setting for bool {
    fn expected() -> String {
        "true or false".into()
    }

    fn from_value(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Setting for String {
    fn expected() -> String {
        "a string".into()
    }

    fn from_value(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl Setting for f64 {
    fn expected() -> String {
        "a number of 0 or more".into()
    }

    fn from_value(value: &Value) -> Option<Self> {
        value.as_f64().filter(|number| number.is_finite() && *number >= 0.0)
    }
}

impl Setting for u32 {
    fn expected() -> String {
        format!("a whole number from 0 to {}", Self::MAX)
    }

    fn from_value(value: &Value) -> Option<Self> {
        value.as_u64().and_then(|number| number.try_into().ok())
    }
}

impl Setting for NonZeroU32 {
    fn expected() -> String {
        format!("a whole number from 1 to {}", Self::MAX)
    }

    fn from_value(value: &Value) -> Option<Self> {
        u32::from_value(value).and_then(Self::new)
    }
}

/// A port.
impl Setting for u16 {
    fn expected() -> String {
        format!("a port number from 0 to {}", Self::MAX)
    }

    fn from_value(value: &Value) -> Option<Self> {
        value.as_u64().and_then(|number| number.try_into().ok())
    }
}

impl Setting for IpAddr {
    fn expected() -> String {
        "an IP address such as 127.0.0.1".into()
    }

    fn from_value(value: &Value) -> Option<Self> {
        value.as_str().and_then(|address| address.parse().ok())
    }
}

/// `a, b or c`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [init @ .., last] => format!("{} or {last}", init.join(", ")),
    }
}

/// A value as a message repeats it: one line, of bounded length.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "a mapping".into(),
        Value::Array(_) => "a list".into(),
        scalar => shortened(&scalar.to_string()),
    }
}

/// A key that this program did not choose, so that it cannot break a message into lines or pose as another path.
fn shown_key(key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_/".contains(c));
    if is_plain {
        shortened(key)
    } else {
        shortened(&Value::from(key).to_string())
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
