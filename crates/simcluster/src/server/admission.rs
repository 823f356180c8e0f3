//! What the API server adds or refuses by looking at other objects: namespaces, service accounts, priorities, addresses.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Call, quota};
use crate::rules::metadata;
use crate::status::{ApiError, FieldError};
use crate::store::{Key, ResourceName};

/// Where pods find the credentials of their service account.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How the volume with the credentials is called, before a drawn suffix.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// What pods are told of the place of their node.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Ports that nodes keep for services.
const NODE_PORTS: std::ops::Range<u32> = 30_000..32_768;
/// So many draws find a free address as long as not nearly all are taken.
const DRAWS_MAX: u32 = 10_000;

/// The field by which a priority class is that of pods which name none.
const DEFAULT_CLASS: &[u8] = b"globalDefault";

/// Runs on every new object, after its defaults and before its validation.
pub(crate) fn create(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let resource = call.resource();
    if resource.namespaced {
        check_namespace(call, object)?;
    }
    match (&*resource.name.group, resource.kind.as_str()) {
        ("", "Pod") => {
            quota::fill(call, object);
            admit_service_account(call, object)?;
            admit_priority(call, object)?;
            add_tolerations(object);
            let node = object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
            add_topology(call, object, &node);
        }
        ("", "Service") => {
            check_address(call, object)?;
            assign_address(call, object);
        }
        ("", "Node") => taint(object),
        _ => {}
    }
    Ok(())
}

/// A node takes no pods before it says that it is ready.
fn taint(node: &mut Value) {
    if !node["spec"].is_object() {
        node["spec"] = json!({});
    }
    let Some(spec) = node["spec"].as_object_mut() else {
        return;
    };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if let Some(taints) = taints.as_array_mut() {
        let key = "node.kubernetes.io/not-ready";
        if !taints
            .iter()
            .any(|taint| taint["key"] == key && taint["effect"] == "NoSchedule")
        {
            taints.push(json!({"key": key, "effect": "NoSchedule"}));
        }
    }
}

/// Runs on every changed object, before webhooks see it.
pub(crate) fn update(call: &Call, new: &mut Value) {
    match (&*call.resource().name.group, call.resource().kind.as_str()) {
        ("", "Service") => assign_address(call, new),
        // An applier that sets the tolerations replaces them all.
        ("", "Pod") if call.place.subresource.is_none() => add_tolerations(new),
        _ => {}
    }
}

fn stored(call: &Call, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
    call.server
        .store
        .get(&ResourceName::new(group, plural), &Key::new(namespace, name))
        .map(|entry| entry.value())
}

fn check_namespace(call: &Call, object: &Value) -> Result<(), ApiError> {
    let name = call.place.namespace.as_deref().unwrap_or_default();
    let namespaces = ResourceName::new("", "namespaces");
    let namespace = stored(call, "", "namespaces", "", name).ok_or_else(|| ApiError::not_found(&namespaces, name))?;
    if !metadata::is_terminating(&namespace) {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let mut error = ApiError::forbidden(&call.resource().name, metadata::text(object, "name"), why);
    let message = format!("namespace {name} is being terminated");
    error.details["causes"] =
        json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
    Err(error)
}

fn admit_service_account(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let namespace = metadata::text(pod, "namespace").to_owned();
    let pod_name = metadata::text(pod, "name").to_owned();
    let spec = &mut pod["spec"];
    let name = match spec["serviceAccountName"].as_str() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "default".to_owned(),
    };
    let Some(account) = stored(call, "", "serviceaccounts", &namespace, &name) else {
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
        return Err(ApiError::forbidden(&call.resource().name, &pod_name, why));
    };
    spec["serviceAccountName"] = json!(name);
    spec["serviceAccount"] = json!(name);
    let secrets = account["imagePullSecrets"].as_array().into_iter().flatten();
    let secrets: Vec<Value> = secrets.map(|secret| json!({"name": secret["name"]})).collect();
    if !secrets.is_empty() && spec["imagePullSecrets"].as_array().is_none_or(Vec::is_empty) {
        spec["imagePullSecrets"] = json!(secrets);
    }
    let automount = spec["automountServiceAccountToken"].as_bool();
    if automount
        .or(account["automountServiceAccountToken"].as_bool())
        .unwrap_or(true)
    {
        mount_token(call, spec);
    }
    Ok(())
}

