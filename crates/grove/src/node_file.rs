//! The file of `--nodes`: a short description of racks, or Node objects as `kubectl get nodes -o yaml` prints them.
//!
//! Of a Node object count its name, labels, annotations, taints, whether it is cordoned, its capacity and what of it is
//! allocatable; the rest is what a cluster says about nodes. Pure: text in, nodes out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use grove_simcluster::{NodeSpec, Taint};
use serde_json::Value;

use crate::racks::{NODES_MAX, Racks};

/// Reads the nodes of a file.
pub(crate) fn parse(text: &str) -> Result<Vec<NodeSpec>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| brief(&error))?;
    let documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    ensure!(!documents.is_empty(), "says nothing; {FORMS}");
    if matches!(documents.as_slice(), [document] if document.get("kind").is_none()) {
        return described(text);
    }
    let mut nodes = Vec::new();
    let mut names = BTreeSet::new();
    for (i, document) in documents.iter().enumerate() {
        let items = match (document["kind"].as_str(), document["items"].as_array()) {
            (Some("List" | "NodeList"), Some(items)) => items.as_slice(),
            _ => std::slice::from_ref(document),
        };
        for (j, item) in items.iter().enumerate() {
            let place = || match items.len() {
                1 => format!("document {}", i + 1),
                _ => format!("document {}, items[{j}]", i + 1),
            };
            let node = node(item).with_context(place)?;
            ensure!(
                names.insert(node.name.clone()),
                "{}: metadata.name: there is another node called {}",
                place(),
                node.name
            );
            nodes.push(node);
        }
    }
    ensure!(
        nodes.len() <= NODES_MAX,
        "at most {NODES_MAX} nodes fit here, not {}",
        nodes.len()
    );
    Ok(nodes)
}

const FORMS: &str = "must hold Node objects, or zones, blocks, racks, hosts and perhaps gpusPerHost, each a number";

/// What is wrong with a text, and at which line: the first line of the error; the rest draws the place.
fn brief(error: &serde_saphyr::Error) -> anyhow::Error {
    let words = error.to_string();
    anyhow::anyhow!("{}; {FORMS}", words.lines().next().unwrap_or_default())
}

fn described(text: &str) -> Result<Vec<NodeSpec>> {
    let racks: Racks = serde_saphyr::from_str(text).map_err(|error| brief(&error))?;
    let wanted = racks.count().unwrap_or(usize::MAX);
    ensure!(wanted > 0, "zones, blocks, racks and hosts must each be at least 1");
    ensure!(wanted <= NODES_MAX, "at most {NODES_MAX} nodes fit here, not {wanted}");
    Ok(racks.nodes().collect())
}

fn node(object: &Value) -> Result<NodeSpec> {
    // Items of a NodeList do without a kind.
    match object["kind"].as_str() {
        Some("Node") | None => {}
        Some(other) => bail!("kind: must be Node, not {other}"),
    }
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let name = metadata["name"].as_str().filter(|name| !name.is_empty());
    let mut node = NodeSpec::new(name.context("metadata.name: is missing")?);
    node.labels = texts(metadata, "metadata", "labels")?;
    node.annotations = texts(metadata, "metadata", "annotations")?;
    let (capacity, allocatable) = (amounts(status, "capacity")?, amounts(status, "allocatable")?);
    // Whoever writes such a file by hand gives one of the two.
    let whole = if capacity.is_empty() { &allocatable } else { &capacity };
    node.capacity.extend(whole.clone());
    node.allocatable = allocatable;
    node.unschedulable = match &spec["unschedulable"] {
        Value::Null => false,
        Value::Bool(cordoned) => *cordoned,
        other => bail!("spec.unschedulable: must be true or false, not {other}"),
    };
    node.taints = taints(&spec["taints"])?;
    match node.problems().first() {
        Some(problem) => bail!("{problem}"),
        None => Ok(node),
    }
}

/// A map of texts.
fn texts(parent: &Value, path: &str, field: &str) -> Result<BTreeMap<String, String>> {
    let text = |(key, value): (&String, &Value)| match value.as_str() {
        Some(text) => Ok((key.clone(), text.to_owned())),
        None => bail!("{path}.{field}[{key}]: must be text; quote it"),
    };
    map(parent, path, field)?.into_iter().flatten().map(text).collect()
}

/// A map of quantities; a number is one too.
fn amounts(status: &Value, field: &str) -> Result<BTreeMap<String, String>> {
    let amount = |(resource, value): (&String, &Value)| match value {
        Value::String(text) => Ok((resource.clone(), text.clone())),
        Value::Number(number) => Ok((resource.clone(), number.to_string())),
        _ => bail!("status.{field}[{resource}]: must be a quantity such as 8 or \"512Gi\""),
    };
    map(status, "status", field)?
        .into_iter()
        .flatten()
        .map(amount)
        .collect()
}

fn map<'a>(parent: &'a Value, path: &str, field: &str) -> Result<Option<&'a serde_json::Map<String, Value>>> {
    match &parent[field] {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        _ => bail!("{path}.{field}: must be a map"),
    }
}

