//! One small set at a time: how long its author waits, beside a client that makes the same writes in the same order of
//! dependence. The two take turns, so that whatever else the machine does hits both.

use std::time::Instant;

use anyhow::Result;
use grove_api::PodCliqueSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::json;

use super::super::bare::{self, Copies, create_namespace};
use super::super::follow::Follower;
use super::super::results::percentiles;
use super::Stage;
use super::throughput::{BARE, NAMESPACE, set};

const PODS: usize = 8;

/// Times from the creation of a set to its last gate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Latency {
    case: &'static str,
    pub(super) pairs: usize,
    pub(super) operator_p50_ms: f64,
    pub(super) operator_p99_ms: f64,
    pub(super) bare_p50_ms: f64,
    pub(super) bare_p99_ms: f64,
    pub(super) more_p50_ms: f64,
    pub(super) more_p99_ms: f64,
}

pub(super) async fn measure(stage: Stage, pairs: usize) -> Result<Latency> {
    let client = &stage.client;
    create_namespace(client, BARE).await?;
    by_operator(client, "first").await?;
    let copies = Copies::take(client, NAMESPACE).await?;
    by_bare_client(client, &copies, "first").await?;
    let (mut operator, mut bare) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        operator.push(by_operator(client, &format!("p{pair}")).await?);
        bare.push(by_bare_client(client, &copies, &format!("p{pair}")).await?);
    }
    let [operator_p50_ms, operator_p99_ms] = percentiles(operator);
    let [bare_p50_ms, bare_p99_ms] = percentiles(bare);
    Ok(Latency {
        case: "latency of 8 pods",
        pairs,
        operator_p50_ms,
        operator_p99_ms,
        bare_p50_ms,
        bare_p99_ms,
        more_p50_ms: operator_p50_ms - bare_p50_ms,
        more_p99_ms: operator_p99_ms - bare_p99_ms,
    })
}

async fn by_operator(client: &Client, name: &str) -> Result<f64> {
    let mut follower = Follower::open(client, NAMESPACE).await?;
    let sets = Api::<PodCliqueSet>::namespaced(client.clone(), NAMESPACE);
    let set = set(name, 1, PODS)?;
    let begun = Instant::now();
    sets.create(&PostParams::default(), &set).await?;
    let times = follower.all(PODS).await?;
    Ok((times.ungated - begun).as_secs_f64() * 1e3)
}

async fn by_bare_client(client: &Client, copies: &Copies, name: &str) -> Result<f64> {
    let copies = copies.renamed(name);
    // Stands for the set, which the operator would take for one of its own.
    let maps = Api::<ConfigMap>::namespaced(client.clone(), BARE);
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("set".to_owned(), serde_json::to_string(&set(name, 1, PODS)?)?)].into()),
        ..ConfigMap::default()
    };
    let begun = Instant::now();
    maps.create(&PostParams::default(), &map).await?;
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
    maps.patch(name, &PatchParams::default(), &held).await?;
    for step in &copies.steps {
        bare::create(client, BARE, step).await?;
    }
    bare::lift_gates(client, BARE, copies.pods().collect()).await?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}
