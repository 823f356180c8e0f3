//! Field selectors: `spec.nodeName=n1,status.phase!=Failed`.

use serde_json::Value;

/// A conjunction of equalities and inequalities on fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses the text and asks `check` about each field name.
    pub fn parse(text: &str, check: impl Fn(&str) -> Result<(), String>) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            let (field, operator, value) =
                split_operator(term).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            check(field)?;
            requirements.push(Requirement {
                field: field.into(),
                value: unescape(value)?,
                equal: operator != "!=",
            });
        }
        Ok(Self { requirements })
    }

    /// Whether the selector has no requirement.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object has the fields that are asked for.
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements
            .iter()
            .all(|r| (text_at(object, &r.field) == r.value) == r.equal)
    }

    /// The one value that a field must have, if the selector says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|r| r.equal && r.field == field)
            .map(|r| r.value.as_str())
    }
}

/// The value of a dotted path as selectors compare it; missing booleans are `false`, the rest is empty.
fn text_at(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |value, segment| value.get(segment));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None if matches!(path, "spec.unschedulable" | "spec.hostNetwork") => "false".into(),
        // status.podIPs selects by the list of addresses, but only its first is ever indexed here.
        Some(Value::Array(items)) => items.first().map(|item| text_at(item, "ip")).unwrap_or_default(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Splits at commas that are not escaped; empty terms are dropped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            terms.push(&text[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms.retain(|term| !term.is_empty());
    terms
}

fn split_operator(term: &str) -> Option<(&str, &'static str, &str)> {
    let at = term.find(['=', '!'])?;
    let rest = &term[at..];
    let operator = ["!=", "==", "="]
        .into_iter()
        .find(|operator| rest.starts_with(operator))?;
    Some((&term[..at], operator, &rest[operator.len()..]))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                _ => return Err(format!("invalid field selector: invalid escape sequence: {value}")),
            },
            '=' | ',' => {
                return Err(format!("invalid field selector: unescaped character in value: {c}"));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_compared_as_text() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        let matches = |text: &str| FieldSelector::parse(text, |_| Ok(())).unwrap().matches(&pod);
        assert!(matches("spec.nodeName=n1,status.phase!=Failed"));
        assert!(matches("spec.hostNetwork=false"));
        assert!(matches("status.nominatedNodeName="));
        assert!(!matches("spec.nodeName==n2"));
    }

    #[test]
    fn nonsense_is_named() {
        let error = FieldSelector::parse("foo", |_| Ok(())).unwrap_err();
        assert_eq!(error, "invalid selector: 'foo'; can't understand 'foo'");
        let refuse = |field: &str| Err(format!("field label not supported: {field}"));
        assert_eq!(
            FieldSelector::parse("zz=1", refuse).unwrap_err(),
            "field label not supported: zz"
        );
    }
}
