//! Races that end one way or the other, and in either way in a state that the rules allow.
//!
//! The moments of a race are drawn from its seed, while the operator's requests and watches meet faults that are drawn
//! from the seed of the cluster. A cluster serves twenty races, one after the other, and ends with its runtime.

use std::time::Duration;

use grove_simcluster::fault::{Match, Mix};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::kit::{
    DEFAULT, HOST, Look as _, OFF, RACK, kai_definition, keys, levels, on, packed, set, two_racks, with_kai,
    with_policies,
};
use crate::support::{OPERATOR, World};

/// Seeds of every run. `SEEDS=0..500` runs those instead; begin and end at a multiple of twenty to meet the same faults.
const SEEDS: std::ops::Range<u64> = 0..40;
const SEEDS_PER_CLUSTER: usize = 20;
const FAULTS: f64 = 0.005;
const CONSTRAINTS: &str = "TopologyConstraints";

/// Runs races on clusters of their own, and tells what came of each.
fn for_all_seeds<T>(races: impl AsyncFn(&[u64]) -> Vec<T>) -> Vec<T> {
    let seeds: Vec<u64> = match std::env::var("SEEDS") {
        Err(_) => SEEDS.collect(),
        Ok(range) => {
            let (first, end) = range.split_once("..").expect("SEEDS is a range, as in 0..500");
            let number = |text: &str| text.parse::<u64>().expect("SEEDS is a range of numbers");
            (number(first)..number(end)).collect()
        }
    };
    let run = |seeds: &[u64]| {
        println!("seeds {seeds:?}");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(races(seeds))
    };
    seeds.chunks(SEEDS_PER_CLUSTER).flat_map(run).collect()
}

