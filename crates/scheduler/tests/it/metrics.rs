//! What a scheduler counts while it works.

use std::time::Duration;

use grove_api::PodCliqueSet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;

use crate::support::{World, nodes, set};

fn scrape(world: &World) -> String {
    let mut registry = Registry::default();
    world.metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).expect("text");
    text
}

#[tokio::test(start_paused = true)]
async fn who_waits_and_how_long_binds_take_is_counted() {
    let world = World::new(nodes(1, 2, 4)).await;
    world.create::<PodCliqueSet>(&set("giant", 5, 8, "rack")).await;
    world.create::<PodCliqueSet>(&set("small", 2, 8, "rack")).await;
    world.await_scheduled("giant-0", ("False", "TooLarge")).await;
    world.await_scheduled("small-0", ("True", "Placed")).await;
    world.settle().await;
    let text = scrape(&world);
    for line in [
        "grove_gangs{state=\"pending\",reason=\"TooLarge\"} 1",
        "grove_gangs{state=\"placed\",reason=\"Placed\"} 1",
        "grove_scheduler_queue_depth{state=\"parked\"} 1",
        "grove_scheduler_queue_depth{state=\"ready\"} 0",
        "grove_bind_duration_seconds_count{result=\"bound\"} 2",
        "grove_placement_duration_seconds_count{result=\"placed\"} 1",
        "grove_placement_domains_visited_count{result=\"placed\"} 1",
        "grove_gang_wait_seconds_count{profile=\"grove-scheduler\"} 1",
        "grove_required_violations{level=\"rack\"} 0",
        "grove_topology_gpus{topology=\"grove-topology\",state=\"used\"} 16",
        "grove_topology_gpus{topology=\"grove-topology\",state=\"free\"} 48",
        "grove_topology_nodes{topology=\"grove-topology\",state=\"ready\"} 8",
        // Four hosts of one rack are free, and two of the other.
        "grove_topology_slots{topology=\"grove-topology\",level=\"rack\",hosts=\"1\"} 6",
        "grove_topology_slots{topology=\"grove-topology\",level=\"rack\",hosts=\"2\"} 3",
        "grove_topology_slots{topology=\"grove-topology\",level=\"rack\",hosts=\"4\"} 1",
        "grove_topology_slots{topology=\"grove-topology\",level=\"rack\",hosts=\"8\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    world.audit();
}

/// The value of a series.
fn value(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("{series} is not in\n{text}"));
    value.parse().expect("a number")
}

#[tokio::test(start_paused = true)]
async fn a_gang_grows_old_and_nodes_go_though_nothing_is_decided() {
    let world = World::new(nodes(1, 1, 4)).await;
    world.create::<PodCliqueSet>(&set("giant", 5, 8, "rack")).await;
    world.await_scheduled("giant-0", ("False", "TooLarge")).await;
    world.settle().await;
    let series = "grove_oldest_pending_gang_seconds{reason=\"TooLarge\"}";
    let before = value(&scrape(&world), series);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(value(&scrape(&world), series) >= before + 3600.0);

    let nodes = Api::<Node>::all(world.client.clone());
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    let node = nodes.list(&ListParams::default()).await.expect("nodes").items[0].name_any();
    nodes
        .patch(&node, &PatchParams::default(), &cordon)
        .await
        .expect("a node can be cordoned");
    world.settle().await;
    let text = scrape(&world);
    let of = |state: &str| {
        let labels = format!("topology=\"grove-topology\",state=\"{state}\"");
        value(&text, &format!("grove_topology_nodes{{{labels}}}"))
    };
    assert_eq!((of("ready"), of("unavailable")), (3.0, 1.0));
}
