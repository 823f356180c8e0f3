//! Keeps the status of ResourceQuotas: how much of each is used.
//!
//! Whoever writes an object is counted at once; this counts again after every change in a namespace that has a quota, and
//! so sees what went.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Actor, Writes};
use crate::rules::amounts::{self, Amounts};
use crate::rules::{quantity::Quantity, quota};
use crate::store::{EventKind, Key, ResourceName, Store};

fn quotas() -> ResourceName {
    ResourceName::new("", "resourcequotas")
}

pub(super) async fn run(actor: Actor, mut writes: Writes) {
    let quotas = quotas();
    // The quotas of each namespace that has any.
    let mut known: BTreeMap<String, BTreeSet<Key>> = BTreeMap::new();
    while let Some((resource, event)) = writes.recv().await {
        let namespace = &event.key.namespace;
        if resource == quotas {
            let here = known.entry(namespace.clone()).or_default();
            match event.kind {
                EventKind::Deleted => here.remove(&*event.key),
                EventKind::Added | EventKind::Modified => here.insert((*event.key).clone()),
            };
            if here.is_empty() {
                known.remove(namespace);
                continue;
            }
        }
        for key in known.get(namespace).into_iter().flatten() {
            actor.modify(&quotas, key, |quota| {
                let wanted =
                    json!({"hard": quota["spec"]["hard"], "used": used(&actor.server.store, quota, namespace)});
                let is_new = quota["status"] != wanted;
                quota["status"] = wanted;
                is_new
            });
        }
    }
}

/// How much of a quota is used by what there is.
fn used(store: &Store, quota: &Value, namespace: &str) -> Value {
    let hard = amounts::read(&quota["spec"]["hard"]);
    let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::default())).collect();
    for resource in hard.keys().map(|name| counted(name)).collect::<BTreeSet<_>>() {
        for (_, entry) in store.list(&resource, Some(namespace)).items {
            let object = entry.value();
            if quota::covers(quota, &resource, &object) {
                let mut usage = quota::usage(&resource, &object);
                usage.retain(|name, _| hard.contains_key(name));
                amounts::add(&mut used, &usage);
            }
        }
    }
    amounts::write(&used)
}

/// The kind whose objects use what a quota names.
fn counted(name: &str) -> ResourceName {
    if let Some(resource) = name.strip_prefix("count/") {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        return ResourceName::new(group, plural);
    }
    let core = [
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
    ];
    match name {
        "services" | "services.nodeports" | "services.loadbalancers" => ResourceName::new("", "services"),
        name if core.contains(&name) => ResourceName::new("", name),
        _ => ResourceName::new("", "pods"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_counted() {
        assert_eq!(
            counted("count/widgets.demo.test"),
            ResourceName::new("demo.test", "widgets")
        );
        assert_eq!(counted("services.nodeports"), ResourceName::new("", "services"));
        assert_eq!(counted("requests.nvidia.com/gpu"), ResourceName::new("", "pods"));
    }
}
