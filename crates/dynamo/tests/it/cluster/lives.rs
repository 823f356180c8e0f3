//! What becomes of graphs that nobody disturbs.

use grove_api::{DynamoGraphDeployment, PodClique, PodCliqueScalingGroup, PodCliqueSet};
use grove_dynamo::translate::{Surroundings, translate};
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use kube::ResourceExt;
use serde_json::json;

use super::killed::graph_writes;
use super::world::World;
use crate::graphs::{example, example_files, graph, stored, with_worker};

/// Pods that a graph has when all of it runs.
fn pods_of(graph: &DynamoGraphDeployment) -> usize {
    let template = translate(graph, &Surroundings::default())
        .expect("an example")
        .set
        .spec
        .template;
    let groups = |name: &String| {
        let mut groups = template.scaling_groups.iter();
        groups
            .find(|group| group.clique_names.contains(name))
            .map_or(1, |group| group.replicas())
    };
    let pods: i32 = template
        .cliques
        .iter()
        .map(|clique| clique.spec.replicas * groups(&clique.name))
        .sum();
    usize::try_from(pods).expect("some pods")
}

// shows: DGD-18, DGD-19
#[tokio::test(start_paused = true)]
async fn every_example_runs_where_it_should() {
    let world = World::start().await;
    for file in example_files() {
        let (made, pods) = (world.create(&stored(&file)).await, pods_of(&example(&file)));
        let name = made.name_any();
        world.says(&name, "Ready", ("True", "all_resources_are_ready")).await;
        world.settle().await;
        assert_eq!(world.ready_pods().await.len(), pods, "{name}");
        let constrained = made.spec.has_constraint();
        let kept = ("True".to_owned(), "AllTopologyLevelsAvailable".to_owned());
        for type_ in ["TopologyConstraintsEnforced", "TopologyLevelsAvailable"] {
            assert_eq!(
                world.condition(&name, type_).await,
                constrained.then(|| kept.clone()),
                "{name} {type_}"
            );
        }
        let status = world.status(&name).await;
        assert_eq!(status.state.as_deref(), Some("successful"), "{name}");
        assert_eq!(status.components.len(), made.spec.components.len(), "{name}");
        let told = world.told(&name).await;
        let applied: Vec<&str> = told.iter().map(|(_, reason, _)| reason.as_str()).collect();
        assert_eq!(applied.is_empty(), !constrained, "{name}: {told:?}");
        assert!(
            applied.iter().all(|reason| *reason == "TopologyConstraintsApplied"),
            "{name}: {told:?}"
        );
        world.delete::<DynamoGraphDeployment>(&name).await;
        world.settle().await;
        let owned = |service: &Service| !service.owner_references().is_empty();
        let services = world.list::<Service>().await.into_iter().filter(owned).count();
        let left = (world.list::<PodCliqueSet>().await.len(), services);
        assert_eq!(left, (0, 0), "{name}: everything goes with the graph");
    }
    assert!(world.audit().binds >= 60, "the audit has looked at every bind");
    assert_eq!(world.requests_about("topolog"), 0, "topologies are the framework's");
}

/// A graph without constraints stays as it is when another operator takes over: nothing of it is written, no pod is replaced.
// shows: DGD-1, DGD-6
#[tokio::test(start_paused = true)]
async fn the_next_controller_leaves_a_graph_as_it_is() {
    let mut world = World::start().await;
    world.create(&graph(json!({}))).await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    let (set, pods) = (world.get::<PodCliqueSet>("g").await, world.pod_uids("g-").await);
    world.stop_controller().await;
    world.start_controller();
    world.settle().await;
    assert_eq!(
        world.get::<PodCliqueSet>("g").await.resource_version(),
        set.resource_version()
    );
    assert_eq!(world.pod_uids("g-").await, pods);
    assert!(set.spec.template.topology_constraint.is_none());
    assert_eq!(world.condition("g", "TopologyConstraintsEnforced").await, None);
}

