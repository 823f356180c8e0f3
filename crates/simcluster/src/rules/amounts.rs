//! Amounts of resources by name, and what pods ask for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::kinds::items;
use super::quantity::Quantity;

/// Amounts by the name of the resource.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Reads a map of quantities; what is none is left out.
pub(crate) fn read(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, amount)| Some((name.clone(), quantity(amount)?)))
        .collect()
}

/// A quantity is a text or a number.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => None,
    }
}

/// The amounts as objects hold them.
pub(crate) fn write(amounts: &Amounts) -> Value {
    let entries = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), json!(amount.canonical())));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// `cpu=1,pods=2`, as errors tell amounts.
pub(crate) fn told<'a>(amounts: &Amounts, names: impl IntoIterator<Item = &'a String>) -> String {
    let names: BTreeSet<&String> = names.into_iter().collect();
    let told = names.into_iter().filter_map(|name| {
        let amount = amounts.get(name)?;
        Some(format!("{name}={}", amount.canonical()))
    });
    told.collect::<Vec<_>>().join(",")
}

pub(crate) fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total.get(name).map_or(*amount, |known| known.plus(*amount));
        total.insert(name.clone(), sum);
    }
}

fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let most = total.get(name).map_or(*amount, |known| (*known).max(*amount));
        total.insert(name.clone(), most);
    }
}

/// `requests` or `limits` of a pod: what its containers need together, or an init container before them.
///
/// An init container that restarts runs beside all that start after it.
pub(crate) fn of_pod(pod: &Value, field: &str) -> Amounts {
    let spec = &pod["spec"];
    let of = |container: &Value| read(&container["resources"][field]);
    let mut total = Amounts::new();
    for container in items(spec, "containers") {
        add(&mut total, &of(container));
    }
    let (mut beside, mut before) = (Amounts::new(), Amounts::new());
    for container in items(spec, "initContainers") {
        let own = of(container);
        let mut needed = own.clone();
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut beside, &own);
            needed = beside.clone();
        } else {
            add(&mut needed, &beside);
        }
        raise(&mut before, &needed);
    }
    raise(&mut total, &before);
    let overhead = read(&spec["overhead"]);
    match field {
        "requests" => add(&mut total, &overhead),
        // A limit that nobody set is none, however much the pod itself takes.
        _ => {
            let limited: Amounts = overhead
                .into_iter()
                .filter(|(name, _)| total.contains_key(name))
                .collect();
            add(&mut total, &limited);
        }
    }
    total
}

/// Writes the quantities of a map in the form in which Kubernetes stores them.
pub(crate) fn canonical(list: &mut Value) {
    let Some(list) = list.as_object_mut() else { return };
    for amount in list.values_mut() {
        if let Some(read) = quantity(amount) {
            *amount = json!(read.canonical());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_asks_for_its_containers_or_for_what_comes_before_them() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut helper = container("1");
        helper["restartPolicy"] = json!("Always");
        let pod = json!({"spec": {"containers": [container("1"), container("500m")],
                                  "initContainers": [helper, container("4")], "overhead": {"cpu": "100m"}}});
        let amounts = of_pod(&pod, "requests");
        assert_eq!(told(&amounts, amounts.keys()), "cpu=5100m");
        assert!(of_pod(&pod, "limits").is_empty());
    }
}
