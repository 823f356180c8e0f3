//! What volumes must look like.

use serde_json::Value;

use super::container::{FILE_FIELDS, field_reference, resource_reference};
use crate::rules::check::{Findings, text};
use crate::rules::kinds::items;
use crate::rules::names;
use crate::rules::quantity::Quantity;
use crate::status::FieldError;

/// Judges all volumes of a pod's spec.
pub(super) fn validate_all(found: &mut Findings, spec: &Value, at: &str) {
    let mut seen = std::collections::BTreeSet::new();
    for (i, volume) in items(spec, "volumes").enumerate() {
        let at = format!("{at}.volumes[{i}]");
        validate(found, volume, &at);
        let name = text(&volume["name"]);
        if !name.is_empty() && !seen.insert(name) {
            found.errors.push(FieldError::duplicate(format!("{at}.name"), name));
        }
    }
}

/// Whether nothing is wrong with a volume: only such a one can be mounted.
pub(super) fn is_sound(volume: &Value) -> bool {
    let mut found = Findings::default();
    validate(&mut found, volume, "");
    found.errors.is_empty()
}

fn validate(found: &mut Findings, volume: &Value, at: &str) {
    found.named(&format!("{at}.name"), &volume["name"], names::dns_label_problem);
    let sources = volume.as_object().into_iter().flatten();
    let sources: Vec<&String> = sources
        .filter(|(field, source)| *field != "name" && source.is_object())
        .map(|(field, _)| field)
        .collect();
    if let [_, second, ..] = sources.as_slice() {
        found.forbidden(format!("{at}.{second}"), "may not specify more than 1 volume type");
    }
    let size = &volume["emptyDir"]["sizeLimit"];
    if Quantity::parse(text(size)).is_some_and(|size| size.millis() < 0) {
        let why = "SizeLimit field must be a valid resource quantity";
        found.forbidden(format!("{at}.emptyDir.sizeLimit"), why);
    }
    let required = [
        ("hostPath", "path"),
        ("persistentVolumeClaim", "claimName"),
        ("configMap", "name"),
        ("secret", "secretName"),
    ];
    for (source, field) in required {
        if volume[source].is_object() {
            found.needs(format!("{at}.{source}.{field}"), &volume[source][field]);
        }
    }
    let types = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    found.one_of(format!("{at}.hostPath.type"), &volume["hostPath"]["type"], &types);
    for source in ["configMap", "secret"] {
        files(found, &volume[source], &format!("{at}.{source}"));
    }
    downward(found, &volume["downwardAPI"], &format!("{at}.downwardAPI"));
    for (i, source) in items(&volume["projected"], "sources").enumerate() {
        let at = format!("{at}.projected");
        for kind in ["configMap", "secret"] {
            if source[kind].is_object() {
                let at = format!("{at}.sources[{i}].{kind}");
                found.needs(format!("{at}.name"), &source[kind]["name"]);
                files(found, &source[kind], &at);
            }
        }
        downward(found, &source["downwardAPI"], &format!("{at}.sources[{i}].downwardAPI"));
        token(found, &source["serviceAccountToken"], &at, i);
    }
}

fn token(found: &mut Findings, token: &Value, at: &str, i: usize) {
    if !token.is_object() {
        return;
    }
    let seconds = &token["expirationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
        let at = format!("{at}.sources[{i}].serviceAccountToken.expirationSeconds");
        found.invalid(at, seconds, "may not specify a duration less than 10 minutes");
    }
    // The path is told as one of the volume.
    found.needs(format!("{at}.path"), &token["path"]);
}

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

fn mode(found: &mut Findings, at: String, mode: &Value) {
    if mode.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        found.invalid(at, mode, MODE);
    }
}

/// Keys that become files.
fn files(found: &mut Findings, source: &Value, at: &str) {
    mode(found, format!("{at}.defaultMode"), &source["defaultMode"]);
    for (i, item) in items(source, "items").enumerate() {
        let at = format!("{at}.items[{i}]");
        found.needs(format!("{at}.key"), &item["key"]);
        found.needs(format!("{at}.path"), &item["path"]);
        mode(found, format!("{at}.mode"), &item["mode"]);
    }
}

/// Fields that become files; what is wrong with any of them is told as one of the volume.
fn downward(found: &mut Findings, source: &Value, at: &str) {
    mode(found, format!("{at}.defaultMode"), &source["defaultMode"]);
    for item in items(source, "items") {
        found.needs(format!("{at}.path"), &item["path"]);
        if !item["fieldRef"].is_object() && !item["resourceFieldRef"].is_object() {
            found.required(at, "one of fieldRef and resourceFieldRef is required");
        }
        field_reference(found, &item["fieldRef"], &format!("{at}.fieldRef"), &FILE_FIELDS);
        resource_reference(
            found,
            &item["resourceFieldRef"],
            &format!("{at}.resourceFieldRef"),
            true,
        );
        mode(found, format!("{at}.mode"), &item["mode"]);
    }
}
