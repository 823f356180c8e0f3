//! What the smaller built-in kinds must look like: one function each, over a whole object.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::check::{Findings, NOT_NEGATIVE, text};
use super::kinds::items;
use super::quantity::Quantity;
use super::{metadata, names};
use crate::status::FieldError;

pub(super) fn node(node: &Value) -> Vec<FieldError> {
    let found = &mut Findings::default();
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for (i, taint) in items(&node["spec"], "taints").enumerate() {
        let at = format!("metadata.taints[{i}]");
        found.fits(format!("{at}.key"), &taint["key"], names::label_key_problem);
        found.fits(format!("{at}.value"), &taint["value"], names::label_value_problem);
        if found.needs(format!("{at}.effect"), &taint["effect"]) {
            found.one_of(format!("{at}.effect"), &taint["effect"], &effects);
        }
    }
    if !text(&node["spec"]["podCIDR"]).is_empty() {
        found.network("spec.podCIDRs[0]", &node["spec"]["podCIDR"]);
    }
    for list in ["capacity", "allocatable"] {
        amounts(found, &format!("status.{list}"), &node["status"][list], |at, name| {
            format!("{at}.{name}")
        });
    }
    std::mem::take(&mut found.errors)
}

/// Amounts, none of which may be less than nothing.
fn amounts(found: &mut Findings, at: &str, amounts: &Value, field: fn(&str, &str) -> String) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        if Quantity::parse(text(amount)).is_some_and(|amount| amount.millis() < 0) {
            found.invalid(field(at, name), amount, NOT_NEGATIVE);
        }
    }
}

pub(super) fn quota(quota: &Value) -> Vec<FieldError> {
    let (found, spec) = (&mut Findings::default(), &quota["spec"]);
    amounts(found, "spec.hard", &spec["hard"], |at, name| format!("{at}[{name}]"));
    let known = [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    ];
    if items(spec, "scopes").any(|scope| !known.contains(&text(scope))) {
        found.invalid("spec.scopes", &spec["scopes"], "unsupported scope");
    }
    for expression in items(&spec["scopeSelector"], "matchExpressions") {
        let at = "spec.scopeSelector.matchExpressions";
        let scope = text(&expression["scopeName"]);
        if !known.contains(&scope) {
            found.invalid(format!("{at}.scopeName"), &json!(scope), "unsupported scope");
        }
        match text(&expression["operator"]) {
            "In" | "NotIn" if items(expression, "values").next().is_none() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                found.required(format!("{at}.values"), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => found.invalid(format!("{at}.operator"), &json!(other), "not a valid selector operator"),
        }
    }
    std::mem::take(&mut found.errors)
}

pub(super) fn priority(class: &Value) -> Vec<FieldError> {
    const MAX: i64 = 1_000_000_000;
    let found = &mut Findings::default();
    let is_ours = metadata::text(class, "name").starts_with("system-");
    if !is_ours && class["value"].as_i64().is_some_and(|value| value > MAX) {
        let why = format!("maximum allowed value of a user defined priority is {MAX}");
        found.forbidden("value", &why);
    }
    match text(&class["preemptionPolicy"]) {
        "" => found.required("preemptionPolicy", ""),
        _ => found.one_of(
            "preemptionPolicy",
            &class["preemptionPolicy"],
            &["PreemptLowerPriority", "Never"],
        ),
    }
    std::mem::take(&mut found.errors)
}

/// Judges a RoleBinding or a ClusterRoleBinding.
pub(super) fn binding(binding: &Value, namespaced: bool) -> Vec<FieldError> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let (found, role) = (&mut Findings::default(), &binding["roleRef"]);
    found.one_of("roleRef.apiGroup", &json!(text(&role["apiGroup"])), &[GROUP]);
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    found.one_of("roleRef.kind", &json!(text(&role["kind"])), kinds);
    if found.needs("roleRef.name", &role["name"]) {
        found.fits("roleRef.name", &role["name"], |name| {
            names::NameRule::PathSegment.problem(name)
        });
    }
    for (i, subject) in items(binding, "subjects").enumerate() {
        let at = format!("subjects[{i}]");
        let is_named = found.needs(format!("{at}.name"), &subject["name"]);
        match text(&subject["kind"]) {
            "ServiceAccount" => {
                if is_named {
                    found.fits(format!("{at}.name"), &subject["name"], names::subdomain_problem);
                }
                if !text(&subject["apiGroup"]).is_empty() {
                    found.one_of(format!("{at}.apiGroup"), &subject["apiGroup"], &[""]);
                }
                // A binding in a namespace knows which one is meant.
                if !namespaced {
                    found.needs(format!("{at}.namespace"), &subject["namespace"]);
                }
            }
            "User" | "Group" => found.one_of(format!("{at}.apiGroup"), &subject["apiGroup"], &[GROUP]),
            other => found.one_of(
                format!("{at}.kind"),
                &json!(other),
                &["ServiceAccount", "User", "Group"],
            ),
        }
    }
    std::mem::take(&mut found.errors)
}