/// Five hosts are wanted of one rack, and racks have four.
// shows: DGD-27, DGD-34
#[tokio::test(start_paused = true)]
async fn a_constraint_that_cannot_be_satisfied_keeps_the_graph_waiting() {
    let world = World::start().await;
    let main = json!({"name": "main", "image": "server", "command": ["serve"],
        "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    let wide = |domain: &str| {
        with_worker(
            json!({"replicas": 5, "minAvailable": 5, "topologyConstraint": {"packDomain": domain},
            "podTemplate": {"spec": {"containers": [main]}}}),
        )
    };
    world.create(&wide("rack")).await;
    world.settle().await;
    let waits = world.condition("g", "Ready").await;
    assert_eq!(waits, Some(("False".to_owned(), "insufficient_capacity".to_owned())));
    let bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    assert_eq!(world.list::<Pod>().await.iter().filter(|pod| bound(pod)).count(), 0);
    world.delete::<DynamoGraphDeployment>("g").await;
    world.settle().await;
    world.create(&wide("block")).await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
}

/// Components are told apart by their names: in another order it is the same graph.
#[tokio::test(start_paused = true)]
async fn components_in_another_order_change_nothing() {
    let world = World::start().await;
    world
        .create(&with_worker(json!({"multinode": {"nodeCount": 2}, "replicas": 1})))
        .await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    let (set, pods) = (world.get::<PodCliqueSet>("g").await, world.pod_uids("g-").await);
    world.edit("g", |components| components.reverse()).await;
    world.settle().await;
    let graph = world.get::<DynamoGraphDeployment>("g").await;
    let seen = graph.status.as_ref().and_then(|status| status.observed_generation);
    assert_eq!((graph.spec.components[0].name.as_str(), seen), ("Worker", Some(2)));
    assert_eq!(
        world.get::<PodCliqueSet>("g").await.resource_version(),
        set.resource_version(),
        "the set is written"
    );
    assert_eq!(world.pod_uids("g-").await, pods);
}

#[tokio::test(start_paused = true)]
async fn scaling_replaces_no_pod_and_leaves_the_template_alone() {
    let world = World::start().await;
    world.create(&graph(json!({}))).await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    let (before, set) = (world.pod_uids("g-0-worker").await, world.get::<PodCliqueSet>("g").await);
    let mut graph = world.get::<DynamoGraphDeployment>("g").await;
    graph.spec.components[1].replicas = 4;
    let spec = json!({"spec": {"components": graph.spec.components}});
    world.merge::<DynamoGraphDeployment>("g", spec).await;
    world
        .eventually("four workers run", async |world| {
            let status = world.status("g").await;
            status
                .components
                .get("Worker")
                .is_some_and(|worker| worker.ready_replicas == 4)
        })
        .await;
    world.settle().await;
    let after = world.pod_uids("g-0-worker").await;
    assert!(after.len() == 4 && after.is_superset(&before));
    assert_eq!(
        world.get::<PodCliqueSet>("g").await.metadata.generation,
        set.metadata.generation
    );
    assert_eq!(world.get::<PodClique>("g-0-worker").await.spec.replicas, 4);
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_component_on_several_nodes_scales_by_groups() {
    let world = World::start().await;
    world
        .create(&with_worker(json!({"multinode": {"nodeCount": 2}, "replicas": 1})))
        .await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    let mut graph = world.get::<DynamoGraphDeployment>("g").await;
    graph.spec.components[1].replicas = 2;
    world
        .merge::<DynamoGraphDeployment>("g", json!({"spec": {"components": graph.spec.components}}))
        .await;
    world
        .eventually("two groups run", async |world| {
            let status = world.status("g").await;
            status
                .components
                .get("Worker")
                .is_some_and(|worker| worker.ready_replicas == 2)
        })
        .await;
    assert_eq!(world.get::<PodCliqueScalingGroup>("g-0-worker").await.spec.replicas, 2);
    world.settle().await;
    assert_eq!(world.ready_pods().await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_restart_replaces_every_pod_once() {
    let world = World::start().await;
    world.create(&graph(json!({}))).await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    let before = world.pod_uids("g-").await;
    world
        .merge::<DynamoGraphDeployment>("g", json!({"spec": {"restart": {"id": "one"}}}))
        .await;
    world
        .eventually("the restart is over", async |world| {
            let restart = world.status("g").await.restart;
            restart
                .is_some_and(|restart| (restart.observed_id.as_str(), restart.phase.as_str()) == ("one", "Completed"))
        })
        .await;
    world.settle().await;
    let after = world.pod_uids("g-").await;
    assert_eq!((after.len(), after.intersection(&before).count()), (3, 0));
    world
        .merge::<DynamoGraphDeployment>("g", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    world.settle().await;
    assert_eq!(
        world.pod_uids("g-").await,
        after,
        "a label of the graph restarts nothing"
    );
    let set = world.get::<PodCliqueSet>("g").await;
    world
        .merge::<DynamoGraphDeployment>("g", json!({"spec": {"restart": null}}))
        .await;
    world.settle().await;
    assert_eq!(world.pod_uids("g-").await, after, "a wish that is taken back is none");
    assert_eq!(
        world.get::<PodCliqueSet>("g").await.resource_version(),
        set.resource_version()
    );
    let known = world.status("g").await.restart.expect("it is remembered");
    assert_eq!((known.observed_id.as_str(), known.phase.as_str()), ("one", "Completed"));
    world
        .merge::<DynamoGraphDeployment>("g", json!({"spec": {"restart": {"id": "two"}}}))
        .await;
    world
        .eventually("every pod is another", async |world| {
            let now = world.pod_uids("g-").await;
            now.len() == 3 && now.is_disjoint(&after)
        })
        .await;
}

/// A status that speaks of a new template is not ready until pods follow it.
#[tokio::test(start_paused = true)]
async fn a_graph_is_not_ready_while_it_is_updated() {
    let world = World::start().await;
    world.create(&graph(json!({}))).await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    world.settle().await;
    let (before, begin) = (world.pod_uids("g-0-worker").await, world.cluster.store().revision());
    world
        .edit("g", |components| {
            let template = components[1].pod_template.as_mut().expect("a template");
            template["spec"]["containers"][0]["image"] = json!("newer");
        })
        .await;
    world.settle().await;
    assert!(world.pod_uids("g-0-worker").await.is_disjoint(&before));
    let said: Vec<String> = graph_writes(&world, begin)
        .into_iter()
        .filter_map(|(_, graph)| graph?.status)
        .filter(|status| status.observed_generation == Some(2))
        .filter_map(|status| {
            status
                .conditions
                .into_iter()
                .find(|condition| condition.type_ == "Ready")
        })
        .map(|ready| ready.status)
        .collect();
    assert_eq!(said.first().map(String::as_str), Some("False"), "{said:?}");
    assert_eq!(said.last().map(String::as_str), Some("True"), "{said:?}");
    assert!(said.is_sorted(), "it is ready once, and then for good: {said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_taken_back_is_gone_everywhere() {
    let world = World::start().await;
    world
        .create(&graph(json!({"spec": {"labels": {"team": "chat"}}})))
        .await;
    world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
    assert_eq!(
        world.get::<ServiceAccount>("g-k8s-service-discovery").await.labels()["team"],
        "chat"
    );
    world
        .merge::<DynamoGraphDeployment>("g", json!({"spec": {"labels": null}}))
        .await;
    world.settle().await;
    assert!(!world.get::<PodCliqueSet>("g").await.labels().contains_key("team"));
    assert!(!world.get::<Service>("g-frontend").await.labels().contains_key("team"));
    assert!(
        !world
            .get::<ServiceAccount>("g-k8s-service-discovery")
            .await
            .labels()
            .contains_key("team")
    );
}
