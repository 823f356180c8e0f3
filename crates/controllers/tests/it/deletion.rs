//! The end of a set: everything goes with it, and a name that was used before begins anew.

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use grove_simcluster::fault::{Match, RequestFault, Rule};
use grove_simcluster::server::Verb;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use serde_json::json;

use crate::support::workloads::{Minimum, Order, running, simple, workload};
use crate::support::{NAMESPACE, OPERATOR, World};

/// What is left of anything that the operator makes.
async fn remains(world: &World) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    names.extend(world.list::<PodCliqueSet>().await.into_keys());
    names.extend(world.list::<PodCliqueScalingGroup>().await.into_keys());
    names.extend(world.list::<PodClique>().await.into_keys());
    names.extend(world.list::<PodGang>().await.into_keys());
    names.extend(world.list::<Pod>().await.into_keys());
    names.extend(
        world
            .list::<Service>()
            .await
            .into_keys()
            .filter(|name| name != "kubernetes"),
    );
    names.extend(world.list::<ControllerRevision>().await.into_keys());
    names.extend(world.list::<Role>().await.into_keys());
    names.extend(world.list::<RoleBinding>().await.into_keys());
    names
}

#[tokio::test(start_paused = true)]
async fn cascade_delete_leaves_nothing() {
    let world = World::with_places(20).await;
    world.create_set(&workload(Minimum::All, Order::Template)).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world.delete::<PodCliqueSet>("w").await;
    world.settle().await;
    assert_eq!(remains(&world).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_deleted_while_it_starts_leaves_nothing() {
    for pods in [0, 3, 10] {
        let world = World::with_places(5).await;
        world.create_set(&workload(Minimum::All, Order::Any)).await;
        world
            .eventually("some pods exist", async |world| world.pods().await.len() >= pods)
            .await;
        world.delete::<PodCliqueSet>("w").await;
        world.settle().await;
        assert_eq!(remains(&world).await, Vec::<String>::new(), "deleted at {pods} pods");
    }
}

/// grove #782, volcano #2044, lws #1054: delete and recreate under the same name.
#[tokio::test(start_paused = true)]
async fn pain_grove_782_the_same_name_begins_anew() {
    let world = running(Minimum::All, 20).await;
    let before = world.uids_of("w").await;
    let old = world.get::<PodCliqueSet>("w").await;
    for round in 0..3 {
        world.delete::<PodCliqueSet>("w").await;
        // As soon as the name is free, whatever else is still on its way out.
        world
            .eventually("the name is free", async |world| {
                let set = world.all::<PodCliqueSet>().get_opt("w").await;
                set.expect("an answer").is_none()
            })
            .await;
        world.create_set(&workload(Minimum::All, Order::Any)).await;
        world.settle().await;
        assert_eq!(world.ready().await, 10, "round {round}");
    }
    assert!(world.uids_of("w").await.is_disjoint(&before));
    let new = world.get::<PodCliqueSet>("w").await;
    assert_ne!(new.uid(), old.uid());
    assert_eq!(new.status.expect("a status").available_replicas, 1);
    for clique in world.list::<PodClique>().await.values() {
        assert!(clique.metadata.deletion_timestamp.is_none());
    }
}

/// `a` and its clique `b-0-c`, and `a-0-b` and its clique `c`: both want a PodClique `a-0-b-0-c`.
#[tokio::test(start_paused = true)]
async fn two_sets_with_colliding_names_are_told_and_nothing_foreign_is_touched() {
    let world = World::with_places(20).await;
    let with_clique = |set: &str, clique: &str| {
        simple(set, 1, 2)
            .replace("- name: a\n", &format!("- name: {clique}\n"))
            .replace("roleName: a\n", &format!("roleName: {clique}\n"))
    };
    world.create_set(&with_clique("a-0-b", "c")).await;
    world.settle().await;
    let before = world.get::<PodClique>("a-0-b-0-c").await;
    let pods = world.uids_of("a-0-b-0-c").await;
    assert_eq!(pods.len(), 2);
    world.create_set(&with_clique("a", "b-0-c")).await;
    world
        .eventually("the conflict is told", async |world| {
            let status = world.get::<PodCliqueSet>("a").await.status.unwrap_or_default();
            let mut errors = status.last_errors.iter();
            errors.any(|error| {
                error.description.contains("PodClique default/a-0-b-0-c already exists")
                    && error.description.contains("PodCliqueSet a-0-b")
            })
        })
        .await;
    world.pass(60).await;
    assert_eq!(world.get::<PodClique>("a-0-b-0-c").await.metadata, before.metadata);
    assert_eq!(world.uids_of("a-0-b-0-c").await, pods);
    // The loser goes, and takes nothing of the other with it.
    world.delete::<PodCliqueSet>("a").await;
    world.settle().await;
    assert_eq!(world.uids_of("a-0-b-0-c").await, pods);
    assert!(world.list::<PodGang>().await.into_keys().eq(["a-0-b-0"]));
}

/// The other way round: once the holder is gone, the one that waited gets its name.
#[tokio::test(start_paused = true)]
async fn a_name_that_becomes_free_is_taken() {
    let world = World::with_places(20).await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "w-0"},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    });
    let foreign: Service = serde_json::from_value(foreign).expect("a Service");
    let foreign = world.create(&foreign).await;
    world.create_set(&simple("w", 1, 2)).await;
    world
        .eventually("the conflict is told", async |world| {
            let status = world.get::<PodCliqueSet>("w").await.status.unwrap_or_default();
            let mut errors = status.last_errors.iter();
            errors.any(|error| error.description.contains("Service default/w-0 already exists"))
        })
        .await;
    world.pass(30).await;
    assert_eq!(world.get::<Service>("w-0").await.uid(), foreign.uid());
    world.delete::<Service>("w-0").await;
    world
        .eventually("the set has its Service", async |world| {
            world
                .all::<Service>()
                .get_opt("w-0")
                .await
                .expect("an answer")
                .is_some()
        })
        .await;
    world.settle().await;
    let status = world.get::<PodCliqueSet>("w").await.status.unwrap_or_default();
    assert!(status.last_errors.is_empty(), "{:?}", status.last_errors);
}

