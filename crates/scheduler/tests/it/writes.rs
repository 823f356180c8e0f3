//! What a gang costs the API server: its binds, one status, one Event. Nothing is written of one that still forms.

use std::collections::BTreeMap;
use std::time::Duration;

use grove_api::{PodCliqueSet, PodGang};
use k8s_openapi::api::core::v1::Pod;

use crate::support::{Policies, SCHEDULER, World, nodes, set};

/// The writes of the scheduler: "create pods/binding", and how many.
fn writes(world: &World) -> BTreeMap<String, usize> {
    let history = world.cluster.history().expect("histories of tests are recorded");
    let asked = history.requests().by_user(SCHEDULER);
    let mut writes = BTreeMap::new();
    for intent in asked
        .iter()
        .map(|asked| &asked.intent)
        .filter(|intent| intent.verb.is_write())
    {
        let what = format!("{} {}/{}", intent.verb, intent.resource.plural, intent.subresource);
        *writes.entry(what.trim_end_matches('/').to_owned()).or_default() += 1;
    }
    writes
}

fn cost<const N: usize>(writes: [(&str, usize); N]) -> BTreeMap<String, usize> {
    writes.map(|(what, count)| (what.to_owned(), count)).into()
}

#[tokio::test(start_paused = true)]
async fn a_gang_costs_its_binds_one_status_and_one_event() {
    for pins in [false, true] {
        let policies = Policies { pins, spills: false };
        let world = World::with(nodes(1, 1, 8), policies).await;
        world.create::<PodCliqueSet>(&set("w", 8, 8, "rack")).await;
        world.await_scheduled("w-0", ("True", "Placed")).await;
        world.settle().await;
        let bind = if pins { "patch pods" } else { "create pods/binding" };
        let expected = cost([(bind, 8), ("create events", 1), ("patch podgangs/status", 1)]);
        assert_eq!(writes(&world), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_forms_slowly_costs_no_more() {
    let world = World::new(nodes(1, 1, 4)).await;
    let references: String = (0..4)
        .map(|pod| format!("{{namespace: default, name: p{pod}}}, "))
        .collect();
    let gang = format!(
        "apiVersion: scheduler.grove.io/v1alpha1\nkind: PodGang\nmetadata: {{name: slow}}\nspec:\n  podgroups:\n  \
         - {{name: w, minReplicas: 4, podReferences: [{references}]}}\n"
    );
    world.create::<PodGang>(&gang).await;
    for index in 0..4 {
        // An operator that makes many pods comes back to each gang after a while.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let pod = crate::pods::pod(&format!("p{index}"), "grove-scheduler", 8);
        let name = format!("{{name: p{index}");
        world
            .create::<Pod>(&pod.replace(&name, &format!("{name}, labels: {{grove.io/podgang: slow}}")))
            .await;
    }
    world.await_scheduled("slow", ("True", "Placed")).await;
    world.settle().await;
    let expected = cost([
        ("create events", 1),
        ("create pods/binding", 4),
        ("patch podgangs/status", 1),
    ]);
    assert_eq!(writes(&world), expected);
}
