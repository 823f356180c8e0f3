//! What is done to sets that run: a new template, twice as many replicas, the end. The bare client makes the same writes of
//! objects that it knows beforehand.
//!
//! No pod runs here, so an update replaces all pods of a replica at once: what is measured is the way from a changed
//! template to the last released pod, not the patience of a rollout. And there is no garbage collector: Kubernetes' own
//! asks for twenty things a second, and would be all that is measured. We delete what belonged to the sets, as fast as the
//! bare client deletes its copies.

use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use grove_api::PodCliqueSet;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::bare::{self, Copies, WORKERS};
use super::super::follow::Follower;
use super::Stage;
use super::requests::{Cost, Verbs, cost_of};
use super::throughput::{BARE, Case, NAMESPACE, set_name};

/// What the operator took for one act, and the bare client for the same writes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Act {
    pub(super) act: &'static str,
    /// Pods that were made or deleted.
    pub(super) pods: usize,
    pub(super) seconds: f64,
    pub(super) bare_s: f64,
    pub(super) ratio: f64,
    pub(super) requests: Verbs,
    pub(super) requests_per_pod: f64,
    pub(super) cpu_s: f64,
}

impl Act {
    pub(super) fn new(act: &'static str, pods: usize, cost: Cost, bare_s: f64) -> Self {
        let requests: u64 = cost.requests.values().sum();
        Self {
            act,
            pods,
            seconds: cost.seconds,
            bare_s,
            ratio: cost.seconds / bare_s,
            requests: cost.requests,
            requests_per_pod: requests as f64 / pods as f64,
            cpu_s: cost.cpu_s,
        }
    }
}

/// Changes the template of every set's clique; over when every pod has been replaced and released.
pub(super) async fn update(stage: &Stage, case: &Case) -> Result<Cost> {
    let image = json!([{
        "op": "replace", "path": "/spec/template/cliques/0/spec/podSpec/containers/0/image",
        "value": "registry.example/server:2",
    }]);
    change(stage, case, &Patch::Json(serde_json::from_value(image)?)).await
}

/// Doubles the replicas of every set; over when the new pods are there and released.
pub(super) async fn scale(stage: &Stage, case: &Case) -> Result<Cost> {
    let replicas = json!({"spec": {"replicas": 2 * case.replicas}});
    change(stage, case, &Patch::Merge(replicas)).await
}

async fn change(stage: &Stage, case: &Case, patch: &Patch<Value>) -> Result<Cost> {
    let client = &stage.client;
    let mut follower = Follower::open(client, NAMESPACE).await?;
    cost_of(stage, ("PATCH", case.sets), async {
        let sets = Api::<PodCliqueSet>::namespaced(client.clone(), NAMESPACE);
        let patch = |index: usize| {
            let sets = &sets;
            async move {
                sets.patch(&set_name(index), &PatchParams::default(), patch).await?;
                anyhow::Ok(())
            }
        };
        let patches = stream::iter(0..case.sets).map(patch).buffer_unordered(WORKERS);
        let (patched, times) = tokio::join!(patches.try_collect::<()>(), follower.all(case.pods_in_all()));
        patched?;
        Ok(times?.ungated)
    })
    .await
}

/// Deletes the sets, and then what belonged to them; over when all is gone. How many pods that were comes with it.
pub(super) async fn delete(stage: &Stage, case: &Case) -> Result<(Cost, usize)> {
    let client = &stage.client;
    let owned = Copies::originals(client, NAMESPACE).await?;
    let own: usize = case.sets + owned.steps.iter().map(Vec::len).sum::<usize>();
    let cost = cost_of(stage, ("DELETE", own), async {
        let sets = Api::<PodCliqueSet>::namespaced(client.clone(), NAMESPACE);
        let delete = |index: usize| {
            let sets = &sets;
            async move {
                sets.delete(&set_name(index), &DeleteParams::default()).await?;
                anyhow::Ok(())
            }
        };
        let deletes = stream::iter(0..case.sets).map(delete).buffer_unordered(WORKERS);
        deletes.try_collect::<()>().await?;
        bare::gone(&sets, &ListParams::default().limit(1)).await?;
        delete_all(client, NAMESPACE, &[&owned]).await?;
        Ok(Instant::now())
    })
    .await?;
    Ok((cost, owned.pods().count()))
}

/// Pods last, as owners go before what they own.
async fn delete_all(client: &Client, namespace: &str, copies: &[&Copies]) -> Result<()> {
    for is_pod in [false, true] {
        let objects: Vec<&DynamicObject> = copies.iter().flat_map(|copies| copies.of_pods(is_pod)).collect();
        bare::delete(client, namespace, &objects).await?;
    }
    Ok(())
}

/// Makes everything, then lifts the gates.
pub(super) async fn write_bare(client: &Client, copies: &Copies) -> Result<()> {
    let objects: Vec<_> = copies.steps.iter().flatten().cloned().collect();
    bare::create(client, BARE, &objects).await?;
    bare::lift_gates(client, BARE, copies.pods().collect()).await
}

/// How long the bare client took for the writes of each act.
#[derive(Clone, Copy, Debug)]
pub(super) struct BareTimes {
    pub(super) update_s: f64,
    pub(super) scale_s: f64,
    pub(super) delete_s: f64,
}

/// Does the same to the copies that it has made before.
pub(super) async fn by_bare_client(client: &Client, copies: &Copies) -> Result<BareTimes> {
    let begun = Instant::now();
    let pods: Vec<DynamicObject> = copies.of_pods(true).cloned().collect();
    bare::delete(client, BARE, &pods.iter().collect::<Vec<_>>()).await?;
    bare::create(client, BARE, &pods).await?;
    bare::lift_gates(client, BARE, copies.pods().collect()).await?;
    let update_s = begun.elapsed().as_secs_f64();

    let more = copies.renamed("more");
    let begun = Instant::now();
    write_bare(client, &more).await?;
    let scale_s = begun.elapsed().as_secs_f64();

    let begun = Instant::now();
    delete_all(client, BARE, &[copies, &more]).await?;
    Ok(BareTimes {
        update_s,
        scale_s,
        delete_s: begun.elapsed().as_secs_f64(),
    })
}
