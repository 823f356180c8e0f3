//! What other schedulers are told: topology resources of KAI and Kueue.

use std::time::Duration;

use grove_api::ClusterTopology;
use grove_controllers::Settings;
use grove_simcluster::fault::{Match, RequestFault, Rule};
use grove_simcluster::server::Verb;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::json;

use super::kit::{
    BLOCK, DEFAULT, HOST, Look as _, NUMA, RACK, delete, kai_definition, levels, node_labels, topology_definition,
    two_racks, with_kai, world,
};
use crate::support::{OPERATOR, World};

async fn with_kai_api(words: &[&str]) -> World {
    let mut world = World::without_operator(1, two_racks()).await;
    world.install(kai_definition()).await;
    world.launch(&with_kai(words)).await.unwrap();
    world
}

async fn edit_levels(world: &World, name: &str, levels: &[(&str, &str)]) {
    let levels: Vec<_> = levels
        .iter()
        .map(|(word, key)| json!({"domain": word, "key": key}))
        .collect();
    let patch = Patch::Merge(json!({"spec": {"levels": levels}}));
    world
        .topologies()
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn kai_object(name: &str, labels: &[&str]) -> DynamicObject {
    let levels: Vec<_> = labels.iter().map(|label| json!({"nodeLabel": label})).collect();
    let object = json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": name},
                        "spec": {"levels": levels}});
    serde_json::from_value(object).unwrap()
}

// shows: V3-23, V3-28, G244-41
#[tokio::test(start_paused = true)]
async fn a_change_of_levels_replaces_the_resource() {
    let world = with_kai_api(&["host"]).await;
    world.create_topology("mine", &[("rack", RACK), ("host", HOST)]).await;
    world.await_kai_labels("mine", &[RACK, HOST]).await;
    let old = world.kai_topologies().get("mine").await.unwrap();
    // Listed out of order, and finer than another scheduler can take.
    edit_levels(&world, "mine", &[("numa", NUMA), ("host", HOST), ("block", BLOCK)]).await;
    world.await_kai_labels("mine", &[BLOCK, HOST]).await;
    assert_ne!(world.kai_topologies().get("mine").await.unwrap().uid(), old.uid());
    world
        .eventually("the status speaks of the new generation", async |world| {
            let topology = world.topology("mine").await.unwrap();
            topology
                .status
                .is_some_and(|status| status.observed_generation == Some(2))
        })
        .await;
    world.await_topology_ready("mine", ("True", "TopologyReady")).await;
}

// shows: V3-26, V3-27
#[tokio::test(start_paused = true)]
async fn what_is_deleted_comes_back_and_what_is_bent_is_straightened() {
    let mut world = World::without_operator(1, two_racks()).await;
    let mut editable = kai_definition();
    let levels = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/levels/x-kubernetes-validations";
    *editable.pointer_mut(levels).unwrap() = json!([]);
    world.install(editable).await;
    world.launch(&with_kai(&["rack", "host"])).await.unwrap();
    world.await_kai_labels(DEFAULT, &[RACK, HOST]).await;
    let kai = world.kai_topologies();
    kai.delete(DEFAULT, &DeleteParams::default()).await.unwrap();
    world.await_kai_labels(DEFAULT, &[RACK, HOST]).await;

    let patch = Patch::Merge(json!({"spec": {"levels": [{"nodeLabel": HOST}]}}));
    kai.patch(DEFAULT, &PatchParams::default(), &patch).await.unwrap();
    world.await_kai_labels(DEFAULT, &[RACK, HOST]).await;
    // What an admin adds to it is not drift.
    let uid = kai.get(DEFAULT).await.unwrap().uid();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    kai.patch(DEFAULT, &PatchParams::default(), &patch).await.unwrap();
    world.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    assert_eq!(kai.get(DEFAULT).await.unwrap().uid(), uid);
}

#[tokio::test(start_paused = true)]
async fn what_is_somebody_elses_is_never_touched() {
    let world = with_kai_api(&["host"]).await;
    let theirs = kai_object("mine", &["their/label"]);
    world
        .kai_topologies()
        .create(&PostParams::default(), &theirs)
        .await
        .unwrap();
    world.create_topology("mine", &[("rack", RACK)]).await;
    world
        .await_topology_ready("mine", ("False", "KAITopologyCreationFailed"))
        .await;
    let (_, _, message) = world.topology_ready("mine").await.unwrap();
    assert!(
        message.contains("KAI Topology 'mine' exists and was not made by the operator"),
        "{message}"
    );
    assert_eq!(world.kai_labels("mine").await.unwrap(), ["their/label"]);
    // Once it is out of the way, ours takes the place.
    world
        .kai_topologies()
        .delete("mine", &DeleteParams::default())
        .await
        .unwrap();
    world.await_kai_labels("mine", &[RACK]).await;
    world.await_topology_ready("mine", ("True", "TopologyReady")).await;
}

