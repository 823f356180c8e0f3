//! Rules of HorizontalPodAutoscalers.

use serde_json::{Value, json};

use super::check::{Findings, text};
use super::kinds::{items, set_default};
use super::quantity::Quantity;
use crate::status::FieldError;

const SOURCES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const PERIOD_SECS_MAX: i64 = 1_800;
const WINDOW_SECS_MAX: i64 = 3_600;

pub(super) fn default(object: &mut Value) {
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
    let spec = &mut object["spec"];
    set_default(spec, "minReplicas", json!(1));
    set_default(spec, "metrics", json!([cpu]));
    if spec["behavior"].is_object() {
        default_behavior(&mut spec["behavior"]);
    }
}

/// Who says something about one direction gets what they do not say.
fn default_behavior(behavior: &mut Value) {
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let ways = [
        ("scaleUp", Some(0), json!([pods, percent.clone()])),
        ("scaleDown", None, json!([percent])),
    ];
    for (way, window, policies) in ways {
        set_default(behavior, way, json!({}));
        let rules = &mut behavior[way];
        set_default(rules, "selectPolicy", json!("Max"));
        set_default(rules, "policies", policies);
        if let Some(window) = window {
            set_default(rules, "stabilizationWindowSeconds", json!(window));
        }
    }
}

pub(super) fn validate(autoscaler: &Value) -> Vec<FieldError> {
    let spec = &autoscaler["spec"];
    let found = &mut Findings::default();
    replicas(found, spec);
    let target = &spec["scaleTargetRef"];
    let version = text(&target["apiVersion"]);
    if !version.contains('/') {
        let why = "apiVersion must specify API group";
        found.invalid("spec.scaleTargetRef.apiVersion", &json!(version), why);
    }
    for field in ["kind", "name"] {
        found.needs(format!("spec.scaleTargetRef.{field}"), &target[field]);
    }
    for (i, metric) in items(spec, "metrics").enumerate() {
        validate_metric(found, metric, &format!("spec.metrics[{i}]"));
    }
    for way in ["scaleUp", "scaleDown"] {
        validate_rules(found, &spec["behavior"][way], &format!("spec.behavior.{way}"));
    }
    std::mem::take(&mut found.errors)
}

fn replicas(found: &mut Findings, spec: &Value) {
    let (min, max) = (&spec["minReplicas"], spec["maxReplicas"].as_i64().unwrap_or(0));
    if min.as_i64().is_some_and(|min| min < 1) {
        found.invalid("spec.minReplicas", min, "must be greater than or equal to 1");
    }
    if max < 1 {
        found.required("spec.maxReplicas", "must be set and greater than 0");
    }
    if min.as_i64().is_some_and(|min| max < min) {
        let why = "must be greater than or equal to `minReplicas`";
        found.invalid("spec.maxReplicas", &json!(max), why);
    }
}

fn validate_metric(found: &mut Findings, metric: &Value, at: &str) {
    let kind = text(&metric["type"]);
    if kind.is_empty() {
        found.required(format!("{at}.type"), "must specify a metric source type");
    }
    found.one_of(format!("{at}.type"), &json!(kind), &SOURCES);
    let mut expected = kind.to_owned();
    if let Some(first) = expected.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    for source in ["containerResource", "external", "object", "pods", "resource"] {
        let given = &metric[source];
        if given.is_object() && source != expected && SOURCES.contains(&kind) {
            let why = "must populate the given metric source only";
            found.forbidden(format!("{at}.{source}"), why);
        }
        if given.is_object() {
            validate_source(found, given, &format!("{at}.{source}"), source);
        } else if source == expected {
            found.required(
                format!("{at}.{source}"),
                "must populate information for the given metric source",
            );
        }
    }
}

fn validate_source(found: &mut Findings, source: &Value, at: &str, kind: &str) {
    match kind {
        "resource" | "containerResource" => {
            if text(&source["name"]).is_empty() {
                found.required(format!("{at}.name"), "must specify a resource name");
            }
            if kind == "containerResource" && text(&source["container"]).is_empty() {
                found.required(format!("{at}.container"), "must specify a container name");
            }
        }
        _ => {
            if text(&source["metric"]["name"]).is_empty() {
                found.required(format!("{at}.metric.name"), "must specify a metric name");
            }
        }
    }
    if kind == "object" {
        for field in ["kind", "name"] {
            found.needs(
                format!("{at}.describedObject.{field}"),
                &source["describedObject"][field],
            );
        }
    }
    validate_target(found, &source["target"], &format!("{at}.target"), kind);
}

fn validate_target(found: &mut Findings, target: &Value, at: &str, kind: &str) {
    let of = text(&target["type"]);
    if of.is_empty() {
        found.required(format!("{at}.type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&of) {
        let why = "must be either Utilization, Value, or AverageValue";
        found.invalid(format!("{at}.type"), &json!(of), why);
    }
    for field in ["value", "averageValue"] {
        let is_positive = |text: &str| Quantity::parse(text).is_some_and(|quantity| quantity.millis() > 0);
        if target[field].as_str().is_some_and(|text| !is_positive(text)) {
            found.invalid(format!("{at}.{field}"), &target[field], "must be positive");
        }
    }
    let share = &target["averageUtilization"];
    if share.as_i64().is_some_and(|share| share < 1) {
        found.invalid(format!("{at}.averageUtilization"), share, "must be greater than 0");
    }
    let has = |field: &str| !target[field].is_null();
    match kind {
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => {
            let why = "must set either a target raw value or a target utilization";
            found.required(format!("{at}.averageUtilization"), why);
        }
        "pods" if !has("averageValue") => {
            found.required(
                format!("{at}.averageValue"),
                "must specify a positive target averageValue",
            );
        }
        "object" | "external" if !has("value") && !has("averageValue") => {
            found.required(
                format!("{at}.averageValue"),
                "must set either a target value or averageValue",
            );
        }
        _ => {}
    }
}

fn validate_rules(found: &mut Findings, rules: &Value, at: &str) {
    if !rules.is_object() {
        return;
    }
    let window = &rules["stabilizationWindowSeconds"];
    match window.as_i64() {
        Some(secs) if secs < 0 => {
            found.invalid(
                format!("{at}.stabilizationWindowSeconds"),
                window,
                "must be greater than or equal to zero",
            );
        }
        Some(secs) if secs > WINDOW_SECS_MAX => {
            let why = format!("must be less than or equal to {WINDOW_SECS_MAX}");
            found.invalid(format!("{at}.stabilizationWindowSeconds"), window, &why);
        }
        _ => {}
    }
    let choices = ["Disabled", "Max", "Min"];
    found.one_of(format!("{at}.selectPolicy"), &rules["selectPolicy"], &choices);
    if items(rules, "policies").next().is_none() {
        found.required(format!("{at}.policies"), "must specify at least one Policy");
    }
    for (i, policy) in items(rules, "policies").enumerate() {
        let at = format!("{at}.policies[{i}]");
        found.one_of(
            format!("{at}.type"),
            &json!(text(&policy["type"])),
            &["Percent", "Pods"],
        );
        for field in ["value", "periodSeconds"] {
            let number = policy[field].as_i64().unwrap_or(0);
            if number <= 0 {
                found.invalid(format!("{at}.{field}"), &json!(number), "must be greater than zero");
            }
        }
        if policy["periodSeconds"]
            .as_i64()
            .is_some_and(|secs| secs > PERIOD_SECS_MAX)
        {
            let why = format!("must be less than or equal to {PERIOD_SECS_MAX}");
            found.invalid(format!("{at}.periodSeconds"), &policy["periodSeconds"], &why);
        }
    }
}
