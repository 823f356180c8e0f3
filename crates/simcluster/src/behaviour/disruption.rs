//! Keeps the status of PodDisruptionBudgets: how many of their pods may be evicted now.
//!
//! The expected number of pods is the number there is. The real controller asks the pods' owners how many they want
//! where a budget is given in percent or as `maxUnavailable`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Actor, Writes};
use crate::rules::kinds::{condition, set_condition};
use crate::rules::metadata;
use crate::selector::LabelSelector;
use crate::store::{Event, EventKind, Key, ResourceName, decode};

/// A budget and its pods.
#[derive(Debug)]
struct Budget {
    spec: Value,
    selector: LabelSelector,
    /// Pods by name, and whether each is healthy.
    pods: BTreeMap<String, bool>,
}

fn budgets() -> ResourceName {
    ResourceName::new("policy", "poddisruptionbudgets")
}

fn pods() -> ResourceName {
    ResourceName::new("", "pods")
}

pub(super) fn wants(resource: &ResourceName, _: EventKind) -> bool {
    resource.is("", "pods") || resource.is("policy", "poddisruptionbudgets")
}

pub(super) async fn run(actor: Actor, mut writes: Writes) {
    let (budgets, pods) = (budgets(), pods());
    let mut known: BTreeMap<Key, Budget> = BTreeMap::new();
    while let Some((resource, event)) = writes.recv().await {
        if resource == budgets {
            see_budget(&actor, &mut known, &event);
        } else if resource == pods {
            see_pod(&actor, &mut known, &event);
        }
    }
}

fn see_budget(actor: &Actor, known: &mut BTreeMap<Key, Budget>, event: &Event) {
    if event.kind == EventKind::Deleted {
        known.remove(&*event.key);
        return;
    }
    let object = decode(&event.object);
    let spec = object["spec"].clone();
    if known.get(&*event.key).is_some_and(|budget| budget.spec == spec) {
        return;
    }
    // A budget without a selector covers nothing; one with an empty selector, everything.
    let selector = LabelSelector::from_object(&spec["selector"]);
    let listed = actor.server.store.list(&pods(), Some(&event.key.namespace)).items;
    let covered = listed.iter().map(|(key, entry)| (key, entry.value()));
    let covered = covered.filter(|(_, pod)| spec["selector"].is_object() && selector.matches(pod));
    let pods = covered.map(|(key, pod)| (key.name.clone(), is_healthy(&pod))).collect();
    let budget = Budget { spec, selector, pods };
    publish(actor, &event.key, &budget);
    known.insert((*event.key).clone(), budget);
}

fn see_pod(actor: &Actor, known: &mut BTreeMap<Key, Budget>, event: &Event) {
    let first = Key::new(event.key.namespace.clone(), "");
    let mut pod = None;
    for (key, budget) in known
        .range_mut(first..)
        .take_while(|(key, _)| key.namespace == event.key.namespace)
    {
        let pod = pod.get_or_insert_with(|| decode(&event.object));
        let covered =
            event.kind != EventKind::Deleted && budget.spec["selector"].is_object() && budget.selector.matches(pod);
        let before = budget.pods.get(&event.key.name).copied();
        let after = covered.then(|| is_healthy(pod));
        if before != after {
            match after {
                Some(healthy) => budget.pods.insert(event.key.name.clone(), healthy),
                None => budget.pods.remove(&event.key.name),
            };
            publish(actor, key, budget);
        }
    }
}

fn is_healthy(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True");
    ready && !metadata::is_terminating(pod)
}

fn publish(actor: &Actor, key: &Key, budget: &Budget) {
    let now = actor.server.clock.now();
    actor.modify(&budgets(), key, |object| {
        let before = object["status"].clone();
        object["status"] = status(object, &budget.pods, now);
        object["status"] != before
    });
}

/// The status of a budget with these pods. A pod whose eviction was granted counts as lost until it is seen going.
fn status(budget: &Value, pods: &BTreeMap<String, bool>, now: Timestamp) -> Value {
    let granted = budget["status"]["disruptedPods"].as_object().into_iter().flatten();
    let granted: serde_json::Map<String, Value> = granted
        .filter(|(name, _)| pods.get(*name) == Some(&true))
        .map(|(name, at)| (name.clone(), at.clone()))
        .collect();
    let expected = pods.len() as i64;
    let healthy = pods
        .iter()
        .filter(|(name, healthy)| **healthy && !granted.contains_key(*name))
        .count() as i64;
    let spec = &budget["spec"];
    let desired = match amount(&spec["maxUnavailable"], expected) {
        Some(unavailable) => (expected - unavailable).max(0),
        None => amount(&spec["minAvailable"], expected).unwrap_or(0),
    };
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let mut conditions = budget["status"]["conditions"].clone();
    let reason = if allowed > 0 {
        "SufficientPods"
    } else {
        "InsufficientPods"
    };
    let mut allowance = condition("DisruptionAllowed", allowed > 0, reason, "", now);
    allowance["observedGeneration"] = budget["metadata"]["generation"].clone();
    set_condition(&mut conditions, allowance);
    let mut status = json!({
        "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected, "disruptionsAllowed": allowed,
        "observedGeneration": budget["metadata"]["generation"], "conditions": conditions,
    });
    if !granted.is_empty() {
        status["disruptedPods"] = Value::Object(granted);
    }
    status
}

/// A number of pods, given as such or in percent of all, rounded up.
fn amount(value: &Value, all: i64) -> Option<i64> {
    match value {
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let share = percent.checked_mul(all)?;
            Some(share.div_euclid(100) + i64::from(share.rem_euclid(100) != 0))
        }
        number => number.as_i64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(spec: Value, healthy: usize, all: usize) -> i64 {
        let pods = (0..all).map(|i| (i.to_string(), i < healthy)).collect();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        status(&json!({"metadata": {"generation": 1}, "spec": spec}), &pods, now)["disruptionsAllowed"]
            .as_i64()
            .unwrap()
    }

    #[test]
    fn a_budget_allows_what_it_can_spare() {
        assert_eq!(allowed(json!({"minAvailable": 2}), 3, 3), 1);
        assert_eq!(allowed(json!({"minAvailable": 2}), 1, 3), 0);
        assert_eq!(allowed(json!({"minAvailable": "50%"}), 3, 3), 1);
        assert_eq!(allowed(json!({"maxUnavailable": 1}), 3, 3), 1);
        assert_eq!(allowed(json!({"maxUnavailable": 1}), 2, 3), 0);
        assert_eq!(allowed(json!({"maxUnavailable": "34%"}), 3, 3), 2);
        assert_eq!(allowed(json!({"minAvailable": 0}), 0, 0), 0);
    }
}
