//! ResourceQuotas: what an object uses, which quotas it counts for, and whether there is enough left.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::amounts::{self, Amounts};
use super::kinds::items;
use super::metadata;
use super::quantity::Quantity;
use crate::store::ResourceName;

/// What every container must say, where a quota counts it.
const COMPUTE: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];
/// Kinds that are also counted under their bare name.
const COUNTED: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

fn one() -> Quantity {
    Quantity::parse("1").unwrap_or_default()
}

/// `count/pods`, `count/widgets.demo.test`.
fn count_name(resource: &ResourceName) -> String {
    format!("count/{resource}")
}

/// What an object of a kind uses.
pub(crate) fn usage(resource: &ResourceName, object: &Value) -> Amounts {
    let mut usage = Amounts::from([(count_name(resource), one())]);
    let is_core = resource.group.is_empty();
    if is_core && &*resource.plural == "pods" {
        if !is_over(object) {
            usage.insert("pods".to_owned(), one());
            usage.extend(compute(
                &amounts::of_pod(object, "requests"),
                &amounts::of_pod(object, "limits"),
            ));
        }
    } else if is_core && COUNTED.contains(&&*resource.plural) {
        usage.insert(resource.plural.to_string(), one());
    }
    if is_core && &*resource.plural == "services" {
        let ports = items(&object["spec"], "ports").count();
        let ports = Quantity::parse(&ports.to_string()).unwrap_or_default();
        let kind = object["spec"]["type"].as_str().unwrap_or_default();
        if matches!(kind, "NodePort" | "LoadBalancer") {
            usage.insert("services.nodeports".to_owned(), ports);
        }
        if kind == "LoadBalancer" {
            usage.insert("services.loadbalancers".to_owned(), one());
        }
    }
    usage
}

/// A pod that has ended takes nothing.
fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"))
}

/// Requests and limits under the names that quotas know them by.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::new();
    for (name, amount) in requests {
        usage.insert(format!("requests.{name}"), *amount);
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(name.clone(), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), *amount);
        }
    }
    usage
}

/// Whether a quota counts an object, by its scopes.
pub(crate) fn covers(quota: &Value, resource: &ResourceName, object: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = items(spec, "scopes").map(|scope| json!({"scopeName": scope, "operator": "Exists"}));
    let expressions = items(&spec["scopeSelector"], "matchExpressions").cloned();
    let is_pod = resource.is("", "pods");
    let mut all = scopes.chain(expressions);
    all.all(|expression| is_pod && in_scope(&expression, object))
}

