//! What configurations of webhooks must look like: those of admission, and the one of a definition that converts.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::kinds::items;
use super::names;
use crate::schema::compile;
use crate::status::FieldError;

const FORM: &str = "; desired format: https://host[/path]";
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const CONDITIONS_MAX: usize = 64;

/// Judges a configuration of admission webhooks.
pub(super) fn configuration(object: &Value, mutating: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    for (i, hook) in items(object, "webhooks").enumerate() {
        let at = format!("webhooks[{i}]");
        errors.extend(webhook(&at, hook, mutating));
        let accepted = REVIEW_VERSIONS.join(", ");
        errors.extend(review_versions(
            &format!("{at}.admissionReviewVersions"),
            &hook["admissionReviewVersions"],
            &format!("must specify one of {accepted}"),
        ));
        let name = text(hook, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), name));
        }
    }
    errors
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn webhook(at: &str, hook: &Value, mutating: bool) -> Vec<FieldError> {
    let mut errors = full_name(&format!("{at}.name"), text(hook, "name"));
    for (i, rule) in items(hook, "rules").enumerate() {
        errors.extend(self::rule(&format!("{at}.rules[{i}]"), rule));
    }
    let choices: [(&str, &[&str]); 3] = [
        ("failurePolicy", &["Fail", "Ignore"]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("sideEffects", &["None", "NoneOnDryRun"]),
    ];
    for (field, allowed) in choices {
        let path = format!("{at}.{field}");
        match hook[field].as_str() {
            Some(value) if !allowed.contains(&value) => errors.push(FieldError::not_supported(path, value, allowed)),
            None if field == "sideEffects" => {
                let why = format!("must specify one of {}", allowed.join(", "));
                errors.push(FieldError::required(path, why));
            }
            _ => {}
        }
    }
    let timeout = &hook["timeoutSeconds"];
    if timeout.as_i64().is_some_and(|secs| !(1..=30).contains(&secs)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(format!("{at}.timeoutSeconds"), timeout, why));
    }
    errors.extend(client(&format!("{at}.clientConfig"), &hook["clientConfig"]));
    let policies = ["IfNeeded", "Never"];
    if let Some(policy) = hook["reinvocationPolicy"]
        .as_str()
        .filter(|policy| mutating && !policies.contains(policy))
    {
        errors.push(FieldError::not_supported(
            format!("{at}.reinvocationPolicy"),
            policy,
            &policies,
        ));
    }
    errors.extend(conditions(&format!("{at}.matchConditions"), hook));
    errors
}

fn full_name(at: &str, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(at, "")];
    }
    let few = || {
        (name.split('.').count() < 3)
            .then_some("should be a domain with at least three segments separated by dots".to_owned())
    };
    let problem = names::subdomain_problem(name).map(|why| why.to_string()).or_else(few);
    problem
        .map(|why| FieldError::invalid(at, name, why))
        .into_iter()
        .collect()
}

fn rule(at: &str, rule: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    errors.extend(list(at, rule, "operations", "operations"));
    for (i, operation) in items(rule, "operations").enumerate() {
        if !known.iter().any(|known| operation == known) {
            errors.push(FieldError::not_supported(
                format!("{at}.operations[{i}]"),
                operation,
                &known,
            ));
        }
    }
    errors.extend(list(at, rule, "apiGroups", "API groups"));
    errors.extend(list(at, rule, "apiVersions", "API versions"));
    for (i, _) in items(rule, "apiVersions")
        .enumerate()
        .filter(|(_, version)| *version == "")
    {
        errors.push(FieldError::required(format!("{at}.apiVersions[{i}]"), ""));
    }
    errors.extend(resources(&format!("{at}.resources"), rule));
    let scopes = ["*", "Cluster", "Namespaced"];
    if let Some(scope) = rule["scope"].as_str().filter(|scope| !scopes.contains(scope)) {
        errors.push(FieldError::not_supported(format!("{at}.scope"), scope, &scopes));
    }
    errors
}

