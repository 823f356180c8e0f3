//! The file of `--nodes`: a short description of racks, or Node objects as `kubectl get nodes -o yaml` prints them.
//!
//! Of a Node object its name, its labels and its allocatable resources count. Pure: text in, nodes out.

use anyhow::{Context, Result, bail, ensure};
use grove_simcluster::NodeSpec;
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
            nodes.push(node(item).with_context(place)?);
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
    let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    let mut node = NodeSpec::new(name.context("metadata.name: is missing")?);
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        let value = value
            .as_str()
            .with_context(|| format!("metadata.labels[{key}]: must be text; quote it"))?;
        node = node.label(key, value);
    }
    let status = &object["status"];
    let field = if status["allocatable"].is_object() {
        "allocatable"
    } else {
        "capacity"
    };
    for (resource, amount) in status[field].as_object().into_iter().flatten() {
        let amount = match amount {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => bail!("status.{field}[{resource}]: must be a quantity such as 8 or \"512Gi\""),
        };
        node = node.capacity(resource, &amount);
    }
    Ok(node)
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
            let wanted = NodeSpec::new("a")
                .label("rack", "r1")
                .capacity("cpu", "96")
                .capacity("nvidia.com/gpu", "8");
            assert_eq!(nodes, [wanted], "{text}");
        }
        assert_eq!(parse("{zones: 1, blocks: 1, racks: 2, hosts: 3}").unwrap().len(), 6);
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
