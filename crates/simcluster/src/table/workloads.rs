//! The cells of Deployments and NetworkPolicies.

use jiff::Timestamp;
use serde_json::Value;

use super::builtin::{age, array, int, name, or_none, text};
use crate::selector::LabelSelector;

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let listed = |field: &str| {
        let containers = array(object, "/spec/template/spec/containers");
        let texts: Vec<&str> = containers.map(|container| text(container, field)).collect();
        Value::from(texts.join(","))
    };
    let count = |field: &str| int(object, field);
    let ready = format!("{}/{}", count("/status/readyReplicas"), count("/spec/replicas"));
    vec![
        name(object),
        ready.into(),
        count("/status/updatedReplicas").into(),
        count("/status/availableReplicas").into(),
        age(object, now),
        listed("/name"),
        listed("/image"),
        selector(&object["spec"]["selector"]),
    ]
}

pub(super) fn policy(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), selector(&object["spec"]["podSelector"]), age(object, now)]
}

fn selector(selector: &Value) -> Value {
    or_none(&LabelSelector::from_object(selector).to_string())
}