fn in_scope(expression: &Value, pod: &Value) -> bool {
    let spec = &pod["spec"];
    let ends = spec["activeDeadlineSeconds"].as_i64().is_some_and(|secs| secs >= 0);
    let is_best_effort = pod["status"]["qosClass"] == "BestEffort"
        || amounts::of_pod(pod, "requests").is_empty() && amounts::of_pod(pod, "limits").is_empty();
    match expression["scopeName"].as_str() {
        Some("Terminating") => ends,
        Some("NotTerminating") => !ends,
        Some("BestEffort") => is_best_effort,
        Some("NotBestEffort") => !is_best_effort,
        Some("PriorityClass") => {
            let class = spec["priorityClassName"].as_str().unwrap_or_default();
            let named = items(expression, "values").any(|value| value == class);
            match expression["operator"].as_str() {
                Some("In") => named,
                Some("NotIn") => !named,
                Some("DoesNotExist") => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        _ => false,
    }
}

/// What is wrong with an object that a quota counts, and how much of the quota is used with it; `None` if it does not
/// matter to the quota. `before` is what it used so far.
pub(crate) fn charge(
    quota: &Value,
    resource: &ResourceName,
    object: &Value,
    before: Option<&Value>,
) -> Result<Option<Amounts>, String> {
    if !covers(quota, resource, object) {
        return Ok(None);
    }
    let name = metadata::text(quota, "name");
    let (hard, used) = (
        amounts::read(&quota["status"]["hard"]),
        amounts::read(&quota["status"]["used"]),
    );
    if resource.is("", "pods") && before.is_none() {
        check_said(&hard, object).map_err(|why| format!("failed quota: {name}: {why}"))?;
    }
    let mut wanted = usage(resource, object);
    if let Some(before) = before.filter(|before| covers(quota, resource, before)) {
        for (name, amount) in usage(resource, before) {
            if let Some(wanted) = wanted.get_mut(&name) {
                *wanted = wanted.minus(amount).max(Quantity::default());
            }
        }
    }
    wanted.retain(|name, amount| hard.contains_key(name) && amount.millis() != 0);
    if wanted.is_empty() {
        return Ok(None);
    }
    let mut total = used.clone();
    amounts::add(&mut total, &wanted);
    let exceeded = wanted
        .keys()
        .filter(|name| total[*name].millis() > hard[*name].millis());
    let exceeded: Vec<&String> = exceeded.collect();
    if exceeded.is_empty() {
        return Ok(Some(total));
    }
    let told = |amounts: &Amounts| amounts::told(amounts, exceeded.iter().copied());
    let (requested, used, limited) = (told(&wanted), told(&used), told(&hard));
    Err(format!(
        "exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}"
    ))
}

/// Every container says how much it wants of what a quota counts.
fn check_said(hard: &Amounts, pod: &Value) -> Result<(), String> {
    let required: Vec<&str> = COMPUTE.into_iter().filter(|name| hard.contains_key(*name)).collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let spec = &pod["spec"];
    for container in items(spec, "containers").chain(items(spec, "initContainers")) {
        let of = |field: &str| amounts::read(&container["resources"][field]);
        let said = compute(&of("requests"), &of("limits"));
        for name in required.iter().copied().filter(|name| !said.contains_key(*name)) {
            let container = container["name"].as_str().unwrap_or_default();
            missing.entry(name).or_default().insert(container);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let told = missing.iter().map(|(name, containers)| {
        let containers: Vec<&str> = containers.iter().copied().collect();
        format!("{name} for: {}", containers.join(","))
    });
    Err(format!("must specify {}", told.collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> ResourceName {
        ResourceName::new("", "pods")
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    #[test]
    fn a_quota_is_used_up() {
        let q = quota(
            json!({"pods": "2", "requests.cpu": "1"}),
            json!({"pods": "1", "requests.cpu": "600m"}),
        );
        let small = pod(json!({"requests": {"cpu": "400m"}}));
        let used = charge(&q, &pods(), &small, None).unwrap().unwrap();
        assert_eq!(amounts::told(&used, used.keys()), "pods=2,requests.cpu=1");
        let large = pod(json!({"requests": {"cpu": "500m"}}));
        assert_eq!(
            charge(&q, &pods(), &large, None).unwrap_err(),
            "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
        );
        assert_eq!(
            charge(&q, &pods(), &pod(json!({})), None).unwrap_err(),
            "failed quota: q: must specify requests.cpu for: c"
        );
        assert_eq!(
            charge(&q, &pods(), &large, Some(&large)),
            Ok(None),
            "no more than before"
        );
    }

    #[test]
    fn scopes_say_what_is_counted() {
        let mut q = quota(json!({"pods": "0"}), json!({"pods": "0"}));
        q["spec"]["scopes"] = json!(["BestEffort"]);
        let some = pod(json!({"requests": {"cpu": "1"}}));
        assert!(covers(&q, &pods(), &pod(json!({}))) && !covers(&q, &pods(), &some));
        q["spec"]["scopes"] = json!(["NotBestEffort", "NotTerminating"]);
        assert!(!covers(&q, &pods(), &pod(json!({}))) && covers(&q, &pods(), &some));
        assert!(!covers(&q, &ResourceName::new("", "configmaps"), &json!({})));
    }

    #[test]
    fn objects_are_counted_by_kind() {
        let of = |group: &str, plural: &str| {
            let usage = usage(&ResourceName::new(group, plural), &json!({}));
            amounts::told(&usage, usage.keys())
        };
        assert_eq!(of("demo.test", "widgets"), "count/widgets.demo.test=1");
        assert_eq!(of("", "configmaps"), "configmaps=1,count/configmaps=1");
        assert_eq!(of("demo.test", "configmaps"), "count/configmaps.demo.test=1");
    }
}
