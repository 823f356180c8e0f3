//! What must differ between two clusters is replaced by a word: uids, times, revisions, drawn names and addresses.
//!
//! The same value becomes the same word all through a transcript, so that a changed uid or revision is still seen.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::target::Answer;

/// Texts in which a number or a name is the cluster's own.
static SCRUBBED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<microtime>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (r"current: \d+", "current: <rv>"),
        (r"in (record|the precondition) \(\d+\)", "in $1 (<rv>)"),
        (r#"(resourceVersion\\*":\\*")\d+"#, "$1<rv>"),
        (
            r"too old resource version: (\d+) \(\d+\)",
            "too old resource version: $1 (<rv>)",
        ),
        (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<5>"),
        (r"10\.\d+\.\d+\.\d+", "<ip>"),
        (r"127\.0\.0\.1:\d+", "<address>"),
        (r"\?hash=[0-9A-F]+", "?hash=<hash>"),
        // A value of a wrong type is told in the words of each decoder: a listed difference.
        (r"(cannot be handled as a \w+: json: ).*", "$1<wrong type>"),
        (r"^json: .*", "json: <wrong type>"),
    ];
    let compiled = patterns.map(|(pattern, word)| (Regex::new(pattern).expect("a constant pattern"), word));
    compiled.into()
});

static UID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a constant pattern")
});

/// `Invalid value: "{\"kind\":…}"`.
static TOLD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"Invalid value: ("(?:[^"\\]|\\.)*")"#).expect("a constant pattern"));

/// The age of an object in a printed table: how many seconds a case has taken so far.
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+[smh]){1,2}$").expect("a constant pattern"));

#[derive(Debug, Default)]
pub(crate) struct Normalizer {
    /// What each uid, revision and drawn name is called, in the order in which they came.
    uids: BTreeMap<String, String>,
    revisions: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
}

impl Normalizer {
    pub(crate) fn answer(&mut self, answer: Answer, ignored: &[String]) -> Value {
        let mut body = answer.body;
        for pointer in ignored {
            remove(&mut body, pointer);
        }
        self.value(&mut body);
        let warnings: Vec<String> = answer.warnings.iter().map(|warning| self.text(warning)).collect();
        json!({"code": answer.code, "type": answer.media_type, "warnings": warnings, "body": body})
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.fields(fields),
            Value::Array(items) => {
                items.retain(|item| !is_plain_bookmark(item));
                items.iter_mut().for_each(|item| self.value(item));
            }
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &mut Map<String, Value>) {
        let is_list = fields.contains_key("items") || fields.contains_key("rows");
        if is_bookmark(fields)
            && let Some(revision) = fields
                .get_mut("object")
                .and_then(|o| o.pointer_mut("/metadata/resourceVersion"))
        {
            *revision = json!("<rv>");
        }
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            self.metadata(metadata, is_list);
        }
        if let Some(Value::Array(resources)) = fields.get_mut("resources") {
            // Custom kinds of one group are told in any order.
            resources.sort_by_key(|resource| resource["name"].to_string());
        }
        for rules in ["resourceRules", "nonResourceRules"] {
            // Bindings are looked at in any order.
            if let Some(Value::Array(rules)) = fields.get_mut(rules) {
                rules.sort_by_key(Value::to_string);
            }
        }
        if fields.get("status").is_some_and(|status| status == "Failure") {
            sort_causes(fields);
        }
        if let Some(Value::Array(cells)) = fields.get_mut("cells") {
            cells
                .iter_mut()
                .filter(|cell| is_age(cell))
                .for_each(|cell| *cell = json!("<age>"));
        }
        // Owners are named by their uid in the keys of managed fields.
        for key in fields
            .keys()
            .filter(|key| UID.is_match(key))
            .cloned()
            .collect::<Vec<_>>()
        {
            let value = fields.remove(&key).unwrap_or_default();
            fields.insert(self.text(&key), value);
        }
        fields.values_mut().for_each(|field| self.value(field));
    }

    fn metadata(&mut self, metadata: &mut Map<String, Value>, is_list: bool) {
        if let Some(Value::String(revision)) = metadata.get_mut("resourceVersion") {
            *revision = match (is_list, revision.parse::<u64>()) {
                (_, Err(_)) | (_, Ok(0)) => revision.clone(),
                // A list has the revision of the whole store, which other cases move too.
                (true, _) => "<rv>".to_owned(),
                (false, _) => named(&mut self.revisions, revision, "rv"),
            };
        }
        if let Some(Value::String(token)) = metadata.get_mut("continue")
            && !token.is_empty()
        {
            *token = "<continue>".to_owned();
        }
        let prefix = metadata.get("generateName").and_then(Value::as_str);
        if let (Some(prefix), Some(name)) = (prefix, metadata.get("name").and_then(Value::as_str))
            && let Some(drawn) = name.strip_prefix(prefix)
            && drawn.len() == 5
        {
            let count = self.names.len() + 1;
            let word = format!("{prefix}<drawn{count}>");
            self.names.entry(name.to_owned()).or_insert(word);
        }
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            // Ordered by time in seconds: which of two comes first depends on when a second began.
            entries.sort_by_key(|entry| {
                ["operation", "manager", "subresource", "apiVersion"].map(|key| entry[key].to_string())
            });
        }
    }

    fn text(&mut self, text: &str) -> String {
        let text = TOLD.replace_all(text, |found: &regex::Captures<'_>| self.told(found));
        let mut text = UID
            .replace_all(&text, |found: &regex::Captures<'_>| {
                named(&mut self.uids, &found[0], "uid")
            })
            .into_owned();
        for (pattern, word) in SCRUBBED.iter() {
            text = pattern.replace_all(&text, *word).into_owned();
        }
        for (name, word) in &self.names {
            text = text.replace(name, word);
        }
        text
    }
}