/// Objects that merely look like Grove's, by their labels, are left alone.
#[tokio::test(start_paused = true)]
async fn what_only_carries_our_labels_is_not_ours() {
    let world = running(Minimum::All, 20).await;
    let labels = world.pods_of("w-0-pc-a").await[0].labels().clone();
    let stranger = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "stranger", "namespace": NAMESPACE, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let stranger: Pod = serde_json::from_value(stranger).expect("a pod");
    world.create(&stranger).await;
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "w-0", "labels": labels}})).expect("a map");
    world.create(&map).await;
    world.settle().await;
    assert_eq!(world.clique_status("w-0-pc-a").await.replicas, 2);
    world.delete::<PodCliqueSet>("w").await;
    world.settle().await;
    let left: Vec<String> = world.list::<Pod>().await.into_keys().collect();
    assert_eq!(left, ["stranger"]);
    world.get::<ConfigMap>("w-0").await;
}

/// Without its labels a clique is not shown by the watch; it is found by its name, known by its owner, and mended.
#[tokio::test(start_paused = true)]
async fn labels_that_somebody_takes_away_come_back() {
    let world = running(Minimum::One, 10).await;
    let before = world.uids_of("w-").await;
    let labels =
        json!({"app.kubernetes.io/part-of": null, "app.kubernetes.io/managed-by": null, "grove.io/podgang": null});
    world
        .merge::<PodClique>("w-0-pc-a", json!({"metadata": {"labels": labels}}))
        .await;
    world
        .eventually("the labels are back", async |world| {
            let clique = world.get::<PodClique>("w-0-pc-a").await;
            let has = |label: &str, value: &str| clique.labels().get(label).is_some_and(|found| found == value);
            has("app.kubernetes.io/part-of", "w") && has("grove.io/podgang", "w-0")
        })
        .await;
    world.settle().await;
    assert_eq!(world.uids_of("w-").await, before, "no pod was touched");
    assert_eq!(world.ready().await, 10);
}

/// Found by a campaign: whatever a deletion was refused for, the object was taken for gone and never seen again.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_refused_is_tried_again() {
    let world = World::with_places(4).await;
    world.create_set(&simple("w", 2, 2)).await;
    world.settle().await;
    let deletions = Match::any()
        .user(OPERATOR)
        .resource("grove.io", "podcliques")
        .verb(Verb::Delete);
    let refused = Rule::request(deletions, RequestFault::Conflict);
    world.cluster.faults().script([refused]);
    world.scale::<PodCliqueSet>("w", 1).await;
    world.settle().await;
    let cliques = world.list::<PodClique>().await;
    assert_eq!(cliques.keys().collect::<Vec<_>>(), ["w-0-a"]);
    assert_eq!(world.ready().await, 2);
}
