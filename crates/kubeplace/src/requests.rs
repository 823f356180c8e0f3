//! What a pod asks of a node, as Kubernetes counts it.
//!
//! ```text
//! max( containers + sidecars,  each init container + the sidecars started before it )  or the pod's own request
//!   + overhead
//! ```
//! Ports and places are not counted here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::{Round, amount};

/// Amounts by name of the resource, in the units of [`amount`].
pub type Requests = BTreeMap<String, u64>;

type Quantities = BTreeMap<String, Quantity>;

/// The resource that every pod takes one of.
pub const PODS: &str = "pods";

/// What a pod with this spec asks for, itself as one of the node's pods included.
pub fn of_spec(spec: &PodSpec) -> Requests {
    total(spec, |container| of_container(container.resources.as_ref()))
}

/// What a pod that runs holds: while it is being resized, the larger of what it has and asks for. What its node has said
/// it will never give it does not count.
pub fn of_pod(pod: &Pod) -> Requests {
    let Some(spec) = &pod.spec else {
        return Requests::new();
    };
    let status = pod.status.as_ref();
    let containers = status.iter().flat_map(|status| &status.container_statuses).flatten();
    let init = status
        .iter()
        .flat_map(|status| &status.init_container_statuses)
        .flatten();
    let statuses: BTreeMap<&str, &ContainerStatus> = containers
        .chain(init)
        .map(|status| (status.name.as_str(), status))
        .collect();
    let is_refused = status.is_some_and(is_resize_refused);
    let mut requests = total(spec, |container| {
        let asked = of_container(container.resources.as_ref());
        let Some(status) = statuses.get(container.name.as_str()) else {
            return asked;
        };
        let actual = status.resources.as_ref().and_then(|actual| actual.requests.as_ref());
        resized(asked, [actual, status.allocated_resources.as_ref()], is_refused)
    });
    if let Some(resources) = &spec.resources {
        let actual = status.and_then(|status| status.resources.as_ref()?.requests.as_ref());
        let allocated = status.and_then(|status| status.allocated_resources.as_ref());
        let asked = resources.requests.as_ref().map(amounts).unwrap_or_default();
        let overhead = spec.overhead.as_ref().map(amounts).unwrap_or_default();
        let mut held = resized(asked.clone(), [actual, allocated], is_refused);
        held.retain(|resource, _| asked.contains_key(resource));
        for resource in held.keys() {
            requests.insert(resource.clone(), overhead.get(resource).copied().unwrap_or(0));
        }
        add(&mut requests, &held);
    }
    requests
}

/// What counts of what is asked for and what is held of it, as far as that is known.
fn resized(asked: Requests, held: [Option<&Quantities>; 2], is_refused: bool) -> Requests {
    let mut counted = match is_refused && held.iter().any(Option::is_some) {
        true => Requests::new(),
        false => asked,
    };
    for held in held.into_iter().flatten() {
        raise(&mut counted, &amounts(held));
    }
    counted
}

/// Whether the node has said that it can never hold what the pod now asks for.
fn is_resize_refused(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions
        .any(|condition| condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible"))
}

fn total(spec: &PodSpec, of: impl Fn(&Container) -> Requests) -> Requests {
    let mut running = Requests::new();
    for container in &spec.containers {
        add(&mut running, &of(container));
    }
    let mut sidecars = Requests::new();
    let mut starting = Requests::new();
    for container in spec.init_containers.iter().flatten() {
        let asked = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sidecars, &asked);
            raise(&mut starting, &sidecars);
        } else {
            let mut together = sidecars.clone();
            add(&mut together, &asked);
            raise(&mut starting, &together);
        }
    }
    add(&mut running, &sidecars);
    raise(&mut running, &starting);
    if let Some(resources) = &spec.resources {
        replace_by_pod_level(&mut running, resources);
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut running, &amounts(overhead));
    }
    running.retain(|_, amount| *amount > 0);
    running.insert(PODS.to_owned(), 1);
    running
}

/// A request for the whole pod stands in place of what its containers ask for. Where only a limit is given it counts
/// unless the containers ask for something.
fn replace_by_pod_level(running: &mut Requests, resources: &ResourceRequirements) {
    for (resource, limit) in resources.limits.iter().flatten() {
        running
            .entry(resource.clone())
            .or_insert_with(|| amount(resource, limit, Round::Up));
    }
    running.extend(amounts(resources.requests.as_ref().unwrap_or(&Quantities::new())));
}

/// What a container asks for; the API server fills in a missing request from the limit.
fn of_container(resources: Option<&ResourceRequirements>) -> Requests {
    let Some(resources) = resources else {
        return Requests::new();
    };
    let mut requests = resources.limits.as_ref().map(amounts).unwrap_or_default();
    requests.extend(resources.requests.as_ref().map(amounts).unwrap_or_default());
    requests
}

