//! The cells of the built-in kinds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::age::since;
use super::{endpoints, pod, workloads};

/// Makes the cells of one object.
pub(super) type Cells = fn(&Value, Timestamp) -> Vec<Value>;

pub(super) fn cells_of(kind: &str) -> Cells {
    match kind {
        "Pod" => pod::cells,
        "Node" => node,
        "Namespace" => |object, now| vec![name(object), text(object, "/status/phase").into(), age(object, now)],
        "Service" => service,
        "ConfigMap" => |object, now| {
            vec![
                name(object),
                (count(object, "/data") + count(object, "/binaryData")).into(),
                age(object, now),
            ]
        },
        "Secret" => |object, now| {
            vec![
                name(object),
                text(object, "/type").into(),
                count(object, "/data").into(),
                age(object, now),
            ]
        },
        "ServiceAccount" | "ResourceClaimTemplate" | "DeviceClass" => {
            |object, now| vec![name(object), age(object, now)]
        }
        "Deployment" => workloads::deployment,
        "NetworkPolicy" => workloads::policy,
        "Endpoints" => endpoints::endpoints,
        "EndpointSlice" => endpoints::slice,
        "Event" => event,
        "Lease" => |object, now| {
            vec![
                name(object),
                text(object, "/spec/holderIdentity").into(),
                age(object, now),
            ]
        },
        "ControllerRevision" => controller_revision,
        "PodDisruptionBudget" => pod_disruption_budget,
        "HorizontalPodAutoscaler" => horizontal_pod_autoscaler,
        "PriorityClass" => priority_class,
        "RoleBinding" | "ClusterRoleBinding" => role_binding,
        "ResourceClaim" => resource_claim,
        "ResourceQuota" => resource_quota,
        "ResourceSlice" => resource_slice,
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => |object, now| {
            vec![
                name(object),
                array(object, "/webhooks").count().into(),
                age(object, now),
            ]
        },
        _ => |object, _| vec![name(object), text(object, "/metadata/creationTimestamp").into()],
    }
}

/// What a row says about its object beside the cells: whether a pod has run to its end.
pub(super) fn conditions_of(object: &Value) -> Option<Value> {
    if object["kind"] != "Pod" || object["apiVersion"] != "v1" {
        return None;
    }
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// The text at a pointer, or nothing.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn int(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

pub(super) fn array<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

pub(super) fn or_none(text: &str) -> Value {
    Value::from(if text.is_empty() { "<none>" } else { text })
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(time(object, "/metadata/creationTimestamp"), now).into()
}

pub(super) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

fn count(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, Map::len)
}

fn fields<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

/// The text of a value that may be a number or a text.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = array(object, "/status/conditions").find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|ready| ready["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == true {
        status += ",SchedulingDisabled";
    }
    let roles: BTreeSet<&str> = fields(object, "/metadata/labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    let address = |ty: &str| {
        let found = array(object, "/status/addresses").find(|address| address["type"] == ty);
        or_none(
            found
                .and_then(|address| address["address"].as_str())
                .unwrap_or_default(),
        )
    };
    let about = |field: &str| text(object, &format!("/status/nodeInfo/{field}")).to_owned();
    let or_unknown = |text: String| if text.is_empty() { "<unknown>".to_owned() } else { text };
    let mut kernel = or_unknown(about("kernelVersion"));
    if !about("architecture").is_empty() {
        kernel += &format!(" ({})", about("architecture"));
    }
    vec![
        name(object),
        status.into(),
        or_none(&roles.into_iter().collect::<Vec<_>>().join(",")),
        age(object, now),
        about("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        or_unknown(about("osImage")).into(),
        kernel.into(),
        or_unknown(about("containerRuntimeVersion")).into(),
    ]
}

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| {
        let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
        match int(port, "/nodePort") {
            0 => format!("{number}/{protocol}"),
            on_node => format!("{number}:{on_node}/{protocol}"),
        }
    };
    let ports: Vec<String> = array(object, "/spec/ports").map(port).collect();
    let selector: Vec<String> = fields(object, "/spec/selector")
        .map(|(key, value)| format!("{key}={}", shown(value)))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    vec![
        name(object),
        text(object, "/spec/type").into(),
        or_none(text(object, "/spec/clusterIPs/0")),
        external_address(object),
        or_none(&ports.join(",")),
        age(object, now),
        or_none(&selector.join(",")),
    ]
}