/// A list has something in it, and nothing beside a star.
fn list(at: &str, rule: &Value, field: &str, words: &str) -> Option<FieldError> {
    let path = format!("{at}.{field}");
    match items(rule, field).count() {
        0 => Some(FieldError::required(path, "")),
        1 => None,
        _ => items(rule, field).any(|item| item == "*").then(|| {
            let why = format!("if '*' is present, must not specify other {words}");
            FieldError::invalid(path, &rule[field], why)
        }),
    }
}

fn resources(at: &str, rule: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let names: Vec<&str> = items(rule, "resources").filter_map(Value::as_str).collect();
    if names.is_empty() {
        errors.push(FieldError::required(at, ""));
    }
    let (mut whole, mut every) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain = false;
    for (i, name) in names.iter().enumerate() {
        let path = format!("{at}[{i}]");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else {
            has_plain = *name != "*";
            continue;
        };
        if whole.contains(resource) {
            let why = format!("if '{resource}/*' is present, must not specify {name}");
            errors.push(FieldError::invalid(&path, name, why));
        }
        if every.contains(subresource) {
            let why = format!("if '*/{subresource}' is present, must not specify {name}");
            errors.push(FieldError::invalid(&path, name, why));
        }
        if subresource == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            every.insert(subresource);
        }
    }
    if names.len() > 1 && names.contains(&"*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(at, &rule["resources"], why));
    }
    if names.contains(&"*") && has_plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(at, &rule["resources"], why));
    }
    errors
}

/// Where a webhook is: at a URL or behind a Service.
fn client(at: &str, client: &Value) -> Vec<FieldError> {
    match (client["url"].as_str(), client["service"].is_object()) {
        (Some(url), false) => self::url(&format!("{at}.url"), url),
        (None, true) => service(&format!("{at}.service"), &client["service"]),
        _ => vec![FieldError::required(at, "exactly one of url or service is required")],
    }
}

fn url(at: &str, url: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let has_host = url.contains("://");
    let authority = rest.split('/').next().filter(|_| has_host).unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(at, scheme, why));
    }
    if host.is_empty() {
        errors.push(FieldError::invalid(at, host, format!("host must be specified{FORM}")));
    }
    for (part, why) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.push(FieldError::invalid(at, part, why));
        }
    }
    errors
}

fn service(at: &str, service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The real server takes the one for the other: what is told to be missing is what is there.
    for (field, told) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.push(FieldError::required(format!("{at}.{told}"), ""));
        }
    }
    let port = &service["port"];
    if port.as_i64().is_some_and(|port| !(1..=65535).contains(&port)) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{at}.port"), port, why));
    }
    let (path, field) = (text(service, "path"), format!("{at}.path"));
    if path.is_empty() || path == "/" {
        return errors;
    }
    let invalid = |why: String| FieldError::invalid(&field, path, why);
    if path == "//" {
        errors.push(invalid("segment[0] may not be empty".to_owned()));
        return errors;
    }
    if !path.starts_with('/') {
        errors.push(invalid("must start with a '/'".to_owned()));
    }
    let mut characters = path.chars();
    characters.next();
    let rest = characters.as_str();
    for (i, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        match names::subdomain_problem(step) {
            _ if step.is_empty() => errors.push(invalid(format!("segment[{i}] may not be empty"))),
            Some(why) => errors.push(invalid(format!("segment[{i}]: {why}"))),
            None => {}
        }
    }
    errors
}

fn review_versions(at: &str, versions: &Value, none: &str) -> Vec<FieldError> {
    let list: Vec<&str> = versions
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if list.is_empty() {
        return vec![FieldError::required(at, none)];
    }
    let mut errors = Vec::new();
    for (i, version) in list.iter().enumerate() {
        if list[..i].contains(version) {
            errors.push(FieldError::invalid(format!("{at}[{i}]"), version, "duplicate version"));
        }
    }
    if !list.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(at, versions, why));
    }
    errors
}

