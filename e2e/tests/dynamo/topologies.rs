//! A topology of its own for a test, and what an admin does to it.

use anyhow::{Result, ensure};
use grove_api::ClusterTopology;
use grove_e2e::eventually;
use grove_scenarios::{HOST, RACK, ZONE};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{LIMIT, Stage};

/// The topology's levels, as words and keys.
pub(crate) const LEVELS: [(&str, &str); 3] = [("zone", ZONE), ("rack", RACK), ("host", HOST)];

fn spec(levels: &[(&str, &str)]) -> Value {
    let levels = levels.iter().map(|(domain, key)| json!({"domain": domain, "key": key}));
    json!({"levels": levels.collect::<Vec<_>>()})
}

pub(crate) async fn give_topology(stage: &Stage, name: &str, levels: &[(&str, &str)]) -> Result<()> {
    let topology = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec(levels)}))?;
    let topologies: Api<ClusterTopology> = Api::all(stage.client.clone());
    topologies.create(&PostParams::default(), &topology).await?;
    Ok(())
}

/// Gives it other levels. While pods run by them that is the operator's own right: it writes what its configuration says.
pub(crate) async fn change_topology(operator: &Client, name: &str, levels: &[(&str, &str)]) -> Result<()> {
    let topologies: Api<ClusterTopology> = Api::all(operator.clone());
    let patch = Patch::Merge(json!({"spec": spec(levels)}));
    topologies.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The topology goes, by an admin who insists.
pub(crate) async fn lose_topology(stage: &Stage, name: &str) -> Result<()> {
    let topologies: Api<ClusterTopology> = Api::all(stage.client.clone());
    topologies.delete(name, &DeleteParams::default()).await?;
    let lifted = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // It is gone already if nobody had come to hold it.
    let _ = topologies.patch(name, &PatchParams::default(), &lifted).await;
    eventually("the topology to be gone", LIMIT, async || -> Result<()> {
        ensure!(topologies.get_opt(name).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    Ok(())
}
