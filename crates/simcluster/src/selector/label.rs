//! Label selectors in the string form of the `labelSelector` parameter and in the object form of `spec.selector`.
//!
//! The grammar and every error text are those of `k8s.io/apimachinery/pkg/labels`.

use std::fmt;

use serde_json::{Map, Value};

use crate::rules::names;

/// A conjunction of requirements on labels. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Greater,
    Less,
}

impl LabelSelector {
    /// Parses the string form, as in `app=x,tier in (a, b),!old`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            tokens: lex(text),
            at: 0,
        };
        parser.requirements().map(|requirements| Self { requirements })
    }

    /// Reads the object form (`matchLabels`, `matchExpressions`). Unknown operators match nothing.
    pub fn from_object(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        for (key, value) in selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement {
                key: key.clone(),
                operator: Operator::In,
                values,
            });
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let operator = match expression["operator"].as_str() {
                Some("NotIn") => Operator::NotIn,
                Some("Exists") => Operator::Exists,
                Some("DoesNotExist") => Operator::DoesNotExist,
                _ => Operator::In,
            };
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(|v| v.as_str().map(str::to_owned)).collect();
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement { key, operator, values });
        }
        Self { requirements }
    }

    /// Whether the selector has no requirement.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object's labels satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl fmt::Display for LabelSelector {
    /// In string form, by key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<(&str, String)> = self
            .requirements
            .iter()
            .map(|requirement| (&*requirement.key, requirement.to_string()))
            .collect();
        texts.sort();
        let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
        f.write_str(&texts.join(","))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values = self.values.clone();
        values.sort();
        let values = values.join(",");
        match self.operator {
            Operator::In if self.values.len() == 1 => write!(f, "{key}={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn if self.values.len() == 1 => write!(f, "{key}!={values}"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Greater => write!(f, "{key}>{values}"),
            Operator::Less => write!(f, "{key}<{values}"),
        }
    }
}

