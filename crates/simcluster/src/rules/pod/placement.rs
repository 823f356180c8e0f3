//! Where a pod may run: selectors, affinities, tolerations, spread.

use serde_json::{Value, json};

use crate::rules::check::{Findings, text};
use crate::rules::kinds::items;
use crate::rules::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn validate(found: &mut Findings, spec: &Value, at: &str) {
    found.labels(&format!("{at}.nodeSelector"), &spec["nodeSelector"]);
    let affinity = &spec["affinity"];
    node_affinity(found, &affinity["nodeAffinity"], &format!("{at}.affinity.nodeAffinity"));
    for kind in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(found, &affinity[kind], &format!("{at}.affinity.{kind}"));
    }
    for (i, toleration) in items(spec, "tolerations").enumerate() {
        validate_toleration(found, toleration, &format!("{at}.tolerations[{i}]"));
    }
    for (i, constraint) in items(spec, "topologySpreadConstraints").enumerate() {
        spread(found, constraint, &format!("{at}.topologySpreadConstraints[{i}]"));
    }
}

fn node_affinity(found: &mut Findings, affinity: &Value, at: &str) {
    if affinity[REQUIRED].is_object() {
        let at = format!("{at}.{REQUIRED}.nodeSelectorTerms");
        if items(&affinity[REQUIRED], "nodeSelectorTerms").next().is_none() {
            found.required(&at, "must have at least one node selector term");
        }
        for (i, term) in items(&affinity[REQUIRED], "nodeSelectorTerms").enumerate() {
            node_term(found, term, &format!("{at}[{i}]"));
        }
    }
    for (i, preference) in items(affinity, PREFERRED).enumerate() {
        let at = format!("{at}.{PREFERRED}[{i}]");
        weight(found, preference, &at);
        node_term(found, &preference["preference"], &format!("{at}.preference"));
    }
}

fn weight(found: &mut Findings, preference: &Value, at: &str) {
    let weight = preference["weight"].as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        found.invalid(format!("{at}.weight"), &json!(weight), "must be in the range 1-100");
    }
}

fn node_term(found: &mut Findings, term: &Value, at: &str) {
    for (i, expression) in items(term, "matchExpressions").enumerate() {
        let at = format!("{at}.matchExpressions[{i}]");
        let values = items(expression, "values").count();
        match text(&expression["operator"]) {
            "In" | "NotIn" if values == 0 => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                found.required(format!("{at}.values"), why);
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                found.forbidden(format!("{at}.values"), why);
            }
            "Gt" | "Lt" if values != 1 => {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                found.required(format!("{at}.values"), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => found.invalid(format!("{at}.operator"), &json!(other), "not a valid selector operator"),
        }
        found.fits(format!("{at}.key"), &expression["key"], names::label_key_problem);
        if ["In", "NotIn"].contains(&text(&expression["operator"])) {
            for (j, value) in items(expression, "values").enumerate() {
                found.fits(format!("{at}.values[{j}]"), value, names::label_value_problem);
            }
        }
    }
    for (i, field) in items(term, "matchFields").enumerate() {
        node_field(found, field, &format!("{at}.matchFields[{i}]"));
    }
}

/// The only field of a node that can be asked for is its name.
fn node_field(found: &mut Findings, field: &Value, at: &str) {
    match text(&field["operator"]) {
        "In" | "NotIn" if items(field, "values").count() != 1 => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            found.required(format!("{at}.values"), why);
        }
        "In" | "NotIn" => {}
        other => found.invalid(format!("{at}.operator"), &json!(other), "not a valid selector operator"),
    }
    match text(&field["key"]) {
        "metadata.name" => {
            for (j, value) in items(field, "values").enumerate() {
                found.fits(format!("{at}.values[{j}]"), value, names::subdomain_problem);
            }
        }
        other => found.invalid(format!("{at}.key"), &json!(other), "not a valid field selector key"),
    }
}

fn pod_affinity(found: &mut Findings, affinity: &Value, at: &str) {
    for (i, term) in items(affinity, REQUIRED).enumerate() {
        pod_term(found, term, &format!("{at}.{REQUIRED}[{i}]"));
    }
    for (i, preference) in items(affinity, PREFERRED).enumerate() {
        let at = format!("{at}.{PREFERRED}[{i}]");
        weight(found, preference, &at);
        pod_term(found, &preference["podAffinityTerm"], &format!("{at}.podAffinityTerm"));
    }
}

fn pod_term(found: &mut Findings, term: &Value, at: &str) {
    for selector in ["labelSelector", "namespaceSelector"] {
        found.selector(&format!("{at}.{selector}"), &term[selector]);
    }
    for namespace in items(term, "namespaces") {
        found.fits(format!("{at}.namespace"), namespace, names::dns_label_problem);
    }
    if text(&term["topologyKey"]).is_empty() {
        found.required(format!("{at}.topologyKey"), "can not be empty");
    }
    found.fits(
        format!("{at}.topologyKey"),
        &term["topologyKey"],
        names::label_key_problem,
    );
}

fn validate_toleration(found: &mut Findings, toleration: &Value, at: &str) {
    let (key, operator) = (text(&toleration["key"]), text(&toleration["operator"]));
    if !key.is_empty() {
        found.fits(format!("{at}.key"), &toleration["key"], names::label_key_problem);
    } else if operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        found.invalid(format!("{at}.operator"), &json!(operator), why);
    }
    let effect = &toleration["effect"];
    if toleration["tolerationSeconds"].is_i64() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        found.invalid(format!("{at}.effect"), &json!(text(effect)), why);
    }
    match operator {
        "Equal" | "" => found.fits(
            format!("{at}.operator"),
            &toleration["value"],
            names::label_value_problem,
        ),
        "Exists" if !text(&toleration["value"]).is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            found.invalid(format!("{at}.operator"), &json!(operator), why);
        }
        "Exists" => {}
        _ => found.one_of(format!("{at}.operator"), &toleration["operator"], &["Equal", "Exists"]),
    }
    if !text(effect).is_empty() {
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        found.one_of(format!("{at}.effect"), effect, &effects);
    }
}

fn spread(found: &mut Findings, constraint: &Value, at: &str) {
    let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
    if skew <= 0 {
        found.invalid(format!("{at}.maxSkew"), &json!(skew), "must be greater than zero");
    }
    if text(&constraint["topologyKey"]).is_empty() {
        found.required(format!("{at}.topologyKey"), "can not be empty");
    }
    let when = json!(text(&constraint["whenUnsatisfiable"]));
    found.one_of(
        format!("{at}.whenUnsatisfiable"),
        &when,
        &["DoNotSchedule", "ScheduleAnyway"],
    );
    if let Some(domains) = constraint["minDomains"].as_i64() {
        if domains <= 0 {
            found.invalid(format!("{at}.minDomains"), &json!(domains), "must be greater than zero");
        }
        if when != "DoNotSchedule" {
            let why = format!(
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                text(&when)
            );
            found.invalid(format!("{at}.minDomains"), &json!(domains), &why);
        }
    }
    for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        found.one_of(format!("{at}.{policy}"), &constraint[policy], &["Honor", "Ignore"]);
    }
    found.selector(&format!("{at}.labelSelector"), &constraint["labelSelector"]);
}
