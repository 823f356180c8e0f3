//! What the spec of a pod or of a template must look like.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{container, placement, volume};
use crate::rules::check::{Findings, text};
use crate::rules::kinds::items;
use crate::rules::names;
use crate::status::FieldError;

/// Judges the spec of a pod or of a template, which stands at `at`.
pub(in crate::rules) fn validate_spec(spec: &Value, at: &str) -> Vec<FieldError> {
    let found = &mut Findings::default();
    volume::validate_all(found, spec, at);
    claims(found, spec, at);
    if items(spec, "containers").next().is_none() {
        found.required(format!("{at}.containers"), "");
    }
    let mut seen = BTreeSet::new();
    for list in ["initContainers", "containers"] {
        for (i, container) in items(spec, list).enumerate() {
            let path = format!("{at}.{list}[{i}]");
            let name = text(&container["name"]);
            found.named(&format!("{path}.name"), &container["name"], names::dns_label_problem);
            if !name.is_empty() && !seen.insert(name) {
                found.errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            container::validate(found, spec, container, &path);
            if list == "initContainers" {
                container::validate_init(found, container, &path);
            }
        }
    }
    let policies = ["Always", "OnFailure", "Never"];
    let policy = json!(text(&spec["restartPolicy"]));
    found.one_of(format!("{at}.restartPolicy"), &policy, &policies);
    host(found, spec, at);
    dns(found, spec, at);
    security(found, &spec["securityContext"], &format!("{at}.securityContext"));
    placement::validate(found, spec, at);
    let deadline = &spec["activeDeadlineSeconds"];
    found.between(format!("{at}.activeDeadlineSeconds"), deadline, 1, container::ID_MAX);
    gates(found, spec, at);
    std::mem::take(&mut found.errors)
}

fn host(found: &mut Findings, spec: &Value, at: &str) {
    for field in ["hostname", "subdomain"] {
        if !text(&spec[field]).is_empty() {
            found.fits(format!("{at}.{field}"), &spec[field], names::dns_label_problem);
        }
    }
    for (i, alias) in items(spec, "hostAliases").enumerate() {
        let at = format!("{at}.hostAliases[{i}]");
        found.address(format!("{at}.ip"), &alias["ip"]);
        for (j, name) in items(alias, "hostnames").enumerate() {
            found.fits(format!("{at}.hostnames[{j}]"), name, names::subdomain_problem);
        }
    }
}

fn dns(found: &mut Findings, spec: &Value, at: &str) {
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    found.one_of(format!("{at}.dnsPolicy"), &spec["dnsPolicy"], &policies);
    let (config, at) = (&spec["dnsConfig"], format!("{at}.dnsConfig"));
    if spec["dnsPolicy"] == "None" && items(config, "nameservers").next().is_none() {
        let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        found.required(format!("{at}.nameservers"), why);
    }
    for (i, server) in items(config, "nameservers").enumerate() {
        found.address(format!("{at}.nameservers[{i}]"), server);
    }
    for (i, search) in items(config, "searches").enumerate() {
        found.fits(format!("{at}.searches[{i}]"), search, search_problem);
    }
    for (i, option) in items(config, "options").enumerate() {
        if text(&option["name"]).is_empty() {
            found.required(format!("{at}.options[{i}]"), "must not be empty");
        }
    }
}

/// A path in which names are looked for may be the root, and have labels with an underscore.
fn search_problem(path: &str) -> Option<String> {
    let path = path.strip_suffix('.').unwrap_or(path);
    let plain: Vec<&str> = path
        .split('.')
        .map(|label| label.strip_prefix('_').unwrap_or(label))
        .collect();
    names::subdomain_problem(&plain.join("."))
}

fn security(found: &mut Findings, context: &Value, at: &str) {
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        found.between(format!("{at}.{field}"), &context[field], 0, container::ID_MAX);
    }
    for (i, group) in items(context, "supplementalGroups").enumerate() {
        found.between(format!("{at}.supplementalGroups[{i}]"), group, 0, container::ID_MAX);
    }
    let policies = ["Always", "OnRootMismatch"];
    found.one_of(
        format!("{at}.fsGroupChangePolicy"),
        &context["fsGroupChangePolicy"],
        &policies,
    );
    for (i, sysctl) in items(context, "sysctls").enumerate() {
        found.named(&format!("{at}.sysctls[{i}].name"), &sysctl["name"], sysctl_problem);
    }
    container::seccomp(found, &context["seccompProfile"], &format!("{at}.seccompProfile"));
}

fn sysctl_problem(name: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| legal(c) || "-_".contains(c);
    let is_part = |part: &str| part.starts_with(legal) && part.ends_with(legal) && part.chars().all(inner);
    let why = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    (name.len() > 253 || !name.split(['.', '/']).all(is_part)).then(|| why.to_owned())
}

fn claims(found: &mut Findings, spec: &Value, at: &str) {
    for (i, claim) in items(spec, "resourceClaims").enumerate() {
        let at = format!("{at}.resourceClaims[{i}]");
        found.named(&format!("{at}.name"), &claim["name"], names::dns_label_problem);
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let there: Vec<&str> = sources
            .into_iter()
            .filter(|source| claim[*source].is_string())
            .collect();
        match there.as_slice() {
            [] => found.invalid(
                &at,
                claim,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            [source] => found.fits(format!("{at}.{source}"), &claim[*source], names::subdomain_problem),
            _ => found.invalid(
                &at,
                claim,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
    }
}

fn gates(found: &mut Findings, spec: &Value, at: &str) {
    let mut seen = BTreeSet::new();
    for (i, gate) in items(spec, "schedulingGates").enumerate() {
        let path = format!("{at}.schedulingGates[{i}]");
        let name = text(&gate["name"]);
        found.fits(&path, &gate["name"], names::label_key_problem);
        if !seen.insert(name) {
            found.errors.push(FieldError::duplicate(&path, name));
        }
    }
    if !seen.is_empty() && !text(&spec["nodeName"]).is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        found.forbidden(format!("{at}.nodeName"), why);
    }
}
