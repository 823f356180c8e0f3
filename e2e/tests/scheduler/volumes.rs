//! A volume that only some nodes reach bounds where its gang goes.

use anyhow::Result;
use grove_scenarios::RACK;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::place::{Place, Stand, by_both_profiles};

by_both_profiles! {
    a_gang_goes_to_the_rack_that_its_volume_is_in,
}

async fn a_gang_goes_to_the_rack_that_its_volume_is_in(stand: &'static Stand) -> Result<()> {
    let place = Place::new(stand, "volumes").await?;
    place
        .add_nodes(3, 2, &[("cpu", "8"), ("memory", "64Gi"), ("pods", "20")])
        .await?;
    let rack = "volumes-1";
    let term = json!({"matchExpressions": [{"key": RACK, "operator": "In", "values": [rack]}]});
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "models"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "hostPath": {"path": "/models"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }))?;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "models"},
        "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": "models",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }))?;
    Api::all(place.client.clone())
        .create(&PostParams::default(), &volume)
        .await?;
    place.all().create(&PostParams::default(), &claim).await?;
    place
        .until("the claim to be bound", async |place| {
            let claim = place.all::<PersistentVolumeClaim>().get("models").await?;
            Ok(claim.status.and_then(|status| status.phase).as_deref() == Some("Bound"))
        })
        .await?;
    let pod = "{nodeSelector: {test: volumes}, containers: [{name: main, image: one, resources: {requests: {cpu: 6}}}], \
               volumes: [{name: models, persistentVolumeClaim: {claimName: models}}]}";
    let manifest = format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: w}}\nspec:\n  replicas: 1\n  template:\n    \
         topologyConstraint: {{packDomain: rack}}\n    cliques:\n    - name: a\n      spec: {{roleName: a, replicas: 2, \
         minAvailable: 2, podSpec: {pod}}}\n"
    );
    place.create(&manifest).await?;
    place.running(2, 2).await?;
    assert_eq!(place.domains("w-0-", RACK).await?, [rack]);
    place.audit().await
}
