//! Rules of pods: defaults, validation, gates, what may change, grace periods.

mod container;
mod placement;
mod resources;
mod spec;
mod update;
mod volume;
mod warnings;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{items, items_mut, set_condition, set_default, set_default_text};
use super::quantity::Quantity;
use crate::clock::seconds;
use crate::status::FieldError;
pub(super) use spec::validate_spec;
pub use update::validate_update;
pub(crate) use warnings::warnings;

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
    set_default_text(spec, "restartPolicy", "Always");
    set_default(spec, "terminationGracePeriodSeconds", json!(GRACE_SECS_DEFAULT));
    set_default_text(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "securityContext", json!({}));
    set_default_text(spec, "schedulerName", "default-scheduler");
    for list in ["initContainers", "containers"] {
        items_mut(spec, list).for_each(default_container);
    }
    items_mut(spec, "volumes").for_each(default_volume);
    if spec["hostNetwork"] == true {
        for list in ["initContainers", "containers"] {
            for container in items_mut(spec, list) {
                for port in items_mut(container, "ports") {
                    let number = port["containerPort"].clone();
                    set_default(port, "hostPort", number);
                }
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
    set_default_text(container, "terminationMessagePath", "/dev/termination-log");
    set_default_text(container, "terminationMessagePolicy", "File");
    let image = container["image"].as_str().unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let floats = !last.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    set_default_text(
        container,
        "imagePullPolicy",
        if floats { "Always" } else { "IfNotPresent" },
    );
    for port in items_mut(container, "ports") {
        set_default_text(port, "protocol", "TCP");
    }
    for variable in items_mut(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom") {
            default_reference(source);
        }
    }
    for event in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        if let Some(handler) = container.pointer_mut(event) {
            default_get(handler);
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
    default_get(probe);
    if probe.get("grpc").is_some_and(Value::is_object) {
        set_default(&mut probe["grpc"], "service", json!(""));
    }
}

fn default_get(handler: &mut Value) {
    if handler.get("httpGet").is_some_and(Value::is_object) {
        set_default_text(&mut handler["httpGet"], "scheme", "HTTP");
        set_default_text(&mut handler["httpGet"], "path", "/");
    }
}

/// Where a value comes from that is told to a container.
fn default_reference(source: &mut Value) {
    if let Some(field) = source.get_mut("fieldRef") {
        set_default_text(field, "apiVersion", "v1");
    }
    if let Some(field) = source.get_mut("resourceFieldRef") {
        set_default(field, "divisor", json!("0"));
    }
}

fn default_volume(volume: &mut Value) {
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if volume[source].is_object() {
            set_default(&mut volume[source], "defaultMode", json!(420));
        }
    }
    if let Some(files) = volume.get_mut("downwardAPI") {
        items_mut(files, "items").for_each(default_reference);
    }
    if let Some(path) = volume.get_mut("hostPath").filter(|path| path.is_object()) {
        set_default(path, "type", json!(""));
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                set_default(token, "expirationSeconds", json!(3600));
            }
            if let Some(files) = source.get_mut("downwardAPI") {
                items_mut(files, "items").for_each(default_reference);
            }
        }
    }
    let has_source = volume
        .as_object()
        .is_some_and(|all| all.iter().any(|(name, source)| name != "name" && source.is_object()));
    if !has_source {
        set_default(volume, "emptyDir", json!({}));
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
    let mut errors = validate_spec(&pod["spec"], "spec");
    if items(&pod["spec"], "ephemeralContainers").next().is_some() && pod["metadata"]["resourceVersion"].is_null() {
        errors.push(FieldError::forbidden(
            "spec.ephemeralContainers",
            "cannot be set on create",
        ));
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
