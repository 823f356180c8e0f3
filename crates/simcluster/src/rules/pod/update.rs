//! What may change in a pod.

use serde_json::{Value, json};

use crate::rules::kinds::items;
use crate::status::FieldError;

const FROZEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Judges what an update changes.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["spec"], &new["spec"]);
    let mut errors = Vec::new();
    for list in ["containers", "initContainers"] {
        if items(was, list).count() != items(is, list).count() {
            let why = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), why));
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    errors.extend(deadline(was, is));
    errors.extend(gates(was, is));
    let gated = items(was, "schedulingGates").next().is_some();
    if gated {
        errors.extend(node_selector(was, is));
        errors.extend(node_affinity(was, is));
    }
    let mut masked = is.clone();
    mask_changeable(was, &mut masked, gated);
    if masked != *was {
        errors.push(FieldError::forbidden("spec", FROZEN));
    }
    errors
}

/// Puts the old value wherever a change is allowed or was judged already; what differs then is forbidden.
fn mask_changeable(was: &Value, masked: &mut Value, gated: bool) {
    for list in ["containers", "initContainers"] {
        let containers = masked.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (new, old) in containers.zip(items(was, list)) {
            restore(old, new, "image");
        }
    }
    restore(was, masked, "activeDeadlineSeconds");
    if items(was, "schedulingGates").next().is_some() || masked.get("schedulingGates").is_some() {
        restore(was, masked, "schedulingGates");
    }
    let kept = |toleration: &Value| items(masked, "tolerations").any(|new| new == toleration);
    if items(was, "tolerations").all(kept) {
        restore(was, masked, "tolerations");
    }
    if was["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|secs| secs < 0)
        && masked["terminationGracePeriodSeconds"] == 1
    {
        restore(was, masked, "terminationGracePeriodSeconds");
    }
    if gated {
        restore(was, masked, "nodeSelector");
        let old = was["affinity"].get("nodeAffinity").cloned();
        if let Some(affinity) = masked.get_mut("affinity").and_then(Value::as_object_mut) {
            match old {
                Some(old) => affinity.insert("nodeAffinity".into(), old),
                None => affinity.remove("nodeAffinity"),
            };
            if affinity.is_empty() && was.get("affinity").is_none() {
                restore(was, masked, "affinity");
            }
        }
    }
}

fn restore(was: &Value, masked: &mut Value, field: &str) {
    let Some(map) = masked.as_object_mut() else { return };
    match was.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

fn deadline(was: &Value, is: &Value) -> Option<FieldError> {
    let path = "spec.activeDeadlineSeconds";
    match (
        was["activeDeadlineSeconds"].as_i64(),
        is["activeDeadlineSeconds"].as_i64(),
    ) {
        (Some(old), Some(new)) if new > old => Some(FieldError::invalid(
            path,
            json!(new),
            "must be less than or equal to previous value",
        )),
        (Some(_), None) => Some(FieldError::invalid(
            path,
            &Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => None,
    }
}

fn gates(was: &Value, is: &Value) -> Vec<FieldError> {
    let old: Vec<&Value> = items(was, "schedulingGates").map(|gate| &gate["name"]).collect();
    let added = items(is, "schedulingGates")
        .enumerate()
        .filter(|(_, gate)| !old.contains(&&gate["name"]));
    let error = |(i, gate): (usize, &Value)| {
        let name = gate["name"].as_str().unwrap_or_default();
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        FieldError::forbidden(format!("spec.schedulingGates[{i}].name"), why)
    };
    added.map(error).collect()
}

fn node_selector(was: &Value, is: &Value) -> Option<FieldError> {
    let mut old = was["nodeSelector"].as_object().into_iter().flatten();
    match old.all(|(key, value)| is["nodeSelector"].get(key) == Some(value)) {
        true => None,
        false => {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            Some(FieldError::invalid("spec.nodeSelector", &is["nodeSelector"], why))
        }
    }
}

/// A gated pod's required node affinity may be set where there was none, and each of its terms may get narrower.
fn node_affinity(was: &Value, is: &Value) -> Vec<FieldError> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |spec: &Value| {
        spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
            .as_array()
            .cloned()
    };
    let (old, new) = (terms(was).unwrap_or_default(), terms(is).unwrap_or_default());
    if old.is_empty() {
        return Vec::new();
    }
    let path = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    if old.len() != new.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return vec![FieldError::invalid(path, json!(new), why)];
    }
    let changed = old
        .iter()
        .zip(&new)
        .enumerate()
        .filter(|(_, (old, new))| !only_adds(old, new));
    let why = "only additions are allowed (no mutations or deletions)";
    changed
        .map(|(i, (_, new))| FieldError::invalid(format!("{path}[{i}]"), new, why))
        .collect()
}

/// Requirements of a term are and-ed, so that more of them match fewer nodes; but an empty term matches none at all.
fn only_adds(old: &Value, new: &Value) -> bool {
    let list = |term: &Value, name: &str| term[name].as_array().cloned().unwrap_or_default();
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|name| list(old, name).is_empty()) {
        return lists.iter().all(|name| list(new, name).is_empty());
    }
    lists.iter().all(|name| list(new, name).starts_with(&list(old, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Value {
        json!({"containers": [{"name": "c", "image": "a"}], "schedulingGates": [{"name": "ex.com/a"}, {"name": "ex.com/b"}],
               "nodeSelector": {"rack": "r1"}})
    }

    fn errors(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut new = spec();
        change(&mut new);
        let judged = validate_update(&json!({"spec": spec()}), &json!({"spec": new}));
        judged.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_kubernetes_allows_is_allowed() {
        assert_eq!(errors(|s| s["containers"][0]["image"] = json!("b")), [""; 0]);
        assert_eq!(
            errors(|s| s["schedulingGates"] = json!([{"name": "ex.com/b"}])),
            [""; 0]
        );
        assert_eq!(
            errors(|s| drop(s.as_object_mut().unwrap().remove("schedulingGates"))),
            [""; 0]
        );
        assert_eq!(errors(|s| s["tolerations"] = json!([{"operator": "Exists"}])), [""; 0]);
        assert_eq!(errors(|s| s["nodeSelector"]["block"] = json!("b1")), [""; 0]);
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}});
        assert_eq!(errors(|s| s["affinity"] = affinity.clone()), [""; 0]);
    }

    #[test]
    fn the_rest_is_refused_in_kubernetes_words() {
        assert_eq!(
            errors(|s| s["schedulingGates"][1] = json!({"name": "ex.com/c"})),
            [
                "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'ex.com/c'"
            ]
        );
        assert!(errors(|s| s["nodeSelector"] = json!({}))[0].contains("only additions to spec.nodeSelector"));
        assert!(errors(|s| s["nodeName"] = json!("n"))[0].starts_with("spec: Forbidden: pod updates may not change"));
        assert!(errors(|s| s["affinity"] = json!({"podAffinity": {}}))[0].starts_with("spec: Forbidden"));
    }

    #[test]
    fn terms_of_a_gated_pod_only_narrow() {
        let term = |expressions: Value| json!({"matchExpressions": expressions});
        let one = json!({"key": "a", "operator": "Exists"});
        let two = json!({"key": "b", "operator": "Exists"});
        assert!(only_adds(&term(json!([one])), &term(json!([one, two]))));
        assert!(!only_adds(&term(json!([one])), &term(json!([two]))));
        assert!(!only_adds(&json!({}), &term(json!([two]))));
    }
}
