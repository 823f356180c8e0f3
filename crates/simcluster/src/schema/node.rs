//! A schema as a tree that is quick to walk. [`Node::parse`] expects a schema that `super::structural` found sound.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::cel::Rule;
use super::formats::Format;

#[derive(Debug, Default)]
pub(super) struct Node {
    /// `object`, `array`, …; empty where the schema does not say.
    pub(super) ty: String,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    pub(super) preserves_unknown: bool,
    pub(super) is_embedded: bool,
    pub(super) default: Option<Value>,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Node>>,
    pub(super) list: ListType,
    pub(super) checks: Checks,
    pub(super) rules: Vec<Rule>,
}

/// What `additionalProperties` says about fields that are not declared.
#[derive(Debug, Default)]
pub(super) enum Additional {
    #[default]
    Unset,
    Any,
    Typed(Box<Node>),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Bounds on a value of the right type.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) format: Option<Format>,
    pub(super) allowed: Vec<Value>,
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) length_min: Option<u64>,
    pub(super) length_max: Option<u64>,
    pub(super) pattern: Option<Regex>,
    pub(super) items_min: Option<u64>,
    pub(super) items_max: Option<u64>,
    pub(super) properties_min: Option<u64>,
    pub(super) properties_max: Option<u64>,
    pub(super) required: Vec<String>,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) is_exclusive: bool,
}

impl Node {
    pub(super) fn parse(schema: &Value) -> Self {
        let is = |name: &str| schema[name] == true;
        let additional = match &schema["additionalProperties"] {
            typed @ Value::Object(_) => Additional::Typed(Box::new(Self::parse(typed))),
            Value::Bool(true) => Additional::Any,
            _ => Additional::Unset,
        };
        Self {
            ty: schema["type"].as_str().unwrap_or_default().to_owned(),
            nullable: is("nullable"),
            int_or_string: is("x-kubernetes-int-or-string"),
            preserves_unknown: is("x-kubernetes-preserve-unknown-fields"),
            is_embedded: is("x-kubernetes-embedded-resource"),
            default: schema.get("default").filter(|value| !value.is_null()).cloned(),
            properties: object(&schema["properties"])
                .map(|(name, one)| (name.clone(), Self::parse(one)))
                .collect(),
            additional,
            items: schema
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| Box::new(Self::parse(items))),
            list: list_type(schema),
            checks: Checks::parse(schema),
            rules: array(&schema["x-kubernetes-validations"]).map(Rule::parse).collect(),
        }
    }

    /// The schema of a field, declared or not.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        match (&self.additional, self.properties.get(name)) {
            (_, Some(declared)) => Some(declared),
            (Additional::Typed(typed), None) => Some(typed),
            _ => None,
        }
    }

    pub(super) fn has_rules(&self) -> bool {
        let below = self.properties.values().chain(self.items.as_deref());
        let additional = match &self.additional {
            Additional::Typed(typed) => typed.has_rules(),
            _ => false,
        };
        !self.rules.is_empty() || additional || below.into_iter().any(Self::has_rules)
    }
}

impl Checks {
    fn parse(schema: &Value) -> Self {
        let count = |name: &str| schema[name].as_u64();
        let bound = |name: &str, exclusive: &str| {
            let value = schema[name].as_f64()?;
            Some(Bound {
                value,
                is_exclusive: schema[exclusive] == true,
            })
        };
        let nodes = |name: &str| array(&schema[name]).map(Node::parse).collect();
        Self {
            format: Format::parse(schema),
            allowed: array(&schema["enum"]).cloned().collect(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: schema["multipleOf"].as_f64(),
            length_min: count("minLength"),
            length_max: count("maxLength"),
            pattern: schema["pattern"].as_str().and_then(|pattern| Regex::new(pattern).ok()),
            items_min: count("minItems"),
            items_max: count("maxItems"),
            properties_min: count("minProperties"),
            properties_max: count("maxProperties"),
            required: array(&schema["required"])
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: schema
                .get("not")
                .filter(|not| not.is_object())
                .map(|not| Box::new(Node::parse(not))),
        }
    }
}

fn list_type(schema: &Value) -> ListType {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => {
            let keys = array(&schema["x-kubernetes-list-map-keys"]).filter_map(Value::as_str);
            ListType::Map(keys.map(str::to_owned).collect())
        }
        _ => ListType::Atomic,
    }
}

pub(super) fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}
