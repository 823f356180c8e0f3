//! What an evaluation costs while it runs, and where it ends for that.
//!
//! The library counts nothing, but it asks for variables that it does not know. So every step of a loop first asks for a
//! variable whose name is what the step costs; the meter adds it up, and gives no value when there was too much of it.
//! A step counts what it costs at least: what a condition skips and the lengths of texts count nothing. So nothing is
//! refused that a real server takes, and what loops do, which is what costs, counts as it does there.

use std::sync::atomic::{AtomicU64, Ordering};

use kube::core::cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};
use kube::core::cel::cel::context::VariableResolver;
use kube::core::cel::cel::{Context, ExecutionError, Value};

/// The most that one evaluation of an expression may cost.
pub(super) const CALL_MAX: u64 = 1_000_000;
/// The most that all evaluations for one object may cost.
pub(super) const OBJECT_MAX: u64 = 10_000_000;

const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
/// No expression can name such a variable.
const PREFIX: &str = "@cost ";

/// An expression that tells what it costs.
#[derive(Debug)]
pub(super) struct Metered {
    expression: IdedExpr,
    /// What it costs without its loops.
    least: u64,
}

impl Metered {
    pub(super) fn new(expression: &IdedExpr) -> Self {
        let mut expression = expression.clone();
        let least = least(&expression, "");
        meter(&mut expression);
        Self { expression, least }
    }

    /// Its value, unless it costs too much, and what it cost.
    pub(super) fn run(&self, scope: &Context<'_>) -> (Result<Value, ExecutionError>, u64) {
        let meter = Meter(AtomicU64::new(self.least));
        let mut scope = scope.new_inner_scope();
        scope.set_variable_resolver(&meter);
        let value = scope.resolve(&self.expression);
        (value, meter.0.load(Ordering::Relaxed))
    }
}

/// What was spent.
struct Meter(AtomicU64);

impl VariableResolver for Meter {
    fn resolve(&self, name: &str) -> Option<Value> {
        let cost: u64 = name.strip_prefix(PREFIX)?.parse().ok()?;
        let spent = self.0.fetch_add(cost, Ordering::Relaxed).saturating_add(cost);
        (spent <= CALL_MAX).then_some(Value::Bool(true))
    }
}

/// Lets every loop pay for each of its steps.
fn meter(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Call(call) => call
            .target
            .as_deref_mut()
            .into_iter()
            .chain(&mut call.args)
            .for_each(meter),
        Expr::Comprehension(all) => {
            let cost = step_cost(all);
            for part in [
                &mut all.iter_range,
                &mut all.accu_init,
                &mut all.loop_step,
                &mut all.result,
            ] {
                meter(part);
            }
            pay(all, cost);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(meter),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| match &mut entry.expr {
            EntryExpr::MapEntry(entry) => {
                meter(&mut entry.key);
                meter(&mut entry.value);
            }
            EntryExpr::StructField(field) => meter(&mut field.value),
        }),
        Expr::Select(select) => meter(&mut select.operand),
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// Puts the price before the step of a loop: `paid ? step : accumulator`.
fn pay(all: &mut ComprehensionExpr, cost: u64) {
    let id = all.loop_step.id;
    let ident = |name: String| IdedExpr {
        id,
        expr: Expr::Ident(name),
    };
    let unpaid = ident(all.accu_var.clone());
    let step = std::mem::replace(&mut all.loop_step, unpaid.clone());
    all.loop_step.expr = Expr::Call(CallExpr {
        func_name: operators::CONDITIONAL.to_owned(),
        target: None,
        args: vec![ident(format!("{PREFIX}{cost}")), step, unpaid],
    });
}

fn step_cost(all: &ComprehensionExpr) -> u64 {
    least(&all.loop_cond, &all.accu_var).saturating_add(least(&all.loop_step, &all.accu_var))
}

/// What an expression costs at least, without the steps of its loops. `accu` is the result so far of the loop around:
/// `all` and `exists` look at it first, and go on with the item as long as the loop goes on.
fn least(expression: &IdedExpr, accu: &str) -> u64 {
    let of = |part: &IdedExpr| least(part, accu);
    let sum = |parts: &[IdedExpr]| parts.iter().map(of).fold(0, u64::saturating_add);
    match &expression.expr {
        Expr::Ident(_) => 1,
        Expr::Select(select) => of(&select.operand).saturating_add(u64::from(!select.test)),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [left, right]) => {
                let goes_on = matches!(&left.expr, Expr::Ident(name) if name == accu);
                of(left) + if goes_on { of(right) } else { 0 }
            }
            (operators::CONDITIONAL, [condition, yes, no]) => of(condition) + of(yes).min(of(no)),
            (_, args) => {
                let target = call.target.as_deref().map_or(0, of);
                target + sum(args) + u64::from(!costs_by_length(call))
            }
        },
        Expr::Comprehension(all) => {
            let around = of(&all.iter_range) + of(&all.accu_init);
            around + least(&all.result, &all.accu_var)
        }
        Expr::List(list) => LIST_COST + sum(&list.elements),
        Expr::Map(map) => map.entries.iter().fold(MAP_COST, |cost, entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => cost + of(&entry.key) + of(&entry.value),
            EntryExpr::StructField(field) => cost + of(&field.value),
        }),
        Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => 0,
    }
}

