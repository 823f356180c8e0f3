//! What Deployments and NetworkPolicies must look like. Nothing is made of them: they are there to be installed.

use serde::Serialize;
use serde_json::{Value, json};

use super::check::Findings;
use super::kinds::{items, items_mut, set_default, set_default_text};
use super::pod;
use crate::selector::LabelSelector;
use crate::status::FieldError;

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

pub(super) fn default_deployment(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "replicas", json!(1));
    set_default(spec, "revisionHistoryLimit", json!(10));
    set_default(spec, "progressDeadlineSeconds", json!(600));
    set_default(spec, "strategy", json!({}));
    let strategy = &mut spec["strategy"];
    set_default_text(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", json!({}));
        for field in ["maxSurge", "maxUnavailable"] {
            set_default(&mut strategy["rollingUpdate"], field, json!("25%"));
        }
    }
    set_default(spec, "template", json!({}));
    pod::default_template(&mut spec["template"]);
}

pub(super) fn deployment(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = not_negative(spec, "replicas");
    let selector = LabelSelector::from_object(&spec["selector"]);
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else if selector.is_empty() {
        let why = "empty selector is invalid for deployment";
        errors.push(FieldError::invalid("spec.selector", &spec["selector"], why));
    }
    let found = &mut Findings::default();
    found.selector("spec.selector", &spec["selector"]);
    let is_sound = found.errors.is_empty();
    if !is_sound {
        found.invalid("spec.selector", &spec["selector"], "invalid label selector");
    }
    errors.append(&mut found.errors);
    errors.extend(template(
        &spec["template"],
        &spec["selector"],
        is_sound.then_some(&selector),
    ));
    errors.extend(strategy(&spec["strategy"]));
    errors.extend(not_negative(spec, "minReadySeconds"));
    errors.extend(not_negative(spec, "revisionHistoryLimit"));
    let deadline = &spec["progressDeadlineSeconds"];
    errors.extend(not_negative(spec, "progressDeadlineSeconds"));
    let wait = spec["minReadySeconds"].as_i64().unwrap_or_default();
    if deadline.as_i64().is_some_and(|deadline| deadline <= wait) {
        let why = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline, why));
    }
    errors
}

/// Pods of the template must be found again, and run for ever.
fn template(template: &Value, told: &Value, selector: Option<&LabelSelector>) -> Vec<FieldError> {
    let at = "spec.template";
    let mut errors = Vec::new();
    if told.is_null() || selector.is_some_and(|selector| !selector.is_empty() && !selector.matches(template)) {
        let why = "`selector` does not match template `labels`";
        let labels = &template["metadata"]["labels"];
        errors.push(FieldError::invalid(format!("{at}.metadata.labels"), labels, why));
    }
    let found = &mut Findings::default();
    // The labels are told without the metadata that they stand in.
    found.labels(&format!("{at}.labels"), &template["metadata"]["labels"]);
    errors.append(&mut found.errors);
    let spec = &template["spec"];
    errors.extend(pod::validate_spec(spec, &format!("{at}.spec")));
    let policy = &spec["restartPolicy"];
    if errors.iter().all(|error| !error.field.ends_with(".restartPolicy")) && policy != "Always" {
        let field = format!("{at}.spec.restartPolicy");
        errors.push(FieldError::not_supported(field, policy, &["Always"]));
    }
    errors
}

/// A strategy as Go's internal type shows it.
#[derive(Serialize)]
struct Strategy<'a> {
    #[serde(rename = "Type")]
    kind: &'a Value,
    #[serde(rename = "RollingUpdate")]
    rolling: Option<Rolling<'a>>,
}

#[derive(Serialize)]
struct Rolling<'a> {
    #[serde(rename = "MaxUnavailable")]
    most_missing: &'a Value,
    #[serde(rename = "MaxSurge")]
    most_extra: &'a Value,
}

fn strategy(strategy: &Value) -> Vec<FieldError> {
    let at = "spec.strategy";
    let rolling = &strategy["rollingUpdate"];
    let is_none = |field: &str| rolling[field] == 0 || rolling[field] == "0%";
    match strategy["type"].as_str() {
        Some("Recreate") if rolling.is_object() => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            vec![FieldError::forbidden(format!("{at}.rollingUpdate"), why)]
        }
        Some("Recreate") => Vec::new(),
        Some("RollingUpdate") if is_none("maxSurge") && is_none("maxUnavailable") => {
            let field = format!("{at}.rollingUpdate.maxUnavailable");
            let why = "may not be 0 when `maxSurge` is 0";
            vec![FieldError::invalid(field, &rolling["maxUnavailable"], why)]
        }
        Some("RollingUpdate") => {
            let found = &mut Findings::default();
            for field in ["maxUnavailable", "maxSurge"] {
                found.amount(&format!("{at}.rollingUpdate.{field}"), &rolling[field]);
            }
            std::mem::take(&mut found.errors)
        }
        _ => {
            let told = Strategy {
                kind: &strategy["type"],
                rolling: rolling.is_object().then(|| Rolling {
                    most_missing: &rolling["maxUnavailable"],
                    most_extra: &rolling["maxSurge"],
                }),
            };
            vec![FieldError::not_supported(at, &told, &["Recreate", "RollingUpdate"])]
        }
    }
}

