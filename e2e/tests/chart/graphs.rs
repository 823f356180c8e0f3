//! Graphs of Dynamo under the chart: served once its values say so, and still the user's when Grove is taken away.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use grove_e2e::{ControlPlane, eventually};
use kube::Client;
use serde_json::{Value, json};

use crate::helm::kubectl;
use crate::{LIMIT, running};

pub(crate) const NAMESPACE: &str = "graphs";
const PODS: usize = 2;
const DEFINITIONS: [&str; 2] = [
    "dynamographdeployments.nvidia.com",
    "dynamographdeploymentscalingadapters.nvidia.com",
];

/// A graph of the older version, which somebody must convert.
fn graph() -> Value {
    let pod = json!({"mainContainer": {"image": "server", "command": ["sleep"]}});
    let frontend = json!({"componentType": "frontend", "extraPodSpec": pod});
    let worker = json!({"componentType": "worker", "replicas": 1, "scalingAdapter": {"enabled": true}, "extraPodSpec": pod,
        "topologyConstraint": {"packDomain": "rack"}});
    json!({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
        "metadata": {"name": "g", "namespace": NAMESPACE},
        "spec": {"services": {"Frontend": frontend, "Worker": worker}}})
}

/// Applies a graph in its older version and waits until it runs; its pods.
pub(crate) async fn are_served(plane: &ControlPlane, client: &Client, folder: &Path) -> Result<BTreeSet<String>> {
    let path = folder.join("graph.json");
    let file = path.display().to_string();
    fs::write(&path, graph().to_string())?;
    eventually("a graph to be admitted", LIMIT, async || {
        kubectl(plane, &["apply", "-f", &file])
    })
    .await?;
    let pods = running(client, NAMESPACE, PODS).await?;
    let read = kubectl(
        plane,
        &[
            "get",
            "dynamographdeployments.v1alpha1.nvidia.com",
            "g",
            "-n",
            NAMESPACE,
            "-o",
            "json",
        ],
    )?;
    let read: Value = serde_json::from_str(&read)?;
    ensure!(read["spec"] == graph()["spec"], "as it was written: {read}");

    let mut wider = graph();
    wider["metadata"]["name"] = json!("h");
    wider["spec"]["topologyConstraint"] = json!({"packDomain": "host"});
    fs::write(&path, wider.to_string())?;
    let refused = kubectl(plane, &["apply", "-f", &file]).unwrap_or_else(|error| error.to_string());
    let words = "must be equal to or narrower than the deployment-level domain \"host\"";
    ensure!(refused.contains(words), "{refused}");
    Ok(pods)
}

/// How a definition converts, and which versions it serves.
fn served(plane: &ControlPlane, definition: &str) -> Result<(Value, Vec<String>)> {
    let found = kubectl(plane, &["get", "customresourcedefinition", definition, "-o", "json"])?;
    let mut found: Value = serde_json::from_str(&found)?;
    let versions = found["spec"]["versions"].as_array().context("versions")?;
    let served = versions.iter().filter(|version| version["served"] == true);
    let served = served.map(|version| version["name"].as_str().unwrap_or_default().to_owned());
    let served = served.collect();
    Ok((found["spec"]["conversion"].take(), served))
}

/// The definitions lead to a webhook.
pub(crate) fn are_converted(plane: &ControlPlane) -> Result<()> {
    for definition in DEFINITIONS {
        let (conversion, versions) = served(plane, definition)?;
        ensure!(conversion["strategy"] == "Webhook", "{definition}: {conversion}");
        ensure!(versions == ["v1beta1", "v1alpha1"], "{definition}: {versions:?}");
    }
    Ok(())
}

/// Without Grove the graph is there as it is stored; it can be read and changed, and nobody is asked about it.
pub(crate) async fn are_kept(plane: &ControlPlane, client: &Client, pods: &BTreeSet<String>) -> Result<()> {
    for definition in DEFINITIONS {
        let (conversion, versions) = served(plane, definition)?;
        ensure!(conversion == json!({"strategy": "None"}), "{definition}: {conversion}");
        ensure!(versions == ["v1beta1"], "{definition}: {versions:?}");
    }
    ensure!(
        running(client, NAMESPACE, PODS).await? == *pods,
        "its pods are the user's"
    );
    kubectl(
        plane,
        &["label", "dynamographdeployment", "g", "-n", NAMESPACE, "seen=after"],
    )?;
    let read = kubectl(plane, &["get", "dgd", "g", "-n", NAMESPACE, "-o", "json"])?;
    let read: Value = serde_json::from_str(&read)?;
    let names = ["0", "1"].map(|index| read.pointer(&format!("/spec/components/{index}/name")).cloned());
    ensure!(names == [Some(json!("Frontend")), Some(json!("Worker"))], "{read}");
    let adapter = kubectl(plane, &["get", "dgdsa", "g-worker", "-n", NAMESPACE, "-o", "name"])?;
    ensure!(adapter.contains("g-worker"), "{adapter}");
    Ok(())
}
