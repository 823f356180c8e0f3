//! `matchConditions`: CEL over the write and over who makes it.

use std::sync::Arc;

use kube::core::cel::cel::objects::{Key, Map};
use kube::core::cel::cel::{ExecutionError, Program, Value as CelValue};
use serde_json::Value;

use super::super::Call;
use super::hook::Hook;
use super::review::request;
use super::{Write, shown};
use crate::schema::{compile, functions};

/// One condition of a hook.
#[derive(Debug)]
pub(super) struct Condition {
    expression: String,
    program: Result<Program, String>,
}

impl Condition {
    pub(super) fn parse(condition: &Value) -> Self {
        let expression = condition["expression"].as_str().unwrap_or_default().trim().to_owned();
        let program = compile(&expression);
        Self { expression, program }
    }
}

/// Whether every condition holds. One that is false decides; else one that cannot be evaluated is an error.
pub(super) fn hold(call: &Call, hook: &Hook, write: &Write<'_>) -> Result<bool, String> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let mut scope = functions().new_inner_scope();
    let bound = |object: Option<&Value>| object.map_or(CelValue::Null, |object| bind(&shown(call, object)));
    scope.add_variable_from_value("object", bound(write.object));
    scope.add_variable_from_value("oldObject", bound(write.old));
    scope.add_variable_from_value("request", bind(&request(call, write)));
    let mut errors = Vec::new();
    for condition in &hook.conditions {
        let result = match &condition.program {
            Ok(program) => program.execute(&scope).map_err(|error| words(&error)),
            Err(error) => Err(format!("compilation failed: {error}")),
        };
        match result {
            Ok(CelValue::Bool(true)) => {}
            Ok(CelValue::Bool(false)) => return Ok(false),
            Ok(_) => errors.push(format!(
                "expression '{}' resulted in error: must evaluate to bool",
                condition.expression
            )),
            Err(error) => errors.push(format!(
                "expression '{}' resulted in error: {error}",
                condition.expression
            )),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(name) => format!("no such key: {name}"),
        ExecutionError::NoSuchOverload => "no such overload".to_owned(),
        other => other.to_string(),
    }
}

/// A document as CEL sees it without a schema: names of fields are as they are.
fn bind(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => number
            .as_i64()
            .map_or_else(|| CelValue::Float(number.as_f64().unwrap_or_default()), CelValue::Int),
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(bind).collect())),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (Key::String(Arc::new(name.clone())), bind(value)));
            CelValue::Map(Map {
                map: Arc::new(fields.collect()),
            })
        }
    }
}
