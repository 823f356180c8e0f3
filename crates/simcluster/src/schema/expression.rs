//! Expressions as every part of the cluster compiles them.

use std::thread;

use kube::core::cel::cel::Program;
use kube::core::cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

const CHARACTERS_MAX: usize = 10_000;
/// What evaluates, measures and drops an expression calls itself for every level, on threads with 2 MiB of stack.
const LEVELS_MAX: usize = 32;
/// Texts of this length cannot have more levels than the stack of any thread bears.
const CHARACTERS_PLAIN: usize = 40;
/// Enough for the parser on the longest text; the system gives only what is used.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// Compiles an expression; else says what is wrong with it.
pub(crate) fn compile(source: &str) -> Result<Program, String> {
    let size = source.chars().count();
    if size > CHARACTERS_MAX {
        return Err(format!(
            "expression code point size exceeds limit: size: {size}, limit {CHARACTERS_MAX}"
        ));
    }
    if size <= CHARACTERS_PLAIN {
        return parse(source);
    }
    let parsed = thread::scope(|scope| {
        let parser = thread::Builder::new().stack_size(STACK_BYTES);
        let parser = parser.spawn_scoped(scope, || parse(source));
        parser.map(|parser| parser.join())
    });
    match parsed {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(_)) => Err("the parser gives up".to_owned()),
        Err(error) => Err(format!("no thread can be had to parse it: {error}")),
    }
}

fn parse(source: &str) -> Result<Program, String> {
    let program = Program::compile(source).map_err(|error| error.to_string().replace("\n| ", "\n | "))?;
    check(program.expression(), LEVELS_MAX)?;
    Ok(program)
}

/// Refuses what has too many levels, or makes an object of a type as in `Duration{}`: there are no types here, and the
/// library parses that but gives up when it runs.
fn check(expression: &IdedExpr, levels: usize) -> Result<(), String> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(format!("expression recursion limit exceeded: {LEVELS_MAX}"));
    };
    let below = |part: &IdedExpr| check(part, levels);
    match &expression.expr {
        Expr::Struct(made) => Err(format!(
            "undeclared reference to '{}' (in container '')",
            made.type_name
        )),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).try_for_each(below),
        Expr::Comprehension(all) => [
            &all.iter_range,
            &all.accu_init,
            &all.loop_cond,
            &all.loop_step,
            &all.result,
        ]
        .into_iter()
        .try_for_each(below),
        Expr::List(list) => list.elements.iter().try_for_each(below),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => below(&entry.key).and_then(|()| below(&entry.value)),
            EntryExpr::StructField(field) => below(&field.value),
        }),
        Expr::Select(select) => below(&select.operand),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Schema;
    use super::*;

    fn refusal(source: &str) -> String {
        compile(source).map(|_| ()).unwrap_err()
    }

    #[test]
    fn no_expression_makes_objects_of_a_type() {
        assert!(compile("self.all(x, {'a': [x]}.size() > 0)").is_ok());
        for source in ["d{}", "[self, d{}]", "{'a': d{b: 1}}", "self.all(x, d{}.a == x)"] {
            let why = "undeclared reference to 'd' (in container '')";
            assert_eq!(refusal(source), why, "{source}");
        }
    }

    #[test]
    fn no_expression_is_deeper_than_a_stack_bears() {
        let chain = |levels: usize| format!("self{} > 0", "+1".repeat(levels));
        for levels in [40, 1_000, (CHARACTERS_MAX - 10) / 2] {
            let why = format!("expression recursion limit exceeded: {LEVELS_MAX}");
            assert_eq!(refusal(&chain(levels)), why);
            let fields = format!("self{} == 1", ".a".repeat(levels));
            assert_eq!(refusal(&fields), why);
        }
        let plain = format!("a{}", ".a".repeat((CHARACTERS_PLAIN - 1) / 2));
        assert!(compile(&plain).is_ok(), "{plain}");
        assert!(refusal(&chain(CHARACTERS_MAX)).starts_with("expression code point size exceeds limit: size: "));
        // The deepest that is taken can be measured, run and dropped.
        let rule = json!([{"rule": chain(LEVELS_MAX - 3)}]);
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": rule}}});
        let schema = Schema::compile("s", &schema).unwrap();
        assert_eq!(schema.validate(&json!({"n": 1}), None).errors, []);
    }
}