fn conditions(at: &str, hook: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let count = items(hook, "matchConditions").count();
    if count > CONDITIONS_MAX {
        errors.push(FieldError::too_many(at, count, CONDITIONS_MAX as u64));
    }
    let mut seen = BTreeSet::new();
    for (i, condition) in items(hook, "matchConditions").enumerate() {
        let at = format!("{at}[{i}]");
        let (expression, name) = (text(condition, "expression").trim(), text(condition, "name"));
        let field = format!("{at}.expression");
        match compile(expression) {
            _ if expression.is_empty() => errors.push(FieldError::required(field, "")),
            Err(error) => {
                let why = format!("compilation failed: {error}");
                errors.push(FieldError::invalid(field, json!(expression), why));
            }
            Ok(_) => {}
        }
        let field = format!("{at}.name");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(field, name));
        }
    }
    errors
}

/// Judges `spec.conversion` of a definition. Its errors speak of the fields where they stood before v1.
pub(super) fn conversion(conversion: &Value) -> Vec<FieldError> {
    let at = "spec.conversion";
    let (config, versions) = (
        format!("{at}.webhookClientConfig"),
        format!("{at}.conversionReviewVersions"),
    );
    let (webhook, strategy) = (&conversion["webhook"], text(conversion, "strategy"));
    let mut errors = Vec::new();
    let known = ["None", "Webhook"];
    if strategy.is_empty() {
        errors.push(FieldError::required(format!("{at}.strategy"), ""));
    } else if !known.contains(&strategy) {
        errors.push(FieldError::not_supported(format!("{at}.strategy"), strategy, &known));
    }
    let has_client = webhook["clientConfig"].is_object();
    match strategy == "Webhook" {
        true => {
            match has_client {
                true => errors.extend(client(&config, &webhook["clientConfig"])),
                false => errors.push(FieldError::required(config, "required when strategy is set to Webhook")),
            }
            errors.extend(review_versions(&versions, &webhook["conversionReviewVersions"], ""));
        }
        false => {
            let why = "should not be set when strategy is not set to Webhook";
            errors.extend(has_client.then(|| FieldError::forbidden(config, why)));
            let has_versions = items(webhook, "conversionReviewVersions").next().is_some();
            errors.extend(has_versions.then(|| FieldError::forbidden(versions, why)));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn urls_are_of_one_form() {
        assert!(url("u", "https://host:1/path").is_empty());
        let only = format!("u: Invalid value: \"http\": 'https' is the only allowed URL scheme{FORM}");
        assert_eq!(told(&url("u", "http://host")), [only]);
        let parts = told(&url("u", "https://me@host/p?q=1#f"));
        assert_eq!(
            parts,
            [
                "u: Invalid value: \"me\": user information is not permitted in the URL",
                "u: Invalid value: \"f\": fragments are not permitted in the URL",
                "u: Invalid value: \"q=1\": query parameters are not permitted in the URL",
            ]
        );
    }

    #[test]
    fn a_star_stands_alone() {
        let rule = |resources: Value| {
            let rule = json!({"resources": resources});
            told(&super::resources("r", &rule))
        };
        assert!(rule(json!(["pods", "pods/status", "*/scale"])).is_empty());
        assert_eq!(rule(json!([])), ["r: Required value"]);
        assert_eq!(
            rule(json!(["pods/*", "pods/status"])),
            ["r[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status"]
        );
        assert_eq!(rule(json!(["*", "pods"])).len(), 1);
    }

    #[test]
    fn a_definition_that_converts_says_where() {
        assert!(conversion(&json!({"strategy": "None"})).is_empty());
        let errors = told(&conversion(&json!({"strategy": "Webhook"})));
        assert_eq!(
            errors,
            [
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ]
        );
    }
}
