//! What containers must look like.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::resources;
use crate::rules::check::{Findings, config_key_problem, port_name_problem, text};
use crate::rules::kinds::items;
use crate::rules::names;
use crate::status::FieldError;

/// The most that Go's own numbers for users and groups hold.
pub(super) const ID_MAX: i64 = 2_147_483_647;

/// Judges one container of a pod's spec, which stands at `at`.
pub(super) fn validate(found: &mut Findings, spec: &Value, container: &Value, at: &str) {
    if text(&container["image"]).is_empty() {
        found.required(format!("{at}.image"), "");
    }
    let policies = ["File", "FallbackToLogsOnError"];
    let policy = &container["terminationMessagePolicy"];
    found.one_of(format!("{at}.terminationMessagePolicy"), policy, &policies);
    ports(found, container, at);
    environment(found, container, at);
    mounts(found, spec, container, at);
    let pull = ["Always", "IfNotPresent", "Never"];
    found.one_of(format!("{at}.imagePullPolicy"), &container["imagePullPolicy"], &pull);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[probe].is_object() {
            validate_probe(found, &container[probe], &format!("{at}.{probe}"), probe);
        }
    }
    for event in ["postStart", "preStop"] {
        let handler = &container["lifecycle"][event];
        if handler.is_object() {
            validate_handler(found, handler, &format!("{at}.lifecycle.{event}"), true);
        }
    }
    security(found, &container["securityContext"], &format!("{at}.securityContext"));
    let (asked, at) = (&container["resources"], format!("{at}.resources"));
    found.errors.extend(resources::validate(asked, &at));
    claims(found, spec, asked, &at);
}

/// Containers that run before the others have nothing to be probed, unless they go on beside them.
pub(super) fn validate_init(found: &mut Findings, container: &Value, at: &str) {
    let policies = ["Always", "Never", "OnFailure"];
    found.one_of(format!("{at}.restartPolicy"), &container["restartPolicy"], &policies);
    if container["restartPolicy"] == "Always" {
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if container[field].is_object() {
            let why = "may not be set for init containers without restartPolicy=Always";
            found.forbidden(format!("{at}.{field}"), why);
        }
    }
}