/// Whether what a call costs depends on the lengths of its arguments, which may be nothing. Numbers have none.
fn costs_by_length(call: &CallExpr) -> bool {
    let is_number = |arg: &IdedExpr| match &arg.expr {
        Expr::Literal(literal) => !matches!(literal, LiteralValue::String(_) | LiteralValue::Bytes(_)),
        _ => false,
    };
    let fixed = [
        operators::SUBSTRACT,
        operators::MULTIPLY,
        operators::DIVIDE,
        operators::MODULO,
        operators::INDEX,
        operators::NOT_STRICTLY_FALSE,
        operators::LOGICAL_NOT,
    ];
    let is_sum_of_items =
        call.func_name == operators::ADD && call.args.iter().any(|arg| matches!(arg.expr, Expr::List(_)));
    !(fixed.contains(&call.func_name.as_str()) || is_sum_of_items || call.args.iter().any(is_number))
}

#[cfg(test)]
mod tests {
    use super::super::cel::functions;
    use super::super::expression::compile;
    use super::*;

    /// What the expression gives for a list of so many numbers, and what that costs.
    fn run(source: &str, items: i64) -> (Result<Value, ExecutionError>, u64) {
        let program = compile(source).unwrap();
        let mut scope = functions().new_inner_scope();
        let items: Vec<Value> = (0..items).map(Value::Int).collect();
        scope.add_variable_from_value("self", items);
        Metered::new(program.expression()).run(&scope)
    }

    #[test]
    fn each_step_of_a_loop_is_paid() {
        let (value, cost) = run("self.all(a, a >= 0)", 10);
        assert_eq!((value.unwrap(), cost), (Value::Bool(true), 2 + 10 * 5));
        let (value, cost) = run("self.all(a, a < 3)", 10);
        assert_eq!((value.unwrap(), cost), (Value::Bool(false), 2 + 4 * 5));
        let (value, cost) = run("self.map(a, a * 2).size() == 10", 10);
        assert!(value.unwrap() == Value::Bool(true) && cost > 10 * 10, "{cost}");
    }

    #[test]
    fn what_costs_too_much_ends() {
        let source = "self.all(a, self.all(b, a - b >= -1000))";
        assert_eq!(run(source, 300).0.unwrap(), Value::Bool(true));
        let (value, cost) = run(source, 1_000);
        assert!(value.is_err() && cost > CALL_MAX && cost < CALL_MAX + 1_000, "{cost}");
        // Nor does it go on where an error does not count.
        let (_, cost) = run(&format!("({source}) || true"), 1_000);
        assert!(cost > CALL_MAX);
    }
}
