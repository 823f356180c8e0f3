//! Nobody gives away rights by roles and bindings that they do not have themselves, unless they may `escalate` or `bind`.

use serde_json::{Value, json};

use super::Call;
use crate::authorization::{self, Asked, GROUP, Rule, is_master, missing};
use crate::rules::metadata;
use crate::status::ApiError;

/// Judges a role or a binding that is about to be stored.
pub(crate) fn check(call: &Call, old: Option<&Value>, new: &Value) -> Result<(), ApiError> {
    let name = &call.resource().name;
    if &*name.group != GROUP || !call.server.rbac || is_master(&call.user) {
        return Ok(());
    }
    match &*name.plural {
        "roles" | "clusterroles" => check_role(call, old, new),
        "rolebindings" | "clusterrolebindings" => match old.is_some_and(|old| without_ties(old) == without_ties(new)) {
            true => Ok(()),
            false => check_binding(call, new),
        },
        _ => Ok(()),
    }
}

fn check_role(call: &Call, old: Option<&Value>, role: &Value) -> Result<(), ApiError> {
    let resource = &call.resource().name;
    let name = metadata::text(role, "name");
    if old.is_some_and(|old| without_ties(old) == without_ties(role)) || may(call, "escalate", &resource.plural, name) {
        return Ok(());
    }
    held(call, &Rule::of(role)).map_err(|why| ApiError::forbidden(resource, name, why))?;
    let aggregates = |role: &Value| role["aggregationRule"]["clusterRoleSelectors"].is_array();
    if aggregates(role) || old.is_some_and(aggregates) {
        let all = json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                                   {"verbs": ["*"], "nonResourceURLs": ["*"]}]});
        if held(call, &Rule::of(&all)).is_err() {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(ApiError::forbidden(resource, name, why));
        }
    }
    Ok(())
}

/// An object without what garbage collection changes, which anybody who may write it may change.
fn without_ties(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = metadata::of(&mut object);
    for field in ["ownerReferences", "finalizers", "managedFields"] {
        metadata.remove(field);
    }
    object
}

fn check_binding(call: &Call, binding: &Value) -> Result<(), ApiError> {
    let role = &binding["roleRef"];
    let role_name = role["name"].as_str().unwrap_or_default();
    let plural = match role["kind"].as_str() {
        Some("Role") => "roles",
        _ => "clusterroles",
    };
    if may(call, "bind", plural, role_name) {
        return Ok(());
    }
    let namespace = call.place.namespace.as_deref().unwrap_or_default();
    let rules = call.server.policy().referenced(role, namespace);
    // The real server speaks of the role as if it were a binding.
    let rules = rules.ok_or_else(|| ApiError::not_found(&call.resource().name, role_name))?;
    let name = metadata::text(binding, "name");
    held(call, &rules).map_err(|why| ApiError::forbidden(&call.resource().name, name, why))
}

fn may(call: &Call, verb: &str, plural: &str, name: &str) -> bool {
    let asked = Asked::Resource {
        verb,
        group: GROUP,
        plural,
        subresource: "",
        namespace: call.place.namespace.as_deref().unwrap_or_default(),
        name,
    };
    call.server.decide(&call.user, &asked).is_allowed
}

/// Whether the sender has these rights; else which not.
fn held(call: &Call, wanted: &[Rule]) -> Result<(), String> {
    let namespace = call.place.namespace.as_deref().unwrap_or_default();
    let (owned, problems) = call.server.policy().rules_for(&call.user, namespace);
    let missing = missing(&owned, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let problems = match problems.is_empty() {
        true => String::new(),
        false => format!("; resolution errors: [{}]", problems.join(" ")),
    };
    Err(format!(
        "{} is attempting to grant RBAC permissions not currently held:\n{}{problems}",
        authorization::told(&call.user),
        missing.join("\n")
    ))
}