fn not_negative(spec: &Value, field: &str) -> Vec<FieldError> {
    let value = &spec[field];
    let is_wrong = value.as_i64().is_some_and(|value| value < 0);
    is_wrong
        .then(|| FieldError::invalid(format!("spec.{field}"), value, NOT_NEGATIVE))
        .into_iter()
        .collect()
}

/// Who pods belong to is settled when a Deployment is made.
pub(super) fn same_selector(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["spec"]["selector"], &new["spec"]["selector"]);
    match was == is {
        true => Vec::new(),
        false => vec![FieldError::invalid("spec.selector", is, "field is immutable")],
    }
}

pub(super) fn default_policy(object: &mut Value) {
    let spec = &mut object["spec"];
    for side in ["ingress", "egress"] {
        for rule in items_mut(spec, side) {
            for port in items_mut(rule, "ports") {
                set_default(port, "protocol", json!("TCP"));
            }
        }
    }
    // An egress section says by being there that the policy is about egress too.
    let has_egress = items(spec, "egress").next().is_some();
    let kinds: &[&str] = if has_egress {
        &["Ingress", "Egress"]
    } else {
        &["Ingress"]
    };
    set_default(spec, "policyTypes", json!(kinds));
}

pub(super) fn policy(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let found = &mut Findings::default();
    found.selector("spec.podSelector", &spec["podSelector"]);
    for (side, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in items(spec, side).enumerate() {
            let at = format!("spec.{side}[{i}]");
            for (j, port) in items(rule, "ports").enumerate() {
                policy_port(found, &format!("{at}.ports[{j}]"), port);
            }
            for (j, peer) in items(rule, peers).enumerate() {
                policy_peer(found, &format!("{at}.{peers}[{j}]"), peer);
            }
        }
    }
    for (i, kind) in items(spec, "policyTypes").enumerate() {
        found.one_of(format!("spec.policyTypes[{i}]"), kind, &["Ingress", "Egress"]);
    }
    std::mem::take(&mut found.errors)
}

fn policy_port(found: &mut Findings, at: &str, port: &Value) {
    found.one_of(format!("{at}.protocol"), &port["protocol"], &["TCP", "UDP", "SCTP"]);
    let (first, last) = (&port["port"], &port["endPort"]);
    if !first.is_null() {
        found.port_or_name(format!("{at}.port"), first);
    }
    if last.is_null() {
        return;
    }
    let at = format!("{at}.endPort");
    match first.as_i64() {
        None if first.is_null() => found.invalid(at, last, "may not be specified when `port` is not specified"),
        None => found.invalid(at, last, "may not be specified when `port` is non-numeric"),
        Some(first) if last.as_i64().is_some_and(|last| last < first) => {
            found.invalid(at, last, "must be greater than or equal to `port`");
        }
        Some(_) => found.port(at, last),
    }
}

fn policy_peer(found: &mut Findings, at: &str, peer: &Value) {
    let selects = peer["podSelector"].is_object() || peer["namespaceSelector"].is_object();
    for selector in ["podSelector", "namespaceSelector"] {
        found.selector(&format!("{at}.{selector}"), &peer[selector]);
    }
    let block = &peer["ipBlock"];
    if block.is_object() {
        let field = format!("{at}.ipBlock.cidr");
        if found.needs(&field, &block["cidr"]) {
            found.network(field, &block["cidr"]);
        }
        for (i, except) in items(block, "except").enumerate() {
            found.network(format!("{at}.ipBlock.except[{i}]"), except);
        }
        if selects {
            found.forbidden(at, "may not specify both ipBlock and another peer");
        }
    } else if !selects {
        found.required(at, "must specify a peer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pods_of_a_deployment_must_be_found_again() {
        let pod = json!({"containers": [{"name": "c", "image": "i"}]});
        let mut object = json!({"spec": {"selector": {"matchLabels": {"a": "b"}},
                                         "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}});
        default_deployment(&mut object);
        assert_eq!(told(&deployment(&object)), [""; 0]);
        object["spec"]["template"]["metadata"]["labels"]["a"] = json!("c");
        let lost =
            "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`";
        assert_eq!(told(&deployment(&object)), [lost]);
    }

    #[test]
    fn a_peer_is_one_thing() {
        let judged = |peer: &Value| {
            let mut found = Findings::default();
            policy_peer(&mut found, "p", peer);
            told(&found.errors)
        };
        let both = json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}});
        assert_eq!(
            judged(&both),
            ["p: Forbidden: may not specify both ipBlock and another peer"]
        );
        assert_eq!(judged(&json!({})), ["p: Required value: must specify a peer"]);
    }
}
