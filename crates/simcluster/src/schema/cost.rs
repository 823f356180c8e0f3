//! What rules may cost: the most work that one evaluation can be, from the expression and the bounds of the schema.
//!
//! Units and limits are those of Kubernetes: a step costs 1, reading ten characters too, a loop as much as its body for
//! every item that the schema allows. Where a schema sets no bound, the size of a request does. What cannot be known
//! here, such as the sizes of computed values, counts little: no definition is refused that a real server takes.

use kube::core::cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};

use super::node::{Additional, Node};
use crate::status::FieldError;

/// The most that one rule may cost, for all the values that it can meet in one object.
const RULE_MAX: u64 = 10_000_000;
/// The most that all rules of a schema may cost together.
const SCHEMA_MAX: u64 = 100_000_000;
/// How many rules are named when all together cost too much.
const DEAREST_TOLD: usize = 4;
/// The largest request that is taken, and so the largest object.
const REQUEST_BYTES: u64 = 3 * 1024 * 1024;
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
const STRUCT_COST: u64 = 40;

/// What the rules of a schema cost together.
#[derive(Default)]
pub(super) struct Bill {
    total: u64,
    /// Where the dearest rules stand, the dearest first.
    dearest: Vec<(u64, String)>,
}

impl Bill {
    /// Adds the cost of an expression; one that is too dear by itself is an error at once.
    pub(super) fn add(&mut self, path: String, what: &str, cost: u64) -> Option<FieldError> {
        self.total = self.total.saturating_add(cost);
        let words = format!("estimated {what} cost");
        let error = (cost > RULE_MAX).then(|| FieldError::forbidden(&path, excess(&words, cost, RULE_MAX)));
        if cost >= SCHEMA_MAX / 100 {
            let place = self.dearest.partition_point(|(known, _)| *known >= cost);
            self.dearest.insert(place, (cost, path));
            self.dearest.truncate(DEAREST_TOLD);
        }
        error
    }

    /// What is wrong with all of them together, for a schema that stands at `path`.
    pub(super) fn errors(self, path: &str) -> Vec<FieldError> {
        if self.total <= SCHEMA_MAX {
            return Vec::new();
        }
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let dearest = self.dearest.into_iter().map(|(_, at)| FieldError::forbidden(at, why));
        let whole = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let whole = FieldError::forbidden(path, excess(whole, self.total, SCHEMA_MAX));
        dearest.chain([whole]).collect()
    }
}

/// How far a cost is beyond a limit, in words for the author of the rule.
fn excess(what: &str, cost: u64, limit: u64) -> String {
    // Lossy where nobody counts any more.
    let factor = cost as f64 / limit as f64;
    let times = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {times} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// The most that one evaluation of an expression over a value of this schema costs.
pub(super) fn of(expression: &IdedExpr, schema: &Node) -> u64 {
    Estimate {
        root: schema,
        variables: Vec::new(),
    }
    .visit(expression)
    .cost
}

/// How many values of this schema one object can hold, where nothing says less.
pub(super) fn most_values(schema: &Node) -> u64 {
    REQUEST_BYTES / (least_bytes(schema) + 1)
}

/// The most items that a list, a map or a text of this schema has.
fn most_items(schema: &Node) -> u64 {
    let checks = &schema.checks;
    if schema.int_or_string {
        return longest(schema);
    }
    match (schema.ty.as_str(), &schema.additional, &schema.items) {
        ("array", _, Some(items)) => {
            let fits = (REQUEST_BYTES - 2) / (least_bytes(items) + 1);
            checks.items_max.unwrap_or(fits)
        }
        ("object", Additional::Typed(values), _) => {
            let fits = (REQUEST_BYTES - 2) / (least_bytes(values) + 6);
            checks.properties_max.unwrap_or(fits)
        }
        ("string", ..) => longest(schema),
        _ => 0,
    }
}

fn longest(schema: &Node) -> u64 {
    let checks = &schema.checks;
    let words = checks.allowed.iter().filter_map(|word| word.as_str());
    let format = checks.format.as_ref().map(|format| format.name.as_str());
    match (format, checks.length_max) {
        (Some("duration"), _) => 32,
        (Some("date"), _) => 12,
        (Some("date-time"), _) => 32,
        (Some("byte"), Some(bytes)) => bytes,
        // A character takes up to four bytes.
        (_, Some(characters)) => characters.saturating_mul(4),
        (_, None) => words.map(|word| word.len() as u64).max().unwrap_or(REQUEST_BYTES - 2),
    }
}

/// The fewest bytes in which a value of this schema can be written.
fn least_bytes(schema: &Node) -> u64 {
    if schema.int_or_string {
        return 1;
    }
    match schema.ty.as_str() {
        "boolean" => 4,
        "integer" | "number" => 1,
        "object" => {
            let required = |(name, field): (&String, &Node)| {
                let is_sent = schema.checks.required.contains(name) && field.default.is_none();
                is_sent.then(|| name.len() as u64 + least_bytes(field) + 4)
            };
            2 + schema.properties.iter().filter_map(required).sum::<u64>()
        }
        _ => 2,
    }
}

/// A part of an expression: what it costs, and how large what it gives is.
#[derive(Clone, Copy)]
struct Part<'a> {
    cost: u64,
    size: u64,
    is_text: bool,
    /// The schema of the value, where that is known.
    schema: Option<&'a Node>,
}

