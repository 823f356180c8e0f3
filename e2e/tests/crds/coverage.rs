//! No rule of a schema is without a case (invariant 4): what `rules.yaml` covers, against what the schemas hold.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use crate::table::{Case, Table};

/// Fields whose schema is Kubernetes' own; the table has samples of them, not every rule.
pub(crate) const KUBERNETES: [&str; 4] = ["podSpec", "templateSpec", "metrics", "conditions"];

const KEYWORDS: [&str; 9] = [
    "default",
    "enum",
    "minimum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    UNIQUE,
];

/// The keys by which the items of a list must differ.
const UNIQUE: &str = "x-kubernetes-list-map-keys";

/// `PodCliqueSet spec.template.cliques[].name maxLength`; a CEL rule has its message for a keyword.
type Rule = String;

fn rules_of(kind: &str, schema: &Value, path: &str, rules: &mut BTreeSet<Rule>) {
    for keyword in KEYWORDS {
        if schema.get(keyword).is_some() {
            rules.insert(format!("{kind} {path} {keyword}"));
        }
    }
    for validation in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let field = format!("{path}{}", validation["fieldPath"].as_str().unwrap_or_default());
        rules.insert(format!(
            "{kind} {field} {}",
            validation["message"].as_str().unwrap_or_default()
        ));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = joined(path, name);
        if !KUBERNETES.contains(&name.as_str()) {
            rules_of(kind, property, &path, rules);
        } else if property.get(UNIQUE).is_some() {
            rules.insert(format!("{kind} {path} {UNIQUE}"));
        }
    }
    if schema.get("items").is_some() {
        rules_of(kind, &schema["items"], &format!("{path}[]"), rules);
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// The rules that a case exercises.
fn covered_by(case: &Case) -> Vec<Rule> {
    let kind = case.kind();
    if let Some(refused) = &case.refused {
        let field = without_indices(&refused.field);
        let keyword = match refused.message.as_str() {
            text if text.starts_with("Duplicate value") => {
                return vec![format!("{kind} {} {UNIQUE}", field.trim_end_matches("[]"))];
            }
            text if text.starts_with("Unsupported value") => "enum",
            text if text.starts_with("Too long") => "maxLength",
            text if text.starts_with("Too many") => "maxItems",
            text if text.contains("greater than or equal to") => "minimum",
            text if text.contains("chars long") => "minLength",
            text if text.contains("at least 1 items") => "minItems",
            text if text.contains("should match") => "pattern",
            message => message,
        };
        return vec![format!("{kind} {field} {keyword}")];
    }
    let defaulted = case
        .stored
        .keys()
        .filter(|pointer| case.changed.pointer(pointer).is_none());
    defaulted
        .map(|pointer| format!("{kind} {} default", as_path(pointer)))
        .collect()
}

fn without_indices(field: &str) -> String {
    let mut out = String::new();
    for part in field.split_inclusive(['[', ']']) {
        if part
            .strip_suffix(']')
            .is_some_and(|index| index.parse::<usize>().is_ok())
        {
            out.push(']');
        } else {
            out.push_str(part);
        }
    }
    out
}

fn as_path(pointer: &str) -> String {
    let steps = pointer.split('/').skip(1);
    steps.fold(String::new(), |path, step| match step.parse::<usize>() {
        Ok(_) => format!("{path}[]"),
        Err(_) => joined(&path, step),
    })
}

#[test]
fn every_rule_of_our_schemas_has_a_case() -> Result<()> {
    let mut rules = BTreeSet::new();
    for definition in grove_api::crds::all() {
        let definition = serde_json::to_value(definition)?;
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
        rules_of(
            kind,
            &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            "",
            &mut rules,
        );
    }
    let table = Table::read()?;
    let covered: BTreeSet<Rule> = table.cases().iter().flat_map(covered_by).collect();
    let bare: Vec<&Rule> = rules.difference(&covered).collect();
    assert!(bare.is_empty(), "rules without a case in rules.yaml: {bare:#?}");
    assert!(rules.len() >= 60, "the schemas have only {} rules", rules.len());
    Ok(())
}
