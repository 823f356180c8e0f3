//! `/openapi/v3` and `/openapi/v2`: what the embedded cluster publishes is what the real one says, word for word, and
//! nothing that it serves is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use grove_e2e::eventually;
use serde_json::{Value, json};

use crate::case::Step;
use crate::common::RUNTIME;
use crate::target::Target;
use crate::targets;

const LIMIT: Duration = Duration::from_secs(30);

async fn document(target: &Target, path: &str) -> Result<Value> {
    let answer = target.send(&Step::get(path)).await?;
    ensure!(answer.code == 200, "{}: {path} answers {}", target.name, answer.code);
    Ok(answer.body)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// One group's version as the embedded cluster serves it.
struct Served {
    /// `apis/apps/v1`
    path: String,
    /// `deployments`, `deployments/scale`.
    resources: BTreeSet<String>,
    /// What is sent and answered, and the lists of it.
    kinds: Vec<Value>,
}

/// What discovery tells.
async fn served(target: &Target) -> Result<Vec<Served>> {
    let mut paths = vec!["api/v1".to_owned()];
    let groups = document(target, "/apis").await?;
    for version in items(&groups["groups"]).flat_map(|group| items(&group["versions"])) {
        let version = version["groupVersion"].as_str().context("no version")?;
        paths.push(format!("apis/{version}"));
    }
    let mut all = Vec::new();
    for path in paths {
        let listed = document(target, &format!("/{path}")).await?;
        let segments: Vec<&str> = path.split('/').collect();
        let (group, version) = match segments.as_slice() {
            ["api", version] => ("", *version),
            [_, group, version] => (*group, *version),
            _ => continue,
        };
        let (mut resources, mut kinds) = (BTreeSet::new(), Vec::new());
        for resource in items(&listed["resources"]) {
            let text = |field: &str, usual: &str| resource[field].as_str().unwrap_or(usual).to_owned();
            let (group, version, kind) = (text("group", group), text("version", version), text("kind", ""));
            if items(&resource["verbs"]).any(|verb| verb == "list") {
                kinds.push(json!({"group": group, "version": version, "kind": format!("{kind}List")}));
            }
            kinds.push(json!({"group": group, "version": version, "kind": kind}));
            resources.insert(text("name", ""));
        }
        all.push(Served { path, resources, kinds });
    }
    Ok(all)
}

/// The document of a group's version, as soon as all that is served is in it: it follows new definitions at a distance.
async fn complete(target: &Target, served: &Served) -> Result<Value> {
    let path = format!("/openapi/v3/{}", served.path);
    let known = async || -> Result<Value> {
        let document = document(target, &path).await?;
        let missing = served.kinds.iter().filter(|kind| {
            let mut all = schemas(&document).into_iter().flat_map(|all| all.values());
            !all.any(|schema| items(&schema["x-kubernetes-group-version-kind"]).any(|known| known == *kind))
        });
        let missing: Vec<&Value> = missing.collect();
        ensure!(missing.is_empty(), "{}: {path} has no {missing:?}", target.name);
        Ok(document)
    };
    Ok(eventually("the document", LIMIT, known).await?)
}

fn schemas(document: &Value) -> Result<&serde_json::Map<String, Value>> {
    document["components"]["schemas"].as_object().context("no schemas")
}

fn references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    match schema {
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str);
            found.extend(target.and_then(|target| target.rsplit('/').next()));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// The schemas of these kinds, and all that they refer to.
fn reached<'a>(document: &'a Value, kinds: &[Value]) -> Result<BTreeMap<&'a str, &'a Value>> {
    let all = schemas(document)?;
    let of_kind = |schema: &Value| items(&schema["x-kubernetes-group-version-kind"]).any(|kind| kinds.contains(kind));
    let named = all.iter().filter(|(_, schema)| of_kind(schema));
    let mut open: Vec<&str> = named.map(|(name, _)| name.as_str()).collect();
    let mut found = BTreeMap::new();
    while let Some(name) = open.pop() {
        let schema = all.get(name).with_context(|| format!("no schema {name}"))?;
        if found.insert(name, schema).is_none() {
            references(schema, &mut open);
        }
    }
    Ok(found)
}

/// The methods at the paths of these resources: what each does, and with which kind.
fn operations(document: &Value, served: &Served) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let below = path.trim_start_matches('/').trim_start_matches(&served.path);
        let words: Vec<&str> = below.split('/').filter(|word| !word.is_empty()).collect();
        let words = match words.as_slice() {
            ["namespaces", "{namespace}", rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        let resource = match words {
            [plural] | [plural, "{name}"] => (*plural).to_owned(),
            [plural, "{name}", subresource] => format!("{plural}/{subresource}"),
            // Watches by path are an old form, and `/` is no resource.
            _ => continue,
        };
        if !served.resources.contains(&resource) {
            continue;
        }
        for (method, operation) in item.as_object().into_iter().flatten() {
            let (action, kind) = (
                &operation["x-kubernetes-action"],
                &operation["x-kubernetes-group-version-kind"],
            );
            if method != "parameters" {
                found.insert(format!("{method} {path}: {action} {kind}"));
            }
        }
    }
    found
}

#[test]
fn all_that_is_served_is_published_in_the_same_words() -> Result<()> {
    RUNTIME.block_on(async {
        let [real, embedded] = targets().await?;
        let (mut compared, mut different) = ((0, 0), Vec::new());
        for served in served(embedded).await? {
            let path = format!("/openapi/v3/{}", served.path);
            let (real, embedded) = (complete(real, &served).await?, complete(embedded, &served).await?);
            let ours = schemas(&embedded)?;
            let wanted = reached(&real, &served.kinds)?;
            compared.0 += wanted.len();
            let odd = wanted
                .iter()
                .filter(|(name, schema)| ours.get(**name) != Some(**schema));
            different.extend(odd.map(|(name, _)| format!("{path} {name}")));
            let more = ours.keys().filter(|name| !wanted.contains_key(name.as_str()));
            different.extend(more.map(|name| format!("{path} {name} is of no kind that is served")));
            let (theirs, ours) = (operations(&real, &served), operations(&embedded, &served));
            compared.1 += theirs.len();
            different.extend(theirs.symmetric_difference(&ours).map(|odd| format!("{path} {odd}")));
        }
        println!("{} schemas, {} operations", compared.0, compared.1);
        ensure!(different.is_empty(), "these differ:\n{}", different.join("\n"));
        Ok(())
    })
}

#[test]
fn the_older_form_has_the_same_definitions() -> Result<()> {
    RUNTIME.block_on(async {
        let [real, embedded] = targets().await?;
        let (real, embedded) = (
            document(real, "/openapi/v2").await?,
            document(embedded, "/openapi/v2").await?,
        );
        let ours = embedded["definitions"].as_object().context("no definitions")?;
        ensure!(ours.len() > 300, "only {} definitions", ours.len());
        // Its list of kinds names every group that there is, and not all of them are served.
        let everywhere = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
        let builtin = ours
            .iter()
            .filter(|(name, _)| name.starts_with("io.k8s.") && *name != everywhere);
        let odd = builtin.filter(|(name, schema)| real["definitions"][name.as_str()] != **schema);
        let odd: Vec<&str> = odd.map(|(name, _)| name.as_str()).collect();
        ensure!(odd.is_empty(), "these differ:\n{}", odd.join("\n"));
        Ok(())
    })
}
