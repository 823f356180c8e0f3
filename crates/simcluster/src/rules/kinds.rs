//! What each built-in kind adds to the common rules: defaults, immutable fields, how it is deleted.
//!
//! Pods, which have by far the most rules, are in [`super::pod`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::check::config_key_problem;
use super::{amounts, autoscaler, definition, limits, metadata, pod, service, smaller, webhooks, workloads};
use crate::clock::seconds;
use crate::registry::{Resource, Subresource};
use crate::status::{ApiError, FieldError};

/// Finalizer that keeps a CustomResourceDefinition until its instances are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The built-in kinds that have rules of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    Namespace,
    Node,
    Pod,
    Secret,
    ConfigMap,
    Service,
    Event,
    Lease,
    ControllerRevision,
    Claim,
    Binding,
    Role,
    PriorityClass,
    Budget,
    Autoscaler,
    Quota,
    LimitRange,
    Endpoints,
    Slice,
    Deployment,
    NetworkPolicy,
    Definition,
    Webhooks { mutating: bool },
}

fn special(resource: &Resource) -> Option<Special> {
    if resource.custom {
        return None;
    }
    Some(match resource.kind.as_str() {
        "Namespace" => Special::Namespace,
        "Node" => Special::Node,
        "Pod" => Special::Pod,
        "Secret" => Special::Secret,
        "ConfigMap" => Special::ConfigMap,
        "Service" => Special::Service,
        "Event" => Special::Event,
        "Lease" => Special::Lease,
        "ControllerRevision" => Special::ControllerRevision,
        "ResourceClaim" | "ResourceClaimTemplate" => Special::Claim,
        "RoleBinding" | "ClusterRoleBinding" => Special::Binding,
        "Role" | "ClusterRole" => Special::Role,
        "PriorityClass" => Special::PriorityClass,
        "PodDisruptionBudget" => Special::Budget,
        "HorizontalPodAutoscaler" => Special::Autoscaler,
        "ResourceQuota" => Special::Quota,
        "LimitRange" => Special::LimitRange,
        "Endpoints" => Special::Endpoints,
        "EndpointSlice" => Special::Slice,
        "Deployment" => Special::Deployment,
        "NetworkPolicy" => Special::NetworkPolicy,
        "CustomResourceDefinition" => Special::Definition,
        "MutatingWebhookConfiguration" => Special::Webhooks { mutating: true },
        "ValidatingWebhookConfiguration" => Special::Webhooks { mutating: false },
        _ => return None,
    })
}

/// Fills in what the client left out. Runs on every write of a whole object.
pub fn default(resource: &Resource, object: &mut Value) {
    match special(resource) {
        Some(Special::Node) => default_node(object),
        Some(Special::Pod) => pod::default(object),
        Some(Special::Namespace) => name_label(object),
        Some(Special::Event) => default_event(object),
        Some(Special::Claim) => default_claim(object),
        Some(Special::Binding) => default_subjects(object),
        Some(Special::Secret) => default_secret(object),
        Some(Special::Service) => service::default(object),
        Some(Special::PriorityClass) => set_default(object, "preemptionPolicy", json!("PreemptLowerPriority")),
        Some(Special::Role) => set_default(object, "rules", Value::Null),
        Some(Special::Autoscaler) => autoscaler::default(object),
        Some(Special::Quota) => {
            set_default(object, "spec", json!({}));
            if let Some(hard) = object["spec"].get_mut("hard") {
                amounts::canonical(hard);
            }
        }
        Some(Special::LimitRange) => limits::default(object),
        Some(Special::Endpoints) => {
            for subset in items_mut(object, "subsets") {
                for port in items_mut(subset, "ports") {
                    set_default(port, "protocol", json!("TCP"));
                }
            }
        }
        Some(Special::Slice) => {
            for endpoint in items_mut(object, "endpoints") {
                set_default(endpoint, "conditions", json!({}));
            }
            for port in items_mut(object, "ports") {
                set_default(port, "name", json!(""));
                set_default(port, "protocol", json!("TCP"));
            }
        }
        Some(Special::Deployment) => workloads::default_deployment(object),
        Some(Special::NetworkPolicy) => workloads::default_policy(object),
        Some(Special::Definition) => definition::default(object),
        Some(Special::Webhooks { mutating }) => default_webhooks(object, mutating),
        _ => {}
    }
}

