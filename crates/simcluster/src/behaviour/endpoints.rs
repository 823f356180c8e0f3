//! Where Services lead: an EndpointSlice and an Endpoints object for each Service with a selector, of the pods that it
//! selects.
//!
//! A Service has one slice here, however many pods: there are no readers of slices that would gain from several.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use serde_json::{Value, json};

use super::{Actor, Writes};
use crate::rules::kinds::items;
use crate::rules::metadata;
use crate::selector::LabelSelector;
use crate::store::{EventKind, Key, ResourceName};

const HEADLESS: &str = "service.kubernetes.io/headless";

fn services() -> ResourceName {
    ResourceName::new("", "services")
}

fn endpoints() -> ResourceName {
    ResourceName::new("", "endpoints")
}

fn slices() -> ResourceName {
    ResourceName::new("discovery.k8s.io", "endpointslices")
}

pub(super) fn wants(resource: &ResourceName, _: EventKind) -> bool {
    resource.is("", "pods") || resource.is("", "services")
}

/// Follows Services and pods. The two actors are the controllers that a real cluster has for the two kinds.
pub(super) async fn run((slicing, listing): (Actor, Actor), mut writes: Writes) {
    let services = services();
    // By namespace.
    let mut known: BTreeMap<String, BTreeSet<Key>> = BTreeMap::new();
    while let Some(first) = writes.recv().await {
        // Many pods change at once: a Service is looked at once for all that is there to see.
        let mut due: BTreeSet<Key> = BTreeSet::new();
        let mut next = Some(first);
        while let Some((resource, event)) = next {
            let here = known.entry(event.key.namespace.clone()).or_default();
            if resource != services {
                due.extend(here.iter().cloned());
            } else if event.kind == EventKind::Deleted {
                here.remove(&*event.key);
                forget(&listing, &event.key).await;
            } else {
                here.insert((*event.key).clone());
                due.insert((*event.key).clone());
            }
            next = writes.recv().now_or_never().flatten();
        }
        for key in due {
            look(&slicing, &listing, &key).await;
        }
    }
}

/// A Service's Endpoints go with it; its slices are garbage.
async fn forget(actor: &Actor, key: &Key) {
    actor.delete(&endpoints(), key, &Default::default()).await;
}

async fn look(slicing: &Actor, listing: &Actor, key: &Key) {
    let Some(service) = slicing.get(&services(), key) else {
        return;
    };
    if !service["spec"]["selector"].is_object() {
        return;
    }
    let targets = targets(slicing, &service, &key.namespace);
    write_slice(slicing, &service, slice(&service, &targets)).await;
    write_endpoints(listing, key, list(&service, &targets)).await;
}

/// A pod behind a Service.
#[derive(Debug)]
struct Target {
    address: String,
    node: String,
    reference: Value,
    is_ready: bool,
    is_terminating: bool,
    /// The Service's ports on this pod.
    ports: Vec<Value>,
}

fn targets(actor: &Actor, service: &Value, namespace: &str) -> Vec<Target> {
    let selector = LabelSelector::from_object(&json!({"matchLabels": service["spec"]["selector"]}));
    let pods = actor
        .server
        .store
        .list(&ResourceName::new("", "pods"), Some(namespace))
        .items;
    let pods = pods.iter().map(|(_, entry)| entry.value());
    let over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    let selected = pods.filter(|pod| selector.matches(pod) && !over(pod));
    selected.filter_map(|pod| target(service, &pod)).collect()
}

/// `None`: the pod has no node or no address yet.
fn target(service: &Value, pod: &Value) -> Option<Target> {
    let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())?;
    let address = pod["status"]["podIP"].as_str().filter(|address| !address.is_empty())?;
    let mut ports: Vec<Value> = items(&service["spec"], "ports")
        .filter_map(|port| port_on(port, pod))
        .collect();
    ports.sort_by_key(|port| port["name"].as_str().unwrap_or_default().to_owned());
    let is_ready = items(&pod["status"], "conditions").any(|c| c["type"] == "Ready" && c["status"] == "True");
    let text = |field: &str| metadata::text(pod, field);
    let reference = json!({"kind": "Pod", "namespace": text("namespace"), "name": text("name"), "uid": text("uid")});
    Some(Target {
        address: address.to_owned(),
        node: node.to_owned(),
        reference,
        is_ready,
        is_terminating: metadata::is_terminating(pod),
        ports,
    })
}

