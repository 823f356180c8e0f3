//! Constraints of workloads that no scenario of the designs looks at.

use grove_scenarios::three_scopes;
use serde_json::{Value, json};

use super::kit::{BLOCK, HOST, Look as _, RACK, keys, levels, packed, refusal, set, world};

const RACK_AND_HOST: [&str; 2] = ["rack", "host"];

// shows: V1-8, V1-26, G244-59
/// The default policy: a constraint stays as it was made.
#[tokio::test(start_paused = true)]
async fn constraints_are_immutable_unless_the_policy_says_otherwise() {
    let configuration = levels(&RACK_AND_HOST);
    let world = world(&configuration).await;
    world.serve_webhooks(&configuration).await;
    world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    let said = refusal(
        world
            .patch_set("w", json!({"spec": {"template": packed("host")}}))
            .await,
    );
    assert!(said.contains("topology constraints are immutable"), "{said}");
}

// shows: G244-69
/// A scaled gang takes its group's level, or that of the whole where the group says nothing.
#[tokio::test(start_paused = true)]
async fn scaled_gangs_inherit_where_their_group_says_nothing() {
    let world = world(&levels(&["block", "rack", "host"])).await;
    let mut template = three_scopes(["block", "rack", "host"]);
    world.try_create(&set("own", (1, 1), template.clone())).await.unwrap();
    world.await_gang_keys("own-0-g-0", keys(RACK, HOST)).await;
    template["podCliqueScalingGroups"][0]["topologyConstraint"] = Value::Null;
    world.try_create(&set("inherits", (1, 1), template)).await.unwrap();
    world.await_gang_keys("inherits-0-g-0", keys(BLOCK, HOST)).await;
}
