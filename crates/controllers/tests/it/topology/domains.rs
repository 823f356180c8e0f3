//! A TopologyDomain as the source of levels, as in the first designs.

use grove_api::{ClusterTopology, PodCliqueSet, TopologyDomain};
use grove_controllers::StartError;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::kit::{
    DEFAULT, HOST, Look as _, delete, keys, levels, node_labels, packed, refusal, set, topology_definition, two_racks,
};
use crate::support::World;

const ROW: &str = "onprem.example/row";

fn selecting(name: &str, policies: &str) -> String {
    format!(
        "topologyAwareScheduling: {{enabled: true, source: TopologyDomain, topologyDomainName: {name}{policies}}}\n"
    )
}

async fn create_domain(world: &World, name: &str, levels: &[(&str, &str)]) {
    let levels: Vec<Value> = levels
        .iter()
        .map(|(word, key)| json!({"name": word, "topologyKey": key}))
        .collect();
    let object = json!({"metadata": {"name": name}, "spec": {"levels": levels}});
    let object: TopologyDomain = serde_json::from_value(object).unwrap();
    domains(world).create(&PostParams::default(), &object).await.unwrap();
}

fn domains(world: &World) -> Api<TopologyDomain> {
    Api::all(world.client.clone())
}

async fn cluster() -> World {
    World::without_operator(1, two_racks()).await
}

async fn with_domain() -> World {
    let mut world = cluster().await;
    create_domain(&world, "default", &[("row", ROW), ("host", HOST)]).await;
    world.launch(&selecting("default", "")).await.unwrap();
    world
}

// shows: V2-3, V2-29, V2-24
#[tokio::test(start_paused = true)]
async fn free_words_are_translated_in_list_order() {
    let world = with_domain().await;
    world.try_create(&set("w", (1, 1), packed("row"))).await.unwrap();
    world.await_gang_keys("w-0", keys(ROW, HOST)).await;
    assert_eq!(
        world.gang("w-0").await.unwrap().annotations()["grove.io/topology-name"],
        "default"
    );
}

// shows: V2-16, V2-17, V2-18, V1-10, V1-18, V1-19
#[tokio::test(start_paused = true)]
async fn it_is_held_while_any_set_exists() {
    let world = with_domain().await;
    world
        .eventually("it is guarded", async |world| {
            let object = domains(world).get("default").await.unwrap();
            object.finalizers() == ["grove.run.ai/topology-protection"]
        })
        .await;
    // Also a set without a constraint holds it.
    world.try_create(&set("plain", (1, 1), json!({}))).await.unwrap();
    world
        .eventually("it runs", async |world| world.ready().await == 1)
        .await;
    delete::<TopologyDomain>(&world, "default").await;
    world
        .patch_set("plain", json!({"spec": {"replicas": 2}}))
        .await
        .unwrap();
    world
        .eventually("two run", async |world| world.ready().await == 2)
        .await;
    assert!(domains(&world).get_opt("default").await.unwrap().is_some());
    world
        .all::<PodCliqueSet>()
        .delete("plain", &DeleteParams::default())
        .await
        .unwrap();
    world
        .eventually("it is let go of", async |world| {
            domains(world).get_opt("default").await.unwrap().is_none()
        })
        .await;
}

// shows: V2-11, V2-12, V2-13, V2-14, V1-16, V1-17
#[tokio::test(start_paused = true)]
async fn kueue_is_told_where_its_api_is_served_and_without_its_profile() {
    let world = with_domain().await;
    world
        .install(topology_definition("kueue.x-k8s.io", &["v1alpha1"]))
        .await;
    let api = world.backend_topologies("kueue.x-k8s.io", "v1alpha1");
    world
        .eventually("a Kueue Topology is made", async |_| {
            matches!(api.get_opt("default").await, Ok(Some(_)))
        })
        .await;
    let made = api.get("default").await.unwrap();
    assert_eq!(node_labels(&made).unwrap(), [ROW, HOST]);
    assert_eq!(made.owner_references()[0].kind, "TopologyDomain");
    world
        .eventually("its status says so", async |world| {
            let status = domains(world).get("default").await.unwrap().status.unwrap_or_default();
            let messages: Vec<String> = status
                .conditions
                .into_iter()
                .map(|condition| condition.message)
                .collect();
            messages == ["TopologyDomain configured and Kueue Topology created successfully"]
        })
        .await;
}

// shows: V2-20, V1-22, V1-23
#[tokio::test(start_paused = true)]
async fn missing_at_start_the_policy_decides() {
    let mut world = cluster().await;
    let refused = world.launch(&selecting("default", "")).await.unwrap_err();
    assert!(matches!(refused, StartError::TopologyDomainMissing(_)), "{refused:?}");
    assert_eq!(
        refused.to_string(),
        "TopologyDomain 'default' not found; create it or remove --topology-domain-name"
    );
    let disable = selecting("default", ", onTopologyMissingAtStart: Disable");
    world.launch(&disable).await.unwrap();
    world.try_create(&set("w", (1, 1), packed("row"))).await.unwrap();
    world
        .await_condition("w", "TopologyConstraints", ("False", "TopologyDisabled"))
        .await;
    // The webhooks know it too.
    world.serve_webhooks(&disable).await;
    let said = refusal(world.try_create(&set("n", (1, 1), packed("row"))).await);
    let expected = "topology support is not enabled in the operator";
    assert!(said.contains(expected), "{said}");
}

// shows: V2-1, V2-2, V2-10, V2-23, V1-15
#[tokio::test(start_paused = true)]
async fn another_domain_and_another_source_can_be_selected() {
    let mut world = with_domain().await;
    world.create_topology("users", &[("rack", "a/rack")]).await;
    world.try_create(&set("w", (1, 1), packed("row"))).await.unwrap();
    world.await_gang_keys("w-0", keys(ROW, HOST)).await;
    create_domain(&world, "second", &[("row", "second/row")]).await;
    world.launch(&selecting("second", "")).await.unwrap();
    world.await_gang_keys("w-0", keys("second/row", "second/row")).await;
    world
        .eventually("the first is let go of, the second held", async |world| {
            let first = domains(world).get("default").await.unwrap();
            let second = domains(world).get("second").await.unwrap();
            first.finalizers().is_empty() && second.finalizers().len() == 1
        })
        .await;

    world.launch(&levels(&["rack", "host"])).await.unwrap();
    world
        .await_condition("w", "TopologyConstraints", ("False", "TopologyLevelNotFound"))
        .await;
    assert!(world.topology(DEFAULT).await.is_some());
    world.launch(&selecting("second", "")).await.unwrap();
    world.await_gang_keys("w-0", keys("second/row", "second/row")).await;
    world
        .eventually("grove-topology is removed", async |world| {
            world.topology(DEFAULT).await.is_none()
        })
        .await;
    // Topologies of users are left alone, and can still be deleted.
    assert!(world.topology("users").await.is_some());
    delete::<ClusterTopology>(&world, "users").await;
    world
        .eventually("it is gone", async |world| world.topology("users").await.is_none())
        .await;
}