fn external_address(service: &Value) -> Value {
    let of_spec = array(service, "/spec/externalIPs").filter_map(Value::as_str);
    let of_balancer = || {
        let ingress = array(service, "/status/loadBalancer/ingress");
        let addresses = ingress.filter_map(|one| one["ip"].as_str().or(one["hostname"].as_str()));
        addresses.collect::<BTreeSet<_>>().into_iter()
    };
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => or_none(&of_spec.collect::<Vec<_>>().join(",")),
        "LoadBalancer" => match of_balancer().chain(of_spec).collect::<Vec<_>>().join(",") {
            none if none.is_empty() => "<pending>".into(),
            addresses => addresses.into(),
        },
        "ExternalName" => text(service, "/spec/externalName").into(),
        _ => "<unknown>".into(),
    }
}

/// Events have two shapes, core and events.k8s.io; a field is under the first name that is there.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |names: &[&'static str]| {
        names
            .iter()
            .copied()
            .find(|name| object.pointer(name).is_some_and(|value| !value.is_null()))
            .unwrap_or_default()
    };
    let about = either(&["/involvedObject", "/regarding"]);
    let source = either(&["/source", "/deprecatedSource"]);
    let moment = |names: &[&'static str]| time(object, either(names));
    let first = moment(&["/firstTimestamp", "/deprecatedFirstTimestamp"]).or_else(|| time(object, "/eventTime"));
    let last = moment(&["/lastTimestamp", "/deprecatedLastTimestamp"]).or(first);
    let series = object.get("series").filter(|series| !series.is_null());
    let (last, count) = match series {
        Some(series) => (time(series, "/lastObservedTime"), int(series, "/count")),
        None => (last, int(object, either(&["/count", "/deprecatedCount"])).max(1)),
    };
    let of = |parent: &str, field: &str| text(object, &format!("{parent}/{field}")).to_owned();
    let kind = of(about, "kind").to_lowercase();
    let target = match of(about, "name") {
        none if none.is_empty() => kind,
        name => format!("{kind}/{name}"),
    };
    let or_else = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    let component = or_else(
        of(source, "component"),
        text(object, either(&["/reportingComponent", "/reportingController"])),
    );
    let instance = or_else(of(source, "host"), text(object, "/reportingInstance"));
    let reporter = if instance.is_empty() {
        component
    } else {
        format!("{component}, {instance}")
    };
    vec![
        since(last, now).into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        target.into(),
        of(about, "fieldPath").into(),
        reporter.into(),
        text(object, either(&["/message", "/note"])).trim().into(),
        since(first, now).into(),
        count.into(),
        name(object),
    ]
}

fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = array(object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
    let controller = owner.map(|owner| {
        let group = text(owner, "/apiVersion")
            .split_once('/')
            .map_or(String::new(), |(group, _)| format!(".{group}"));
        format!(
            "{}{group}/{}",
            text(owner, "/kind").to_lowercase(),
            text(owner, "/name")
        )
    });
    vec![
        name(object),
        or_none(&controller.unwrap_or_default()),
        int(object, "/revision").into(),
        age(object, now),
    ]
}

fn pod_disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |field: &str| object["spec"].get(field).map_or_else(|| "N/A".to_owned(), shown);
    vec![
        name(object),
        bound("minAvailable").into(),
        bound("maxUnavailable").into(),
        int(object, "/status/disruptionsAllowed").into(),
        age(object, now),
    ]
}

