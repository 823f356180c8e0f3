//! DynamoGraphDeployments and their scaling adapters from one version to the other, with nothing lost on the way there and
//! back. Adapters are easy: one field has another name.
//!
//! Each version can say things that the other cannot: a list of services or a map of them, two spellings of one field, the
//! order of components. What an object said is therefore returned as it was said, for as long as it still means the same: a
//! service that would not come back from the other version by itself is kept beside it, in an annotation, and is used again
//! when translating it gives what is there now. A service that was changed in the other version comes back in the usual
//! spelling. Most objects need no annotation.
//!
//! What is there now has been through the API server, which fills in the newer version's defaults whenever it reads one from
//! storage. So two services that differ only in these mean the same, and one that leaves a default to be filled in is kept.
//!
//! Nothing is judged here: what a version may say is admission's matter, so fields that nobody knows go through unchanged.

mod adapter;
mod component;
mod graph;

use grove_api::DynamoGraphDeploymentScalingAdapter;
use grove_api::dynamo::{GROUP, OLD_VERSION, VERSION};
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use graph::{Form, Parts};

/// On an object of `v1beta1`: what it said as `v1alpha1` and would not say by itself again.
pub const KEPT_OLD: &str = "nvidia.com/dgd-v1alpha1";
/// On an object of `v1alpha1`: what it said as `v1beta1` and would not say by itself again.
pub const KEPT_NEW: &str = "nvidia.com/dgd-v1beta1";

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConvertError {
    #[error("cannot convert '{0}' to '{1}': only {GROUP}/{OLD_VERSION} and {GROUP}/{VERSION} are known")]
    Version(String, String),
    #[error("{path}: {message}")]
    Malformed { path: String, message: &'static str },
}

/// What is kept of the other version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// The spec without its services or components, if it would not come back by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<Value>,
    /// Services or components that would not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    items: Vec<Value>,
    /// Of `v1alpha1`: how its services were written.
    #[serde(default, skip_serializing_if = "Form::is_map")]
    form: Form,
    /// Of `v1beta1`: names of the components in their order, where it is not that of the names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    order: Vec<String>,
}

/// The object in another version.
pub fn convert(object: &Value, to: &str) -> Result<Value, ConvertError> {
    let from = object["apiVersion"].as_str().unwrap_or_default();
    let (old, new) = (format!("{GROUP}/{OLD_VERSION}"), format!("{GROUP}/{VERSION}"));
    if from == to && (from == old || from == new) {
        return Ok(object.clone());
    }
    let is_adapter = object["kind"] == *DynamoGraphDeploymentScalingAdapter::kind(&());
    if from == old && to == new {
        return match is_adapter {
            true => Ok(finished(object, to, adapter::to_new(&object["spec"]), [])),
            false => to_new(object, &new),
        };
    }
    if from == new && to == old {
        return match is_adapter {
            true => Ok(finished(object, to, adapter::to_old(&object["spec"]), [])),
            false => to_old(object, &old),
        };
    }
    Err(ConvertError::Version(from.to_owned(), to.to_owned()))
}

fn to_new(object: &Value, version: &str) -> Result<Value, ConvertError> {
    let said = kept(object, KEPT_NEW);
    let parts = Parts::of_old(&object["spec"])?;
    let rest = translated(
        &parts.rest,
        &mut said.rest.into_iter().collect(),
        graph::to_new,
        |said, rest| graph::to_old(said) == *rest,
    );
    let mut components = all_translated(
        parts.items.as_deref(),
        said.items,
        component::to_new,
        |said, service| component::means_the_same(&component::to_old(said), service),
    );
    let filled: Option<Vec<Value>> = components
        .as_deref()
        .map(|all| all.iter().map(component::filled).collect());
    let keep = Kept {
        rest: (graph::to_old(&rest) != parts.rest).then_some(parts.rest),
        items: lost(parts.items, filled.as_deref(), |made, service| {
            component::to_old(made) == *service
        }),
        form: parts.form,
        order: Vec::new(),
    };
    graph::put_in_order(components.as_deref_mut().unwrap_or_default(), &said.order);
    let spec = graph::new_spec(rest, components);
    Ok(finished(
        object,
        version,
        spec,
        [(KEPT_NEW, None), (KEPT_OLD, written(&keep))],
    ))
}