/// A port of a Service on a pod; `None` if the pod has none of the name that it asks for.
fn port_on(port: &Value, pod: &Value) -> Option<Value> {
    let wanted = &port["targetPort"];
    let number = match wanted.as_str() {
        Some(name) => {
            let ports = items(&pod["spec"], "containers").flat_map(|container| items(container, "ports"));
            let same = |found: &&Value| found["name"] == name && found["protocol"] == port["protocol"];
            ports.filter(same).find_map(|found| found["containerPort"].as_i64())?
        }
        None => wanted.as_i64().or_else(|| port["port"].as_i64())?,
    };
    let mut found =
        json!({"name": port["name"].as_str().unwrap_or_default(), "port": number, "protocol": port["protocol"]});
    if port["appProtocol"].is_string() {
        found["appProtocol"] = port["appProtocol"].clone();
    }
    Some(found)
}

fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == "None"
}

/// Whoever publishes all addresses publishes those that are not ready too.
fn is_ready(service: &Value, target: &Target) -> bool {
    service["spec"]["publishNotReadyAddresses"] == true || target.is_ready && !target.is_terminating
}

fn labels(service: &Value, own: &[(&str, &str)]) -> Value {
    let mut labels = match service["metadata"]["labels"].is_object() {
        true => service["metadata"]["labels"].clone(),
        false => json!({}),
    };
    for (key, value) in own {
        labels[*key] = json!(value);
    }
    if is_headless(service) {
        labels[HEADLESS] = json!("");
    }
    labels
}

/// What of a slice follows from the Service and its pods.
fn slice(service: &Value, targets: &[Target]) -> Value {
    let name = metadata::text(service, "name");
    let labels = labels(
        service,
        &[
            (
                "endpointslice.kubernetes.io/managed-by",
                "endpointslice-controller.k8s.io",
            ),
            ("kubernetes.io/service-name", name),
        ],
    );
    let endpoint = |target: &Target| {
        let conditions = json!({
            "ready": is_ready(service, target), "serving": target.is_ready, "terminating": target.is_terminating,
        });
        json!({"addresses": [target.address], "conditions": conditions, "targetRef": target.reference,
               "nodeName": target.node})
    };
    let endpoints: Vec<Value> = targets.iter().map(endpoint).collect();
    let ports = targets.first().map(|target| json!(target.ports));
    let mut slice = json!({"metadata": {"labels": labels}, "addressType": "IPv4", "endpoints": null, "ports": null});
    if !endpoints.is_empty() {
        slice["endpoints"] = json!(endpoints);
        slice["ports"] = ports.unwrap_or(Value::Null);
    }
    slice
}