/// Sets `field` unless it has a value; makes the object if it is missing.
pub(super) fn set_default(object: &mut Value, field: &str, value: Value) {
    if object.is_null() {
        *object = Value::Object(Map::new());
    }
    if let Some(map) = object.as_object_mut()
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.to_owned(), value);
    }
}

/// Sets a text unless there is one: in Go an empty text is none, where nothing says otherwise.
pub(super) fn set_default_text(object: &mut Value, field: &str, text: &str) {
    if object.get(field).is_some_and(|value| value == "") {
        object[field] = Value::Null;
    }
    set_default(object, field, json!(text));
}

/// Elements of a list that can be changed; none if it is missing.
pub(super) fn items_mut<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object
        .get_mut(field)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Elements of a list; none if it is missing.
pub(crate) fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// A node's status is always there, with the fields that Go's types do not leave out.
fn default_node(object: &mut Value) {
    const INFO: [&str; 10] = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    set_default(object, "spec", json!({}));
    set_default(object, "status", json!({}));
    let status = &mut object["status"];
    let capacity = status["capacity"].clone();
    if capacity.is_object() {
        set_default(status, "allocatable", capacity);
    }
    set_default(status, "daemonEndpoints", json!({}));
    set_default(&mut status["daemonEndpoints"], "kubeletEndpoint", json!({"Port": 0}));
    set_default(status, "nodeInfo", json!({}));
    for field in INFO {
        set_default(&mut status["nodeInfo"], field, json!(""));
    }
    for condition in items_mut(status, "conditions") {
        set_default(condition, "lastHeartbeatTime", Value::Null);
        set_default(condition, "lastTransitionTime", Value::Null);
    }
}

/// Namespaces can be selected by their name.
fn name_label(namespace: &mut Value) {
    let name = metadata::text(namespace, "name").to_owned();
    let labels = metadata::of(namespace).entry("labels").or_insert_with(|| json!({}));
    labels["kubernetes.io/metadata.name"] = json!(name);
}

/// The fields of an event that Go's type does not leave out.
fn default_event(event: &mut Value) {
    for time in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        set_default(event, time, Value::Null);
    }
    for text in ["reportingComponent", "reportingInstance"] {
        set_default(event, text, json!(""));
    }
    set_default(event, "source", json!({}));
}

/// Claims and templates of claims: a request for devices is for one, unless it says otherwise.
fn default_claim(object: &mut Value) {
    let spec = match object["spec"].get("spec") {
        Some(_) => {
            set_default(&mut object["spec"], "metadata", json!({}));
            &mut object["spec"]["spec"]
        }
        None => &mut object["spec"],
    };
    let Some(devices) = spec.get_mut("devices") else { return };
    for request in items_mut(devices, "requests") {
        let Some(exactly) = request.get_mut("exactly").filter(|exactly| exactly.is_object()) else {
            continue;
        };
        set_default(exactly, "allocationMode", json!("ExactCount"));
        if exactly["allocationMode"] == "ExactCount" {
            set_default(exactly, "count", json!(1));
        }
    }
}

