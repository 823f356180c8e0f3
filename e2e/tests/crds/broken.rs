//! Objects with one field broken, in every way that its schema forbids, for every field of every kind. Each is refused, and
//! the refusal names the field.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::coverage::KUBERNETES;
use crate::table::Table;
use crate::{CONCURRENCY, DEFINITIONS, api_of, cluster, embedded_with_kinds, store};

/// Of Kubernetes' own fields one in so many is broken, and on the real API server of ours too; with `GROVE_EXHAUSTIVE` all.
const SAMPLE: usize = 8;

/// One field with a value that it must not have.
#[derive(Debug)]
struct Broken {
    kind: String,
    /// Names of fields, numbers of items.
    path: Vec<String>,
    /// None leaves it out. Null is not tried: the API server takes it for that.
    value: Option<Value>,
    /// The schema is Kubernetes'.
    is_theirs: bool,
}

impl Broken {
    /// As an answer names it: `spec.levels[0].key`.
    fn field(&self) -> String {
        let steps = self.path.iter();
        steps.fold(String::new(), |field, step| match step.parse::<usize>() {
            Ok(index) => format!("{field}[{index}]"),
            Err(_) if field.is_empty() => step.clone(),
            Err(_) => format!("{field}.{step}"),
        })
    }

    /// An object with the field broken; what is missing on the way to it is made.
    fn applied(&self, object: &Value) -> Value {
        let mut object = object.clone();
        place(&mut object, &self.path, self.value.as_ref());
        object
    }
}

fn place(at: &mut Value, path: &[String], value: Option<&Value>) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    let slot = match step.parse::<usize>() {
        Ok(index) => {
            if !at.is_array() {
                *at = json!([]);
            }
            let items = at.as_array_mut().expect("it was just made one");
            while items.len() <= index {
                items.push(json!({}));
            }
            &mut items[index]
        }
        Err(_) => {
            if !at.is_object() {
                *at = json!({});
            }
            let fields = at.as_object_mut().expect("it was just made one");
            if let ([], None) = (rest, value) {
                fields.remove(step);
                return;
            }
            fields.entry(step.clone()).or_insert(Value::Null)
        }
    };
    match (rest, value) {
        ([], Some(value)) => *slot = value.clone(),
        _ => place(slot, rest, value),
    }
}

/// Values that a schema forbids.
fn forbidden(schema: &Value) -> Vec<Value> {
    let mut values = Vec::new();
    let kind = schema["type"].as_str();
    let is_either = schema["x-kubernetes-int-or-string"] == json!(true);
    match kind {
        _ if is_either => values.push(json!([])),
        Some("string") => values.push(json!(7)),
        Some(_) => values.push(json!("no such thing")),
        None => {}
    }
    let number = |name: &str| schema[name].as_i64();
    values.extend(number("minimum").map(|minimum| json!(minimum - 1)));
    values.extend(number("maximum").map(|maximum| json!(maximum + 1)));
    let length = |name: &str| number(name).and_then(|length| usize::try_from(length).ok());
    values.extend(length("maxLength").map(|most| json!("a".repeat(most + 1))));
    values.extend(length("minLength").filter(|least| *least > 0).map(|_| json!("")));
    values.extend(length("minItems").filter(|least| *least > 0).map(|_| json!([])));
    values.extend(length("maxItems").map(|most| json!(vec![Value::Null; most + 1])));
    if schema.get("enum").is_some() || schema.get("pattern").is_some() {
        values.push(json!("\u{2603} no/such thing!"));
    }
    values
}

/// Every way to break what lies below a schema.
fn breakages(kind: &str, schema: &Value, (path, is_theirs): (&[String], bool), found: &mut Vec<Broken>) {
    let broken = |path: Vec<String>, value: Option<Value>, is_theirs: bool| Broken {
        kind: kind.to_owned(),
        path,
        value,
        is_theirs,
    };
    let below = |name: &str| path.iter().cloned().chain([name.to_owned()]).collect::<Vec<String>>();
    let mut children = Vec::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        children.push((below(name), property, is_theirs || KUBERNETES.contains(&name.as_str())));
    }
    let required = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    // What has a default is never absent.
    for name in required.filter(|name| schema["properties"][name].get("default").is_none()) {
        found.push(broken(below(name), None, is_theirs));
    }
    if schema["items"].is_object() {
        children.push((below("0"), &schema["items"], is_theirs));
    }
    if schema["additionalProperties"].is_object() {
        children.push((below("k"), &schema["additionalProperties"], is_theirs));
    }
    for (path, schema, is_theirs) in children {
        for value in forbidden(schema) {
            found.push(broken(path.clone(), Some(value), is_theirs));
        }
        breakages(kind, schema, (&path, is_theirs), found);
    }
}

