//! CEL rules (`x-kubernetes-validations`).
//!
//! The language and the functions of Kubernetes come from kube-cel; the walk, the bindings and the messages are here,
//! because they differ: `optionalOldSelf` binds an optional, items of list-maps meet their old selves by key, and a
//! rule that an unchanged value breaks is only a warning.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::core::cel::KubeCelExt;
use kube::core::cel::cel::objects::{Key, Map, Opaque, OptionalValue};
use kube::core::cel::cel::{Context, ExecutionError, Program, Value as CelValue};
use serde_json::Value;

use super::correlate::{Correlated, old_item};
use super::cost::{self, Bill};
use super::expression::compile;
use super::meter::{CALL_MAX, Metered, OBJECT_MAX};
use super::node::{Additional, Node};
use super::{Validation, child, index, key};
use crate::status::FieldError;

/// A message that an expression makes may not be longer.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// One rule of a schema.
#[derive(Debug)]
pub(super) struct Rule {
    source: String,
    program: Result<Program, String>,
    metered: Option<Metered>,
    message: String,
    message_program: Option<Result<Program, String>>,
    message_metered: Option<Metered>,
    reason: String,
    /// Where the error is told, relative to the value: `.replicas`.
    field_path: String,
    optional_old_self: Option<bool>,
    uses_old_self: bool,
    /// The rule as JSON, in the form in which the API server shows a rule that it refuses.
    described: String,
}

impl Rule {
    pub(super) fn parse(rule: &Value) -> Self {
        let text = |name: &str| rule[name].as_str().unwrap_or_default();
        let message_program = Some(text("messageExpression"))
            .filter(|source| !source.is_empty())
            .map(compile);
        let program = compile(text("rule"));
        let names = |program: &Program| program.references().variables().contains(&"oldSelf");
        let metered = |program: &Program| Metered::new(program.expression());
        Self {
            metered: program.as_ref().ok().map(metered),
            message_metered: message_program
                .as_ref()
                .and_then(|program| program.as_ref().ok())
                .map(metered),
            uses_old_self: program.as_ref().is_ok_and(names),
            source: text("rule").trim().to_owned(),
            program,
            message: text("message").trim().to_owned(),
            message_program,
            reason: text("reason").to_owned(),
            field_path: text("fieldPath").trim().trim_start_matches('.').to_owned(),
            optional_old_self: rule["optionalOldSelf"].as_bool(),
            described: format!(
                "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
                Value::from(text("rule")),
                Value::from(text("message")),
                Value::from(text("messageExpression")),
                rule["reason"],
                Value::from(text("fieldPath")),
                rule["optionalOldSelf"],
            ),
        }
    }

    /// What is told when an error has no words of its own.
    fn words(&self) -> &str {
        if self.message.is_empty() {
            &self.source
        } else {
            &self.message
        }
    }
}

/// Rules that cannot be compiled, cost too much, or use `oldSelf` where it cannot be known.
pub(super) fn rule_errors(path: &str, root: &Node) -> Vec<FieldError> {
    let mut found = RuleErrors::default();
    let here = Place {
        uncorrelatable: None,
        values_max: Some(1),
    };
    found.visit(root, path, here);
    let RuleErrors { mut errors, bill } = found;
    errors.extend(bill.errors(path));
    errors
}

/// Where rules stand in a schema.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The list within which old and new items cannot be told to be the same.
    uncorrelatable: Option<&'a str>,
    /// How many values of an object the rules can meet; `None` if the schema sets no bound.
    values_max: Option<u64>,
}

#[derive(Default)]
struct RuleErrors {
    errors: Vec<FieldError>,
    bill: Bill,
}

impl RuleErrors {
    fn visit(&mut self, node: &Node, path: &str, place: Place<'_>) {
        for (at, rule) in node.rules.iter().enumerate() {
            let path = index(&format!("{path}.x-kubernetes-validations"), at);
            self.judge(rule, node, &path, place);
        }
        let below = match node.ty.as_str() {
            "array" => node.checks.items_max,
            "object" if !matches!(node.additional, Additional::Unset) => node.checks.properties_max,
            _ => Some(1),
        };
        let values_max = place
            .values_max
            .zip(below)
            .map(|(here, below)| here.saturating_mul(below));
        let place = Place { values_max, ..place };
        for (name, node) in &node.properties {
            self.visit(node, &key(&format!("{path}.properties"), name), place);
        }
        if let Additional::Typed(node) = &node.additional {
            self.visit(node, &format!("{path}.additionalProperties"), place);
        }
        if let Some(items) = &node.items {
            let is_correlatable = matches!(node.list, super::node::ListType::Map(_));
            let within = (!is_correlatable).then_some(path);
            let uncorrelatable = place.uncorrelatable.or(within);
            self.visit(
                items,
                &format!("{path}.items"),
                Place {
                    uncorrelatable,
                    ..place
                },
            );
        }
    }

