//! What Deployments and NetworkPolicies must look like. Nothing is made of them: they are there to be installed.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Value, json};

use super::kinds::{items, items_mut, set_default};
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
    set_default(strategy, "type", json!("RollingUpdate"));
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
    errors.extend(template(&spec["template"], &spec["selector"], &selector));
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
fn template(template: &Value, told: &Value, selector: &LabelSelector) -> Vec<FieldError> {
    let at = "spec.template";
    let mut errors = Vec::new();
    if told.is_null() || (!selector.is_empty() && !selector.matches(template)) {
        let why = "`selector` does not match template `labels`";
        let labels = &template["metadata"]["labels"];
        errors.push(FieldError::invalid(format!("{at}.metadata.labels"), labels, why));
    }
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
        Some("RollingUpdate") => Vec::new(),
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
    let mut errors = Vec::new();
    for (side, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in items(spec, side).enumerate() {
            let at = format!("spec.{side}[{i}]");
            let ports = items(rule, "ports").enumerate();
            errors.extend(ports.flat_map(|(j, port)| policy_port(&format!("{at}.ports[{j}]"), port)));
            let peers = items(rule, peers)
                .enumerate()
                .map(|(j, peer)| (format!("{at}.{peers}[{j}]"), peer));
            errors.extend(peers.flat_map(|(at, peer)| policy_peer(&at, peer)));
        }
    }
    let known = ["Ingress", "Egress"];
    for (i, kind) in items(spec, "policyTypes").enumerate() {
        if !known.iter().any(|known| kind == known) {
            errors.push(FieldError::not_supported(
                format!("spec.policyTypes[{i}]"),
                kind,
                &known,
            ));
        }
    }
    errors
}

fn policy_port(at: &str, port: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let known = ["TCP", "UDP", "SCTP"];
    if !known.iter().any(|known| port["protocol"] == *known) {
        let field = format!("{at}.protocol");
        errors.push(FieldError::not_supported(field, &port["protocol"], &known));
    }
    let number = &port["port"];
    if number.as_i64().is_some_and(|number| !(1..=65535).contains(&number)) {
        let why = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{at}.port"), number, why));
    }
    errors
}

fn policy_peer(at: &str, peer: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let selects = peer["podSelector"].is_object() || peer["namespaceSelector"].is_object();
    let block = &peer["ipBlock"];
    if block.is_object() {
        let cidr = block["cidr"].as_str().unwrap_or_default();
        if !is_cidr(cidr) {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(format!("{at}.ipBlock.cidr"), cidr, why));
        }
        if selects {
            errors.push(FieldError::forbidden(
                at,
                "may not specify both ipBlock and another peer",
            ));
        }
    } else if !selects {
        errors.push(FieldError::required(at, "must specify a peer"));
    }
    errors
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
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
        let both = json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}});
        assert_eq!(
            told(&policy_peer("p", &both)),
            ["p: Forbidden: may not specify both ipBlock and another peer"]
        );
        assert_eq!(
            told(&policy_peer("p", &json!({}))),
            ["p: Required value: must specify a peer"]
        );
        assert!(is_cidr("2001:db8::/64") && !is_cidr("10.0.0.0/33") && !is_cidr("x"));
    }
}
