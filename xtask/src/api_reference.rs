//! The reference of the API as a page: every kind, every field with its type, its default and what it means, from the
//! schemas that are installed.
//!
//! What Kubernetes defines (a pod's spec, conditions) has no descriptions in our schemas, and is named rather than listed.

use std::fmt::Write as _;

use grove_api::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};

const HEAD: &str = "# API reference

<!-- Written by `cargo xtask gen` from the types in crates/api; do not edit. -->

Every kind with every field, as the API server checks them. `kubectl explain` tells the same on a cluster. Fields in **bold**
are required; what is in `[]` is in each item of a list. Fields that Kubernetes defines are not listed: their description
names its type.
";

/// The whole page.
pub(crate) fn page() -> String {
    let definitions = crds::all();
    let mut page = HEAD.to_owned();
    page.push('\n');
    for definition in &definitions {
        let kind = &definition.spec.names.kind;
        let _ = writeln!(page, "- [{kind}](#{})", kind.to_lowercase());
    }
    for definition in &definitions {
        write_kind(&mut page, definition);
    }
    page
}

fn write_kind(page: &mut String, definition: &CustomResourceDefinition) {
    let spec = &definition.spec;
    let names: Vec<String> = std::iter::once(&spec.names.plural)
        .chain(spec.names.short_names.iter().flatten())
        .map(|name| format!("`{name}`"))
        .collect();
    let _ = writeln!(page, "\n## {}", spec.names.kind);
    for version in &spec.versions {
        let stored = if version.storage || spec.versions.len() == 1 {
            ""
        } else {
            ", served by conversion"
        };
        let scope = if spec.scope == "Cluster" {
            "of the whole cluster"
        } else {
            "in a namespace"
        };
        let (group, name) = (&spec.group, &version.name);
        let _ = writeln!(page, "\n`{group}/{name}`, {scope}{stored}; {}", names.join(", "));
        write_version(page, version);
    }
}

fn write_version(page: &mut String, version: &CustomResourceDefinitionVersion) {
    let schema = version
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    let Some(schema) = schema else { return };
    if let Some(description) = &schema.description {
        let _ = writeln!(page, "\n{description}");
    }
    let (mut rows, mut rules) = (Vec::new(), Vec::new());
    for (name, field) in ours(schema) {
        collect(name, field, is_required(schema, name), &mut rows, &mut rules);
    }
    page.push_str("\n| field | type | default | |\n|---|---|---|---|\n");
    page.extend(rows);
    if !rules.is_empty() {
        page.push_str("\nRules:\n\n");
        page.extend(rules);
    }
}

/// The fields of an object that are not every object's.
fn ours(schema: &JSONSchemaProps) -> impl Iterator<Item = (&str, &JSONSchemaProps)> {
    let fields = schema.properties.iter().flatten();
    let fields = fields.map(|(name, field)| (name.as_str(), field));
    fields.filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(name))
}

fn is_required(schema: &JSONSchemaProps, name: &str) -> bool {
    schema.required.iter().flatten().any(|required| required == name)
}

/// A row for a field and for each field in it, and its rules.
fn collect(path: &str, field: &JSONSchemaProps, required: bool, rows: &mut Vec<String>, rules: &mut Vec<String>) {
    let shown = if required {
        format!("**`{path}`**")
    } else {
        format!("`{path}`")
    };
    let default = field
        .default
        .as_ref()
        .map(|value| format!("`{}`", value.0))
        .unwrap_or_default();
    let description = field.description.as_deref().unwrap_or_default().replace('\n', " ");
    rows.push(format!(
        "| {shown} | {} | {} | {} |\n",
        cell(&kind_of(field)),
        cell(&default),
        cell(&description)
    ));
    add_rules(path, field, rules);
    if !describes_inside(field) {
        return;
    }
    for (path, inside) in levels(path, field) {
        if !std::ptr::eq(inside, field) {
            add_rules(&path, inside, rules);
        }
        for (name, below) in inside.properties.iter().flatten() {
            collect(&format!("{path}.{name}"), below, is_required(inside, name), rows, rules);
        }
    }
}

fn add_rules(path: &str, field: &JSONSchemaProps, rules: &mut Vec<String>) {
    for rule in field.x_kubernetes_validations.iter().flatten() {
        let message = rule.message.as_deref().unwrap_or(&rule.rule).replace('\n', " ");
        let line = format!("- `{path}`: {}\n", message.trim());
        if !rules.contains(&line) {
            rules.push(line);
        }
    }
}

/// The object that a field holds, through lists and maps, each with how it is reached.
fn levels<'a>(path: &str, field: &'a JSONSchemaProps) -> Vec<(String, &'a JSONSchemaProps)> {
    let mut levels = vec![(path.to_owned(), field)];
    let mut at = field;
    let mut path = path.to_owned();
    while let Some((inside, mark)) = inside(at) {
        path.push_str(mark);
        levels.push((path.clone(), inside));
        at = inside;
    }
    levels
}

/// What a list or a map holds.
fn inside(field: &JSONSchemaProps) -> Option<(&JSONSchemaProps, &'static str)> {
    match (&field.items, &field.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => Some((items, "[]")),
        (_, Some(JSONSchemaPropsOrBool::Schema(values))) => Some((values, "{}")),
        _ => None,
    }
}

/// Whether anything in a field has a description: then it is ours.
fn describes_inside(field: &JSONSchemaProps) -> bool {
    let below = levels("", field);
    let mut fields = below.iter().flat_map(|(_, level)| level.properties.iter().flatten());
    fields.any(|(_, below)| below.description.is_some() || describes_inside(below))
}

/// "list of integers", "`A` or `B`", "integer, at least 1".
fn kind_of(field: &JSONSchemaProps) -> String {
    if let Some(words) = &field.enum_ {
        let words: Vec<String> = words
            .iter()
            .map(|word| format!("`{}`", word.0.as_str().unwrap_or_default()))
            .collect();
        return words.join(", ");
    }
    if field.x_kubernetes_int_or_string == Some(true) {
        return "integer or string".to_owned();
    }
    let mut text = match inside(field) {
        Some((items, "[]")) => format!("list of {}", kind_of(items)),
        Some((values, _)) => format!("map to {}", kind_of(values)),
        None => field.type_.clone().unwrap_or_else(|| "any".to_owned()),
    };
    let bounds = [
        (field.minimum.map(|least| format!("at least {least}"))),
        (field.maximum.map(|most| format!("at most {most}"))),
        (field.max_items.map(|most| format!("at most {most}"))),
        (field.max_length.map(|most| format!("at most {most} characters"))),
    ];
    for bound in bounds.into_iter().flatten() {
        text.push_str(", ");
        text.push_str(&bound);
    }
    text
}

/// A text in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_its_fields_are_on_the_page() {
        let page = page();
        for expected in [
            "## PodCliqueSet\n\n`grove.io/v1alpha1`, in a namespace; `podcliquesets`, `pcs`",
            "| **`spec.levels[].domain`** |",
            "- `spec.levels`: domain must be unique across all levels\n",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
        assert!(!page.contains("podSpec.containers"), "a pod's spec is Kubernetes' own");
    }

    /// Who adds a field says what it is for.
    #[test]
    fn every_field_of_ours_has_a_description() {
        let bare: Vec<String> = page()
            .lines()
            .filter(|line| line.ends_with("|  |"))
            .map(str::to_owned)
            .collect();
        assert!(bare.is_empty(), "{}", bare.join("\n"));
    }
}
