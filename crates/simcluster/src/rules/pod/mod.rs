//! Rules of pods: defaults, validation, gates, what may change, grace periods.

mod update;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{items, items_mut, set_condition, set_default};
use super::names;
use super::quantity::Quantity;
use crate::clock::seconds;
use crate::status::FieldError;
pub use update::validate_update;

/// Grace period of a pod that names none.
const GRACE_SECS_DEFAULT: i64 = 30;

/// Fills in what the author left out.
pub fn default(pod: &mut Value) {
    default_spec(&mut pod["spec"]);
    let spec = &mut pod["spec"];
    set_default(spec, "enableServiceLinks", json!(true));
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            request_limits(&mut container["resources"]);
        }
    }
    if let Some(status) = pod.get_mut("status") {
        default_status(status);
    }
}

/// The same for the pods that are to be made of a template. What depends on the whole pod is filled in when one is made.
pub(super) fn default_template(template: &mut Value) {
    set_default(template, "metadata", json!({}));
    set_default(template, "spec", json!({}));
    default_spec(&mut template["spec"]);
}

fn default_spec(spec: &mut Value) {
    set_default(spec, "restartPolicy", json!("Always"));
    set_default(spec, "terminationGracePeriodSeconds", json!(GRACE_SECS_DEFAULT));
    set_default(spec, "dnsPolicy", json!("ClusterFirst"));
    set_default(spec, "securityContext", json!({}));
    set_default(spec, "schedulerName", json!("default-scheduler"));
    for list in ["initContainers", "containers"] {
        items_mut(spec, list).for_each(default_container);
    }
    for volume in items_mut(spec, "volumes") {
        for source in ["secret", "configMap", "projected", "downwardAPI"] {
            if volume[source].is_object() {
                set_default(&mut volume[source], "defaultMode", json!(420));
            }
        }
    }
    for volume in items_mut(spec, "volumes") {
        if let Some(files) = volume.get_mut("downwardAPI") {
            for field in items_mut(files, "items").filter_map(|item| item.get_mut("fieldRef")) {
                set_default(field, "apiVersion", json!("v1"));
            }
        }
    }
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec["serviceAccount"] = account;
    }
}

fn default_status(status: &mut Value) {
    for condition in items_mut(status, "conditions") {
        set_default(condition, "lastProbeTime", Value::Null);
        set_default(condition, "lastTransitionTime", Value::Null);
    }
    for list in [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ] {
        items_mut(status, list).for_each(default_container_status);
    }
}

/// What Go's types always show, known or not.
fn default_container_status(status: &mut Value) {
    for field in ["state", "lastState"] {
        set_default(status, field, json!({}));
        for (state, times) in [
            ("running", &["startedAt"][..]),
            ("terminated", &["startedAt", "finishedAt"][..]),
        ] {
            if let Some(state) = status[field].get_mut(state).filter(|state| state.is_object()) {
                times.iter().for_each(|time| set_default(state, time, Value::Null));
            }
        }
    }
}

fn default_container(container: &mut Value) {
    set_default(container, "resources", json!({}));
    set_default(container, "terminationMessagePath", json!("/dev/termination-log"));
    set_default(container, "terminationMessagePolicy", json!("File"));
    let image = container["image"].as_str().unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let floats = !last.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    set_default(
        container,
        "imagePullPolicy",
        json!(if floats { "Always" } else { "IfNotPresent" }),
    );
    for port in items_mut(container, "ports") {
        set_default(port, "protocol", json!("TCP"));
    }
    for variable in items_mut(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            set_default(field, "apiVersion", json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            default_probe(probe);
        }
    }
    canonical_resources(&mut container["resources"]);
}

fn default_probe(probe: &mut Value) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        set_default(probe, field, json!(value));
    }
    if probe.get("httpGet").is_some_and(Value::is_object) {
        set_default(&mut probe["httpGet"], "scheme", json!("HTTP"));
        set_default(&mut probe["httpGet"], "path", json!("/"));
    }
}

/// Quantities take their canonical form.
fn canonical_resources(resources: &mut Value) {
    for list in ["limits", "requests"] {
        for (_, value) in resources
            .get_mut(list)
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
        {
            if let Some(quantity) = value.as_str().and_then(Quantity::parse) {
                *value = json!(quantity.canonical());
            }
        }
    }
}

/// A limit without a request is also the request.
fn request_limits(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    set_default(resources, "requests", json!({}));
    for (name, limit) in limits {
        set_default(&mut resources["requests"], &name, limit);
    }
}

/// The status that a pod starts with.
pub fn prepare_create(pod: &mut Value, now: Timestamp) {
    pod["status"] = json!({"phase": "Pending", "qosClass": qos_class(&pod["spec"])});
    if items(&pod["spec"], "schedulingGates").next().is_some() {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": seconds(now),
        });
        set_condition(&mut pod["status"]["conditions"], condition);
    }
}