async fn write_slice(actor: &Actor, service: &Value, wanted: Value) {
    let (slices, namespace) = (slices(), metadata::text(service, "namespace").to_owned());
    let uid = metadata::text(service, "uid");
    let owned = |slice: &Value| items(&slice["metadata"], "ownerReferences").any(|owner| owner["uid"] == uid);
    let stored = actor.server.store.list(&slices, Some(&namespace)).items;
    if let Some((key, _)) = stored.iter().find(|(_, entry)| owned(&entry.value())) {
        actor.modify(&slices, key, |slice| {
            let before = slice.clone();
            for field in ["endpoints", "ports"] {
                slice[field] = wanted[field].clone();
            }
            slice["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
            let is_new = *slice != before;
            if is_new && let Some(generation) = slice["metadata"]["generation"].as_i64() {
                slice["metadata"]["generation"] = json!(generation + 1);
            }
            is_new
        });
        return;
    }
    let name = metadata::text(service, "name");
    let owner = json!({"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid, "controller": true,
                       "blockOwnerDeletion": true});
    let mut slice = wanted;
    slice["metadata"]["generateName"] = json!(format!("{name}-"));
    slice["metadata"]["ownerReferences"] = json!([owner]);
    actor.create(&slices, &namespace, slice).await;
}

/// What of an Endpoints object follows from the Service and its pods.
fn list(service: &Value, targets: &[Target]) -> Value {
    let labels = labels(
        service,
        &[("endpoints.kubernetes.io/managed-by", "endpoint-controller")],
    );
    let (mut ready, mut other) = (Vec::new(), Vec::new());
    for target in targets {
        let address = json!({"ip": target.address, "targetRef": target.reference, "nodeName": target.node});
        match is_ready(service, target) {
            true => ready.push(address),
            false if target.is_terminating => {}
            false => other.push(address),
        }
    }
    let mut subset = json!({});
    for (field, addresses) in [("addresses", ready), ("notReadyAddresses", other)] {
        if !addresses.is_empty() {
            subset[field] = json!(addresses);
        }
    }
    let mut endpoints = json!({"metadata": {"labels": labels}});
    if subset.as_object().is_some_and(|fields| !fields.is_empty()) {
        let ports = targets.first().map(|target| target.ports.clone()).unwrap_or_default();
        let unnamed = ports.into_iter().map(|mut port| {
            if port["name"] == ""
                && let Some(fields) = port.as_object_mut()
            {
                fields.remove("name");
            }
            port
        });
        subset["ports"] = unnamed.collect();
        endpoints["subsets"] = json!([subset]);
    }
    endpoints
}

async fn write_endpoints(actor: &Actor, key: &Key, wanted: Value) {
    let resource = endpoints();
    if actor.get(&resource, key).is_none() {
        let mut made = wanted;
        made["metadata"]["name"] = json!(key.name);
        actor.create(&resource, &key.namespace, made).await;
        return;
    }
    actor.modify(&resource, key, |stored| {
        let before = stored.clone();
        stored["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
        match (wanted.get("subsets"), stored.as_object_mut()) {
            (Some(subsets), Some(stored)) => drop(stored.insert("subsets".to_owned(), subsets.clone())),
            (None, Some(stored)) => drop(stored.remove("subsets")),
            (_, None) => {}
        }
        *stored != before
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Value {
        json!({"metadata": {"name": "s", "namespace": "a", "labels": {"l": "1"}}, "spec": {
            "clusterIP": "None", "ports": [{"port": 80, "targetPort": "web", "protocol": "TCP"}]}})
    }

    fn pod(name: &str, ready: &str) -> Value {
        let ports = json!([{"name": "web", "containerPort": 8080, "protocol": "TCP"}]);
        json!({"metadata": {"name": name, "namespace": "a", "uid": name},
               "spec": {"nodeName": "n", "containers": [{"ports": ports}]},
               "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn a_slice_tells_who_is_ready_and_where() {
        let service = service();
        let targets: Vec<Target> = [pod("p", "True"), pod("q", "False")]
            .iter()
            .filter_map(|pod| target(&service, pod))
            .collect();
        let slice = slice(&service, &targets);
        assert_eq!(slice["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
        assert_eq!(slice["endpoints"][0]["conditions"]["ready"], true);
        assert_eq!(slice["endpoints"][1]["conditions"]["ready"], false);
        assert_eq!(slice["metadata"]["labels"][HEADLESS], "");
        let list = list(&service, &targets);
        assert_eq!(list["subsets"][0]["addresses"][0]["targetRef"]["name"], "p");
        assert_eq!(list["subsets"][0]["notReadyAddresses"][0]["targetRef"]["name"], "q");
        assert_eq!(list["subsets"][0]["ports"], json!([{"port": 8080, "protocol": "TCP"}]));
    }

    #[test]
    fn who_has_no_address_is_no_endpoint() {
        let mut unbound = pod("p", "False");
        unbound["status"] = json!({});
        assert!(target(&service(), &unbound).is_none());
    }
}