fn default_subjects(binding: &mut Value) {
    if binding["roleRef"].is_object() {
        set_default_text(&mut binding["roleRef"], "apiGroup", "rbac.authorization.k8s.io");
    }
    for subject in items_mut(binding, "subjects") {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            set_default_text(subject, "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

fn default_secret(object: &mut Value) {
    set_default_text(object, "type", "Opaque");
    let Some(Value::Object(plain)) = object.as_object_mut().and_then(|map| map.remove("stringData")) else {
        return;
    };
    set_default(object, "data", json!({}));
    for (key, value) in plain {
        object["data"][key] = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

fn default_webhooks(object: &mut Value, mutating: bool) {
    for webhook in items_mut(object, "webhooks") {
        set_default(webhook, "failurePolicy", json!("Fail"));
        set_default(webhook, "matchPolicy", json!("Equivalent"));
        set_default(webhook, "namespaceSelector", json!({}));
        set_default(webhook, "objectSelector", json!({}));
        set_default(webhook, "timeoutSeconds", json!(10));
        if mutating {
            set_default(webhook, "reinvocationPolicy", json!("Never"));
        }
        for rule in items_mut(webhook, "rules") {
            set_default(rule, "scope", json!("*"));
        }
        if webhook["clientConfig"]["service"].is_object() {
            set_default(&mut webhook["clientConfig"]["service"], "port", json!(443));
        }
    }
}

/// Gives a new object the status that it starts with.
pub fn prepare_create(resource: &Resource, object: &mut Value, now: Timestamp) {
    // Kubelets register their nodes together with what they can do.
    if resource.has(Subresource::Status)
        && special(resource) != Some(Special::Node)
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    match special(resource) {
        Some(Special::Pod) => pod::prepare_create(object, now),
        Some(Special::Namespace) => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        Some(Special::Claim) if resource.has(Subresource::Status) => object["status"] = json!({}),
        Some(Special::Service) => object["status"] = json!({"loadBalancer": {}}),
        Some(Special::Quota | Special::Deployment) => object["status"] = json!({}),
        Some(Special::Budget) => {
            object["status"] =
                json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        }
        Some(Special::Autoscaler) => object["status"] = json!({"currentMetrics": null, "desiredReplicas": 0}),
        Some(Special::Definition) => {
            let versions: Vec<Value> = items(&object["spec"], "versions")
                .filter(|version| version["storage"] == true)
                .map(|version| version["name"].clone())
                .collect();
            object["status"] =
                json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": versions});
        }
        _ => {}
    }
}

/// Carries over what only the server decides.
pub fn prepare_update(resource: &Resource, old: &Value, new: &mut Value) {
    if special(resource) == Some(Special::Definition) {
        definition::note_stored_version(new);
    }
    if special(resource) != Some(Special::Service) {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let kept = old["spec"][field].clone();
        if !kept.is_null() {
            set_default(&mut new["spec"], field, kept);
        }
    }
}

/// Judges a whole object.
pub fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    match special(resource) {
        Some(Special::Pod) => pod::validate(object),
        Some(Special::Event) => validate_event(object, resource.name != resource.storage),
        Some(Special::Definition) => definition::validate(object),
        Some(Special::ConfigMap) => validate_data(object),
        Some(Special::Secret) => smaller::secret(object)
            .into_iter()
            .chain(validate_data(object))
            .collect(),
        Some(Special::Node) => smaller::node(object),
        Some(Special::Service) => service::validate(object),
        Some(Special::Lease) => smaller::lease(object),
        Some(Special::Budget) => smaller::budget(object),
        Some(Special::Autoscaler) => autoscaler::validate(object),
        Some(Special::Role) => smaller::role(object),
        Some(Special::Binding) => smaller::binding(object, resource.namespaced),
        Some(Special::PriorityClass) => smaller::priority(object),
        Some(Special::Quota) => smaller::quota(object),
        Some(Special::LimitRange) => limits::validate(object),
        Some(Special::Deployment) => workloads::deployment(object),
        Some(Special::NetworkPolicy) => workloads::policy(object),
        Some(Special::Webhooks { mutating }) => webhooks::configuration(object, mutating),
        _ => Vec::new(),
    }
}

/// What the author of a new object is told, though it is taken.
pub fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    match special(resource) {
        Some(Special::Pod) => pod::warnings(object),
        _ => Vec::new(),
    }
}

/// Judges what a write to a subresource made of an object.
pub fn validate_status(resource: &Resource, object: &Value) -> Vec<FieldError> {
    match special(resource) {
        Some(Special::Service) => service::validate_status(object),
        _ => Vec::new(),
    }
}

fn validate_event(event: &Value, modern: bool) -> Vec<FieldError> {
    let involved = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let own = metadata::text(event, "namespace");
    let mut errors = Vec::new();
    if involved != own && !(involved.is_empty() && own == "default") {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", json!(involved), why));
    }
    // Events that came through events.k8s.io have no time but this one.
    if modern && event["eventTime"].is_null() {
        errors.push(FieldError::required("eventTime", ""));
    }
    errors
}

fn validate_data(object: &Value) -> Vec<FieldError> {
    const TOTAL_BYTES_MAX: usize = 1024 * 1024;
    let mut errors = Vec::new();
    let mut total = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            if let Some(why) = config_key_problem(key) {
                errors.push(FieldError::invalid(format!("{field}[{key}]"), json!(key), why));
            }
            if field == "data" && object["binaryData"].get(key).is_some() {
                let why = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(format!("data[{key}]"), json!(key), why));
            }
            total += value.as_str().map_or(0, str::len);
        }
    }
    if total > TOTAL_BYTES_MAX {
        errors.push(FieldError::too_long("[]", TOTAL_BYTES_MAX as u64));
    }
    errors
}

