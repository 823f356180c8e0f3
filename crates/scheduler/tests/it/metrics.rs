//! What a scheduler counts while it works.

use grove_api::PodCliqueSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

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
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    world.audit();
}