fn horizontal_pod_autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let target = format!(
        "{}/{}",
        text(object, "/spec/scaleTargetRef/kind"),
        text(object, "/spec/scaleTargetRef/name")
    );
    let min = object
        .pointer("/spec/minReplicas")
        .map_or_else(|| "<unset>".to_owned(), shown);
    vec![
        name(object),
        target.into(),
        metrics(object).into(),
        min.into(),
        int(object, "/spec/maxReplicas").into(),
        int(object, "/status/currentReplicas").into(),
        age(object, now),
    ]
}

/// The first two metrics as `current/target`, and how many more there are.
fn metrics(object: &Value) -> String {
    let current: Vec<&Value> = array(object, "/status/currentMetrics").collect();
    let metric = |(at, spec): (usize, &Value)| {
        let (source, prefix) = match text(spec, "/type") {
            "Resource" => ("resource", format!("{}: ", text(spec, "/resource/name"))),
            "ContainerResource" => (
                "containerResource",
                format!("{}: ", text(spec, "/containerResource/name")),
            ),
            "Pods" => ("pods", String::new()),
            "Object" => ("object", String::new()),
            "External" => ("external", String::new()),
            _ => return "<unknown type>".to_owned(),
        };
        let target = &spec[source]["target"];
        let (field, unit) = match (source, target.get("averageValue").is_some()) {
            ("object" | "external", true) => ("averageValue", " (avg)"),
            ("object" | "external", false) => ("value", ""),
            (_, true) => ("averageValue", ""),
            (_, false) => ("averageUtilization", "%"),
        };
        let now = current
            .get(at)
            .and_then(|status| status.get(source)?.get("current")?.get(field));
        let percent = |value: &Value| {
            if unit == "%" {
                format!("{}%", shown(value))
            } else {
                shown(value)
            }
        };
        let now = now.map_or_else(|| "<unknown>".to_owned(), percent);
        let wanted = target.get(field).map_or_else(|| "<auto>".to_owned(), percent);
        format!("{prefix}{now}/{wanted}{}", if unit == "%" { "" } else { unit })
    };
    let all: Vec<String> = array(object, "/spec/metrics").enumerate().map(metric).collect();
    match all.as_slice() {
        [] => "<none>".to_owned(),
        [first, second, rest @ ..] if !rest.is_empty() => format!("{first}, {second} + {} more...", rest.len()),
        few => few.join(", "),
    }
}

fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        int(object, "/value").into(),
        (object["globalDefault"] == true).into(),
        age(object, now),
        text(object, "/preemptionPolicy").into(),
    ]
}

fn role_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| {
        let of_kind = array(object, "/subjects").filter(|subject| subject["kind"] == kind);
        let shown = of_kind.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
            _ => text(subject, "/name").to_owned(),
        });
        Value::from(shown.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(object),
        role.into(),
        age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

/// What is used of what is allowed: requests and counts first, limits apart.
fn resource_quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in fields(object, "/status/hard") {
        // What nobody uses yet is told as zero.
        let used = object["status"]["used"]
            .get(resource)
            .map_or_else(|| "0".to_owned(), shown);
        let told = format!("{resource}: {used}/{}", shown(hard));
        match resource.starts_with("limits.") {
            true => limits.push(told),
            false => requests.push(told),
        }
    }
    vec![
        name(object),
        requests.join(", ").into(),
        limits.join(", ").into(),
        age(object, now),
    ]
}

fn resource_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_set = |pointer: &str| object.pointer(pointer).is_some_and(|value| !value.is_null());
    let is_deleted = is_set("/metadata/deletionTimestamp");
    let mut states = Vec::new();
    if is_deleted {
        states.push("deleted");
    }
    if is_set("/status/allocation") {
        states.push("allocated");
        if array(object, "/status/reservedFor").next().is_some() {
            states.push("reserved");
        }
    } else if !is_deleted {
        states.push("pending");
    }
    vec![name(object), states.join(",").into(), age(object, now)]
}

fn resource_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, "/spec/nodeName").into(),
        text(object, "/spec/driver").into(),
        text(object, "/spec/pool/name").into(),
        age(object, now),
    ]
}