fn ports(found: &mut Findings, container: &Value, at: &str) {
    let mut seen = BTreeSet::new();
    for (i, port) in items(container, "ports").enumerate() {
        let at = format!("{at}.ports[{i}]");
        let name = text(&port["name"]);
        if !name.is_empty() {
            found.fits(format!("{at}.name"), &port["name"], port_name_problem);
            if !seen.insert(name) {
                found.errors.push(FieldError::duplicate(format!("{at}.name"), name));
            }
        }
        match port["containerPort"].as_i64() {
            None | Some(0) => found.required(format!("{at}.containerPort"), ""),
            Some(_) => found.port(format!("{at}.containerPort"), &port["containerPort"]),
        }
        if port["hostPort"].as_i64().is_some_and(|port| port != 0) {
            found.port(format!("{at}.hostPort"), &port["hostPort"]);
        }
        found.one_of(format!("{at}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

fn environment(found: &mut Findings, container: &Value, at: &str) {
    for (i, variable) in items(container, "env").enumerate() {
        let at = format!("{at}.env[{i}]");
        let name = text(&variable["name"]);
        if name.is_empty() {
            found.required(format!("{at}.name"), "");
        } else if !name.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
            let why =
                "a valid environment variable name must consist only of printable ASCII characters other than '='";
            found.invalid(format!("{at}.name"), &variable["name"], why);
        }
        let (source, at) = (&variable["valueFrom"], format!("{at}.valueFrom"));
        if !source.is_object() {
            continue;
        }
        let kinds = [
            "fieldRef",
            "resourceFieldRef",
            "configMapKeyRef",
            "secretKeyRef",
            "fileKeyRef",
        ];
        match kinds.iter().filter(|kind| source[**kind].is_object()).count() {
            0 => {
                let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
                found.invalid(&at, &json!(""), why);
            }
            1 if !text(&variable["value"]).is_empty() => {
                found.invalid(&at, &json!(""), "may not be specified when `value` is not empty");
            }
            1 => {}
            _ => found.invalid(&at, &json!(""), "may not have more than one field specified at a time"),
        }
        field_reference(found, &source["fieldRef"], &format!("{at}.fieldRef"), &ENV_FIELDS);
        resource_reference(
            found,
            &source["resourceFieldRef"],
            &format!("{at}.resourceFieldRef"),
            false,
        );
        for kind in ["configMapKeyRef", "secretKeyRef"] {
            if source[kind].is_object() {
                let at = format!("{at}.{kind}");
                found.fits(format!("{at}.name"), &source[kind]["name"], names::subdomain_problem);
                found.named(&format!("{at}.key"), &source[kind]["key"], config_key_problem);
            }
        }
    }
    for (i, source) in items(container, "envFrom").enumerate() {
        for kind in ["configMapRef", "secretRef"] {
            if source[kind].is_object() {
                let at = format!("{at}.envFrom[{i}].{kind}.name");
                found.named(&at, &source[kind]["name"], names::subdomain_problem);
            }
        }
    }
}

/// What environments can tell of a pod.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What files can tell of a pod.
pub(super) const FILE_FIELDS: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];

pub(super) fn field_reference(found: &mut Findings, field: &Value, at: &str, allowed: &[&str]) {
    if !field.is_object() {
        return;
    }
    let at = format!("{at}.fieldPath");
    if !found.needs(&at, &field["fieldPath"]) {
        return;
    }
    let path = text(&field["fieldPath"]);
    let is_known = ENV_FIELDS.contains(&path) || FILE_FIELDS.contains(&path);
    let of_key = ["metadata.labels['", "metadata.annotations['"];
    let is_key = of_key.iter().any(|start| path.starts_with(start)) && path.ends_with("']");
    if text(&field["apiVersion"]) != "v1" {
        let why = format!(
            "error converting fieldPath: unsupported pod version: {}",
            text(&field["apiVersion"])
        );
        found.invalid(at, &field["fieldPath"], &why);
    } else if !is_known && !is_key {
        let why = format!("error converting fieldPath: field label not supported: {path}");
        found.invalid(at, &field["fieldPath"], &why);
    } else if !is_key && !allowed.contains(&path) {
        found.one_of(at, &field["fieldPath"], allowed);
    }
}

pub(super) fn resource_reference(found: &mut Findings, field: &Value, at: &str, of_volume: bool) {
    if !field.is_object() {
        return;
    }
    if of_volume && !found.needs(format!("{at}.containerName"), &field["containerName"]) {
        return;
    }
    if !found.needs(format!("{at}.resource"), &field["resource"]) {
        return;
    }
    let resource = text(&field["resource"]);
    let known = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    if !known.contains(&resource) && !resource.contains(".hugepages-") {
        found.one_of(format!("{at}.resource"), &field["resource"], &known);
    } else if resource.ends_with(".cpu") && !["", "0", "1", "1m"].contains(&text(&field["divisor"])) {
        let why = "only divisor's values 1m and 1 are supported with the cpu resource";
        found.invalid(format!("{at}.divisor"), &field["resource"], why);
    }
}

fn mounts(found: &mut Findings, spec: &Value, container: &Value, at: &str) {
    let mut seen = BTreeSet::new();
    for (i, mount) in items(container, "volumeMounts").enumerate() {
        let path = format!("{at}.volumeMounts[{i}]");
        found.needs(format!("{path}.name"), &mount["name"]);
        let is_volume = |volume: &Value| volume["name"] == mount["name"] && super::volume::is_sound(volume);
        if !items(spec, "volumes").any(is_volume) {
            let error = FieldError::not_found(format!("{path}.name"), text(&mount["name"]));
            found.errors.push(error);
        }
        if found.needs(format!("{path}.mountPath"), &mount["mountPath"]) && !seen.insert(text(&mount["mountPath"])) {
            found.invalid(format!("{path}.mountPath"), &mount["mountPath"], "must be unique");
        }
        let ways = ["Bidirectional", "HostToContainer", "None"];
        found.one_of(
            format!("{at}.volumeMounts.mountPropagation"),
            &mount["mountPropagation"],
            &ways,
        );
    }
}

fn validate_probe(found: &mut Findings, probe: &Value, at: &str, kind: &str) {
    validate_handler(found, probe, at, false);
    let times = [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ];
    for field in times {
        found.not_negative(format!("{at}.{field}"), &probe[field]);
    }
    if kind != "readinessProbe" && probe["successThreshold"].as_i64().is_some_and(|count| count != 1) {
        found.invalid(
            format!("{at}.successThreshold"),
            &probe["successThreshold"],
            "must be 1",
        );
    }
    let grace = &probe["terminationGracePeriodSeconds"];
    match (kind, grace.as_i64()) {
        ("readinessProbe", Some(_)) => {
            let why = "must not be set for readinessProbes";
            found.invalid(format!("{at}.terminationGracePeriodSeconds"), grace, why);
        }
        (_, Some(secs)) if secs <= 0 => {
            found.invalid(
                format!("{at}.terminationGracePeriodSeconds"),
                grace,
                "must be greater than 0",
            );
        }
        _ => {}
    }
}

fn validate_handler(found: &mut Findings, handler: &Value, at: &str, can_sleep: bool) {
    let ways = ["exec", "httpGet", "tcpSocket", if can_sleep { "sleep" } else { "grpc" }];
    let mut there = ways.iter().filter(|way| handler[**way].is_object());
    if there.next().is_none() {
        found.required(at, "must specify a handler type");
    }
    for way in there {
        found.forbidden(format!("{at}.{way}"), "may not specify more than 1 handler type");
    }
    if handler["exec"].is_object() && items(&handler["exec"], "command").next().is_none() {
        found.required(format!("{at}.exec.command"), "");
    }
    if handler["grpc"].is_object() {
        found.port(format!("{at}.grpc.port"), &handler["grpc"]["port"]);
    }
    if handler["tcpSocket"].is_object() {
        found.port_or_name(format!("{at}.tcpSocket.port"), &handler["tcpSocket"]["port"]);
    }
    let get = &handler["httpGet"];
    if get.is_object() {
        let at = format!("{at}.httpGet");
        found.needs(format!("{at}.path"), &get["path"]);
        found.port_or_name(format!("{at}.port"), &get["port"]);
        found.one_of(format!("{at}.scheme"), &get["scheme"], &["HTTP", "HTTPS"]);
        for header in items(get, "httpHeaders") {
            found.fits(format!("{at}.httpHeaders"), &header["name"], header_problem);
        }
    }
}

fn header_problem(name: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let why = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
    (name.is_empty() || !name.chars().all(legal)).then(|| why.to_owned())
}

fn security(found: &mut Findings, context: &Value, at: &str) {
    for field in ["runAsUser", "runAsGroup"] {
        found.between(format!("{at}.{field}"), &context[field], 0, ID_MAX);
    }
    found.one_of(
        format!("{at}.procMount"),
        &context["procMount"],
        &["Default", "Unmasked"],
    );
    seccomp(found, &context["seccompProfile"], &format!("{at}.seccompProfile"));
    if context["allowPrivilegeEscalation"] == false {
        let why = match context["privileged"] == true {
            true => "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            false => "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
        };
        let adds = items(&context["capabilities"], "add").any(|name| name == "CAP_SYS_ADMIN");
        if context["privileged"] == true || adds {
            found.invalid(at, context, why);
        }
    }
}

pub(super) fn seccomp(found: &mut Findings, profile: &Value, at: &str) {
    if !profile.is_object() {
        return;
    }
    let local = &profile["localhostProfile"];
    match text(&profile["type"]) {
        "" => found.required(format!("{at}.type"), "type is required when seccompProfile is set"),
        _ => found.one_of(
            format!("{at}.type"),
            &profile["type"],
            &["Localhost", "RuntimeDefault", "Unconfined"],
        ),
    }
    match (profile["type"] == "Localhost", local.is_null()) {
        (true, true) => found.required(
            format!("{at}.localhostProfile"),
            "must be set when seccomp type is Localhost",
        ),
        (false, false) => {
            let why = "can only be set when seccomp type is Localhost";
            found.invalid(format!("{at}.localhostProfile"), profile, why);
        }
        _ => {}
    }
}

fn claims(found: &mut Findings, spec: &Value, asked: &Value, at: &str) {
    for (i, claim) in items(asked, "claims").enumerate() {
        let at = format!("{at}.claims[{i}]");
        let known = items(spec, "resourceClaims").any(|known| known["name"] == claim["name"]);
        if found.needs(&at, &claim["name"]) && !known {
            found.errors.push(FieldError::not_found(at, &claim["name"]));
        }
    }
}
