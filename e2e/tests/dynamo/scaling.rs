//! Scaling adapters on a real API server: made by the operator, scaled in either version and by Kubernetes' own autoscaler,
//! and guarded by the webhooks.

use anyhow::{Context as _, Result, ensure};
use grove_api::DynamoGraphDeploymentScalingAdapter;
use grove_e2e::eventually;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::changes::edit;
use crate::rules::{denied, new, old, set};
use crate::stage::{LIMIT, Stage};

const KIND: &str = "DynamoGraphDeploymentScalingAdapter";

/// Adapters in one of their versions, as they are on the wire.
fn adapters(stage: &Stage, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("nvidia.com", version, KIND);
    let resource = ApiResource::from_gvk_with_plural(&kind, "dynamographdeploymentscalingadapters");
    Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource)
}

async fn scale(stage: &Stage, version: &str, name: &str, replicas: i32) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let adapters = adapters(stage, version);
    adapters
        .patch_scale(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// Waits until graph and adapter both say that the worker has so many replicas.
async fn counts(stage: &Stage, graph: &str, replicas: i32) -> Result<()> {
    let typed: Api<DynamoGraphDeploymentScalingAdapter> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let what = format!("{}/{graph} to have {replicas} workers", stage.namespace);
    eventually(what, LIMIT, async || -> Result<()> {
        let wanted = stage.stored(graph).await?.spec.components[0].replicas;
        ensure!(wanted == replicas, "the graph wants {wanted}");
        let adapter = typed.get(&format!("{graph}-worker")).await?;
        let counted = adapter.status.unwrap_or_default().replicas;
        ensure!(counted == replicas, "the adapter counts {counted}");
        Ok(())
    })
    .await?;
    Ok(())
}

fn is_refused(outcome: Result<(), kube::Error>, message: &str) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.message.contains(message) => Ok(()),
        other => anyhow::bail!("not refused with {message}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_scaled_through_its_adapter_in_either_version() -> Result<()> {
    let stage = Stage::new("scaling").await?;
    let asked = set(old("a"), "/spec/services/0/scalingAdapter", json!({"enabled": true}));
    stage.create(&asked).await?;
    counts(&stage, "a", 1).await?;
    for (version, field, replicas) in [("v1alpha1", "serviceName", 3), ("v1beta1", "componentName", 2)] {
        let adapter = serde_json::to_value(adapters(&stage, version).get("a-worker").await?)?;
        assert_eq!(
            adapter["spec"]["dgdRef"],
            json!({"name": "a", field: "Worker"}),
            "{version}"
        );
        scale(&stage, version, "a-worker", replicas).await?;
        counts(&stage, "a", replicas).await?;
    }
    let read = serde_json::to_value(stage.graphs("v1alpha1").get("a").await?)?;
    assert_eq!(read["spec"]["services"][0]["replicas"], 2);
    assert_eq!(read["spec"]["services"][0]["scalingAdapter"], json!({"enabled": true}));

    // What an autoscaler is told finds the pods.
    let scale = serde_json::to_value(adapters(&stage, "v1beta1").get_scale("a-worker").await?)?;
    let selector = scale["status"]["selector"].as_str().context("a selector")?;
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let found = pods.list(&ListParams::default().labels(selector)).await?.items.len();
    assert_eq!(found, 2, "{selector}");

    // Applied again without a number, the graph keeps the adapter's.
    let mut manifest = set(new("a"), "/spec/components/0/scalingAdapter", json!({}));
    manifest["spec"]["components"][0]["podTemplate"]["metadata"] = json!({"labels": {"round": "two"}});
    let params = PatchParams::apply("somebody").force();
    let applied = stage
        .graphs("v1beta1")
        .patch("a", &params, &Patch::Apply(manifest))
        .await?;
    assert_eq!(applied.data["spec"]["components"][0]["replicas"], 2);

    let mut components = stage.stored("a").await?.spec.components;
    components[0].scaling_adapter = None;
    edit(&stage, "a", json!({"spec": {"components": components}})).await?;
    eventually("the adapter to go", LIMIT, async || -> Result<()> {
        let left = adapters(&stage, "v1beta1")
            .list(&ListParams::default())
            .await?
            .items
            .len();
        ensure!(left == 0, "{left} are left");
        Ok(())
    })
    .await?;
    assert_eq!(stage.stored("a").await?.spec.components[0].replicas, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_about_adapters() -> Result<()> {
    let stage = Stage::new("guarded").await?;
    let asked = set(new("a"), "/spec/components/0/scalingAdapter", json!({}));
    let asked = set(asked, "/spec/components/0/minAvailable", json!(2));
    stage
        .create(&set(asked, "/spec/components/0/replicas", json!(3)))
        .await?;
    counts(&stage, "a", 3).await?;

    let mut components = stage.stored("a").await?.spec.components;
    components[0].replicas = 4;
    let direct = edit(&stage, "a", json!({"spec": {"components": components}})).await;
    is_refused(
        direct,
        "spec.components[0].replicas: Forbidden: cannot be modified directly when scaling adapter is enabled; scale or update \
         the related DynamoGraphDeploymentScalingAdapter instead",
    )?;
    let least = "component Worker must have 0 replicas, or at least its minAvailable of 2";
    for version in ["v1alpha1", "v1beta1"] {
        is_refused(scale(&stage, version, "a-worker", 1).await, least)?;
        let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
        let plain = adapters(&stage, version)
            .patch("a-worker", &PatchParams::default(), &patch)
            .await;
        is_refused(plain.map(drop), least)?;
    }
    is_refused(scale(&stage, "v1beta1", "a-worker", -1).await, "spec.replicas")?;
    scale(&stage, "v1beta1", "a-worker", 2).await?;
    counts(&stage, "a", 2).await?;

    let theirs = json!({"apiVersion": "nvidia.com/v1beta1", "kind": KIND, "metadata": {"name": "mine"},
        "spec": {"replicas": 1, "dgdRef": {"name": "a", "componentName": "Worker"}}});
    let made = adapters(&stage, "v1beta1");
    let made = made
        .create(&PostParams::default(), &serde_json::from_value(theirs)?)
        .await;
    is_refused(
        made.map(drop),
        "adapters are made by the operator; write scalingAdapter: {}",
    )?;
    let unknown = set(new("b"), "/spec/components/0/scalingAdapter", json!({"enabled": true}));
    let message = "spec.components[0].scalingAdapter.enabled: Forbidden: an adapter is enabled by being there; remove \
                   scalingAdapter to switch it off";
    denied(&stage, &unknown, message).await
}

/// Kubernetes' autoscaler comes in the version that its manifest says; below its minimum it needs no metric to act.
#[tokio::test(flavor = "multi_thread")]
async fn a_horizontal_pod_autoscaler_scales_an_adapter() -> Result<()> {
    let stage = Stage::new("autoscaled").await?;
    let asked = set(new("a"), "/spec/components/0/scalingAdapter", json!({}));
    stage.create(&asked).await?;
    counts(&stage, "a", 1).await?;
    let target = |version: &str| -> Value {
        json!({"apiVersion": format!("nvidia.com/{version}"), "kind": KIND, "name": "a-worker"})
    };
    let autoscaler = json!({"metadata": {"name": "a"}, "spec": {"scaleTargetRef": target("v1alpha1"), "minReplicas": 3,
        "maxReplicas": 5}});
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(stage.client.clone(), &stage.namespace);
    autoscalers
        .create(&PostParams::default(), &serde_json::from_value(autoscaler)?)
        .await?;
    counts(&stage, "a", 3).await
}