impl Requirement {
    fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = labels.and_then(|labels| labels.get(&self.key)).and_then(Value::as_str);
        let listed = || value.is_some_and(|value| self.values.iter().any(|v| v == value));
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let bound = || self.values.first().and_then(|value| value.parse::<i64>().ok());
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Greater => matches!((number(), bound()), (Some(n), Some(b)) if n > b),
            Operator::Less => matches!((number(), bound()), (Some(n), Some(b)) if n < b),
        }
    }

    fn checked(key: String, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        if let Some(problem) = names::label_key_problem(&key) {
            return Err(format!("<nil>: Invalid value: {key:?}: {problem}"));
        }
        for (i, value) in values.iter().enumerate() {
            if matches!(operator, Operator::Greater | Operator::Less) && value.parse::<i64>().is_err() {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                return Err(format!("values[{i}]: Invalid value: {value:?}: {detail}"));
            }
            if let Some(problem) = names::label_value_problem(value) {
                return Err(format!("values[{i}][{key}]: Invalid value: {value:?}: {problem}"));
            }
        }
        Ok(Self { key, operator, values })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    In,
    NotIn,
    Symbol(&'static str),
    Unknown(String),
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Token::Word(word) | Token::Unknown(word) => word,
            Token::In => "in",
            Token::NotIn => "notin",
            Token::Symbol(symbol) => symbol,
        }
    }

    /// `in` and `notin` are ordinary words where a key or a value is expected.
    fn word(&self) -> Option<&str> {
        match self {
            Token::Word(_) | Token::In | Token::NotIn => Some(self.literal()),
            Token::Symbol(_) | Token::Unknown(_) => None,
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", ")", ",", "!", "=", "(", ">", "<"];

fn lex(text: &str) -> Vec<Token> {
    let special = |c: char| "=!(),><".contains(c);
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
        let length = match symbol {
            Some(symbol) => {
                tokens.push(Token::Symbol(symbol));
                symbol.len()
            }
            None => {
                let end = rest
                    .find(|c: char| special(c) || c.is_ascii_whitespace())
                    .unwrap_or(rest.len());
                tokens.push(match &rest[..end] {
                    "in" => Token::In,
                    "notin" => Token::NotIn,
                    "" => Token::Unknown(rest.into()),
                    word => Token::Word(word.into()),
                });
                if end == 0 { rest.len() } else { end }
            }
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, String> {
        let mut found = Vec::new();
        loop {
            match self.peek() {
                None => return Ok(found),
                Some(token) if token.word().is_some() || *token == Token::Symbol("!") => {}
                Some(token) => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        token.literal()
                    ));
                }
            }
            found.push(
                self.requirement()
                    .map_err(|error| format!("unable to parse requirement: {error}"))?,
            );
            match self.next() {
                None => return Ok(found),
                Some(Token::Symbol(",")) => match self.peek() {
                    Some(token) if token.word().is_some() || *token == Token::Symbol("!") => {}
                    other => return Err(format!("found '{}', expected: identifier after ','", literal(other))),
                },
                Some(other) => return Err(format!("found '{}', expected: ',' or 'end of string'", other.literal())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Some(&Token::Symbol("!"));
        if absent {
            self.next();
        }
        let token = self.next();
        let Some(key) = token.as_ref().and_then(Token::word).map(str::to_owned) else {
            return Err(format!("found '{}', expected: identifier", literal(token.as_ref())));
        };
        let ends = matches!(self.peek(), None | Some(Token::Symbol(",")));
        if absent || ends {
            let operator = if absent {
                Operator::DoesNotExist
            } else {
                Operator::Exists
            };
            return Requirement::checked(key, operator, Vec::new());
        }
        let token = self.next();
        let (operator, set) = match token.as_ref() {
            Some(Token::In) => (Operator::In, true),
            Some(Token::NotIn) => (Operator::NotIn, true),
            Some(Token::Symbol("=" | "==")) => (Operator::In, false),
            Some(Token::Symbol("!=")) => (Operator::NotIn, false),
            Some(Token::Symbol(">")) => (Operator::Greater, false),
            Some(Token::Symbol("<")) => (Operator::Less, false),
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    literal(other)
                ));
            }
        };
        let values = if set { self.values()? } else { vec![self.exact_value()?] };
        Requirement::checked(key, operator, values)
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), None | Some(Token::Symbol(","))) {
            return Ok(String::new());
        }
        let token = self.next();
        match token.as_ref().and_then(Token::word) {
            Some(word) => Ok(word.to_owned()),
            None => Err(format!("found '{}', expected: identifier", literal(token.as_ref()))),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Some(Token::Symbol("(")) => {}
            other => return Err(format!("found '{}' expected: '('", literal(other.as_ref()))),
        }
        match self.peek() {
            Some(Token::Symbol(")")) => {
                self.next();
                return Ok(Vec::new());
            }
            Some(token) if token.word().is_some() || *token == Token::Symbol(",") => {}
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", literal(other))),
        }
        let mut values = vec![String::new()];
        loop {
            let token = self.next();
            match token.as_ref() {
                Some(Token::Symbol(")")) => break,
                Some(Token::Symbol(",")) => values.push(String::new()),
                Some(token) if token.word().is_some() => {
                    *values.last_mut().expect("starts with one value and only grows") = token.literal().to_owned();
                    if !matches!(self.peek(), Some(Token::Symbol("," | ")"))) {
                        return Err(format!("found '{}', expected: ',' or ')'", literal(self.peek())));
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", literal(other))),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

fn literal(token: Option<&Token>) -> &str {
    token.map_or("", Token::literal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_as_written() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "a", "n": "5", "in": "x"}}});
        let cases = [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=b", true),
            ("app", true),
            ("!app", false),
            ("!old", true),
            ("tier in (a, b)", true),
            ("tier notin (a,b)", false),
            ("gone notin (a)", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app=", false),
            ("in=x", true),
            ("tier in ()", false),
        ];
        for (text, expected) in cases {
            assert_eq!(
                LabelSelector::parse(text).map(|s| s.matches(&object)),
                Ok(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_are_worded_as_the_api_server_words_them() {
        let cases = [
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("a,,b", "found ',', expected: identifier after ','"),
            (
                "x y",
                "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a>b",
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn the_object_form_means_the_same() {
        let selector = LabelSelector::from_object(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}, {"key": "old", "operator": "DoesNotExist"}],
        }));
        assert!(selector.matches(&json!({"metadata": {"labels": {"app": "web", "tier": "a"}}})));
        assert!(!selector.matches(&json!({"metadata": {"labels": {"app": "web", "tier": "a", "old": ""}}})));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "[a-c!=<>(), in\\PC]{0,24}") {
            let _ = LabelSelector::parse(&text);
        }
    }
}