    fn judge(&mut self, rule: &Rule, node: &Node, path: &str, place: Place<'_>) {
        let failed = |name: &str, error: &str| {
            let detail = format!("{}: compilation failed: {error}", rule.described);
            FieldError::invalid_whole(format!("{path}.{name}"), detail)
        };
        match &rule.program {
            Ok(program) => {
                let values = place.values_max.unwrap_or_else(|| cost::most_values(node));
                let cost = cost::of(program.expression(), node).saturating_mul(values);
                self.errors.extend(self.bill.add(format!("{path}.rule"), "rule", cost));
            }
            Err(error) => self.errors.push(failed("rule", error)),
        }
        match &rule.message_program {
            Some(Ok(program)) => {
                let cost = cost::of(program.expression(), node);
                let path = format!("{path}.messageExpression");
                self.errors.extend(self.bill.add(path, "messageExpression", cost));
            }
            Some(Err(error)) => self.errors.push(failed("messageExpression", error)),
            None => {}
        }
        if let Some(within) = place.uncorrelatable.filter(|_| rule.uses_old_self) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
            self.errors.push(FieldError::invalid(
                format!("{path}.rule"),
                rule.source.as_str(),
                detail,
            ));
        }
        if let Some(optional) = rule
            .optional_old_self
            .filter(|_| rule.program.is_ok() && !rule.uses_old_self)
        {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors
                .push(FieldError::invalid(format!("{path}.optionalOldSelf"), optional, detail));
        }
    }
}

/// Evaluates every rule of an object.
pub(super) fn validate(root: &Node, object: &Value, old: Option<&Value>) -> Validation {
    let correlated = old.map(|old| Correlated {
        node: root,
        old,
        new: object,
    });
    let mut evaluation = Evaluation {
        functions: functions(),
        found: Validation::default(),
        budget: Some(OBJECT_MAX),
    };
    evaluation.visit(
        root,
        object,
        old,
        Ratchet {
            here: correlated,
            parent: None,
        },
        "",
    );
    evaluation.found
}

/// The functions of CEL and of Kubernetes; to gather them takes longer than most rules.
pub(crate) fn functions() -> &'static Context<'static> {
    static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
    &FUNCTIONS
}

/// Decides whether an error is forgiven: the value itself, or else the nearest place that can be compared, is unchanged.
#[derive(Debug, Clone, Copy)]
struct Ratchet<'a> {
    here: Option<Correlated<'a>>,
    parent: Option<Correlated<'a>>,
}

impl<'a> Ratchet<'a> {
    fn forgives(self) -> bool {
        self.here.or(self.parent).is_some_and(Correlated::is_unchanged)
    }

