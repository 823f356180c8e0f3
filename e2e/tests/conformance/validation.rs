//! What is refused: a full object of each kind that people write, one leaf after the other broken, sent to both servers.
//! Both must take it or refuse it with the same code and for the same fields.
//!
//! `validation/objects.yaml` holds the objects; `validation/known.yaml` what the embedded cluster judges otherwise. That
//! list may only get shorter: what is on it and no longer differs fails the test.
//!
//! `CASE=Pod cargo test -p grove-e2e --test conformance broken_leaves` breaks only objects whose kind has this word.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::RUNTIME;
use crate::target::{Sent, Target};
use crate::{CONCURRENCY, namespace, targets};

/// What a leaf becomes; `null` takes it away.
fn breakages() -> [Value; 5] {
    [json!(""), json!(-1), json!(99999), json!("A B"), Value::Null]
}

#[derive(Debug, Deserialize)]
struct Object {
    /// Where it is sent; `${ns}` is the namespace.
    path: String,
    object: Value,
}

/// By kind and leaf, the values that are judged otherwise.
type Known = BTreeMap<String, Vec<Value>>;

/// Pointers to all leaves.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, field) in fields {
                leaves(field, &format!("{at}/{}", escaped(key)), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                leaves(item, &format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

fn broken(object: &Value, leaf: &str, value: &Value) -> Option<Value> {
    let mut object = object.clone();
    if !value.is_null() {
        let place = object.pointer_mut(leaf)?;
        return (std::mem::replace(place, value.clone()) != *value).then_some(object);
    }
    let (parent, key) = leaf.rsplit_once('/')?;
    match object.pointer_mut(parent)? {
        Value::Object(fields) => fields.remove(&key.replace("~1", "/").replace("~0", "~")),
        Value::Array(items) => key.parse().ok().map(|index| items.remove(index)),
        _ => None,
    }?;
    Some(object)
}

/// The code, and the fields that it is about.
async fn verdict(target: &Target, path: &str, object: &Value) -> Result<(u16, BTreeSet<String>)> {
    let sent = Sent {
        method: "POST".to_owned(),
        path: format!("{path}?dryRun=All"),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: object.to_string().into_bytes(),
        last: None,
    };
    let answer = target.send(&sent).await?;
    let causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
    let fields = causes.filter_map(|cause| cause["field"].as_str());
    Ok((answer.code, fields.map(str::to_owned).collect()))
}

#[test]
fn broken_leaves_are_judged_alike() -> Result<()> {
    let filter = std::env::var("CASE").unwrap_or_default();
    let options = serde_saphyr::options! { budget: None };
    let objects: Vec<Object> = serde_saphyr::from_str_with_options(include_str!("validation/objects.yaml"), options)?;
    let known: Known = serde_saphyr::from_str(include_str!("validation/known.yaml"))?;
    RUNTIME.block_on(async {
        let targets = targets().await?;
        let namespace = namespace(targets).await?;
        let mut tried = Vec::new();
        for Object { path, object } in &objects {
            let kind = object["kind"].as_str().context("no kind")?;
            if !kind.contains(&filter) {
                continue;
            }
            let path = path.replace("${ns}", &namespace);
            for target in targets {
                let (code, fields) = verdict(target, &path, object).await?;
                ensure!(
                    code == 201,
                    "{} refuses the whole {kind}: {code} {fields:?}",
                    target.name
                );
            }
            let mut found = Vec::new();
            leaves(object, "", &mut found);
            for leaf in found
                .iter()
                .filter(|leaf| !["/kind", "/apiVersion"].contains(&leaf.as_str()))
            {
                for value in breakages() {
                    let Some(object) = broken(object, leaf, &value) else {
                        continue;
                    };
                    tried.push((format!("{kind} {leaf}"), value, path.clone(), object));
                }
            }
        }
        let [real, embedded] = targets;
        let verdicts = stream::iter(&tried).map(async |(leaf, value, path, object)| {
            let (real, embedded) = tokio::try_join!(verdict(real, path, object), verdict(embedded, path, object))?;
            anyhow::Ok((leaf, value, real, embedded))
        });
        let verdicts: Vec<_> = verdicts.buffered(CONCURRENCY).collect().await;
        let mut reports = Vec::new();
        for verdict in verdicts {
            let (leaf, value, real, embedded) = verdict?;
            let is_known = known.get(leaf).is_some_and(|values| values.contains(value));
            match (is_known, real == embedded) {
                (false, false) => {
                    reports.push(format!("{leaf}: {value}\n  real     {real:?}\n  embedded {embedded:?}"))
                }
                (true, true) => reports.push(format!("{leaf}: {value} is judged alike; take it from known.yaml")),
                _ => {}
            }
        }
        println!(
            "{} broken objects, {} known differences",
            tried.len(),
            known.values().map(Vec::len).sum::<usize>()
        );
        ensure!(reports.is_empty(), "{} differ\n{}", reports.len(), reports.join("\n"));
        Ok(())
    })
}
