//! Rules of Services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::check::{Findings, text};
use super::kinds::{items, items_mut, set_default, set_default_text};
use super::names;
use crate::status::FieldError;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const SESSION_SECS: i64 = 10_800;

pub(super) fn default(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default_text(spec, "type", "ClusterIP");
    set_default_text(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" {
        set_default(spec, "sessionAffinityConfig", json!({}));
        set_default(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        let client = &mut spec["sessionAffinityConfig"]["clientIP"];
        set_default(client, "timeoutSeconds", json!(SESSION_SECS));
    } else if let Some(spec) = spec.as_object_mut() {
        spec.remove("sessionAffinityConfig");
    }
    if spec["type"] != "ExternalName" {
        set_default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if is_reached_from_outside(spec) {
        set_default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if spec["type"] == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    for port in items_mut(spec, "ports") {
        set_default_text(port, "protocol", "TCP");
        let number = port["port"].clone();
        if port["targetPort"] == "" || port["targetPort"] == 0 {
            port["targetPort"] = Value::Null;
        }
        set_default(port, "targetPort", number);
    }
}

fn is_reached_from_outside(spec: &Value) -> bool {
    match text(&spec["type"]) {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => items(spec, "externalIPs").next().is_some(),
        _ => false,
    }
}

pub(super) fn validate(service: &Value) -> Vec<FieldError> {
    let spec = &service["spec"];
    let found = &mut Findings::default();
    let kind = text(&spec["type"]);
    ports(found, spec, kind);
    found.one_of("spec.type", &spec["type"], &TYPES);
    found.labels("spec.selector", &spec["selector"]);
    found.one_of("spec.sessionAffinity", &spec["sessionAffinity"], &["ClientIP", "None"]);
    let timeout = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if timeout.as_i64().is_some_and(|secs| !(1..=86_400).contains(&secs)) {
        let why = "must be greater than 0 and less than 86400";
        found.invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", timeout, why);
    }
    for (i, address) in items(spec, "externalIPs").enumerate() {
        found.address(format!("spec.externalIPs[{i}]"), address);
    }
    let policies = ["Cluster", "Local"];
    if is_reached_from_outside(spec) {
        found.one_of("spec.externalTrafficPolicy", &spec["externalTrafficPolicy"], &policies);
    } else if !text(&spec["externalTrafficPolicy"]).is_empty() {
        let why = "may only be set for externally-accessible services";
        found.invalid("spec.externalTrafficPolicy", &spec["externalTrafficPolicy"], why);
    }
    found.one_of("spec.internalTrafficPolicy", &spec["internalTrafficPolicy"], &policies);
    match kind {
        "ExternalName" => found.named("spec.externalName", &spec["externalName"], external_name_problem),
        _ => addresses(found, spec),
    }
    balancer(found, spec, kind);
    std::mem::take(&mut found.errors)
}

fn external_name_problem(name: &str) -> Option<String> {
    names::subdomain_problem(name.strip_suffix('.').unwrap_or(name))
}

fn ports(found: &mut Findings, spec: &Value, kind: &str) {
    let portless = spec["clusterIP"] == "None" || kind == "ExternalName";
    let count = items(spec, "ports").count();
    if count == 0 && !portless {
        found.required("spec.ports", "");
    }
    let (mut seen, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for (i, port) in items(spec, "ports").enumerate() {
        let at = format!("spec.ports[{i}]");
        let name = text(&port["name"]);
        match name.is_empty() {
            true if count > 1 => found.required(format!("{at}.name"), ""),
            true => {}
            false => {
                found.fits(format!("{at}.name"), &port["name"], names::dns_label_problem);
                if !seen.insert(name) {
                    found.errors.push(FieldError::duplicate(format!("{at}.name"), name));
                }
            }
        }
        found.port(format!("{at}.port"), &port["port"]);
        found.one_of(format!("{at}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        found.port_or_name(format!("{at}.targetPort"), &port["targetPort"]);
        if port["appProtocol"].is_string() {
            found.fits(
                format!("{at}.appProtocol"),
                &port["appProtocol"],
                names::label_key_problem,
            );
        }
        let node_port = port["nodePort"].as_i64().unwrap_or(0);
        if node_port != 0 && kind == "ClusterIP" {
            found.forbidden(format!("{at}.nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        if !taken.insert((port["port"].to_string(), text(&port["protocol"]))) {
            found.errors.push(FieldError::duplicate(at, port));
        }
    }
}

fn addresses(found: &mut Findings, spec: &Value) {
    for (i, family) in items(spec, "ipFamilies").enumerate() {
        found.one_of(format!("spec.ipFamilies[{i}]"), family, &["IPv4", "IPv6"]);
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    found.one_of("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], &policies);
    let (first, all) = (text(&spec["clusterIP"]), &spec["clusterIPs"]);
    match (first.is_empty(), items(spec, "clusterIPs").next()) {
        (true, Some(_)) => {
            found.invalid(
                "spec.clusterIPs",
                all,
                "must be empty when `clusterIP` is not specified",
            );
            return;
        }
        (false, Some(other)) if *other != first => {
            found.invalid("spec.clusterIPs", all, "first value must match `clusterIP`");
        }
        _ => {}
    }
    for (i, address) in items(spec, "clusterIPs").enumerate() {
        if address != "None" {
            found.address(format!("spec.clusterIPs[{i}]"), address);
        }
    }
}

fn balancer(found: &mut Findings, spec: &Value, kind: &str) {
    let only = "may only be used when `type` is 'LoadBalancer'";
    if kind == "LoadBalancer" {
        for (i, range) in items(spec, "loadBalancerSourceRanges").enumerate() {
            found.network(format!("spec.LoadBalancerSourceRanges[{i}]"), range);
        }
        if spec["loadBalancerClass"].is_string() {
            found.fits(
                "spec.loadBalancerClass",
                &spec["loadBalancerClass"],
                names::label_key_problem,
            );
        }
        return;
    }
    if items(spec, "loadBalancerSourceRanges").next().is_some() {
        found.forbidden("spec.LoadBalancerSourceRanges", only);
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if !spec[field].is_null() {
            found.forbidden(format!("spec.{field}"), only);
        }
    }
}

pub(super) fn validate_status(service: &Value) -> Vec<FieldError> {
    let balanced = service["spec"]["type"] == "LoadBalancer";
    match balanced || items(&service["status"]["loadBalancer"], "ingress").next().is_none() {
        true => Vec::new(),
        false => {
            let why = "may only be used when `spec.type` is 'LoadBalancer'";
            vec![FieldError::forbidden("status.loadBalancer.ingress", why)]
        }
    }
}

/// The address of a service is settled when it gets one.
pub(super) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["spec"]["clusterIP"], &new["spec"]["clusterIP"]);
    let may_change = was.is_null() || was == "" || new["spec"]["type"] == "ExternalName";
    match may_change || was == is {
        true => Vec::new(),
        false => {
            let why = "may not change once set";
            vec![FieldError::invalid("spec.clusterIPs[0]", json!([is]), why)]
        }
    }
}
