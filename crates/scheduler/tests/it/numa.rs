//! NUMA cells: counted where nodes publish them, from the moment that the kind is served.

use std::time::Duration;

use grove_api::{ClusterTopology, PodCliqueSet};
use grove_scenarios::{cells, cells_definition};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;

use crate::support::{World, nodes, set};

/// Longer than a watch waits that finds its kind not served.
const NOTICED: Duration = Duration::from_secs(60);

fn published(world: &World) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology");
    let resource = ApiResource::from_gvk_with_plural(&kind, "noderesourcetopologies");
    Api::all_with(world.client.clone(), &resource)
}

async fn publish(world: &World, node: &str, gpus: [u32; 2]) {
    let (params, patch) = (PatchParams::apply("updater"), Patch::Apply(cells(node, gpus)));
    world
        .eventually("cells can be published", async |world| {
            published(world).patch(node, &params, &patch).await.is_ok()
        })
        .await;
}

/// A gang of one pod with two GPUs of one cell.
async fn bench(world: &World, name: &str) {
    let set = set(name, 1, 2, "numa").replace("  template:\n", "  template:\n    clusterTopologyName: cells\n");
    world.create::<PodCliqueSet>(&set).await;
}

#[tokio::test(start_paused = true)]
async fn cells_count_once_nodes_publish_them() {
    let world = World::new(nodes(1, 1, 2)).await;
    let levels = json!([{"domain": "host", "key": "kubernetes.io/hostname"}, {"domain": "numa", "key": "x/numa"}]);
    let topology = json!({"metadata": {"name": "cells"}, "spec": {"levels": levels}});
    let topology: ClusterTopology = serde_json::from_value(topology).expect("a topology");
    let topologies = Api::<ClusterTopology>::all(world.client.clone());
    topologies
        .create(&PostParams::default(), &topology)
        .await
        .expect("a topology that is taken");
    bench(&world, "before").await;
    world.await_scheduled("before-0", ("True", "Placed")).await;

    let definition: CustomResourceDefinition = serde_json::from_value(cells_definition()).expect("a definition");
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .expect("a definition that is taken");
    for node in ["b1r1h1", "b1r1h2"] {
        publish(&world, node, [1, 1]).await;
    }
    tokio::time::sleep(NOTICED).await;
    bench(&world, "split").await;
    world
        .eventually("it waits, since no cell has two", async |world| {
            world.scheduled("split-0").await.is_some_and(|said| said.0 == "False")
        })
        .await;
    world.settle().await;
    publish(&world, "b1r1h2", [2, 0]).await;
    world.await_scheduled("split-0", ("True", "Placed")).await;
    assert_eq!(world.nodes_of("split-").await, [Some("b1r1h2".to_owned())]);

    bench(&world, "silent").await;
    world.settle().await;
    assert_eq!(world.nodes_of("silent-").await, [None], "the two are taken");
    let deleted = published(&world).delete("b1r1h1", &DeleteParams::default()).await;
    deleted.expect("a deletion");
    world.await_scheduled("silent-0", ("True", "Placed")).await;
    assert_eq!(
        world.nodes_of("silent-").await,
        [Some("b1r1h1".to_owned())],
        "a host that says nothing is one cell"
    );
    world.audit();
}