    fn descend(self, step: impl FnOnce(Correlated<'a>) -> Option<Correlated<'a>>) -> Self {
        match self.here {
            None => self,
            Some(here) => Self {
                here: step(here),
                parent: Some(here),
            },
        }
    }
}

struct Evaluation {
    functions: &'static Context<'static>,
    found: Validation,
    /// What the rules may still cost; `None` when no more of them are evaluated.
    budget: Option<u64>,
}

/// Why a rule could not be evaluated.
enum Trouble {
    /// With it; the others can be.
    Rule(String),
    /// It cost too much, and no other is looked at.
    Cost(String),
}

impl Evaluation {
    fn visit(&mut self, node: &Node, value: &Value, old: Option<&Value>, ratchet: Ratchet<'_>, path: &str) {
        let old = old.filter(|old| !old.is_null());
        if value.is_null() || self.budget.is_none() {
            return;
        }
        self.check(node, value, old, ratchet, path);
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = old.and_then(|old| old.get(name));
                    let ratchet = ratchet.descend(|here| here.field(name));
                    if let Additional::Typed(node) = &node.additional {
                        self.visit(node, value, old, ratchet, &key(path, name));
                    }
                    if let Some(node) = node.properties.get(name) {
                        self.visit(node, value, old, ratchet, &child(path, name));
                    }
                }
            }
            Value::Array(items) => {
                let Some(of_items) = &node.items else { return };
                for (at, item) in items.iter().enumerate() {
                    let ratchet = ratchet.descend(|here| here.item(at));
                    self.visit(of_items, item, old_item(node, old, at, item), ratchet, &index(path, at));
                }
            }
            _ => {}
        }
    }

    fn check(&mut self, node: &Node, value: &Value, old: Option<&Value>, ratchet: Ratchet<'_>, path: &str) {
        if node.rules.is_empty() {
            return;
        }
        let this = bind(node, value);
        let before = old.map(|old| bind(node, old));
        for rule in &node.rules {
            let uses_old = rule.uses_old_self;
            let is_optional = rule.optional_old_self == Some(true);
            if uses_old && old.is_none() && !is_optional {
                continue;
            }
            let error = match self.evaluate(rule, &this, before.as_ref(), is_optional) {
                Ok(None) => continue,
                Ok(Some(message)) => self::failed(node, rule, value, path, message),
                Err(trouble) => {
                    let (Trouble::Rule(detail) | Trouble::Cost(detail)) = &trouble;
                    let error = FieldError::invalid(path, node.ty.as_str(), detail);
                    self.found.errors.push(error);
                    if matches!(trouble, Trouble::Cost(_)) {
                        self.budget = None;
                        return;
                    }
                    continue;
                }
            };
            if !uses_old && ratchet.forgives() {
                self.found.warnings.push(error.to_string());
            } else {
                self.found.errors.push(error);
            }
        }
    }

    /// `Ok(None)` if the rule holds, else its message; `Err` says why it could not be evaluated.
    fn evaluate(
        &mut self,
        rule: &Rule,
        this: &CelValue,
        before: Option<&CelValue>,
        is_optional: bool,
    ) -> Result<Option<String>, Trouble> {
        let Some(metered) = &rule.metered else {
            let why = rule.program.as_ref().err().map_or("", String::as_str);
            return Err(Trouble::Rule(format!("rule compile error: {why}")));
        };
        let mut scope = self.functions.new_inner_scope();
        scope.add_variable_from_value("self", this.clone());
        if is_optional {
            let before = before.cloned().map_or_else(OptionalValue::none, OptionalValue::of);
            scope.add_variable_from_value("oldSelf", CelValue::Opaque(Arc::new(before)));
        } else if let Some(before) = before {
            scope.add_variable_from_value("oldSelf", before.clone());
        }
        let (value, cost) = metered.run(&scope);
        self.pay(cost)?;
        match value {
            _ if cost > CALL_MAX => Err(Trouble::Cost(format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                 call cost exceeds limit for rule: {}",
                rule.words()
            ))),
            Ok(CelValue::Bool(true)) => Ok(None),
            Ok(_) => Ok(Some(message(rule, &scope))),
            Err(_) if [Some(this), before].into_iter().flatten().any(holds_not_whole) => Err(Trouble::Rule(format!(
                "invalid data, expected int, got float64 evaluating rule: {}",
                rule.words()
            ))),
            Err(error) => Err(Trouble::Rule(execution_error(&error, rule))),
        }
    }

    fn pay(&mut self, cost: u64) -> Result<(), Trouble> {
        self.budget = self.budget.and_then(|left| left.checked_sub(cost));
        self.budget.map(drop).ok_or_else(|| {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            Trouble::Cost(why.to_owned())
        })
    }
}

fn failed(node: &Node, rule: &Rule, value: &Value, path: &str, message: String) -> FieldError {
    let field = match rule.field_path.as_str() {
        "" => path.to_owned(),
        relative if relative.starts_with('[') => format!("{path}{relative}"),
        relative => child(path, relative),
    };
    let is_compound = matches!(node.ty.as_str(), "object" | "array");
    let shown = (!is_compound).then(|| value.clone());
    match (rule.reason.as_str(), shown) {
        ("FieldValueForbidden", _) => FieldError::forbidden(&field, message),
        ("FieldValueRequired", _) => FieldError::required(&field, message),
        ("FieldValueDuplicate", shown) => FieldError::duplicate(&field, shown),
        (_, None) => FieldError::invalid_whole(&field, message),
        (_, Some(value)) => FieldError::invalid(&field, value, message),
    }
}