fn to_old(object: &Value, version: &str) -> Result<Value, ConvertError> {
    let said = kept(object, KEPT_OLD);
    let parts = Parts::of_new(&object["spec"])?;
    let rest = translated(
        &parts.rest,
        &mut said.rest.into_iter().collect(),
        graph::to_old,
        |said, rest| graph::to_new(said) == *rest,
    );
    let services = all_translated(
        parts.items.as_deref(),
        said.items,
        component::to_old,
        |said, component| component::means_the_same(&component::to_new(said), component),
    );
    let form = graph::form_for(said.form, services.as_deref());
    let keep = Kept {
        rest: (graph::to_new(&rest) != parts.rest).then_some(parts.rest),
        order: graph::order_lost(form, parts.items.as_deref()),
        items: lost(parts.items, services.as_deref(), |made, component| {
            component::means_the_same(&component::to_new(made), component)
        }),
        form: Form::Map,
    };
    let spec = graph::old_spec(rest, services, form);
    Ok(finished(
        object,
        version,
        spec,
        [(KEPT_OLD, None), (KEPT_NEW, written(&keep))],
    ))
}

/// What was kept; nothing where somebody else wrote the annotation.
fn kept(object: &Value, annotation: &str) -> Kept {
    let text = object["metadata"]["annotations"][annotation].as_str();
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn written(keep: &Kept) -> Option<Value> {
    (*keep != Kept::default()).then(|| json!(json!(keep).to_string()))
}

/// The other version of `source`: one of `said` that means it, or else what `there` makes of it.
fn translated(
    source: &Value,
    said: &mut Vec<Value>,
    there: impl Fn(&Value) -> Value,
    means: impl Fn(&Value, &Value) -> bool,
) -> Value {
    match said.iter().position(|said| means(said, source)) {
        Some(index) => said.remove(index),
        None => there(source),
    }
}

fn all_translated(
    sources: Option<&[Value]>,
    mut said: Vec<Value>,
    there: impl Fn(&Value) -> Value,
    means: impl Fn(&Value, &Value) -> bool,
) -> Option<Vec<Value>> {
    let sources = sources?.iter();
    Some(
        sources
            .map(|source| translated(source, &mut said, &there, &means))
            .collect(),
    )
}

/// The items that do not come back from their translation by themselves, and those with the same translation: which of
/// them comes from which could not be told otherwise.
fn lost(
    sources: Option<Vec<Value>>,
    made: Option<&[Value]>,
    comes_back: impl Fn(&Value, &Value) -> bool,
) -> Vec<Value> {
    let pairs: Vec<(Value, &Value)> = sources.into_iter().flatten().zip(made.unwrap_or_default()).collect();
    let differ = pairs.iter().filter(|(source, made)| !comes_back(made, source));
    let differ: Vec<&Value> = differ.map(|(_, made)| *made).collect();
    let pairs = pairs.into_iter().filter(|(_, made)| differ.contains(made));
    pairs.map(|(source, _)| source).collect()
}

/// The object with another version, spec and bookkeeping.
fn finished<const N: usize>(
    object: &Value,
    version: &str,
    spec: Value,
    annotations: [(&str, Option<Value>); N],
) -> Value {
    let mut out = object.as_object().cloned().unwrap_or_default();
    out.insert("apiVersion".to_owned(), json!(version));
    if !spec.is_null() {
        out.insert("spec".to_owned(), spec);
    }
    if let Some(Value::Object(status)) = out.get_mut("status") {
        graph::rename_components_of_status(status, version);
    }
    let metadata = out.entry("metadata").or_insert_with(|| json!({}));
    for (name, value) in annotations {
        annotate(metadata, name, value);
    }
    Value::Object(out)
}

fn annotate(metadata: &mut Value, name: &str, value: Option<Value>) {
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => {
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(name.to_owned(), value);
            }
        }
        None => {
            let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
            let removed = annotations.is_some_and(|all| all.remove(name).is_some() && all.is_empty());
            if removed {
                metadata.remove("annotations");
            }
        }
    }
}

/// Moves a field, unless one of the new name is there already.
fn rename(fields: &mut Map<String, Value>, from: &str, to: &str) {
    if !fields.contains_key(to)
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}