/// `Guaranteed`: every container has equal limits and requests for CPU and memory; `BestEffort`: none has any.
fn qos_class(spec: &Value) -> &'static str {
    let containers = || items(spec, "initContainers").chain(items(spec, "containers"));
    let amount = |container: &Value, list: &str, name: &str| {
        container["resources"][list][name]
            .as_str()
            .and_then(Quantity::parse)
            .filter(|q| q.millis() > 0)
    };
    let both = ["cpu", "memory"];
    let any = containers().any(|c| {
        both.iter()
            .any(|name| amount(c, "limits", name).is_some() || amount(c, "requests", name).is_some())
    });
    let all = containers().all(|c| {
        both.iter()
            .all(|name| amount(c, "limits", name).is_some_and(|limit| amount(c, "requests", name) == Some(limit)))
    });
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Judges a whole pod.
pub fn validate(pod: &Value) -> Vec<FieldError> {
    validate_spec(&pod["spec"], "spec")
}

/// Judges the spec of a pod or of a template, which stands at `at`.
pub(super) fn validate_spec(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if items(spec, "containers").next().is_none() {
        errors.push(FieldError::required(format!("{at}.containers"), ""));
    }
    let mut seen = BTreeSet::new();
    for list in ["initContainers", "containers"] {
        for (i, container) in items(spec, list).enumerate() {
            let path = format!("{at}.{list}[{i}]");
            let name = container["name"].as_str().unwrap_or_default();
            match name {
                "" => errors.push(FieldError::required(format!("{path}.name"), "")),
                name => {
                    let problem = names::dns_label_problem(name);
                    errors.extend(problem.map(|p| FieldError::invalid(format!("{path}.name"), json!(name), p)));
                    if !seen.insert(name) {
                        errors.push(FieldError::duplicate(format!("{path}.name"), json!(name)));
                    }
                }
            }
            if container["image"].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("{path}.image"), ""));
            }
            let mounts = items(container, "volumeMounts").enumerate();
            let lost = mounts.filter(|(_, mount)| !items(spec, "volumes").any(|v| v["name"] == mount["name"]));
            errors.extend(
                lost.map(|(j, mount)| FieldError::not_found(format!("{path}.volumeMounts[{j}].name"), &mount["name"])),
            );
            errors.extend(validate_resources(
                &container["resources"],
                &format!("{path}.resources"),
            ));
        }
    }
    let policies = ["Always", "OnFailure", "Never"];
    if !policies.contains(&spec["restartPolicy"].as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported(
            format!("{at}.restartPolicy"),
            &spec["restartPolicy"],
            &policies,
        ));
    }
    errors.extend(validate_gates(spec, at));
    errors
}

fn validate_gates(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, gate) in items(spec, "schedulingGates").enumerate() {
        let path = format!("{at}.schedulingGates[{i}]");
        let name = gate["name"].as_str().unwrap_or_default();
        let problem = names::label_key_problem(name);
        errors.extend(problem.map(|p| FieldError::invalid(&path, json!(name), p)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, json!(name)));
        }
    }
    if !seen.is_empty() && !spec["nodeName"].as_str().unwrap_or_default().is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(format!("{at}.nodeName"), why));
    }
    errors
}

fn validate_resources(resources: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let amounts = |list: &str| {
        resources[list]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
    };
    for list in ["limits", "requests"] {
        for (name, value) in amounts(list) {
            let parsed = value.as_str().and_then(Quantity::parse);
            if parsed.is_none_or(|quantity| quantity.millis() < 0) {
                let why = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(format!("{path}.{list}[{name}]"), &value, why));
            }
        }
    }
    for (name, request) in amounts("requests") {
        let parse = |value: &Value| value.as_str().and_then(Quantity::parse).map(Quantity::millis);
        let limit = &resources["limits"][&name];
        if let (Some(asked), Some(allowed)) = (parse(&request), parse(limit))
            && asked > allowed
        {
            let why = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            errors.push(FieldError::invalid(format!("{path}.requests"), &request, why));
        }
    }
    errors
}

/// The grace period of a deletion: none for a pod that no kubelet runs.
pub fn grace_secs(pod: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unscheduled || over {
        return 0;
    }
    let own = || {
        pod["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(GRACE_SECS_DEFAULT)
    };
    asked.unwrap_or_else(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(container: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
        default(&mut pod);
        pod
    }

    #[test]
    fn a_minimal_pod_gets_its_defaults() {
        let made = pod(json!({"name": "c", "image": "registry.local:5000/x"}));
        assert_eq!(
            made["spec"],
            json!({
                "containers": [{
                    "name": "c", "image": "registry.local:5000/x", "imagePullPolicy": "Always", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
                "securityContext": {}, "schedulerName": "default-scheduler", "enableServiceLinks": true,
            })
        );
        assert_eq!(
            pod(json!({"name": "c", "image": "x:1"}))["spec"]["containers"][0]["imagePullPolicy"],
            "IfNotPresent"
        );
    }

    #[test]
    fn limits_become_requests_in_canonical_form() {
        let made = pod(json!({"name": "c", "image": "x", "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}}}));
        let resources = &made["spec"]["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(qos_class(&made["spec"]), "Guaranteed");
    }

    #[test]
    fn a_gated_pod_says_so_from_the_start() {
        let mut gated = pod(json!({"name": "c", "image": "x"}));
        gated["spec"]["schedulingGates"] = json!([{"name": "grove.io/podgang-pending-creation"}]);
        prepare_create(&mut gated, "2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(gated["status"]["conditions"][0]["reason"], "SchedulingGated");
        gated["spec"]["nodeName"] = json!("n");
        let errors = validate(&gated);
        assert_eq!(errors[0].field, "spec.nodeName");
    }
}
