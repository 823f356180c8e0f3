//! Structural schemas of custom resources: what a CustomResourceDefinition may say, and what it means for an object.
//!
//! A [`Schema`] is compiled once from `openAPIV3Schema` and then prunes, defaults and validates objects. Every function
//! is pure. Metadata (names, labels, owner references), scale paths and conversion are not judged here.

mod cel;
mod correlate;
mod cost;
mod expression;
mod formats;
mod lists;
mod meter;
mod node;
mod prune;
mod raw;
mod structural;
mod validate;

use serde_json::Value;

pub(crate) use self::cel::functions;
pub(crate) use self::expression::compile;
pub use self::raw::duplicate_fields;

use self::node::Node;
use crate::status::{FieldError, FieldRule};

const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// A compiled structural schema.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    has_rules: bool,
}

/// What validation found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Validation {
    pub errors: Vec<FieldError>,
    /// Rules that an unchanged part of the object breaks: told, but not enforced.
    pub warnings: Vec<String>,
}

impl Schema {
    /// Compiles a schema. `path` is where it stands (`spec.validation.openAPIV3Schema`); errors are below it.
    pub fn compile(path: &str, schema: &Value) -> Result<Self, Vec<FieldError>> {
        let mut errors = structural::errors(path, schema);
        if errors.is_empty() {
            let root = Node::parse(schema);
            errors = default_errors(path, &root);
            errors.extend(cel::rule_errors(path, &root));
            if errors.is_empty() {
                return Ok(Self {
                    has_rules: root.has_rules(),
                    root,
                });
            }
        }
        Err(errors)
    }

    /// Removes fields that the schema does not know and returns their paths, sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    /// Removes nulls where the schema allows none and fills in defaults.
    pub fn default(&self, object: &mut Value) {
        prune::drop_nulls(Some(&self.root), object);
        prune::default(&self.root, object);
    }

    /// Judges an object; with the `old` one, transition rules apply and what did not change is forgiven.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Validation {
        let mut errors = validate::errors(&self.root, object, old);
        errors.extend(validate::embedded_errors(&self.root, object));
        if old.is_none_or(|old| lists::errors(&self.root, old).is_empty()) {
            errors.extend(lists::errors(&self.root, object));
        }
        let mut warnings = Vec::new();
        if self.has_rules && errors.iter().any(hides_rules) {
            errors.push(FieldError::invalid("", Value::Null, RULES_NOT_CHECKED));
        } else if self.has_rules {
            let found = cel::validate(&self.root, object, old);
            errors.extend(found.errors);
            warnings = found.warnings;
        }
        Validation { errors, warnings }
    }
}

/// Whether rules cannot be evaluated on an object with this error.
fn hides_rules(error: &FieldError) -> bool {
    use FieldRule::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.rule, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

/// Defaults must themselves be what the schema allows.
fn default_errors(path: &str, node: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(default) = &node.default {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        prune::prune_value(node, &mut pruned);
        if pruned != *default {
            errors.push(FieldError::invalid(
                &at,
                default.clone(),
                "must not have unknown fields",
            ));
        }
        let found = validate::errors(node, default, None);
        errors.extend(found.into_iter().map(|error| FieldError {
            field: child(&at, &error.field),
            ..error
        }));
    }
    for (name, property) in &node.properties {
        errors.extend(default_errors(&key(&format!("{path}.properties"), name), property));
    }
    if let node::Additional::Typed(typed) = &node.additional {
        errors.extend(default_errors(&format!("{path}.additionalProperties"), typed));
    }
    if let Some(items) = &node.items {
        errors.extend(default_errors(&format!("{path}.items"), items));
    }
    errors
}

/// A path below another: `spec` and `replicas` give `spec.replicas`.
fn child(path: &str, name: &str) -> String {
    match (path, name) {
        ("", name) => name.to_owned(),
        (path, "") => path.to_owned(),
        (path, name) => format!("{path}.{name}"),
    }
}

/// The path of a key of a map: `spec.labels[app]`.
fn key(path: &str, name: &str) -> String {
    format!("{path}[{name}]")
}

fn index(path: &str, at: usize) -> String {
    format!("{path}[{at}]")
}

#[cfg(test)]
mod tests;
