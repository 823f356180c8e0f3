//! What the smaller built-in kinds must look like: one function each, over a whole object.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::kinds::items;
use crate::status::FieldError;

pub(super) fn node(node: &Value) -> Vec<FieldError> {
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let unknown = items(&node["spec"], "taints").enumerate();
    let unknown = unknown.filter(|(_, taint)| !effects.iter().any(|effect| taint["effect"] == *effect));
    unknown
        .map(|(i, taint)| {
            let field = format!("metadata.taints[{i}].effect");
            match taint["effect"].as_str().unwrap_or_default() {
                "" => FieldError::required(field, ""),
                effect => FieldError::not_supported(field, effect, &effects),
            }
        })
        .collect()
}

pub(super) fn service(service: &Value) -> Vec<FieldError> {
    let spec = &service["spec"];
    let portless = spec["clusterIP"] == "None" || spec["type"] == "ExternalName";
    let count = items(spec, "ports").count();
    if count == 0 && !portless {
        return vec![FieldError::required("spec.ports", "")];
    }
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, port) in items(spec, "ports").enumerate() {
        let (field, name) = (
            format!("spec.ports[{i}].name"),
            port["name"].as_str().unwrap_or_default(),
        );
        if name.is_empty() && count > 1 {
            errors.push(FieldError::required(field, ""));
        } else if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(field, name));
        }
    }
    errors
}

pub(super) fn service_status(service: &Value) -> Vec<FieldError> {
    let balanced = service["spec"]["type"] == "LoadBalancer";
    match balanced || items(&service["status"]["loadBalancer"], "ingress").next().is_none() {
        true => Vec::new(),
        false => {
            let why = "may only be used when `spec.type` is 'LoadBalancer'";
            vec![FieldError::forbidden("status.loadBalancer.ingress", why)]
        }
    }
}

pub(super) fn lease(lease: &Value) -> Vec<FieldError> {
    let duration = &lease["spec"]["leaseDurationSeconds"];
    match duration.as_i64() {
        Some(seconds) if seconds <= 0 => {
            let why = "must be greater than 0";
            vec![FieldError::invalid("spec.leaseDurationSeconds", duration, why)]
        }
        _ => Vec::new(),
    }
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
    let negative = [("spec.minAvailable", min), ("spec.maxUnavailable", max)];
    let negative = negative
        .iter()
        .filter(|(_, value)| value.as_i64().is_some_and(|n| n < 0));
    let why = "must be greater than or equal to 0";
    negative
        .map(|(field, value)| FieldError::invalid(*field, value, why))
        .collect()
}

pub(super) fn autoscaler(autoscaler: &Value) -> Vec<FieldError> {
    let spec = &autoscaler["spec"];
    let target = &spec["scaleTargetRef"];
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    let (min, max) = (&spec["minReplicas"], spec["maxReplicas"].as_i64().unwrap_or(0));
    let mut errors = Vec::new();
    if let Some(fewest) = min.as_i64().filter(|min| *min < 1) {
        let why = "must be greater than or equal to 1";
        errors.push(FieldError::invalid("spec.minReplicas", json!(fewest), why));
    }
    if max < 1 {
        errors.push(FieldError::required(
            "spec.maxReplicas",
            "must be set and greater than 0",
        ));
    }
    if min.as_i64().is_some_and(|min| max < min) {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", json!(max), why));
    }
    if !text("apiVersion").contains('/') {
        let why = "apiVersion must specify API group";
        errors.push(FieldError::invalid(
            "spec.scaleTargetRef.apiVersion",
            json!(text("apiVersion")),
            why,
        ));
    }
    for field in ["kind", "name"] {
        if text(field).is_empty() {
            errors.push(FieldError::required(format!("spec.scaleTargetRef.{field}"), ""));
        }
    }
    errors
}

pub(super) fn role(role: &Value) -> Vec<FieldError> {
    let silent = items(role, "rules").enumerate();
    let silent = silent.filter(|(_, rule)| items(rule, "verbs").next().is_none());
    let why = "verbs must contain at least one value";
    silent
        .map(|(i, _)| FieldError::required(format!("rules[{i}].verbs"), why))
        .collect()
}

/// The type of Secrets that hold the token of a service account.
pub(crate) const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// The annotation of such a Secret that names the account.
pub(crate) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// Judges a Secret: one for a token must say whose token it wants.
pub(super) fn secret(object: &Value) -> Vec<FieldError> {
    let account = object["metadata"]["annotations"][ACCOUNT_NAME]
        .as_str()
        .unwrap_or_default();
    match object["type"] == ACCOUNT_TOKEN && account.is_empty() {
        true => vec![FieldError::required(
            format!("metadata.annotations[{ACCOUNT_NAME}]"),
            "",
        )],
        false => Vec::new(),
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
