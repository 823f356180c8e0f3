//! The pod template of a component, as it was written, in the types of Kubernetes.

use grove_api::dynamo::Component;
use grove_api::write_quantities_as_text;
use k8s_openapi::api::core::v1::{EnvVar, PodTemplateSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Untranslatable;

/// The pod template of a component. A field that Kubernetes does not know is an error: it would be ignored otherwise.
pub fn read(component: &Component, path: &str) -> Result<PodTemplateSpec, Untranslatable> {
    match &component.pod_template {
        None => Ok(PodTemplateSpec::default()),
        Some(written) => typed(written, &format!("{path}.podTemplate")),
    }
}

/// The environment of a graph.
pub(super) fn read_env(env: &[Value]) -> Result<Vec<EnvVar>, Untranslatable> {
    let vars = env.iter().enumerate();
    vars.map(|(index, var)| typed(var, &format!("spec.env[{index}]")))
        .collect()
}

fn typed<T: Serialize + DeserializeOwned>(written: &Value, path: &str) -> Result<T, Untranslatable> {
    let mut written = written.clone();
    write_quantities_as_text(&mut written);
    // PodSpec demands a list of containers; a component may leave its container to the defaults.
    if let Some(Value::Object(spec)) = written.get_mut("spec") {
        spec.entry("containers").or_insert_with(|| Value::Array(Vec::new()));
    }
    let read: Result<T, _> = serde_path_to_error::deserialize(&written);
    let read =
        read.map_err(|error| Untranslatable::new(format!("{path}.{}", error.path()), error.inner().to_string()))?;
    let back = serde_json::to_value(&read).unwrap_or_default();
    match unknown(&written, &back, path) {
        Some(path) => Err(Untranslatable::new(path, "unknown field; correct or remove it")),
        None => Ok(read),
    }
}

/// The first field that was written and not read.
fn unknown(written: &Value, read: &Value, path: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => written.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match read.get(name) {
                Some(read) => unknown(value, read, &path),
                None => (!value.is_null()).then_some(path),
            }
        }),
        (Value::Array(written), Value::Array(read)) => {
            let items = written.iter().zip(read).enumerate();
            items
                .into_iter()
                .find_map(|(index, (written, read))| unknown(written, read, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}
