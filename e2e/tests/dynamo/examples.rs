//! Every example, as it is written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use grove_api::DynamoGraphDeployment;
use grove_dynamo::translate::{lowered, set_name};
use grove_e2e::eventually;
use grove_scenarios::audit::{Audit, Terms};
use grove_scenarios::{BLOCK, HOST, RACK, ZONE};
use grove_scheduler::Policy;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::Value;

use crate::stage::{KEPT, LIMIT, Stage};

fn files() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/dynamo");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_runs_where_it_should() -> Result<()> {
    let first = Stage::new("examples").await?;
    let files = files()?;
    ensure!(files.len() >= 15, "only {} examples", files.len());
    // All at once: the scheduler places them side by side.
    try_join_all(files.iter().map(|file| apply(file))).await?;
    let audit = Audit::of(
        first.record.moments(&first.client).await?,
        Terms::calm(Policy::default().grace),
    );
    ensure!(audit.binds >= 60, "only {} pods were bound", audit.binds);
    Ok(())
}

async fn apply(file: &Path) -> Result<()> {
    let name = file.file_stem().context("a name")?.to_string_lossy().into_owned();
    let stage = Stage::new(&name).await?;
    let manifest: Value = serde_saphyr::from_str(&fs::read_to_string(file)?)?;
    let made = stage.create(&manifest).await.with_context(|| name.clone())?;
    let graph = made["metadata"]["name"].as_str().context("a name")?;
    stage.is_ready(graph).await?;
    let stored = stage.stored(graph).await?;
    if stored.spec.has_constraint() {
        stage.says_of_constraints(graph, KEPT).await?;
    }
    judge(&stage, &stored).await.with_context(|| name.clone())?;
    stage.graphs("v1beta1").delete(graph, &DeleteParams::default()).await?;
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace);
    eventually(
        format!("the pods of {name} to go with it"),
        LIMIT,
        async || -> Result<()> {
            let left = pods.list(&ListParams::default()).await?.items.len();
            ensure!(left == 0, "{left} are left");
            Ok(())
        },
    )
    .await?;
    Ok(())
}

/// Whether all pods that a constraint is about sit in one domain of it: for a component, group by group.
async fn judge(stage: &Stage, graph: &DynamoGraphDeployment) -> Result<()> {
    let set = set_name(graph);
    if let Some(word) = graph.spec.pack_domain() {
        one_domain(stage, &format!("{set}-0-"), word).await?;
    }
    for component in &graph.spec.components {
        let Some(constraint) = &component.topology_constraint else {
            continue;
        };
        let prefix = format!("{set}-0-{}-", lowered(component));
        match component.is_grouped() {
            false => one_domain(stage, &prefix, &constraint.pack_domain).await?,
            true => {
                for replica in 0..component.replicas {
                    one_domain(stage, &format!("{prefix}{replica}-"), &constraint.pack_domain).await?;
                }
            }
        }
    }
    Ok(())
}

async fn one_domain(stage: &Stage, prefix: &str, word: &str) -> Result<()> {
    let key = match word {
        "zone" => ZONE,
        "block" => BLOCK,
        "rack" => RACK,
        "host" => HOST,
        other => anyhow::bail!("no label of a node is known for {other}"),
    };
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let mut domains = BTreeSet::new();
    let mut count = 0;
    for pod in pods.list(&ListParams::default()).await? {
        if !pod.name_any().starts_with(prefix) {
            continue;
        }
        let node = pod
            .spec
            .and_then(|spec| spec.node_name)
            .context("a pod that is bound")?;
        let node = nodes.get(&node).await?;
        let domain = node
            .labels()
            .get(key)
            .with_context(|| format!("{} without {key}", node.name_any()))?;
        domains.insert(domain.clone());
        count += 1;
    }
    ensure!(count > 0, "no pod begins with {prefix}");
    ensure!(domains.len() == 1, "{prefix} is in {domains:?}, and wants one {word}");
    Ok(())
}