/// The message of a broken rule: what its expression makes, if that is one line of text, else its fixed words.
fn message(rule: &Rule, scope: &Context<'_>) -> String {
    let made = rule.message_metered.as_ref().and_then(|made| made.run(scope).0.ok());
    let made = match made {
        Some(CelValue::String(text)) => text.trim().to_owned(),
        _ => String::new(),
    };
    if !made.is_empty() && made.len() <= MESSAGE_BYTES_MAX && !made.contains('\n') {
        return made;
    }
    if rule.message.is_empty() {
        format!("failed rule: {}", rule.source)
    } else {
        rule.message.clone()
    }
}

fn execution_error(error: &ExecutionError, rule: &Rule) -> String {
    let words = rule.words();
    match error {
        ExecutionError::NoSuchOverload => format!(
            "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {words}"
        ),
        ExecutionError::NoSuchKey(name) => format!("no such key: {name} evaluating rule: {words}"),
        other => format!("{other} evaluating rule: {words}"),
    }
}

/// A value as CEL sees it through its schema.
fn bind(node: &Node, value: &Value) -> CelValue {
    let format = node.checks.format.as_ref().map(|format| format.name.as_str());
    match value {
        Value::String(text) => {
            let value = match format {
                Some("date-time" | "datetime") => converted(&TIMESTAMP, text),
                Some("duration") => converted(&DURATION, text),
                Some("byte") => STANDARD.decode(text).ok().map(|bytes| CelValue::Bytes(Arc::new(bytes))),
                _ => None,
            };
            value.unwrap_or_else(|| string(text))
        }
        Value::Number(number) if node.ty == "number" => CelValue::Float(number.as_f64().unwrap_or_default()),
        Value::Number(number) if node.ty == "integer" && number.is_f64() => CelValue::Opaque(Arc::new(NotWhole)),
        Value::Array(items) => {
            let bound = |item| {
                node.items
                    .as_deref()
                    .map_or_else(|| untyped(item), |node| bind(node, item))
            };
            CelValue::List(Arc::new(items.iter().map(bound).collect()))
        }
        Value::Object(fields) => {
            let is_map = !matches!(node.additional, Additional::Unset);
            let mut map = HashMap::with_capacity(fields.len());
            for (name, value) in fields {
                let bound = node
                    .field(name)
                    .map_or_else(|| untyped(value), |node| bind(node, value));
                // Names of fields are escaped so that they can be written in a rule; keys of maps are data.
                let name = if is_map { name.clone() } else { escaped(name) };
                map.insert(Key::String(Arc::new(name)), bound);
            }
            CelValue::Map(Map { map: Arc::new(map) })
        }
        other => untyped(other),
    }
}

/// A number with a fraction where the schema wants an integer, such as `1.0`: it passes validation, but a rule that
/// touches it fails.
#[derive(Debug, PartialEq, Eq)]
struct NotWhole;

impl Opaque for NotWhole {
    fn runtime_type_name(&self) -> &str {
        "double"
    }
}

fn holds_not_whole(value: &CelValue) -> bool {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<NotWhole>().is_some(),
        CelValue::List(items) => items.iter().any(holds_not_whole),
        CelValue::Map(map) => map.map.values().any(holds_not_whole),
        _ => false,
    }
}

fn untyped(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => number
            .as_i64()
            .map_or_else(|| CelValue::Float(number.as_f64().unwrap_or_default()), CelValue::Int),
        Value::String(text) => string(text),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(untyped).collect())),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (Key::String(Arc::new(escaped(name))), untyped(value)));
            CelValue::Map(Map {
                map: Arc::new(fields.collect()),
            })
        }
    }
}

fn string(text: &str) -> CelValue {
    CelValue::String(Arc::new(text.to_owned()))
}

/// What a CEL conversion makes of a text; `None` if it takes it not. This keeps the types of time out of this crate.
fn converted(conversion: &LazyLock<Option<Program>>, text: &str) -> Option<CelValue> {
    let mut context = functions().new_inner_scope();
    context.add_variable_from_value("text", string(text));
    conversion.as_ref()?.execute(&context).ok()
}

static TIMESTAMP: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("timestamp(text)").ok());
static DURATION: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("duration(text)").ok());

/// A field name as rules write it: `foo-bar` is `foo__dash__bar`, a reserved word stands between underscores.
fn escaped(name: &str) -> String {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
