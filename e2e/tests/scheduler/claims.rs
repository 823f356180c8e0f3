//! Pods with resource claims under the stock kube-scheduler: the operator chooses the domain, and kube-scheduler the host
//! whose devices match. What it cannot bind in time is placed again.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use grove_scenarios::{HOST, RACK};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::place::{DEFAULT, GPU_HOST, Place};
use crate::space::Space;

/// A set of two pods in one rack, each with a claim for one device of the place's own driver.
async fn create_set(place: &Place) -> Result<()> {
    let driver = driver(place);
    let class: DeviceClass = serde_json::from_value(json!({
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{driver}'")}}]},
    }))?;
    let template: ResourceClaimTemplate = serde_json::from_value(json!({
        "metadata": {"name": "device"},
        "spec": {"spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": driver}}]}}},
    }))?;
    let params = PostParams::default();
    Api::all(place.client.clone()).create(&params, &class).await?;
    place.all().create(&params, &template).await?;
    let name = &place.namespace;
    let pod = format!(
        "{{nodeSelector: {{test: {name}}}, containers: [{{name: main, image: one, resources: {{claims: [{{name: d}}]}}}}], \
         resourceClaims: [{{name: d, resourceClaimTemplateName: device}}]}}"
    );
    let manifest = format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: w}}\nspec:\n  replicas: 1\n  template:\n    \
         topologyConstraint: {{packDomain: rack}}\n    cliques:\n    - name: a\n      spec: {{roleName: a, replicas: 2, \
         minAvailable: 2, podSpec: {pod}}}\n"
    );
    place.create(&manifest).await?;
    Ok(())
}

fn driver(place: &Place) -> String {
    format!("{}.example.com", place.namespace)
}

/// Lets a node have two devices.
async fn add_devices(place: &Place, node: &str) -> Result<()> {
    let slice: ResourceSlice = serde_json::from_value(json!({
        "metadata": {"name": node},
        "spec": {
            "driver": driver(place), "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d0"}, {"name": "d1"}],
        },
    }))?;
    Api::all(place.client.clone())
        .create(&PostParams::default(), &slice)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_claims_go_to_the_hosts_of_one_rack_that_have_devices() -> Result<()> {
    let place = Place::new(&DEFAULT, "claims").await?;
    place.add_nodes(2, 2, &GPU_HOST).await?;
    for node in ["claims-1", "claims-3"] {
        add_devices(&place, node).await?;
    }
    create_set(&place).await?;
    let pods = place.running(2, 2).await?;
    let hosts = place.domains("w-0-", HOST).await?;
    assert_eq!(hosts.len(), 1, "the devices of one rack are all on one host: {hosts:?}");
    let rack = place.domains("w-0-", RACK).await?;
    for pod in pods.values() {
        let affinity = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.affinity.as_ref())
            .context("an affinity")?;
        let terms = json!(affinity)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].clone();
        let term = json!({"matchExpressions": [{"key": RACK, "operator": "In", "values": rack}]});
        assert_eq!(
            terms,
            json!({"nodeSelectorTerms": [term]}),
            "confined to the rack and to no host"
        );
    }
    place.audit().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_not_bound_in_time_are_made_anew_and_placed_elsewhere() -> Result<()> {
    let place = Place::new(&DEFAULT, "late").await?;
    place.add_nodes(2, 2, &GPU_HOST).await?;
    create_set(&place).await?;
    // Let go by the operator, and nowhere to be bound to.
    let let_go = async |place: &Space| -> Result<Option<BTreeSet<String>>> {
        let pods = place.pods().await?;
        let is_let_go = |pod: &Pod| json!(pod.spec)["schedulingGates"] == Value::Null;
        let all = pods.len() == 2 && pods.values().all(is_let_go);
        Ok(all.then(|| pods.values().filter_map(ResourceExt::uid).collect()))
    };
    place
        .until("both pods to be let go", async |place| {
            Ok(let_go(place).await?.is_some())
        })
        .await?;
    let first = let_go(&place).await?.unwrap_or_default();
    // Where they wait they would wait for ever: only a host of the other rack has devices.
    let pods = place.pods().await?;
    let first_rack = pods.values().find_map(confined_to).context("a rack")?;
    let (node, rack) = match first_rack == "late-0" {
        true => ("late-2", "late-1"),
        false => ("late-0", "late-0"),
    };
    add_devices(&place, node).await?;
    let pods = place.running(2, 2).await?;
    assert_eq!(place.domains("w-0-", RACK).await?, [rack]);
    let uids = pods.values().filter_map(ResourceExt::uid);
    assert!(first.is_disjoint(&uids.collect()), "they are made anew");
    place.audit().await
}

/// The rack that a pod is confined to.
fn confined_to(pod: &Pod) -> Option<String> {
    let affinity = json!(pod.spec.as_ref()?.affinity);
    let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let expressions = terms[0]["matchExpressions"].as_array()?;
    let of_rack = expressions.iter().find(|expression| expression["key"] == RACK)?;
    of_rack["values"][0].as_str().map(str::to_owned)
}
