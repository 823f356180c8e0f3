//! A DynamoGraphDeploymentScalingAdapter from one version to the other: a service here is a component there.

use serde_json::Value;

use super::rename;

const SERVICE: &str = "serviceName";
const COMPONENT: &str = "componentName";

pub(super) fn to_new(spec: &Value) -> Value {
    renamed(spec, SERVICE, COMPONENT)
}

pub(super) fn to_old(spec: &Value) -> Value {
    renamed(spec, COMPONENT, SERVICE)
}

fn renamed(spec: &Value, from: &str, to: &str) -> Value {
    let mut spec = spec.clone();
    if let Some(Value::Object(reference)) = spec.get_mut("dgdRef") {
        rename(reference, from, to);
    }
    spec
}