/// The n-th moment of a race, below `most` milliseconds.
fn moment(seed: u64, n: u64, most: u64) -> Duration {
    let mut x = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(n.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    x ^= x >> 31;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 29;
    Duration::from_millis(x % most)
}

/// A cluster with an operator that meets faults.
async fn world_with(seeds: &[u64], configuration: &str) -> World {
    let mut world = World::without_operator(seeds[0], two_racks()).await;
    world.launch(configuration).await.unwrap();
    let operator = Match::any().user(OPERATOR);
    world
        .cluster
        .faults()
        .mix(Mix::of_everything(operator, FAULTS).webhook_down(0.0));
    world
}

/// Status of the condition and what its gang demands: what a set says of itself.
async fn said(world: &World, set: &str) -> Option<(String, Option<String>)> {
    let condition = world.condition(set, CONSTRAINTS).await?;
    let (required, _) = world.gang_keys(&format!("{set}-0")).await?;
    Some((condition.status, required))
}

/// Both ends of a race must be met, or it is none.
fn both_ends_are_seen(ends: &[bool]) {
    let first = ends.iter().filter(|end| **end).count();
    println!("{first} of {} ended the first way", ends.len());
    assert!(first > 0 && first < ends.len(), "{first} of {}", ends.len());
}

#[test]
fn a_topology_is_deleted_while_a_set_that_names_it_is_admitted() {
    let admitted = for_all_seeds(async |seeds| {
        let configuration = levels(&["host"]);
        let world = world_with(seeds, &configuration).await;
        world.serve_webhooks(&configuration).await;
        let mut admitted = Vec::new();
        for seed in seeds {
            admitted.push(admit_while_deleted(&world, *seed).await);
        }
        admitted
    });
    both_ends_are_seen(&admitted);
}

async fn admit_while_deleted(world: &World, seed: u64) -> bool {
    let (topology, name) = (format!("t{seed}"), format!("w{seed}"));
    world
        .create_topology(&topology, &[("rack", RACK), ("host", HOST)])
        .await;
    let create = async {
        tokio::time::sleep(moment(seed, 0, 40)).await;
        world.try_create(&set(&name, (1, 1), on(&topology, "rack"))).await
    };
    let delete = async {
        tokio::time::sleep(moment(seed, 1, 40)).await;
        world.delete_topology(&topology).await;
    };
    let (created, ()) = tokio::join!(create, delete);
    if created.is_ok() {
        world
            .eventually("the set says what became of its topology", async |world| {
                let exists = world.topology(&topology).await.is_some();
                let said = said(world, &name).await;
                let held = Some(("True".to_owned(), Some(RACK.to_owned())));
                let gone = Some(("Unknown".to_owned(), None));
                (exists && said == held) || (!exists && said == gone)
            })
            .await;
        world.remove_set(&name).await;
    }
    world.await_topology_gone(&topology).await;
    created.is_ok()
}

#[test]
fn levels_are_edited_while_the_first_pod_is_bound() {
    let edited = for_all_seeds(async |seeds| {
        let configuration = levels(&["host"]);
        let world = world_with(seeds, &configuration).await;
        world.serve_webhooks(&configuration).await;
        let mut edited = Vec::new();
        for seed in seeds {
            edited.extend(edit_while_bound(&world, *seed).await);
        }
        edited
    });
    both_ends_are_seen(&edited);
}

/// Whether the edit came before the pod; nothing if it came before the set.
async fn edit_while_bound(world: &World, seed: u64) -> Option<bool> {
    let (topology, name) = (format!("t{seed}"), format!("w{seed}"));
    world
        .create_topology(&topology, &[("rack", RACK), ("host", HOST)])
        .await;
    let workload = set(&name, (1, 1), on(&topology, "rack"));
    let create = world.try_create(&workload);
    let edit = async {
        tokio::time::sleep(moment(seed, 0, 400)).await;
        let patch = Patch::Merge(json!({"spec": {"levels": [{"domain": "host", "key": HOST}]}}));
        let topologies = world.topologies();
        topologies.patch(&topology, &PatchParams::default(), &patch).await
    };
    let (created, edit) = tokio::join!(create, edit);
    created.ok()?;
    let expected = match edit {
        Ok(_) => ("False".to_owned(), None),
        Err(_) => ("True".to_owned(), Some(RACK.to_owned())),
    };
    world
        .eventually("set and gang follow the levels", async |world| {
            said(world, &name).await.as_ref() == Some(&expected)
        })
        .await;
    world.remove_set(&name).await;
    Some(edit.is_ok())
}

/// Only one operator leads; but the one before may still have writes under way when the next begins.
#[test]
fn two_operators_with_different_configurations_end_as_the_last_one_says() {
    for_all_seeds(async |seeds| {
        let mut world = World::without_operator(seeds[0], two_racks()).await;
        world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
        for seed in seeds {
            hand_over(&mut world, *seed).await;
        }
        Vec::<()>::new()
    });
}

async fn hand_over(first: &mut World, seed: u64) {
    let on = with_policies(&["rack", "host"], ", preferredPacking: Always");
    let (before, last) = match seed % 2 {
        0 => (OFF, on.as_str()),
        _ => (on.as_str(), OFF),
    };
    first.launch(before).await.unwrap();
    let mut second = first.beside();
    tokio::time::sleep(moment(seed, 0, 300)).await;
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

#[test]
fn kai_is_installed_after_the_operator() {
    for_all_seeds(async |seeds| {
        let world = world_with(seeds, &with_kai(&["rack", "host"])).await;
        for seed in seeds {
            install_and_remove_kai(&world, *seed).await;
        }
        Vec::<()>::new()
    });
}

async fn install_and_remove_kai(world: &World, seed: u64) {
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone());
    tokio::time::sleep(moment(seed, 0, 5_000)).await;
    world.install(kai_definition()).await;
    world.await_kai_labels(DEFAULT, &[RACK, HOST]).await;
    world.await_topology_ready(DEFAULT, ("True", "TopologyReady")).await;
    tokio::time::sleep(moment(seed, 1, 1_000)).await;
    let name = "topologies.kai.scheduler";
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    world
        .eventually("KAI is gone", async |_| {
            definitions.get_opt(name).await.unwrap().is_none()
        })
        .await;
    let failed = ("False", "KAITopologyCreationFailed");
    world.await_topology_ready(DEFAULT, failed).await;
}