/// Judges what an update changes.
pub fn validate_update(resource: &Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    let frozen = |field: &str, why: &str| match old[field] == new[field] {
        true => Vec::new(),
        false => vec![FieldError::invalid(field, &new[field], why)],
    };
    match special(resource) {
        Some(Special::Pod) => pod::validate_update(old, new),
        Some(Special::ControllerRevision) => frozen("data", "field is immutable"),
        Some(Special::Claim) => frozen("spec", "field is immutable"),
        Some(Special::Secret) => {
            let mut errors = frozen("type", "field is immutable");
            errors.extend(validate_sealed(old, new));
            errors
        }
        Some(Special::ConfigMap) => validate_sealed(old, new),
        Some(Special::Binding) => smaller::same_role(old, new),
        Some(Special::PriorityClass) => match old["value"] == new["value"] {
            true => Vec::new(),
            false => vec![FieldError::forbidden("value", "may not be changed in an update.")],
        },
        Some(Special::Service) => service::validate_update(old, new),
        Some(Special::Deployment) => workloads::same_selector(old, new),
        _ => Vec::new(),
    }
}

/// Config maps and secrets that were declared immutable.
fn validate_sealed(old: &Value, new: &Value) -> Vec<FieldError> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let why = "field is immutable when `immutable` is set";
    let fields = ["immutable", "data", "binaryData"];
    fields
        .iter()
        .filter(|f| old[**f] != new[**f])
        .map(|f| FieldError::forbidden(*f, why))
        .collect()
}

/// Whether the generation stays what it was at creation: nothing that matters of a priority class can change.
pub fn keeps_generation(resource: &Resource) -> bool {
    special(resource) == Some(Special::PriorityClass)
}

/// Namespaces that belong to the cluster stay.
pub fn may_delete(resource: &Resource, name: &str) -> Result<(), ApiError> {
    let protected = ["default", "kube-system", "kube-public"].contains(&name);
    match special(resource) == Some(Special::Namespace) && protected {
        true => Err(ApiError::forbidden(
            &resource.name,
            name,
            "this namespace may not be deleted",
        )),
        false => Ok(()),
    }
}

/// The grace period of a deletion, for kinds that have one.
pub fn grace_secs(resource: &Resource, object: &Value, asked: Option<i64>) -> Option<i64> {
    (special(resource) == Some(Special::Pod)).then(|| pod::grace_secs(object, asked))
}

/// Whether something besides finalizers keeps the object from going.
pub fn holds_itself(resource: &Resource, object: &Value) -> bool {
    match special(resource) {
        Some(Special::Namespace) => items(&object["spec"], "finalizers").next().is_some(),
        // Its instances must go first; the mark adds the finalizer that waits for them.
        Some(Special::Definition) => !metadata::is_terminating(object),
        _ => false,
    }
}

/// What the deletion mark changes besides the metadata.
pub fn on_mark(resource: &Resource, object: &mut Value) {
    match special(resource) {
        Some(Special::Namespace) => {
            object["status"]["phase"] = json!("Terminating");
            metadata::of(object).remove("deletionGracePeriodSeconds");
        }
        Some(Special::Definition) => {
            let mut finalizers: Vec<String> = metadata::finalizers(object).into_iter().map(str::to_owned).collect();
            finalizers.push(CLEANUP_FINALIZER.to_owned());
            finalizers.dedup();
            metadata::set_finalizers(object, &finalizers);
            metadata::of(object).remove("deletionGracePeriodSeconds");
        }
        _ => {}
    }
}

/// Whether an update takes away the last thing that kept a deleted object.
pub fn is_released(resource: &Resource, old: &Value, new: &Value) -> bool {
    metadata::is_terminating(old)
        && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && metadata::finalizers(new).is_empty()
        && !holds_itself(resource, new)
}

/// A condition as `status.conditions` holds it.
pub fn condition(kind: &str, status: bool, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": kind, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": seconds(now),
    })
}

/// Puts a condition into a list, in the place of one of the same type; an unchanged status keeps its transition time.
pub fn set_condition(conditions: &mut Value, mut new: Value) {
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|condition| condition["type"] == new["type"]) {
        Some(old) => {
            if old["status"] == new["status"] {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
        None => list.push(new),
    }
}