fn amounts(quantities: &Quantities) -> Requests {
    let rounded = |(name, quantity): (&String, &Quantity)| (name.clone(), amount(name, quantity, Round::Up));
    quantities.iter().map(rounded).collect()
}

fn add(to: &mut Requests, more: &Requests) {
    for (resource, amount) in more {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn raise(to: &mut Requests, at_least: &Requests) {
    for (resource, amount) in at_least {
        let most = to.entry(resource.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec, "status": status})).unwrap()
    }

    fn cpu_and_memory(spec: Value) -> (u64, u64) {
        let requests = of_pod(&pod(spec, json!({})));
        assert_eq!(requests[PODS], 1);
        let of = |name: &str| requests.get(name).copied().unwrap_or(0);
        (of("cpu"), of("memory"))
    }

    fn container(name: &str, cpu: &str, memory: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(name: &str, cpu: &str) -> Value {
        json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn containers_add_up_and_the_largest_init_container_counts_if_larger() {
        let containers = json!([container("a", "1", "100"), container("b", "500m", "50")]);
        assert_eq!(cpu_and_memory(json!({"containers": containers})), (1500, 150));
        let init = json!([container("i", "1", "400"), container("j", "2", "10")]);
        let spec = json!({"containers": containers, "initContainers": init});
        assert_eq!(cpu_and_memory(spec), (2000, 400));
    }

    #[test]
    fn a_sidecar_runs_beside_the_containers_and_beside_later_init_containers() {
        let init = json!([sidecar("s", "200m"), container("i", "1", "10"), sidecar("t", "100m")]);
        let spec = |cpu: &str| json!({"containers": [container("a", cpu, "1")], "initContainers": init});
        assert_eq!(cpu_and_memory(spec("1")).0, 1300, "both sidecars beside the container");
        assert_eq!(
            cpu_and_memory(spec("500m")).0,
            1200,
            "the first one beside the init container"
        );
    }

    #[test]
    fn overhead_comes_on_top_and_a_limit_stands_in_for_a_request() {
        let limited = json!({"name": "a", "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "8"}}});
        let spec = json!({"containers": [limited], "overhead": {"cpu": "250m"}});
        let requests = of_pod(&pod(spec, json!({})));
        assert_eq!((requests["cpu"], requests["nvidia.com/gpu"]), (2250, 8));
    }

    #[test]
    fn a_request_of_the_whole_pod_replaces_the_sum() {
        let spec = |resources: Value| json!({"containers": [container("a", "1", "100")], "resources": resources});
        assert_eq!(cpu_and_memory(spec(json!({"requests": {"cpu": "4"}}))), (4000, 100));
        assert_eq!(cpu_and_memory(spec(json!({"limits": {"cpu": "4"}}))), (1000, 100));
    }

    #[test]
    fn a_pod_that_shrinks_still_holds_what_it_had() {
        let spec = json!({"containers": [container("a", "1", "100")]});
        let status = json!({"containerStatuses": [{"name": "a", "ready": true, "restartCount": 0, "image": "",
            "imageID": "", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"memory": "50"}}]});
        let requests = of_pod(&pod(spec, status));
        assert_eq!((requests["cpu"], requests["memory"]), (3000, 100));
    }

    #[test]
    fn what_a_node_will_never_give_does_not_count() {
        let spec = json!({"containers": [container("a", "9", "100")]});
        let status = |reason: &str| {
            json!({
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                "containerStatuses": [{"name": "a", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                    "resources": {"requests": {"cpu": "2", "memory": "100"}}}],
            })
        };
        let cpu = |reason: &str| of_pod(&pod(spec.clone(), status(reason)))["cpu"];
        assert_eq!((cpu("Deferred"), cpu("Infeasible")), (9000, 2000));
    }

    #[test]
    fn a_pod_that_shrinks_as_a_whole_still_holds_what_it_had() {
        let spec = json!({"containers": [container("a", "1", "100")], "resources": {"requests": {"cpu": "2"}},
            "overhead": {"cpu": "100m"}});
        let status = json!({"resources": {"requests": {"cpu": "5", "memory": "900"}}});
        let requests = of_pod(&pod(spec, status));
        assert_eq!((requests["cpu"], requests["memory"]), (5100, 100));
    }

    #[test]
    fn a_pod_that_asks_for_nothing_still_takes_a_place() {
        let requests = of_pod(&pod(json!({"containers": [{"name": "a"}]}), json!({})));
        assert_eq!(requests, Requests::from([(PODS.to_owned(), 1)]));
    }
}
