//! What the API server adds or refuses by looking at other objects: namespaces, service accounts, priorities, addresses.

use serde_json::{Value, json};

use super::{Call, quota};
use crate::rules::metadata;
use crate::status::ApiError;
use crate::store::{Key, ResourceName};

/// Where pods find the credentials of their service account.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How the volume with the credentials is called, before a drawn suffix.
const TOKEN_VOLUME: &str = "kube-api-access-";

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
        }
        ("", "Service") => assign_address(object),
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
        ("", "Service") => assign_address(new),
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
    spec["preemptionPolicy"] = policy.unwrap_or_else(|| json!("PreemptLowerPriority"));
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

/// Gives a service an address of 10.96.0.0/12, drawn from its uid so that no counter must be kept.
fn assign_address(service: &mut Value) {
    let uid = metadata::text(service, "uid");
    let drawn = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, ..] = drawn.to_be_bytes();
    let spec = &mut service["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    if spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
        spec["clusterIP"] = json!(format!("10.{}.{b}.{}", 96 + a % 16, c.clamp(1, 254)));
    }
    spec["clusterIPs"] = json!([spec["clusterIP"]]);
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
