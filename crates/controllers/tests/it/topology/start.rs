//! The start of the operator when the API server, or what it relies on, is not in order.

use std::time::Duration;

use grove_controllers::StartError;
use grove_simcluster::fault::{Match, RequestFault, Rule};
use grove_simcluster::server::Verb;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::kit::{DEFAULT, HOST, Look as _, OFF, RACK, kai_definition, levels, two_racks, with_kai};
use crate::support::{OPERATOR, World};

async fn cluster() -> World {
    World::without_operator(1, two_racks()).await
}

fn creations() -> Match {
    Match::any()
        .user(OPERATOR)
        .verb(Verb::Create)
        .resource("grove.io", "clustertopologies")
}

#[tokio::test(start_paused = true)]
async fn errors_that_pass_are_borne_for_a_minute() {
    let mut world = cluster().await;
    world
        .cluster
        .faults()
        .script([Rule::request(creations(), RequestFault::Internal).times(3)]);
    world.launch(&levels(&["rack", "host"])).await.unwrap();
    assert_eq!(world.topology(DEFAULT).await.unwrap().spec.levels.len(), 2);
    world.stop_operator().await;
}

// shows: V3-16, G244-43
#[tokio::test(start_paused = true)]
async fn errors_that_last_end_the_start_with_the_reason() {
    let mut world = cluster().await;
    world
        .cluster
        .faults()
        .script([Rule::request(creations(), RequestFault::Internal).always()]);
    let begin = Instant::now();
    let failed = world.launch(&levels(&["rack", "host"])).await.unwrap_err();
    assert!(matches!(failed, StartError::DefaultTopology(_)), "{failed:?}");
    let text = failed.to_string();
    assert!(
        text.starts_with("cannot write ClusterTopology 'grove-topology': "),
        "{text}"
    );
    let took = begin.elapsed();
    assert!((60..90).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_the_start_at_once() {
    let mut world = cluster().await;
    world
        .cluster
        .faults()
        .script([Rule::request(creations(), RequestFault::QuotaFull).always()]);
    let begin = Instant::now();
    world.launch(&levels(&["rack"])).await.unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

// shows: G244-47
#[tokio::test(start_paused = true)]
async fn a_failed_removal_does_not_stop_the_operator() {
    let mut world = cluster().await;
    world.create_topology(DEFAULT, &[("rack", RACK)]).await;
    let deletions = Match::any()
        .user(OPERATOR)
        .verb(Verb::Delete)
        .resource("grove.io", "clustertopologies");
    world
        .cluster
        .faults()
        .script([Rule::request(deletions, RequestFault::Internal).always()]);
    world.launch(OFF).await.unwrap();
    assert!(world.topology(DEFAULT).await.is_some());
    world.cluster.faults().clear();
    world.launch(OFF).await.unwrap();
    world
        .eventually("it is removed", async |world| world.topology(DEFAULT).await.is_none())
        .await;
}

// shows: G244-31, G244-53
#[tokio::test(start_paused = true)]
async fn manual_changes_of_the_default_topology_are_overwritten_at_the_next_start() {
    let mut world = cluster().await;
    world.launch(&levels(&["rack", "host"])).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}},
                                    "spec": {"levels": [{"domain": "host", "key": HOST}]}}));
    world
        .topologies()
        .patch(DEFAULT, &PatchParams::default(), &patch)
        .await
        .unwrap();
    world.launch(&levels(&["rack", "host"])).await.unwrap();
    let topology = world.topology(DEFAULT).await.unwrap();
    assert_eq!(topology.spec.levels.len(), 2);
    assert_eq!(topology.labels()["app.kubernetes.io/managed-by"], "grove-operator");
}

// shows: G244-2
#[tokio::test(start_paused = true)]
async fn topologies_of_users_are_not_touched_by_a_start() {
    let mut world = cluster().await;
    let made = world.create_topology("users", &[("rack", "their/rack")]).await;
    for configuration in [levels(&["rack", "host"]), OFF.to_owned()] {
        world.launch(&configuration).await.unwrap();
        world.await_topology_ready("users", ("True", "TopologyReady")).await;
        let found = world.topology("users").await.unwrap();
        assert_eq!(
            (found.spec.levels.len(), found.metadata.generation),
            (1, made.metadata.generation)
        );
        assert_eq!((found.uid(), found.metadata.labels), (made.uid(), None));
    }
}

// shows: G244-44
#[tokio::test(start_paused = true)]
async fn a_backend_that_must_be_there_is_waited_for_and_then_missed() {
    let mut world = cluster().await;
    let exit = with_kai(&["rack", "host"]).replace("enabled: true", "enabled: true, onBackendTopologyFailure: Exit");
    let failed = world.launch(&exit).await.unwrap_err();
    assert!(matches!(failed, StartError::BackendTopology { .. }), "{failed:?}");
    let text = failed.to_string();
    assert!(
        text.starts_with("Failed to create KAI Topology CR: API not available"),
        "{text}"
    );
    world.install(kai_definition()).await;
    world.launch(&exit).await.unwrap();
    assert_eq!(world.kai_labels(DEFAULT).await.unwrap(), [RACK, HOST]);
}
