//! A stock kube-rs controller lives on the cluster for a virtual day.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::{finalizer, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::support::*;

struct Context {
    client: kube::Client,
    runs: AtomicUsize,
}

/// Keeps one secret for each config map of the name `owner`.
async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Arc<finalizer::Error<kube::Error>>> {
    context.runs.fetch_add(1, Ordering::Relaxed);
    if map.name_any() != "owner" {
        return Ok(Action::await_change());
    }
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), "default");
    let result = finalizer(&maps, "demo.test/cleanup", map, |event| async move {
        match event {
            finalizer::Event::Apply(map) => {
                let owner = map.controller_owner_ref(&()).expect("a stored object has a uid");
                let secret = json!({"metadata": {"name": "child", "ownerReferences": [owner]}});
                let secret = serde_json::from_value(secret).expect("a secret");
                match secrets.create(&PostParams::default(), &secret).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
                    Err(error) => return Err(error),
                }
                Ok(Action::requeue(Duration::from_secs(300)))
            }
            finalizer::Event::Cleanup(_) => Ok(Action::await_change()),
        }
    });
    result.await.map_err(Arc::new)
}

#[tokio::test(start_paused = true)]
async fn a_controller_runs_for_a_day() {
    let cluster = cluster();
    let client = cluster.client();
    let context = Arc::new(Context {
        client: client.clone(),
        runs: AtomicUsize::new(0),
    });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let controller = Controller::new(maps.clone(), watcher::Config::default())
        .owns(
            Api::<Secret>::namespaced(client.clone(), "default"),
            watcher::Config::default(),
        )
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            context.clone(),
        );
    let task = tokio::spawn(controller.for_each(|_| async {}));
    post(
        &cluster,
        "/api/v1/namespaces/default/configmaps",
        &json!({"metadata": {"name": "owner"}}),
    )
    .await;
    let child = "/api/v1/namespaces/default/secrets/child";
    let first = until(&cluster, child, |answer| answer.code == 200).await.body;
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    secrets.delete("child", &DeleteParams::default()).await.unwrap();
    until(&cluster, child, |a| {
        a.code == 200 && a.body["metadata"]["uid"] != first["metadata"]["uid"]
    })
    .await;
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    let runs = context.runs.load(Ordering::Relaxed);
    assert!((288..2000).contains(&runs), "a run every five minutes, {runs} in all");
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    until_gone(&cluster, "/api/v1/namespaces/default/configmaps/owner").await;
    until_gone(&cluster, child).await;
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lease_has_one_holder() {
    let cluster = cluster();
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "default");
    let lease = |holder: &str| json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": holder, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let made: Lease = leases
        .create(&PostParams::default(), &serde_json::from_value(lease("a")).unwrap())
        .await
        .unwrap();
    // Two candidates saw the same lease; one of them is too late.
    let take = |holder: &'static str| {
        let (leases, mut seen) = (leases.clone(), made.clone());
        async move {
            seen.spec.as_mut().unwrap().holder_identity = Some(holder.into());
            leases.replace("leader", &PostParams::default(), &seen).await
        }
    };
    let (b, c) = futures::join!(take("b"), take("c"));
    assert!(b.is_ok() != c.is_ok());
    let patch = Patch::Merge(json!({"spec": {"leaseTransitions": 1}}));
    let held = leases.patch("leader", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        held.spec.unwrap().holder_identity,
        Some(if b.is_ok() { "b" } else { "c" }.to_owned())
    );
}
