//! What oracles read of objects.

use grove_api::labels;
use serde_json::Value;

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

pub(super) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// UID of the object that controls this one.
pub(super) fn controller(object: &Value) -> Option<&str> {
    let owners = items(object, "/metadata/ownerReferences").iter();
    let mut controllers = owners.filter(|owner| owner["controller"] == true);
    controllers.next().and_then(|owner| owner["uid"].as_str())
}

pub(super) fn is_leaving(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a pod runs or may still run.
pub(super) fn is_live(pod: &Value) -> bool {
    !is_leaving(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

pub(super) fn is_ready(pod: &Value) -> bool {
    is_live(pod) && condition(pod, "Ready") == "True"
}

pub(super) fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

pub(super) fn is_gated(pod: &Value) -> bool {
    let mut gates = items(pod, "/spec/schedulingGates").iter();
    gates.any(|gate| gate["name"] == labels::SCHEDULING_GATE)
}

/// Status of a condition; empty if there is none.
pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> &'a str {
    let mut conditions = items(object, "/status/conditions").iter();
    let found = conditions.find(|condition| condition["type"] == type_);
    found
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
}
