//! Cluster roles that are made of others: `aggregationRule` selects them by label, and their rules are joined.

use serde_json::{Value, json};

use super::{Actor, Writes};
use crate::authorization::GROUP;
use crate::selector::LabelSelector;
use crate::store::{EventKind, ResourceName};

fn cluster_roles() -> ResourceName {
    ResourceName::new(GROUP, "clusterroles")
}

pub(super) fn wants(resource: &ResourceName, _: EventKind) -> bool {
    resource.is(GROUP, "clusterroles")
}

/// Looks at all roles after every change of one: it may be part of any.
pub(super) async fn run(actor: Actor, mut writes: Writes) {
    while writes.recv().await.is_some() {
        let resource = cluster_roles();
        let roles = actor.server.store.list(&resource, None).items;
        let values: Vec<Value> = roles.iter().map(|(_, entry)| entry.value()).collect();
        for ((key, _), role) in roles.iter().zip(&values) {
            let Some(rules) = joined(role, &values).filter(|rules| *rules != role["rules"]) else {
                continue;
            };
            let change = |role: &mut Value| role["rules"] = rules.clone();
            let server = &actor.server;
            let written = server.change_internal(&actor.user, (&resource, key), None, change);
            if let Err(error) = written.await {
                tracing::warn!(role = key.name, %error, "cannot aggregate");
            }
        }
    }
}

/// The rules of a role that is made of others, in the order of their names; `None` for any other role.
fn joined(role: &Value, all: &[Value]) -> Option<Value> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array()?;
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors.iter().map(LabelSelector::from_object) {
        let others = all
            .iter()
            .filter(|other| other["metadata"]["name"] != role["metadata"]["name"]);
        for other in others.filter(|other| selector.matches(other)) {
            for rule in other["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(if rules.is_empty() { Value::Null } else { json!(rules) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_made_of_those_with_the_label() {
        let role = |name: &str, verb: &str| json!({"metadata": {"name": name, "labels": {"to": "view"}}, "rules": [{"verbs": [verb]}]});
        let view = json!({"metadata": {"name": "view", "labels": {"to": "view"}}, "rules": null,
                          "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]}});
        let all = [role("a", "get"), role("b", "list"), role("c", "get"), view.clone()];
        assert_eq!(
            joined(&view, &all),
            Some(json!([{"verbs": ["get"]}, {"verbs": ["list"]}]))
        );
        assert_eq!(joined(&all[0], &all), None);
        assert_eq!(joined(&view, std::slice::from_ref(&view)), Some(Value::Null));
    }
}