/// Adds the volume with the service account's token to every container that does not mount one itself.
fn mount_token(call: &Call, spec: &mut Value) {
    // A second look, after webhooks added containers, finds the volume of the first.
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let known = volumes
        .filter(|volume| volume["projected"].is_object())
        .filter_map(|volume| volume["name"].as_str())
        .find(|name| name.starts_with(TOKEN_VOLUME))
        .map(str::to_owned);
    let is_known = known.is_some();
    let volume = known.unwrap_or_else(|| format!("{TOKEN_VOLUME}{}", call.server.entropy.suffix()));
    let mut used = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(map) = container.as_object_mut() else { continue };
            let mounts = map.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == TOKEN_PATH) {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
                used = true;
            }
        }
    }
    let Some(spec) = spec.as_object_mut().filter(|_| used && !is_known) else {
        return;
    };
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        let namespace =
            json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ]);
        volumes.push(json!({"name": volume, "projected": {"sources": sources, "defaultMode": 420}}));
    }
}

fn admit_priority(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let pod_name = metadata::text(pod, "name").to_owned();
    let forbidden = |why: String| ApiError::forbidden(&call.resource().name, &pod_name, why);
    let class_name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let classes = ResourceName::new("scheduling.k8s.io", "priorityclasses");
    let class = match class_name.is_empty() {
        false => {
            let class = stored(call, &classes.group, &classes.plural, "", &class_name);
            Some(class.ok_or_else(|| forbidden(format!("no PriorityClass with name {class_name} was found")))?)
        }
        true => {
            let all = call.server.store.list(&classes, None).items;
            let says_so = |bytes: &[u8]| bytes.windows(DEFAULT_CLASS.len()).any(|part| part == DEFAULT_CLASS);
            all.iter()
                // Nearly no class says anything about it, and this is asked for every pod.
                .filter(|(_, entry)| says_so(&entry.bytes))
                .map(|(_, entry)| entry.value())
                .find(|class| class["globalDefault"] == true)
        }
    };
    let priority = class.as_ref().and_then(|class| class["value"].as_i64()).unwrap_or(0);
    let spec = &mut pod["spec"];
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != priority) {
        return Err(forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        )));
    }
    spec["priority"] = json!(priority);
    if let Some(name) = class.as_ref().map(|class| metadata::text(class, "name")) {
        spec["priorityClassName"] = json!(name);
    }
    let policy = class
        .map(|class| class["preemptionPolicy"].clone())
        .filter(Value::is_string);
    let policy = policy.unwrap_or_else(|| json!("PreemptLowerPriority"));
    let given = &spec["preemptionPolicy"];
    if let Some(given) = given.as_str().filter(|_| *given != policy) {
        let computed = policy.as_str().unwrap_or_default();
        return Err(forbidden(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
        )));
    }
    spec["preemptionPolicy"] = policy;
    Ok(())
}

