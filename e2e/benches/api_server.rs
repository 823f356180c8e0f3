//! The embedded API server beside a real one: the same client code, the same objects, one run.
//!
//! `cargo bench -p grove-e2e --bench api_server` prints a table; the arguments `pods=N workers=N` change the size. Both
//! servers are reached over HTTPS on loopback, one after the other, in alternating rounds.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

const ROUNDS: usize = 3;
const STEPS: [&str; 4] = ["create", "lift the gate", "get", "list in pages of 500"];

fn main() -> Result<()> {
    let argument = |name: &str, default: usize| {
        let prefix = format!("{name}=");
        let mut arguments = std::env::args();
        arguments
            .find_map(|text| text.strip_prefix(&prefix)?.parse().ok())
            .unwrap_or(default)
    };
    let (pods, workers) = (argument("pods", 1_000), argument("workers", 32));
    common::RUNTIME.block_on(compare(pods, workers))
}

async fn compare(pods: usize, workers: usize) -> Result<()> {
    let servers = common::clients().await?;
    println!("{pods} pods, {workers} workers, best of {ROUNDS} rounds; objects per second over HTTPS");
    let mut best = [[0f64; STEPS.len()]; 2];
    for _ in 0..ROUNDS {
        for (server, best) in servers.iter().zip(&mut best) {
            for (rate, best) in round(server, pods, workers).await?.into_iter().zip(best) {
                *best = best.max(rate);
            }
        }
    }
    println!("{:<24}{:>16}{:>12}{:>8}", "", "kube-apiserver", "embedded", "ratio");
    for (step, name) in STEPS.iter().enumerate() {
        let [real, embedded] = best.map(|rates| rates[step]);
        println!("{name:<24}{real:>16.0}{embedded:>12.0}{:>8.1}", embedded / real);
    }
    Ok(())
}

/// How many pods a second each step takes; leaves nothing behind.
async fn round(client: &Client, pods: usize, workers: usize) -> Result<[f64; STEPS.len()]> {
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let names: Vec<String> = (0..pods).map(|index| format!("bench-{index}")).collect();
    let create = timed(
        pods,
        each(&names, workers, async |name| {
            api.create(&PostParams::default(), &pod(name)?).await?;
            Ok(())
        }),
    )
    .await?;
    let ungate = timed(
        pods,
        each(&names, workers, async |name| {
            let patch = json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]);
            let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
            api.patch(name, &PatchParams::default(), &patch).await?;
            Ok(())
        }),
    )
    .await?;
    let get = timed(
        pods,
        each(&names, workers, async |name| {
            api.get(name).await?;
            Ok(())
        }),
    )
    .await?;
    let list = timed(pods, async {
        let mut parameters = ListParams::default().limit(500);
        let mut found = 0;
        loop {
            let page = api.list(&parameters).await?;
            found += page.items.len();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => break,
            }
        }
        ensure!(found == pods, "{found} of {pods} pods were listed");
        Ok(())
    })
    .await?;
    let now = DeleteParams::default().grace_period(0);
    each(&names, workers, async |name| {
        api.delete(name, &now).await?;
        Ok(())
    })
    .await?;
    Ok([create, ungate, get, list])
}

async fn each(names: &[String], workers: usize, act: impl AsyncFn(&str) -> Result<()>) -> Result<()> {
    let requests = stream::iter(names).map(|name| act(name)).buffer_unordered(workers);
    requests.try_collect().await
}

async fn timed(count: usize, work: impl Future<Output = Result<()>>) -> Result<f64> {
    let begun = Instant::now();
    work.await?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn pod(name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "bench"}},
        "spec": {
            "schedulerName": "nobody",
            "schedulingGates": [{"name": "grove.io/podgang-pending-creation"}],
            "containers": [{"name": "main", "image": "registry.example/server:1",
                "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "16", "memory": "128Gi"}}}],
        },
    }))?)
}
