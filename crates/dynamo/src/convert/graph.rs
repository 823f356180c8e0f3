//! The spec of a graph apart from its services: how they are written, and the few fields that have another name.

use grove_api::dynamo::{GROUP, VERSION};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{ConvertError, rename};

/// How the services of `v1alpha1` are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Form {
    /// By name.
    #[default]
    Map,
    /// One after the other, each with its name.
    List,
}

impl Form {
    pub(super) fn is_map(&self) -> bool {
        *self == Self::Map
    }
}

/// A spec taken apart. Services are a list here, each with its name.
#[derive(Debug)]
pub(super) struct Parts {
    /// Everything else; null where there is no spec.
    pub(super) rest: Value,
    pub(super) items: Option<Vec<Value>>,
    pub(super) form: Form,
}

const SERVICES: &str = "services";
const COMPONENTS: &str = "components";

impl Parts {
    pub(super) fn of_old(spec: &Value) -> Result<Self, ConvertError> {
        let (rest, services) = split(spec, SERVICES)?;
        let (items, form) = match services {
            None => (None, Form::Map),
            Some(Value::Array(items)) => (Some(checked(items, SERVICES)?), Form::List),
            Some(Value::Object(services)) => (Some(named(services)?), Form::Map),
            Some(_) => {
                return Err(malformed(
                    "spec.services",
                    "must be a list of services with names, or a map of services by name",
                ));
            }
        };
        Ok(Self { rest, items, form })
    }

    pub(super) fn of_new(spec: &Value) -> Result<Self, ConvertError> {
        let (rest, components) = split(spec, COMPONENTS)?;
        let items = match components {
            None => None,
            Some(Value::Array(items)) => Some(checked(items, COMPONENTS)?),
            Some(_) => return Err(malformed("spec.components", "must be a list")),
        };
        Ok(Self {
            rest,
            items,
            form: Form::List,
        })
    }
}

fn malformed(path: impl Into<String>, message: &'static str) -> ConvertError {
    ConvertError::Malformed {
        path: path.into(),
        message,
    }
}

fn split(spec: &Value, field: &str) -> Result<(Value, Option<Value>), ConvertError> {
    match spec {
        Value::Null => Ok((Value::Null, None)),
        Value::Object(spec) => {
            let mut rest = spec.clone();
            let items = rest.remove(field);
            Ok((Value::Object(rest), items))
        }
        _ => Err(malformed("spec", "must be an object")),
    }
}

fn checked(items: Vec<Value>, field: &str) -> Result<Vec<Value>, ConvertError> {
    match items.iter().position(|item| !item.is_object()) {
        Some(index) => Err(malformed(format!("spec.{field}[{index}]"), "must be an object")),
        None => Ok(items),
    }
}

fn named(services: Map<String, Value>) -> Result<Vec<Value>, ConvertError> {
    let service = |(name, service): (String, Value)| match service {
        Value::Object(mut fields) if !fields.contains_key("name") => {
            fields.insert("name".to_owned(), json!(name));
            Ok(Value::Object(fields))
        }
        Value::Object(_) => Err(malformed(
            format!("spec.services.{name}.name"),
            "the key of a service is its name; remove the field",
        )),
        _ => Err(malformed(format!("spec.services.{name}"), "must be an object")),
    };
    let mut services: Vec<(String, Value)> = services.into_iter().collect();
    services.sort_by(|(one, _), (other, _)| one.cmp(other));
    services.into_iter().map(service).collect()
}

/// The spec of `v1beta1`.
pub(super) fn new_spec(rest: Value, components: Option<Vec<Value>>) -> Value {
    with(rest, COMPONENTS, components.map(Value::Array))
}

/// The spec of `v1alpha1`.
pub(super) fn old_spec(rest: Value, services: Option<Vec<Value>>, form: Form) -> Value {
    let services = services.map(|services| match form {
        Form::List => Value::Array(services),
        Form::Map => Value::Object(services.into_iter().filter_map(by_name).collect()),
    });
    with(rest, SERVICES, services)
}

fn by_name(mut service: Value) -> Option<(String, Value)> {
    let name = service.as_object_mut()?.remove("name")?;
    Some((name.as_str()?.to_owned(), service))
}

fn with(mut rest: Value, field: &str, items: Option<Value>) -> Value {
    if let (Some(spec), Some(items)) = (rest.as_object_mut(), items) {
        spec.insert(field.to_owned(), items);
    }
    rest
}

/// The form in which services can be written: a map takes only services with names of their own.
pub(super) fn form_for(said: Form, services: Option<&[Value]>) -> Form {
    let names: Option<Vec<&str>> = services
        .unwrap_or_default()
        .iter()
        .map(|one| one["name"].as_str())
        .collect();
    match names {
        Some(mut names) => {
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            if names.len() == all { said } else { Form::List }
        }
        None => Form::List,
    }
}

/// The names of components in their order, if a map would lose it.
pub(super) fn order_lost(form: Form, components: Option<&[Value]>) -> Vec<String> {
    let names = components
        .unwrap_or_default()
        .iter()
        .filter_map(|one| one["name"].as_str());
    let names: Vec<String> = names.map(str::to_owned).collect();
    match form {
        Form::Map if !names.is_sorted() => names,
        _ => Vec::new(),
    }
}

/// Puts components into an order by name; those that it does not name come last, as they are.
pub(super) fn put_in_order(components: &mut [Value], order: &[String]) {
    if !order.is_empty() {
        let place = |component: &Value| order.iter().position(|name| component["name"] == **name);
        components.sort_by_key(|component| place(component).unwrap_or(order.len()));
    }
}

/// Everything of a spec but its services, as `v1beta1` has it.
pub(super) fn to_new(rest: &Value) -> Value {
    let Value::Object(rest) = rest else { return rest.clone() };
    let mut out = rest.clone();
    rename(&mut out, "envs", "env");
    if let Some(Value::Object(constraint)) = out.get_mut("topologyConstraint") {
        for spelling in ["topologyProfile", "topologyName"] {
            rename(constraint, spelling, "clusterTopologyName");
        }
    }
    Value::Object(out)
}

/// Everything of a spec but its components, as `v1alpha1` has it.
pub(super) fn to_old(rest: &Value) -> Value {
    let Value::Object(rest) = rest else { return rest.clone() };
    let mut out = rest.clone();
    rename(&mut out, "env", "envs");
    if let Some(Value::Object(constraint)) = out.get_mut("topologyConstraint") {
        rename(constraint, "clusterTopologyName", "topologyProfile");
    }
    Value::Object(out)
}

pub(super) fn rename_components_of_status(status: &mut Map<String, Value>, version: &str) {
    if version == format!("{GROUP}/{VERSION}") {
        rename(status, SERVICES, COMPONENTS);
    } else {
        rename(status, COMPONENTS, SERVICES);
    }
}