fn all() -> Result<Vec<Broken>> {
    let mut found = Vec::new();
    for definition in DEFINITIONS.iter() {
        let definition = serde_json::to_value(definition)?;
        let kind = definition["spec"]["names"]["kind"].as_str().context("a kind")?;
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        breakages(kind, schema, (&[], false), &mut found);
    }
    // A set holds the pod template of a clique.
    found.retain(|broken| !broken.is_theirs || broken.kind == "PodClique");
    Ok(found)
}

/// One in so many of those that are said, and all others.
fn sampled(all: Vec<Broken>, is_sampled: impl Fn(&Broken) -> bool) -> Vec<Broken> {
    if std::env::var_os("GROVE_EXHAUSTIVE").is_some() {
        return all;
    }
    let mut count = 0;
    let mut keeps = |broken: &Broken| {
        count += usize::from(is_sampled(broken));
        !is_sampled(broken) || count % SAMPLE == 0
    };
    all.into_iter().filter(|broken| keeps(broken)).collect()
}

/// Sends one, and tells what is wrong with the answer.
async fn judge(client: &Client, broken: &Broken, base: &Value, name: &str) -> Result<()> {
    let outcome = match broken.path.first().map(String::as_str) {
        Some("status") => {
            let patch = Patch::Merge(broken.applied(&json!({})));
            let params = PatchParams::default();
            api_of(client, base)?
                .patch_status("whole", &params, &patch)
                .await
                .map(drop)
        }
        _ => store(client, &broken.applied(base), name).await.map(drop),
    };
    let field = broken.field();
    match outcome {
        Ok(()) => anyhow::bail!("{field} is taken as {:?}", broken.value),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.as_ref().map(|details| details.causes.as_slice());
            let mut causes = causes.unwrap_or_default().iter();
            let is_named = causes.any(|cause| cause.field == field || cause.field.starts_with(&format!("{field}[")));
            ensure!(
                status.code == 422 && is_named,
                "{field} as {:?}: {}",
                broken.value,
                status.message
            );
            Ok(())
        }
        Err(error) => Err(error).context(field),
    }
}

async fn judge_all(client: &Client, all: Vec<Broken>) -> Result<()> {
    let table = Table::read()?;
    for definition in DEFINITIONS.iter() {
        let base = table.object(&definition.spec.names.kind);
        store(client, base, "whole").await.context("the unbroken object")?;
    }
    let failures = stream::iter(all.iter().enumerate()).map(|(index, broken)| {
        let (client, base) = (client.clone(), table.object(&broken.kind));
        async move { judge(&client, broken, base, &format!("broken-{index}")).await.err() }
    });
    let failures: Vec<anyhow::Error> = failures
        .buffered(CONCURRENCY)
        .filter_map(async |failure| failure)
        .collect()
        .await;
    let mut report = String::new();
    for failure in failures.iter().take(30) {
        writeln!(report, "    {failure:#}")?;
    }
    println!("{} broken objects", all.len());
    ensure!(failures.is_empty(), "{} of {}:\n{report}", failures.len(), all.len());
    Ok(())
}

#[tokio::test]
async fn every_broken_field_is_named() -> Result<()> {
    let (_cluster, client) = embedded_with_kinds().await?;
    let all = all()?;
    assert!(all.len() > 2_000, "only {}", all.len());
    judge_all(&client, sampled(all, |broken| broken.is_theirs)).await
}

#[tokio::test]
async fn the_real_api_server_names_broken_fields_too() -> Result<()> {
    let (_, client) = cluster().await?;
    judge_all(&client, sampled(all()?, |_| true)).await
}