impl<'a> Part<'a> {
    fn sized(cost: u64, size: u64) -> Self {
        Self {
            cost,
            size,
            is_text: false,
            schema: None,
        }
    }

    fn text(cost: u64, size: u64) -> Self {
        let is_text = true;
        Self {
            is_text,
            ..Self::sized(cost, size)
        }
    }

    /// A truth, a number, or something else of one size.
    fn scalar(cost: u64) -> Self {
        Self::sized(cost, 1)
    }

    fn of(cost: u64, schema: Option<&'a Node>) -> Self {
        let size = schema.map_or(1, most_items);
        let is_text = schema.is_some_and(|schema| schema.int_or_string || schema.ty == "string");
        Self {
            cost,
            size,
            is_text,
            schema,
        }
    }

    fn element(&self, cost: u64) -> Self {
        let element = self.schema.and_then(|schema| match &schema.additional {
            Additional::Typed(values) => Some(&**values),
            _ => schema.items.as_deref(),
        });
        Self::of(cost, element)
    }
}

/// What it costs to read so much text, a tenth of a unit for each character.
fn traversal(size: u64) -> u64 {
    size.div_ceil(10)
}

struct Estimate<'a> {
    root: &'a Node,
    variables: Vec<(String, Part<'a>)>,
}

impl<'a> Estimate<'a> {
    fn visit(&mut self, expression: &IdedExpr) -> Part<'a> {
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => Part::text(0, text.inner().chars().count() as u64),
            Expr::Literal(LiteralValue::Bytes(bytes)) => Part::text(0, bytes.inner().len() as u64),
            Expr::Literal(_) => Part::scalar(0),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                let cost = self.sum(&list.elements);
                Part::sized(cost.saturating_add(LIST_COST), list.elements.len() as u64)
            }
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|entry| &entry.expr);
                let cost = entries.fold(MAP_COST, |sum, entry| sum.saturating_add(self.entry(entry)));
                Part::sized(cost, map.entries.len() as u64)
            }
            Expr::Struct(made) => {
                let entries = made.entries.iter().map(|entry| &entry.expr);
                let cost = entries.fold(STRUCT_COST, |sum, entry| sum.saturating_add(self.entry(entry)));
                Part::scalar(cost)
            }
            Expr::Unspecified => Part::scalar(0),
        }
    }

    fn sum(&mut self, parts: &[IdedExpr]) -> u64 {
        parts
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(self.visit(part).cost))
    }

    fn entry(&mut self, entry: &EntryExpr) -> u64 {
        match entry {
            EntryExpr::MapEntry(entry) => self
                .visit(&entry.key)
                .cost
                .saturating_add(self.visit(&entry.value).cost),
            EntryExpr::StructField(field) => self.visit(&field.value).cost,
        }
    }

    fn variable(&self, name: &str) -> Part<'a> {
        let known = self.variables.iter().rev().find(|(known, _)| known == name);
        match (known, name) {
            (Some((_, part)), _) => Part { cost: 1, ..*part },
            (None, "self" | "oldSelf") => Part::of(1, Some(self.root)),
            (None, _) => Part::scalar(1),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Part<'a> {
        let operand = self.visit(&select.operand);
        // To ask whether a field is there costs nothing.
        if select.test {
            return Part::scalar(operand.cost);
        }
        let cost = operand.cost.saturating_add(u64::from(operand.schema.is_some()));
        Part::of(cost, operand.schema.and_then(|schema| schema.field(&select.field)))
    }

    /// A loop costs its body for each item, whatever it stops at.
    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Part<'a> {
        let range = self.visit(&comprehension.iter_range);
        let init = self.visit(&comprehension.accu_init);
        let is_map = range.schema.is_some_and(|schema| schema.ty == "object");
        self.variables.push((comprehension.accu_var.clone(), Part::scalar(1)));
        let depth = self.variables.len();
        let item = match (is_map, &comprehension.iter_var2) {
            (false, None) => range.element(1),
            // The keys of a map, and places in a list.
            _ => Part::sized(1, 0),
        };
        self.variables.push((comprehension.iter_var.clone(), item));
        if let Some(value) = &comprehension.iter_var2 {
            self.variables.push((value.clone(), range.element(1)));
        }
        let condition = self.visit(&comprehension.loop_cond);
        let step = self.visit(&comprehension.loop_step);
        self.variables.truncate(depth);
        let result = self.visit(&comprehension.result);
        self.variables.pop();
        let body = condition.cost.saturating_add(step.cost);
        let parts = [init.cost, result.cost, range.size.saturating_mul(body)];
        let cost = parts.into_iter().fold(range.cost, u64::saturating_add);
        match comprehension.accu_init.expr {
            Expr::List(_) | Expr::Map(_) => Part::sized(cost, range.size),
            _ => Part::scalar(cost),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Part<'a> {
        let target = call.target.as_deref().map(|target| self.visit(target));
        let args: Vec<Part<'a>> = call.args.iter().map(|arg| self.visit(arg)).collect();
        let parts = target.iter().chain(&args);
        let paid = parts.fold(0, |sum: u64, part| sum.saturating_add(part.cost));
        let plus = |own: u64| paid.saturating_add(own);
        match (call.func_name.as_str(), target, args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, ..) => Part::scalar(paid),
            (operators::CONDITIONAL, _, [condition, yes, no]) => {
                let cost = condition.cost.saturating_add(yes.cost.max(no.cost));
                let is_text = yes.is_text || no.is_text;
                let size = yes.size.max(no.size);
                Part {
                    is_text,
                    ..Part::sized(cost, size)
                }
            }
            (operators::EQUALS | operators::NOT_EQUALS, _, [left, right]) => {
                Part::scalar(plus(traversal(left.size.min(right.size))))
            }
            (operators::IN, _, [_, list]) => match list.schema.is_some_and(|schema| schema.ty == "object") {
                true => Part::scalar(plus(1)),
                false => Part::scalar(plus(list.size)),
            },
            (operators::INDEX | operators::OPT_INDEX, _, [range, _]) => range.element(plus(1)),
            (operators::ADD, _, [left, right]) if left.is_text || right.is_text => {
                let size = left.size.saturating_add(right.size);
                Part::text(plus(traversal(size)), size)
            }
            (operators::ADD, _, [left, right]) => Part::sized(plus(1), left.size.saturating_add(right.size)),
            ("startsWith" | "endsWith", _, [word]) => Part::scalar(plus(traversal(word.size))),
            ("contains", Some(text), [word]) => {
                Part::scalar(plus(traversal(text.size).saturating_mul(traversal(word.size))))
            }
            ("matches" | "find", Some(text), [pattern, ..]) => {
                let own = traversal(text.size.saturating_add(1)).saturating_mul(pattern.size.div_ceil(4));
                Part::text(plus(own), text.size)
            }
            ("lowerAscii" | "upperAscii" | "trim" | "substring" | "split" | "replace", Some(text), _) => {
                Part::text(plus(traversal(text.size)), text.size)
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(list), _) => {
                Part::scalar(plus(list.size))
            }
            ("dyn", _, [value]) => Part {
                cost: plus(1),
                ..*value
            },
            _ => Part::scalar(plus(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::cel::cel::Program;
    use serde_json::{Value, json};

    use super::*;

    fn cost(rule: &str, schema: &Value) -> u64 {
        of(Program::compile(rule).unwrap().expression(), &Node::parse(schema))
    }

    #[test]
    fn a_loop_costs_its_body_for_every_item() {
        let list = |max: u64| json!({"type": "array", "maxItems": max, "items": {"type": "integer"}});
        // The list, the result, and for each item: two for the condition, two for the accumulator and the item, one to compare.
        assert_eq!(cost("self.all(x, x > 0)", &list(10)), 2 + 10 * 5);
        assert_eq!(
            cost("self.all(x, self.all(y, x > y))", &list(10)),
            2 + 10 * (3 + 2 + 10 * 6)
        );
    }

    #[test]
    fn without_a_bound_the_size_of_a_request_is_one() {
        let list = json!({"type": "array", "items": {"type": "integer"}});
        assert_eq!(most_items(&Node::parse(&list)), (REQUEST_BYTES - 2) / 2);
        let text = json!({"type": "string", "maxLength": 5});
        assert_eq!(most_items(&Node::parse(&text)), 20);
        let object = json!({"type": "object", "required": ["ab"], "properties": {"ab": {"type": "boolean"}}});
        assert_eq!(least_bytes(&Node::parse(&object)), 2 + 2 + 4 + 4);
    }

    #[test]
    fn the_excess_is_told_in_round_numbers() {
        let told = |cost: u64| excess("estimated rule cost", cost, RULE_MAX);
        assert!(told(RULE_MAX * 101).contains("factor of more than 100x (try"));
        assert!(told(RULE_MAX * 2).contains("factor of 2.0x (try"));
        assert!(told(RULE_MAX + RULE_MAX / 10).contains("factor of 1.100000x (try"));
    }

    #[test]
    fn all_rules_together_have_a_limit_too() {
        let mut bill = Bill::default();
        for rule in 0..11 {
            assert_eq!(bill.add(format!("r{rule}"), "rule", RULE_MAX), None);
        }
        let errors: Vec<String> = bill.errors("schema").iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), DEAREST_TOLD + 1);
        assert!(errors[0].starts_with("r0: Forbidden: contributed to"), "{errors:?}");
        assert!(errors[4].contains("factor of 1.100000x"), "{errors:?}");
    }
}