fn taints(list: &Value) -> Result<Vec<Taint>> {
    let items = match list {
        Value::Null => [].as_slice(),
        Value::Array(items) => items,
        _ => bail!("spec.taints: must be a list"),
    };
    let taint = |(i, item): (usize, &Value)| {
        let text = |field: &str| match &item[field] {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            _ => bail!("spec.taints[{i}].{field}: must be text; quote it"),
        };
        Ok(Taint {
            key: text("key")?,
            value: text("value")?,
            effect: text("effect")?,
        })
    };
    // The cluster puts these on and takes them off by itself.
    let own = |taint: &Taint| taint.key.starts_with("node.kubernetes.io/");
    let taints: Result<Vec<Taint>> = items.iter().enumerate().map(taint).collect();
    Ok(taints?.into_iter().filter(|taint| !own(taint)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).unwrap_err())
    }

    #[test]
    fn nodes_come_as_objects_lists_documents_or_a_description() {
        let node = "{apiVersion: v1, kind: Node, metadata: {name: a, labels: {rack: r1}}, \
                     status: {capacity: {cpu: 128}, allocatable: {cpu: 96, nvidia.com/gpu: '8'}}}";
        for text in [
            node.to_owned(),
            format!("apiVersion: v1\nkind: List\nitems:\n- {node}\n"),
            format!("---\n{node}\n---\n"),
        ] {
            let nodes = parse(&text).unwrap();
            let mut wanted = NodeSpec::new("a").label("rack", "r1").capacity("cpu", "128");
            wanted.allocatable = [("cpu", "96"), ("nvidia.com/gpu", "8")]
                .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
                .into();
            assert_eq!(nodes, [wanted], "{text}");
        }
        assert_eq!(parse("{zones: 1, blocks: 1, racks: 2, hosts: 3}").unwrap().len(), 6);
    }

    #[test]
    fn what_an_admin_did_to_a_node_is_kept() {
        let text = "{kind: Node, metadata: {name: a, annotations: {why: repair}}, spec: {unschedulable: true, taints: [\
                     {key: gpu, value: only, effect: NoSchedule}, {key: node.kubernetes.io/unreachable, effect: NoExecute}]}}";
        let nodes = parse(text).unwrap();
        let [node] = nodes.as_slice() else { panic!("{nodes:?}") };
        assert_eq!((node.unschedulable, node.annotations["why"].as_str()), (true, "repair"));
        let [taint] = node.taints.as_slice() else {
            panic!("{:?}", node.taints)
        };
        assert_eq!((taint.key.as_str(), taint.value.as_str()), ("gpu", "only"));
    }

    #[test]
    fn a_field_that_the_cluster_would_refuse_is_named() {
        for (fields, wanted) in [
            (
                "metadata: {name: Not_a_name}",
                "document 1: metadata.name: Invalid value: \"Not_a_name\"",
            ),
            ("metadata: {name: a, labels: {'-': x}}", "document 1: metadata.labels"),
            (
                "metadata: {name: a, labels: [x]}",
                "document 1: metadata.labels: must be a map",
            ),
            (
                "metadata: {name: a}, spec: {unschedulable: 'yes'}",
                "document 1: spec.unschedulable: must be true or false",
            ),
            (
                "metadata: {name: a}, spec: {taints: [{key: k, effect: Never}]}",
                "document 1: metadata.taints[0].effect",
            ),
            (
                "metadata: {name: a}, spec: {taints: [{key: k, value: 1, effect: NoSchedule}]}",
                "document 1: spec.taints[0].value",
            ),
            (
                "metadata: {name: a}, status: {allocatable: {cpu: lots}}",
                "document 1: status.allocatable[cpu]: Invalid value: \"lots\"",
            ),
            (
                "metadata: {name: a}, status: {capacity: {cpu: [1]}}",
                "document 1: status.capacity[cpu]: must be a quantity",
            ),
        ] {
            let words = error(&format!("{{kind: Node, {fields}}}"));
            assert!(words.starts_with(wanted), "{words}");
        }
        let twice = "kind: List\nitems:\n- {metadata: {name: a}}\n- {metadata: {name: a}}\n";
        assert_eq!(
            error(twice),
            "document 1, items[1]: metadata.name: there is another node called a"
        );
    }

    #[test]
    fn a_mistake_is_named_once_and_where_it_is() {
        let nameless = "kind: List\nitems:\n- {kind: Node, metadata: {name: a}}\n- {kind: Node, metadata: {}}\n";
        assert_eq!(error(nameless), "document 1, items[1]: metadata.name: is missing");
        assert_eq!(error("kind: Pod\n"), "document 1: kind: must be Node, not Pod");
        let label = "{kind: Node, metadata: {name: a, labels: {rack: 7}}}";
        assert_eq!(
            error(label),
            "document 1: metadata.labels[rack]: must be text; quote it"
        );
        let words = error("zones: 1\nblocks: many\n");
        assert!(
            words.contains("line 2") && words.contains(FORMS) && words.lines().count() == 1,
            "{words}"
        );
        assert!(error("").starts_with("says nothing"));
        let words = error("zones: [\n");
        assert!(words.contains("line ") && words.lines().count() == 1, "{words}");
    }
}
