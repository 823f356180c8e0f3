//! The API server and etcd die and come back, and forget what was before. This breaks a control plane, so it has one of its
//! own.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use grove_e2e::ControlPlane;
use grove_e2e::kit::Program;
use http::Request;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::stage::{Stage, own_plane, recovery};

/// Kills a program while pods are made, `from` so many to so many, and brings it back.
async fn dies(
    (stage, plane): (&Stage, &mut ControlPlane),
    (program, fault): (Program, &str),
    (from, to): (usize, usize),
) -> Result<BTreeSet<String>> {
    let before = match from {
        0 => BTreeSet::new(),
        _ => stage.all_ready(from, &BTreeSet::new()).await?,
    };
    match from {
        0 => stage.create("w", to).await?,
        _ => stage.scale(to).await?,
    }
    stage.has_at_least(from + 3).await?;
    plane.restart(program).await?;
    recovery(fault, stage.all_ready(to, &before)).await
}

/// Makes etcd forget everything but the present.
async fn compact(plane: &ControlPlane) -> Result<()> {
    let mut config = Config::new(plane.etcd().parse()?);
    config.proxy_url = None;
    // It speaks without TLS: nobody need be trusted.
    config.root_cert = Some(Vec::new());
    let etcd = Client::try_from(config)?;
    let ask = async |path: &str, question: Value| -> Result<Value> {
        let request = Request::post(path).body(serde_json::to_vec(&question)?)?;
        Ok(etcd.request(request).await?)
    };
    let status = ask("/v3/maintenance/status", json!({})).await?;
    let revision = status["header"]["revision"]
        .as_str()
        .context("etcd tells its revision")?;
    ask("/v3/kv/compaction", json!({"revision": revision, "physical": true})).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_and_etcd_die_and_forget() -> Result<()> {
    let mut plane = own_plane().await?;
    let mut stage = Stage::on(&plane, "restarts").await?;
    let operator = stage.sole_operator().await?;
    stage.calm().await?;
    dies((&stage, &mut plane), (Program::ApiServer, "API server killed"), (0, 20)).await?;
    let before = dies((&stage, &mut plane), (Program::Etcd, "etcd killed"), (20, 40)).await?;

    // The operator hears nothing while things happen, and when it asks for them, nobody remembers.
    operator.proxy.freeze(true);
    stage.scale(50).await?;
    compact(&plane).await?;
    plane.restart(Program::ApiServer).await?;
    operator.proxy.freeze(false);
    let before = recovery("history compacted", stage.all_ready(50, &before)).await?;
    operator.replica.says("too old").await?;

    // And while nothing is under way.
    plane.restart(Program::Etcd).await?;
    plane.restart(Program::ApiServer).await?;
    stage.scale(45).await?;
    let left = stage.all_ready(45, &BTreeSet::new()).await?;
    assert!(left.is_subset(&before), "a pod was replaced");
    Ok(())
}