// shows: G244-6
#[tokio::test(start_paused = true)]
async fn switched_off_it_is_let_go_of_and_nothing_is_deleted() {
    let mut world = with_kai_api(&["rack", "host"]).await;
    world.await_kai_labels(DEFAULT, &[RACK, HOST]).await;
    let uid = world.kai_topologies().get(DEFAULT).await.unwrap().uid();
    let off = with_kai(&["rack", "host"]).replace(
        "{name: kai-scheduler}",
        "{name: kai-scheduler, config: {createTopologyResources: false}}",
    );
    world.launch(&off).await.unwrap();
    world
        .eventually("it has no owner", async |world| {
            let object = world.kai_topologies().get(DEFAULT).await.unwrap();
            object.owner_references().is_empty()
        })
        .await;
    let (_, _, message) = world.topology_ready(DEFAULT).await.unwrap();
    assert_eq!(message, "ClusterTopology configured");
    assert_eq!(world.kai_topologies().get(DEFAULT).await.unwrap().uid(), uid);

    world.launch(&with_kai(&["rack", "host"])).await.unwrap();
    world
        .eventually("it is taken back", async |world| {
            let object = world.kai_topologies().get_opt(DEFAULT).await.unwrap();
            object.is_some_and(|object| object.owner_references().len() == 1)
        })
        .await;
}

// shows: V3-25, G244-46
#[tokio::test(start_paused = true)]
async fn it_goes_with_its_topology() {
    let world = with_kai_api(&["host"]).await;
    world.create_topology("mine", &[("rack", RACK)]).await;
    world.await_kai_labels("mine", &[RACK]).await;
    delete::<ClusterTopology>(&world, "mine").await;
    world
        .eventually("both are gone", async |world| {
            world.topology("mine").await.is_none() && world.kai_labels("mine").await.is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn kueue_is_told_in_its_newest_version_and_again_when_its_api_returns() {
    let kueue = format!(
        "scheduler: {{profiles: [{{name: kueue}}]}}\n{}",
        levels(&["rack", "host"])
    );
    let world = world(&kueue).await;
    world
        .await_topology_ready(DEFAULT, ("False", "BackendTopologyCreationFailed"))
        .await;
    world
        .install(topology_definition("kueue.x-k8s.io", &["v1alpha1", "v1beta1"]))
        .await;
    world.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    let api = world.backend_topologies("kueue.x-k8s.io", "v1beta1");
    let made = api.get(DEFAULT).await.unwrap();
    assert_eq!(node_labels(&made).unwrap(), [RACK, HOST]);

    delete::<CustomResourceDefinition>(&world, "topologies.kueue.x-k8s.io").await;
    world
        .await_topology_ready(DEFAULT, ("False", "BackendTopologyCreationFailed"))
        .await;
    world
        .eventually("the definition is gone", async |world| {
            let api = kube::Api::<CustomResourceDefinition>::all(world.client.clone());
            api.get_opt("topologies.kueue.x-k8s.io").await.unwrap().is_none()
        })
        .await;
    world.install(topology_definition("kueue.x-k8s.io", &["v1beta1"])).await;
    world.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    assert!(api.get_opt(DEFAULT).await.unwrap().is_some());
}

/// However many topologies and workers there are, no more requests are under way at once than anywhere else.
#[tokio::test(start_paused = true)]
async fn many_topologies_are_told_within_the_bound_of_requests_under_way() {
    const TOPOLOGIES: usize = 150;
    const UNDER_WAY_MAX: usize = 64;
    let slow = Duration::from_secs(10);
    let mut world = World::without_operator(1, two_racks()).await;
    world.install(kai_definition()).await;
    for i in 0..TOPOLOGIES {
        world.create_topology(&format!("t{i}"), &[("host", HOST)]).await;
    }
    let creation = Match::any().user(OPERATOR).resource("kai.scheduler", "topologies");
    let creation = creation.verb(Verb::Create);
    world
        .cluster
        .faults()
        .script([Rule::request(creation, RequestFault::Slow(slow)).always()]);
    let settings = world.settings(&world.configuration(&with_kai(&["host"])));
    world.run_operator(Settings {
        workers: 2 * TOPOLOGIES,
        ..settings
    });
    world
        .eventually("KAI is told of all", async |world| {
            world
                .kai_topologies()
                .list(&Default::default())
                .await
                .unwrap()
                .items
                .len()
                == TOPOLOGIES
        })
        .await;
    let told = world.operator_writes(0).of_kind("kai.scheduler", "topologies");
    let ends: Vec<_> = told.iter().map(|write| write.time).collect();
    assert_eq!(ends.len(), TOPOLOGIES);
    for pair in ends.windows(UNDER_WAY_MAX + 1) {
        let apart = pair[UNDER_WAY_MAX].duration_since(pair[0]);
        // What ends so late began only when one of those before had ended.
        assert!(apart.unsigned_abs() >= slow, "{UNDER_WAY_MAX} others were under way");
    }
}
