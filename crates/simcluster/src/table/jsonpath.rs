//! The part of JSONPath that printer columns use: fields, indexes, slices, `[*]` and filters such as
//! `[?(@.type=="Ready")]`. Only the first match is shown, so only that one is found.

use serde_json::Value;

/// How many filters may stand inside each other; each is read by a call inside the other's.
const FILTERS_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice {
        from: Option<i64>,
        to: Option<i64>,
    },
    Any,
    /// Items of which the value at a path compares so with a literal; without a literal, items that have the path.
    Filter {
        path: JsonPath,
        test: Option<(Comparison, Value)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Reads a path such as `.spec.items[0].name`; `None` if it is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::parse_within(text, FILTERS_MAX)
    }

    /// The same where so many filters may still stand inside each other.
    fn parse_within(text: &str, filters: usize) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let step;
            (step, rest) = match rest.strip_prefix('[') {
                Some(inner) => {
                    let end = closing_bracket(inner)?;
                    (bracket(&inner[..end], filters)?, &inner[end + 1..])
                }
                None => field(rest.strip_prefix('.')?)?,
            };
            steps.push(step);
        }
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// The first value that the path leads to.
    pub(super) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        first(&self.steps, value)
    }
}

fn first<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(value);
    };
    match step {
        Step::Field(name) => first(rest, value.get(name)?),
        Step::Index(at) => first(rest, value.as_array()?.get(position(*at, value.as_array()?.len())?)?),
        Step::Slice { from, to } => {
            let items = value.as_array()?;
            let bound = |at: Option<i64>, default: usize| at.map_or(Some(default), |at| position(at, items.len() + 1));
            let at = |at: Option<i64>| at.map(|at| if at < 0 { at.saturating_sub(1) } else { at });
            let (from, to) = (bound(at(*from), 0)?, bound(at(*to), items.len())?);
            items.get(from..to)?.iter().find_map(|item| first(rest, item))
        }
        Step::Any => match value {
            Value::Array(items) => items.iter().find_map(|item| first(rest, item)),
            Value::Object(fields) => fields.values().find_map(|field| first(rest, field)),
            _ => None,
        },
        Step::Filter { path, test } => {
            let holds = |item: &&Value| match (path.first(item), test) {
                (Some(found), Some((comparison, literal))) => comparison.holds(found, literal),
                (found, _) => found.is_some() && test.is_none(),
            };
            value
                .as_array()?
                .iter()
                .filter(holds)
                .find_map(|item| first(rest, item))
        }
    }
}

/// The position that an index means in `len` items; negative ones count from the end.
fn position(at: i64, len: usize) -> Option<usize> {
    let at = if at < 0 {
        at.checked_add_unsigned(len as u64)?
    } else {
        at
    };
    usize::try_from(at).ok().filter(|at| *at < len)
}

impl Comparison {
    fn holds(self, found: &Value, literal: &Value) -> bool {
        let ordering = match (found, literal) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (a, b) => (a == b).then_some(std::cmp::Ordering::Equal),
        };
        match self {
            Self::Equal => ordering.is_some_and(std::cmp::Ordering::is_eq),
            Self::NotEqual => !ordering.is_some_and(std::cmp::Ordering::is_eq),
            Self::Less => ordering.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual => ordering.is_some_and(std::cmp::Ordering::is_le),
            Self::Greater => ordering.is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterOrEqual => ordering.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

/// A field name up to the next `.` or `[`; a backslash takes the next letter as it is.
fn field(text: &str) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '.' | '[' => {
                end = at;
                break;
            }
            '\\' => name.push(letters.next()?.1),
            letter => name.push(letter),
        }
    }
    let step = if name == "*" { Step::Any } else { Step::Field(name) };
    (end > 0).then(|| (step, &text[end..]))
}

/// Where the bracket that was opened before `text` closes; brackets in quotes and inside others do not count.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn bracket(inner: &str, filters: usize) -> Option<Step> {
    let inner = inner.trim();
    if inner == "*" {
        return Some(Step::Any);
    }
    if let Some(name) = quoted(inner) {
        return Some(Step::Field(name.replace("\\.", ".")));
    }
    if let Some(condition) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter(condition.trim(), filters.checked_sub(1)?);
    }
    let number = |text: &str| {
        if text.is_empty() {
            Some(None)
        } else {
            text.parse().ok().map(Some)
        }
    };
    match inner.split_once(':') {
        Some((from, to)) => Some(Step::Slice {
            from: number(from.trim())?,
            to: number(to.trim())?,
        }),
        None => inner.parse().ok().map(Step::Index),
    }
}

fn quoted(text: &str) -> Option<&str> {
    let strip = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    strip('\'').or_else(|| strip('"'))
}

fn filter(condition: &str, filters: usize) -> Option<Step> {
    let operators = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let path = |text: &str| JsonPath::parse_within(text.trim().strip_prefix('@')?, filters);
    let found = operators
        .iter()
        .filter_map(|(sign, comparison)| Some((condition.find(sign)?, *sign, *comparison)));
    match found.min_by_key(|(at, sign, _)| (*at, std::cmp::Reverse(sign.len()))) {
        None => Some(Step::Filter {
            path: path(condition)?,
            test: None,
        }),
        Some((at, sign, comparison)) => {
            let literal = condition[at + sign.len()..].trim();
            let literal = match quoted(literal) {
                Some(text) => Value::from(text),
                None => serde_json::from_str(literal).ok()?,
            };
            Some(Step::Filter {
                path: path(&condition[..at])?,
                test: Some((comparison, literal)),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn filters_inside_filters_have_an_end() {
        let nested = |levels: usize| format!(".a{}{}", "[?(@.a".repeat(levels), ")]".repeat(levels));
        assert!(JsonPath::parse(&nested(FILTERS_MAX)).is_some());
        assert!(JsonPath::parse(&nested(FILTERS_MAX + 1)).is_none());
        assert!(JsonPath::parse(&nested(100_000)).is_none());
    }

    #[test]
    fn paths_lead_to_the_first_match() {
        let object = json!({
            "a": {"b.c/d": 1, "list": [10, 20, 30]},
            "items": [{"name": "x", "n": 1}, {"name": "y", "n": 5}],
        });
        let cases = [
            (".a.list[1]", json!(20)),
            (".a.list[-1]", json!(30)),
            (".a.list[-1:]", json!(30)),
            (".a.list[1:2]", json!(20)),
            (".a.list[5]", Value::Null),
            (r".a.b\.c/d", json!(1)),
            (r".a['b\.c/d']", json!(1)),
            (r#".a["b.c/d"]"#, json!(1)),
            (".items[*].name", json!("x")),
            (".items[?(@.name=='y')].n", json!(5)),
            (r#".items[?(@.name == "y")].n"#, json!(5)),
            (".items[?(@.n>2)].name", json!("y")),
            (".items[?(@.n<=1)].name", json!("x")),
            (".items[?(@.n!=1)].name", json!("y")),
            (".items[?(@.zz)].name", Value::Null),
            (".nope.x", Value::Null),
        ];
        for (path, expected) in cases {
            let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(parsed.first(&object).cloned().unwrap_or_default(), expected, "{path}");
        }
        for path in ["", "a", ".a[", ".a[?(@.b==)]", ".a[x]", "."] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_panics(path in r#"[.a\[\]*?(@='"\\0-9:<-]{0,16}"#) {
            let object = json!({"a": [{"a": 1}, {"a": [0]}]});
            if let Some(path) = JsonPath::parse(&path) {
                let _ = path.first(&object);
            }
        }
    }
}