/// A pod stays five minutes on a node that is lost, unless it says otherwise.
fn add_tolerations(pod: &mut Value) {
    let Some(spec) = pod["spec"].as_object_mut() else {
        return;
    };
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else {
        return;
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = |toleration: &Value| {
            let effect = toleration["effect"].as_str().unwrap_or_default();
            let its_key = toleration["key"].as_str().unwrap_or_default();
            (its_key == key || its_key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if !tolerations.iter().any(tolerated) {
            let added = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            tolerations.push(added);
        }
    }
}

/// Tells a pod, or the binding that becomes a part of it, where its node stands.
pub(super) fn add_topology(call: &Call, object: &mut Value, node: &str) {
    let node = match node {
        "" => None,
        node => stored(call, "", "nodes", "", node),
    };
    let labels = node.as_ref().and_then(|node| node["metadata"]["labels"].as_object());
    for (key, value) in labels.into_iter().flatten() {
        if TOPOLOGY_LABELS.contains(&key.as_str()) {
            let labels = metadata::of(object).entry("labels").or_insert_with(|| json!({}));
            labels[key] = value.clone();
        }
    }
}

/// Whether a stored service has this address.
fn is_taken(call: &Call, address: &str) -> bool {
    let services = call.server.store.list(&ResourceName::new("", "services"), None).items;
    let quoted = format!("\"{address}\"");
    let names = |bytes: &[u8]| bytes.windows(quoted.len()).any(|part| part == quoted.as_bytes());
    services
        .iter()
        .filter(|(_, entry)| names(&entry.bytes))
        .any(|(_, entry)| entry.value()["spec"]["clusterIP"] == address)
}

/// An address that a service asks for must be free.
fn check_address(call: &Call, service: &Value) -> Result<(), ApiError> {
    let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    if address.parse::<IpAddr>().is_err() || !is_taken(call, address) {
        return Ok(());
    }
    let why = format!("failed to allocate IP {address}: provided IP is already allocated");
    let error = FieldError::invalid("spec.clusterIPs", json!([address]), why);
    Err(call.invalid(metadata::text(service, "name"), &[error]))
}

/// Gives a service an address of 10.96.0.0/12 that nobody has, drawn from its uid so that no counter must be kept, and
/// ports of nodes, if it wants some.
fn assign_address(call: &Call, service: &mut Value) {
    let uid = metadata::text(service, "uid").to_owned();
    let spec = &mut service["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    let given = spec["clusterIPs"].as_array().is_some_and(|all| !all.is_empty());
    if spec["clusterIP"].as_str().unwrap_or_default().is_empty() && !given {
        let mut draws = (0..DRAWS_MAX).map(|draw| drawn_address(&uid, draw));
        let free = draws.find(|address| !is_taken(call, address));
        spec["clusterIP"] = json!(free.unwrap_or_else(|| drawn_address(&uid, 0)));
    }
    if !given {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    let wants_ports = spec["type"] == "NodePort"
        || (spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false);
    if let Some(ports) = spec["ports"].as_array_mut().filter(|_| wants_ports) {
        for (draw, port) in (0..).zip(ports) {
            if port["nodePort"].as_i64().unwrap_or(0) == 0 {
                port["nodePort"] =
                    json!(NODE_PORTS.start + (hash(&uid, draw) % u64::from(NODE_PORTS.end - NODE_PORTS.start)) as u32);
            }
        }
    }
    // A headless service without a selector may lead anywhere.
    let anywhere = spec["clusterIP"] == "None" && spec["selector"].is_null();
    let (families, policy) = match anywhere {
        true => (json!(["IPv4", "IPv6"]), "RequireDualStack"),
        false => (json!(["IPv4"]), "SingleStack"),
    };
    for (field, value) in [("ipFamilies", families), ("ipFamilyPolicy", json!(policy))] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
}

fn hash(uid: &str, draw: u32) -> u64 {
    let text = uid.bytes().chain(draw.to_be_bytes());
    text.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn drawn_address(uid: &str, draw: u32) -> String {
    let [a, b, c, ..] = hash(uid, draw).to_be_bytes();
    format!("10.{}.{b}.{}", 96 + a % 16, c.clamp(1, 254))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_draw_is_another_address() {
        let draws: std::collections::BTreeSet<String> = (0..100).map(|draw| drawn_address("u", draw)).collect();
        assert!(draws.len() > 95, "{draws:?}");
    }
}
