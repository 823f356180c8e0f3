//! What names, labels and finalizers may look like, with the texts that tell so.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Which names a kind's objects may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS subdomain; the usual rule.
    Subdomain,
    /// DNS label (namespaces, services).
    Label,
    /// Anything that can be one segment of a path (RBAC).
    PathSegment,
}

impl NameRule {
    /// What is wrong with `name`, if anything.
    pub fn problem(self, name: &str) -> Option<String> {
        match self {
            NameRule::Subdomain => subdomain_problem(name),
            NameRule::Label => dns_label_problem(name),
            NameRule::PathSegment => path_segment_problem(name),
        }
    }
}

/// What is wrong with a DNS subdomain, if anything.
pub fn subdomain_problem(name: &str) -> Option<String> {
    too_long(name, 253).or_else(|| (!name.split('.').all(is_dns_label)).then(|| SUBDOMAIN.to_owned()))
}

/// What is wrong with a DNS label, if anything.
pub fn dns_label_problem(name: &str) -> Option<String> {
    let problem = || match subdomain_problem(name) {
        None => "must not contain dots".to_owned(),
        Some(_) => DNS_LABEL.to_owned(),
    };
    too_long(name, 63).or_else(|| (!is_dns_label(name)).then(problem))
}

/// What is wrong with a label's value, if anything.
pub fn label_value_problem(value: &str) -> Option<String> {
    let fits = value.is_empty() || is_qualified_part(value);
    too_long(value, 63).or_else(|| (!fits).then(|| LABEL_VALUE.to_owned()))
}

/// What is wrong with a label key, annotation key or finalizer (`prefix/name` or `name`), if anything.
pub fn label_key_problem(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.contains('/') {
        let problem = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
        return Some(problem.into());
    }
    match prefix {
        Some("") => return Some("prefix part must be non-empty".into()),
        Some(prefix) => {
            if let Some(problem) = subdomain_problem(prefix) {
                return Some(format!("prefix part {problem}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    too_long(name, 63)
        .map(|problem| format!("name part {problem}"))
        .or_else(|| (!is_qualified_part(name)).then(|| QUALIFIED.to_owned()))
}

fn path_segment_problem(name: &str) -> Option<String> {
    match name {
        "." => return Some("may not be '.'".into()),
        ".." => return Some("may not be '..'".into()),
        _ => {}
    }
    ['/', '%']
        .into_iter()
        .find(|c| name.contains(*c))
        .map(|c| format!("may not contain '{c}'"))
}

fn too_long(text: &str, max: usize) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} bytes"))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if inner(*first) && inner(*last))
        && bytes.iter().all(|c| inner(*c) || *c == b'-')
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_the_rule_of_their_kind() {
        assert_eq!(NameRule::Subdomain.problem("a.b-c.d"), None);
        assert!(NameRule::Subdomain.problem("A").is_some());
        assert!(NameRule::Subdomain.problem("a..b").is_some());
        assert!(NameRule::Label.problem("a.b").is_some());
        assert_eq!(NameRule::Label.problem("a.b").as_deref(), Some("must not contain dots"));
        assert_eq!(NameRule::PathSegment.problem("system:node"), None);
        assert!(NameRule::PathSegment.problem("a/b").is_some());
        assert_eq!(
            NameRule::Label.problem(&"a".repeat(64)).unwrap(),
            "must be no more than 63 bytes"
        );
    }

    #[test]
    fn label_keys_have_an_optional_prefix() {
        assert_eq!(label_key_problem("grove.io/podgang"), None);
        assert_eq!(label_key_problem("app"), None);
        assert_eq!(label_key_problem("/x").unwrap(), "prefix part must be non-empty");
        assert_eq!(label_key_problem("a.b/").unwrap(), "name part must be non-empty");
        assert!(label_key_problem("a/b/c").is_some());
        assert!(label_value_problem("-x").is_some());
    }
}