pub(super) fn lease(lease: &Value) -> Vec<FieldError> {
    let found = &mut Findings::default();
    let duration = &lease["spec"]["leaseDurationSeconds"];
    if duration.as_i64().is_some_and(|seconds| seconds <= 0) {
        found.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0");
    }
    found.not_negative("spec.leaseTransitions", &lease["spec"]["leaseTransitions"]);
    std::mem::take(&mut found.errors)
}

pub(super) fn budget(budget: &Value) -> Vec<FieldError> {
    let spec = &budget["spec"];
    let (min, max) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !min.is_null() && !max.is_null() {
        // The value is told as Go's internal type has it.
        let policy = &spec["unhealthyPodEvictionPolicy"];
        let selector = &spec["selector"];
        let told = format!(
            "{{\"MinAvailable\":{min},\"Selector\":{selector},\"MaxUnavailable\":{max},\"UnhealthyPodEvictionPolicy\":{policy}}}"
        );
        let why = "minAvailable and maxUnavailable cannot be both set";
        return vec![FieldError::invalid_text("spec", &told, why)];
    }
    let found = &mut Findings::default();
    for (field, value) in [("spec.minAvailable", min), ("spec.maxUnavailable", max)] {
        found.amount(field, value);
        let share = text(value)
            .strip_suffix('%')
            .and_then(|share| share.parse::<u64>().ok());
        if share.is_some_and(|share| share > 100) {
            found.invalid(field, value, "must not be greater than 100%");
        }
    }
    found.selector("spec.selector", &spec["selector"]);
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    found.one_of(
        "spec.unhealthyPodEvictionPolicy",
        &spec["unhealthyPodEvictionPolicy"],
        &policies,
    );
    std::mem::take(&mut found.errors)
}

pub(super) fn role(role: &Value) -> Vec<FieldError> {
    let found = &mut Findings::default();
    for (i, rule) in items(role, "rules").enumerate() {
        let at = format!("rules[{i}]");
        let has = |field: &str| items(rule, field).next().is_some();
        if !has("verbs") {
            found.required(format!("{at}.verbs"), "verbs must contain at least one value");
        }
        if has("nonResourceURLs") {
            continue;
        }
        if !has("apiGroups") {
            let why = "resource rules must supply at least one api group";
            found.required(format!("{at}.apiGroups"), why);
        }
        if !has("resources") {
            let why = "resource rules must supply at least one resource";
            found.required(format!("{at}.resources"), why);
        }
    }
    for (i, selector) in items(&role["aggregationRule"], "clusterRoleSelectors").enumerate() {
        let (at, before) = (format!("aggregationRule.clusterRoleSelectors[{i}]"), found.errors.len());
        found.selector(&at, selector);
        if found.errors.len() > before {
            found.invalid(at, selector, "invalid label selector");
        }
    }
    std::mem::take(&mut found.errors)
}

/// The type of Secrets that hold the token of a service account.
pub(crate) const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// The annotation of such a Secret that names the account.
pub(crate) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// Judges a Secret: what says what it is for must hold that.
pub(super) fn secret(object: &Value) -> Vec<FieldError> {
    let found = &mut Findings::default();
    let data = |key: &str| object["data"].get(key);
    let empty = |key: &str| data(key).is_none_or(|value| text(value).is_empty());
    let mut needs = |key: &str| found.required(format!("data[{key}]"), "");
    match text(&object["type"]) {
        ACCOUNT_TOKEN if text(&object["metadata"]["annotations"][ACCOUNT_NAME]).is_empty() => {
            found.required(format!("metadata.annotations[{ACCOUNT_NAME}]"), "");
        }
        "kubernetes.io/tls" => {
            let missing = ["tls.crt", "tls.key"].into_iter().filter(|key| data(key).is_none());
            missing.for_each(needs);
        }
        "kubernetes.io/basic-auth" if data("username").is_none() && data("password").is_none() => {
            ["username", "password"].into_iter().for_each(needs);
        }
        "kubernetes.io/ssh-auth" if empty("ssh-privatekey") => needs("ssh-privatekey"),
        "kubernetes.io/dockerconfigjson" => docker(found, object, ".dockerconfigjson"),
        "kubernetes.io/dockercfg" => docker(found, object, ".dockercfg"),
        _ => {}
    }
    std::mem::take(&mut found.errors)
}

fn docker(found: &mut Findings, object: &Value, key: &str) {
    let at = format!("data[{key}]");
    let Some(value) = object["data"].get(key) else {
        found.required(at, "");
        return;
    };
    let json = STANDARD.decode(text(value)).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<Value>(&json) {
        found.invalid(at, &json!("<secret contents redacted>"), &error.to_string());
    }
}

/// A binding is for one role; another role takes another binding.
pub(super) fn same_role(old: &Value, new: &Value) -> Vec<FieldError> {
    let role = &new["roleRef"];
    if old["roleRef"] == *role {
        return Vec::new();
    }
    let told = format!(
        "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
        role["apiGroup"], role["kind"], role["name"]
    );
    vec![FieldError::invalid_text("roleRef", &told, "cannot change roleRef")]
}
