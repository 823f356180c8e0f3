//! Both versions of a graph at once: what is written in one is read in the other, and comes back as it was.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::Stage;

fn graph(name: &str, services: Value) -> Value {
    json!({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": name},
        "spec": {"services": services}})
}

fn service() -> Value {
    // Without `replicas`: the default that is filled in on reading must not come back as if it had been written.
    json!({"componentType": "worker", "subComponentType": "decode",
        "resources": {"limits": {"gpu": "1", "gpuType": "vendor.example/gpu"}},
        "extraPodSpec": {"nodeSelector": {"nowhere": "at-all"}, "mainContainer": {"image": "server", "command": ["sleep"]}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_and_a_map_are_stored_alike_and_returned_as_written() -> Result<()> {
    let stage = Stage::new("versions").await?;
    let mut named = service();
    named["name"] = json!("Decode");
    let forms = [("map", json!({"Decode": service()})), ("list", json!([named]))];
    for (name, services) in &forms {
        let made = stage.create(&graph(name, services.clone())).await?;
        assert_eq!(made["spec"]["services"], *services, "{name}");
        let read = serde_json::to_value(stage.graphs("v1alpha1").get(name).await?)?;
        assert_eq!(read["spec"]["services"], *services, "{name}");
    }
    let stored = [stage.stored("map").await?, stage.stored("list").await?];
    assert_eq!(stored[0].spec, stored[1].spec);
    assert_eq!(
        stored[0].spec.components[0].type_.map(|type_| type_.as_str()),
        Some("decode")
    );

    // Somebody scales by the newer version: whoever reads the older one sees it.
    let mut components = stored[1].spec.components.clone();
    components[0].replicas = 3;
    let patch = Patch::Merge(json!({"spec": {"components": components}}));
    stage
        .graphs("v1beta1")
        .patch("list", &PatchParams::default(), &patch)
        .await?;
    let read = serde_json::to_value(stage.graphs("v1alpha1").get("list").await?)?;
    assert_eq!(read["spec"]["services"][0]["replicas"], 3);
    assert_eq!(read["spec"]["services"][0]["name"], "Decode");
    Ok(())
}
