//! What the server serves: groups, versions, resources, health.

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use serde_json::{Value, json};

use super::output::Reply;
use super::{Server, header_text, openapi};
use crate::registry::{Registry, Resource, Review, Subresource};
use crate::status::ApiError;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`
pub(super) fn core_versions(host: &str) -> Reply {
    let addresses = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]);
    Reply::json(
        200,
        &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}),
    )
}

/// `/apis`
pub(super) fn groups(registry: &Registry) -> Reply {
    let groups = registry.groups();
    let named = groups.iter().filter(|(name, _)| !name.is_empty());
    let groups: Vec<Value> = named.map(|(name, versions)| group_object(name, versions)).collect();
    Reply::json(
        200,
        &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
    )
}

/// `/apis/<group>`
pub(super) fn group(registry: &Registry, name: &str) -> Reply {
    match registry.groups().get(name).filter(|_| !name.is_empty()) {
        Some(versions) => {
            let mut group = group_object(name, versions);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Reply::json(200, &group)
        }
        None => Reply::page_not_found(),
    }
}

fn group_object(name: &str, versions: &[String]) -> Value {
    let all: Vec<Value> = versions
        .iter()
        .map(|v| json!({"groupVersion": format!("{name}/{v}"), "version": v}))
        .collect();
    json!({"name": name, "versions": all, "preferredVersion": all.first()})
}

/// `/apis/<group>/<version>`
pub(super) fn resources(registry: &Registry, group: &str, version: &str) -> Reply {
    if !registry
        .groups()
        .get(group)
        .is_some_and(|versions| versions.iter().any(|v| v == version))
    {
        return match group {
            "" => Reply::error(&ApiError::unknown_resource()),
            _ => Reply::page_not_found(),
        };
    }
    let mut list: Vec<Value> = served_in(registry, group, version).flat_map(legacy_entries).collect();
    list.extend(reviews_in(group, version).map(|(review, plural, kind)| {
        json!({"name": plural, "singularName": kind.to_lowercase(), "namespaced": review.is_namespaced(), "kind": kind,
               "verbs": ["create"]})
    }));
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut answer = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": list});
    if !group.is_empty() {
        answer["apiVersion"] = json!("v1");
    }
    Reply::json(200, &answer)
}

fn served_in<'a>(registry: &'a Registry, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Resource> {
    let fits = move |r: &&Resource| &*r.name.group == group && r.version(version).is_some();
    registry.iter().map(AsRef::as_ref).filter(fits)
}

fn reviews_in(group: &str, version: &str) -> impl Iterator<Item = (Review, &'static str, &'static str)> {
    let fits = Review::ALL
        .iter()
        .filter(move |(_, g, _, _)| *g == group && version == "v1");
    fits.map(|(review, _, plural, kind)| (*review, *plural, *kind))
}

fn legacy_entries(resource: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": &*resource.name.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    let subresource = |sub: &Subresource| {
        let mut entry = json!({
            "name": format!("{}/{}", resource.name.plural, sub.path()), "singularName": "",
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": sub.verbs(),
        });
        if let Some((group, version, kind)) = sub.answers() {
            entry["kind"] = json!(kind);
            if !group.is_empty() {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
        }
        entry
    };
    std::iter::once(main)
        .chain(resource.subresources.iter().map(subresource))
        .collect()
}

/// `/api` and `/apis` as one document.
pub(super) fn aggregated(registry: &Registry, core: bool, headers: &HeaderMap) -> Reply {
    let groups = registry.groups();
    let wanted = groups.iter().filter(|(name, _)| name.is_empty() == core);
    let items: Vec<Value> = wanted
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions.iter().map(|v| aggregated_version(registry, name, v)).collect();
            let metadata = if core { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let text = document.to_string();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let etag = format!("\"{:016X}\"", hasher.finish());
    let unchanged = header_text(headers, header::IF_NONE_MATCH) == etag;
    let mut reply = match unchanged {
        true => Reply::bytes(304, AGGREGATED, Bytes::new()),
        false => Reply::bytes(200, AGGREGATED, Bytes::from(text)),
    };
    reply.etag = Some(etag);
    reply
}

fn aggregated_version(registry: &Registry, group: &str, version: &str) -> Value {
    let mut resources: Vec<Value> = served_in(registry, group, version)
        .map(|resource| aggregated_entry(resource, group, version))
        .collect();
    resources.extend(reviews_in(group, version).map(|(review, plural, kind)| {
        let scope = if review.is_namespaced() {
            "Namespaced"
        } else {
            "Cluster"
        };
        json!({"resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
               "singularResource": kind.to_lowercase(), "verbs": ["create"]})
    }));
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_entry(resource: &Resource, group: &str, version: &str) -> Value {
    // Built-in kinds leave group and version out: they are those of the list.
    let own = match resource.custom {
        true => json!({"group": group, "version": version, "kind": resource.kind}),
        false => json!({"group": "", "version": "", "kind": resource.kind}),
    };
    let subresource = |sub: &Subresource| {
        let kind = match sub.answers() {
            Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
            None => own.clone(),
        };
        json!({"subresource": sub.path(), "responseKind": kind, "verbs": sub.verbs()})
    };
    let mut entry = json!({
        "resource": &*resource.name.plural, "responseKind": own,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        entry["subresources"] = resource.subresources.iter().map(subresource).collect();
    }
    entry
}

/// Paths that are no resources. Only `/version` cares about the method.
pub(super) fn other(registry: &Registry, method: &Method, path: &str, headers: &HeaderMap) -> Result<Reply, ApiError> {
    if let Some(document) = path
        .strip_prefix("/openapi/v3/")
        .filter(|document| !document.is_empty())
    {
        return Ok(openapi::by_path(registry, document).unwrap_or_else(|| Reply::bytes(404, "", Bytes::new())));
    }
    Ok(match path.trim_end_matches('/') {
        "" => Reply::json(200, &json!({"paths": paths(registry)})),
        "/openapi/v2" => openapi::whole(registry, header_text(headers, header::ACCEPT)),
        "/openapi/v3" => openapi::index(registry),
        "/version" if [Method::GET, Method::HEAD].contains(method) => Reply::json(200, &version()),
        "/version" => return Err(ApiError::method_not_allowed()),
        _ => Reply::page_not_found(),
    })
}

/// All that can be asked for besides resources.
fn paths(registry: &Registry) -> Vec<String> {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis", "/apis/", "/version"]
        .map(str::to_owned)
        .into();
    for check in ["/healthz", "/livez", "/readyz"] {
        paths.extend([check.to_owned(), format!("{check}/ping")]);
    }
    paths.extend(["/openapi/v2", "/openapi/v3", "/openapi/v3/"].map(str::to_owned));
    for (group, versions) in registry.groups().iter().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.sort();
    paths
}

/// `/healthz`, `/livez`, `/readyz`, each with all its checks or with the one that is always passed.
pub(super) fn is_health(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix("/ping").unwrap_or(path);
    ["/healthz", "/livez", "/readyz"].contains(&path)
}

/// Whether the server answers and the cluster's tasks do their work.
pub(super) async fn health(server: &Server, path: &str) -> Reply {
    let path = path.trim_matches('/');
    if path.ends_with("/ping") {
        return Reply::text(200, "ok");
    }
    let problems = server.vitals.problems().await;
    if problems.is_empty() {
        return Reply::text(200, "ok");
    }
    let lines: String = problems.iter().map(|problem| format!("[-]{problem}\n")).collect();
    Reply::text(500, format!("[+]ping ok\n{lines}{path} check failed\n"))
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}
