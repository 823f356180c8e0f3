//! Races that end one way or the other, and in either way in a state that the rules allow.
//!
//! Fifty rounds each, whose moments are drawn from the number of the round, while the operator's requests and watches meet
//! faults that are drawn from the cluster's seed.

use std::time::Duration;

use grove_api::PodCliqueSet;
use grove_simcluster::fault::{Match, Mix};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::kit::{
    DEFAULT, HOST, OFF, RACK, kai_definition, keys, levels, packed, set, two_racks, with_kai, with_policies,
};
use crate::support::{OPERATOR, World};

const ROUNDS: u64 = 50;
const FAULTS: f64 = 0.005;
const CONSTRAINTS: &str = "TopologyConstraints";

/// The n-th moment of a round, below `most` milliseconds.
fn moment(round: u64, n: u64, most: u64) -> Duration {
    let mut x = round
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(n.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    x ^= x >> 31;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 29;
    Duration::from_millis(x % most)
}

async fn world_with(seed: u64, configuration: &str) -> World {
    let mut world = World::without_operator(seed, two_racks()).await;
    world.launch(configuration).await.unwrap();
    let operator = Match::any().user(OPERATOR);
    world
        .cluster
        .faults()
        .mix(Mix::of_everything(operator, FAULTS).webhook_down(0.0));
    world
}

fn on(topology: &str) -> Value {
    let mut template = packed("rack");
    template["clusterTopologyName"] = json!(topology);
    template
}

async fn remove(world: &World, name: &str) {
    let _ = world.all::<PodCliqueSet>().delete(name, &DeleteParams::default()).await;
    world
        .eventually("the set is gone", async |world| world.set(name).await.is_none())
        .await;
}

/// Status of the condition and what its gang demands: what a set says of itself.
async fn said(world: &World, set: &str) -> Option<(String, Option<String>)> {
    let condition = world.condition(set, CONSTRAINTS).await?;
    let (required, _) = world.gang_keys(&format!("{set}-0")).await?;
    Some((condition.status, required))
}

#[tokio::test(start_paused = true)]
async fn a_topology_is_deleted_while_a_set_that_names_it_is_admitted() {
    let configuration = levels(&["host"]);
    let world = world_with(11, &configuration).await;
    world.serve_webhooks(&configuration).await;
    let (mut admitted, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let (topology, name) = (format!("t{round}"), format!("w{round}"));
        world
            .create_topology(&topology, &[("rack", RACK), ("host", HOST)])
            .await;
        let create = async {
            tokio::time::sleep(moment(round, 0, 40)).await;
            world.try_create(&set(&name, (1, 1), on(&topology))).await
        };
        let delete = async {
            tokio::time::sleep(moment(round, 1, 40)).await;
            world
                .topologies()
                .delete(&topology, &DeleteParams::default())
                .await
                .unwrap();
        };
        let (created, ()) = tokio::join!(create, delete);
        match created {
            Ok(_) => {
                admitted += 1;
                world
                    .eventually("the set says what became of its topology", async |world| {
                        let exists = world.topology(&topology).await.is_some();
                        let said = said(world, &name).await;
                        let held = Some(("True".to_owned(), Some(RACK.to_owned())));
                        let gone = Some(("Unknown".to_owned(), None));
                        (exists && said == held) || (!exists && said == gone)
                    })
                    .await;
                remove(&world, &name).await;
            }
            Err(_) => refused += 1,
        }
        world
            .eventually("nobody holds the topology", async |world| {
                world.topology(&topology).await.is_none()
            })
            .await;
    }
    assert!(
        admitted > 0 && refused > 0,
        "both ends are seen: {admitted} admitted, {refused} refused"
    );
}

#[tokio::test(start_paused = true)]
async fn levels_are_edited_while_the_first_pod_is_bound() {
    let configuration = levels(&["host"]);
    let world = world_with(12, &configuration).await;
    world.serve_webhooks(&configuration).await;
    let (mut edited, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let (topology, name) = (format!("t{round}"), format!("w{round}"));
        world
            .create_topology(&topology, &[("rack", RACK), ("host", HOST)])
            .await;
        let create = async { world.try_create(&set(&name, (1, 1), on(&topology))).await };
        let edit = async {
            tokio::time::sleep(moment(round, 0, 400)).await;
            let patch = Patch::Merge(json!({"spec": {"levels": [{"domain": "host", "key": HOST}]}}));
            world
                .topologies()
                .patch(&topology, &PatchParams::default(), &patch)
                .await
        };
        let (created, edit) = tokio::join!(create, edit);
        if created.is_err() {
            // The level was gone before the set was judged.
            continue;
        }
        let expected = match edit {
            Ok(_) => {
                edited += 1;
                ("False".to_owned(), None)
            }
            Err(_) => {
                refused += 1;
                ("True".to_owned(), Some(RACK.to_owned()))
            }
        };
        world
            .eventually("set and gang follow the levels", async |world| {
                said(world, &name).await.as_ref() == Some(&expected)
            })
            .await;
        remove(&world, &name).await;
    }
    assert!(
        edited > 0 && refused > 0,
        "both ends are seen: {edited} edited, {refused} refused"
    );
}

/// Only one operator leads; but the one before may still have writes under way when the next begins.
#[tokio::test(start_paused = true)]
async fn two_operators_with_different_configurations_end_as_the_last_one_says() {
    let on = with_policies(&["rack", "host"], ", preferredPacking: Always");
    let mut first = World::without_operator(13, two_racks()).await;
    first.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    for round in 0..ROUNDS {
        let (before, last) = match round % 2 {
            0 => (OFF, on.as_str()),
            _ => (on.as_str(), OFF),
        };
        first.launch(before).await.unwrap();
        let mut second = first.beside();
        tokio::time::sleep(moment(round, 0, 300)).await;
        let ((), started) = tokio::join!(first.stop_operator(), second.launch(last));
        started.unwrap();
        let (status, required) = if last == OFF { ("False", "") } else { ("True", RACK) };
        first
            .eventually("everything is as the last one says", async |world| {
                let condition = world.condition("w", CONSTRAINTS).await;
                let status_is = condition.is_some_and(|condition| condition.status == status);
                let topology_is = world.topology(DEFAULT).await.is_some() == (last != OFF);
                let demand = world.gang_keys("w-0").await.map(|keys| keys.0);
                status_is && topology_is && demand == Some(keys(required, "").0)
            })
            .await;
        second.stop_operator().await;
    }
}

#[tokio::test(start_paused = true)]
async fn kai_is_installed_after_the_operator() {
    let world = world_with(14, &with_kai(&["rack", "host"])).await;
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone());
    for round in 0..ROUNDS {
        tokio::time::sleep(moment(round, 0, 5_000)).await;
        world.install(kai_definition()).await;
        world.await_kai_labels(DEFAULT, &[RACK, HOST]).await;
        world.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
        tokio::time::sleep(moment(round, 1, 1_000)).await;
        let name = "topologies.kai.scheduler";
        definitions.delete(name, &DeleteParams::default()).await.unwrap();
        world
            .eventually("KAI is gone", async |_| {
                definitions.get_opt(name).await.unwrap().is_none()
            })
            .await;
        world
            .await_topology_ready(DEFAULT, ("False", "KAITopologyCreationFailed"))
            .await;
    }
}