impl Normalizer {
    /// An object that an error repeats as text: what was said of objects holds for it, and the order of its keys is listed
    /// as a difference.
    fn told(&mut self, found: &regex::Captures<'_>) -> String {
        let object = serde_json::from_str::<String>(&found[1]).ok();
        let object = object.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        match object {
            Some(mut object) if object.is_object() => {
                self.value(&mut object);
                format!("Invalid value: {object}")
            }
            _ => found[0].to_owned(),
        }
    }
}

fn is_age(cell: &Value) -> bool {
    cell.as_str().is_some_and(|text| AGE.is_match(text))
}

fn is_bookmark(event: &Map<String, Value>) -> bool {
    event.get("type").is_some_and(|kind| kind == "BOOKMARK") && event.contains_key("object")
}

/// Kubernetes promises no time at which bookmarks come, but the one that ends the initial events.
fn is_plain_bookmark(item: &Value) -> bool {
    item.as_object().is_some_and(is_bookmark) && item.pointer("/object/metadata/annotations").is_none()
}

fn named(names: &mut BTreeMap<String, String>, value: &str, word: &str) -> String {
    let count = names.len() + 1;
    let name = names.entry(value.to_owned());
    name.or_insert_with(|| format!("<{word}{count}>")).clone()
}

/// The API server reports several broken rules of a schema in any order.
fn sort_causes(status: &mut Map<String, Value>) {
    if let Some(Value::Array(causes)) = status.get_mut("details").and_then(|details| details.get_mut("causes")) {
        causes.sort_by_key(Value::to_string);
    }
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((before, list)) = message.split_once(": [")
        && let Some(list) = list.strip_suffix(']')
    {
        let mut parts: Vec<&str> = list.split(", ").collect();
        parts.sort_unstable();
        *message = format!("{before}: [{}]", parts.join(", "));
    }
}

/// Removes what a pointer names; `*` stands for every item of a list.
fn remove(value: &mut Value, pointer: &str) {
    let Some((step, rest)) = pointer
        .strip_prefix('/')
        .map(|p| p.split_once('/').map_or((p, None), |(s, r)| (s, Some(r))))
    else {
        return;
    };
    match (value, rest) {
        (Value::Array(items), Some(rest)) if step == "*" => {
            items.iter_mut().for_each(|item| remove(item, &format!("/{rest}")));
        }
        (Value::Object(fields), None) => drop(fields.remove(step)),
        (Value::Object(fields), Some(rest)) => {
            if let Some(field) = fields.get_mut(step) {
                remove(field, &format!("/{rest}"));
            }
        }
        (Value::Array(items), Some(rest)) => {
            if let Some(item) = step.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                remove(item, &format!("/{rest}"));
            }
        }
        (Value::Array(items), None) => {
            if let Some(item) = step.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                *item = Value::Null;
            }
        }
        _ => {}
    }
}
