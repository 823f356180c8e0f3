//! The `kai-scheduler` profile: a PodGroup for each PodGang. KAI itself is not run, so pods stay where its scheduler would
//! take over.

use grove_simcluster::NodeSpec;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::kit::{DEFAULT, HOST, Look as _, RACK, keys, packed, placed_by_kai, pod_group_definition, set, with_kai};
use crate::support::World;

async fn spec(world: &World, name: &str) -> Option<Value> {
    let found = world.pod_groups().get_opt(name).await.ok().flatten()?;
    Some(found.data["spec"].clone())
}

/// A cluster with an operator and a set that waits in a queue.
async fn queued() -> World {
    let mut world = World::without_operator(1, [NodeSpec::new("n0")]).await;
    world.install(pod_group_definition()).await;
    world.launch(&placed_by_kai(&["rack", "host"])).await.unwrap();
    let mut set = set("w", (1, 2), packed("rack"));
    set.metadata.labels = Some([("kai.scheduler/queue".to_owned(), "research".to_owned())].into());
    world.try_create(&set).await.unwrap();
    world
        .eventually("a PodGroup is made", async |world| spec(world, "w-0").await.is_some())
        .await;
    world
}

// shows: G244-83
#[tokio::test(start_paused = true)]
async fn every_gang_gets_a_pod_group_and_its_pods_join_it() {
    let world = queued().await;
    let level = json!({"topology": DEFAULT, "requiredTopologyLevel": RACK, "preferredTopologyLevel": HOST});
    let made = spec(&world, "w-0").await.unwrap();
    assert_eq!((&made["minMember"], &made["queue"]), (&json!(2), &json!("research")));
    assert_eq!(made["topologyConstraint"], level);
    assert_eq!(made["subGroups"][0]["name"], "w-0-a");
    let gang = world.gang("w-0").await.unwrap();
    assert_eq!(gang.annotations()["kai.scheduler/skip-podgrouper"], "true");
    world
        .eventually("its pods exist", async |world| world.pods().await.len() == 2)
        .await;
    for pod in world.pods().await {
        assert_eq!(pod.annotations()["pod-group-name"], "w-0");
        assert_eq!(pod.annotations()["kai.scheduler/skip-podgrouper"], "true");
        assert_eq!(pod.labels()["kai.scheduler/subgroup-name"], "w-0-a");
        assert_eq!(pod.spec.unwrap().scheduler_name.as_deref(), Some("kai-scheduler"));
    }
}

#[tokio::test(start_paused = true)]
async fn it_follows_the_topology_comes_back_and_keeps_what_kai_wrote() {
    let mut world = queued().await;
    let patch = Patch::Merge(json!({"spec": {"schedulingBackoff": -1, "queue": "elsewhere"}}));
    world
        .pod_groups()
        .patch("w-0", &PatchParams::default(), &patch)
        .await
        .unwrap();
    world
        .eventually("our field is reset and KAI's stays", async |world| {
            let spec = spec(world, "w-0").await.unwrap();
            spec["queue"] == "research" && spec["schedulingBackoff"] == -1
        })
        .await;
    let part_of = "app.kubernetes.io/part-of";
    let patch = Patch::Merge(json!({"metadata": {"labels": {part_of: "mine", "team": "a"}}}));
    world
        .pod_groups()
        .patch("w-0", &PatchParams::default(), &patch)
        .await
        .unwrap();
    world
        .eventually("our label is reset and another stays", async |world| {
            let labels = world.pod_groups().get("w-0").await.unwrap().labels().clone();
            labels[part_of] == "w" && labels["team"] == "a"
        })
        .await;
    world
        .pod_groups()
        .delete("w-0", &DeleteParams::default())
        .await
        .unwrap();
    world
        .eventually("it comes back", async |world| spec(world, "w-0").await.is_some())
        .await;

    // The level is gone: the gang demands nothing, and KAI is not told a level that it does not know.
    world.launch(&placed_by_kai(&["host"])).await.unwrap();
    world.await_gang_keys("w-0", keys("", HOST)).await;
    world
        .eventually("only the wish is left", async |world| {
            let constraint = spec(world, "w-0").await.unwrap_or_default()["topologyConstraint"].clone();
            constraint == json!({"topology": DEFAULT, "preferredTopologyLevel": HOST})
        })
        .await;
    let off = "scheduler: {profiles: [{name: kai-scheduler, default: true}]}\n";
    world.launch(off).await.unwrap();
    world
        .eventually("nothing is left", async |world| {
            spec(world, "w-0")
                .await
                .is_some_and(|spec| spec["topologyConstraint"].is_null())
        })
        .await;
    world.await_gang_keys("w-0", keys("", HOST)).await;
}

/// A set chooses among the profiles that are configured.
#[tokio::test(start_paused = true)]
async fn a_set_that_names_kai_is_placed_by_it_beside_those_that_do_not() {
    let mut world = World::without_operator(1, [NodeSpec::new("n0")]).await;
    world.install(pod_group_definition()).await;
    world.launch(&with_kai(&["rack", "host"])).await.unwrap();
    let mut named = set("named", (1, 1), packed("rack"));
    named.metadata.labels = Some([("kai.scheduler/queue".to_owned(), "research".to_owned())].into());
    named.spec.template.cliques[0].spec.pod_spec.scheduler_name = Some("kai-scheduler".to_owned());
    world.try_create(&named).await.unwrap();
    world.try_create(&set("other", (1, 1), packed("rack"))).await.unwrap();
    world
        .eventually("both have pods, and one a PodGroup", async |world| {
            world.pods().await.len() == 2 && spec(world, "named-0").await.is_some()
        })
        .await;
    world.settle().await;
    assert_eq!(spec(&world, "other-0").await, None);
    for pod in world.pods().await {
        let is_named = pod.name_any().starts_with("named-");
        assert_eq!(pod.annotations().contains_key("pod-group-name"), is_named);
        let scheduler = pod.spec.unwrap().scheduler_name;
        assert_eq!(scheduler.as_deref() == Some("kai-scheduler"), is_named, "{scheduler:?}");
    }
}

/// KAI writes nothing on PodGangs: what it did is seen on the pods.
#[tokio::test(start_paused = true)]
async fn a_gang_is_scheduled_once_its_pods_are() {
    let world = queued().await;
    let scheduled = async |world: &World| {
        let conditions = world.gang("w-0").await?.status?.conditions;
        let found = conditions
            .into_iter()
            .find(|condition| condition.type_ == "Scheduled")?;
        Some((found.status, found.message))
    };
    let waits = (
        "False".to_owned(),
        "PodClique w-0-a has 0 of 2 pods on nodes".to_owned(),
    );
    world
        .eventually("it waits", async |world| {
            scheduled(world).await.as_ref() == Some(&waits)
        })
        .await;
    world
        .eventually("the gates are off", async |world| {
            let is_open = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_none());
            world.pods().await.iter().filter(|pod| is_open(pod)).count() == 2
        })
        .await;
    // What KAI's binder would do.
    for pod in world.pods().await {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any()},
                             "target": {"kind": "Node", "name": "n0"}});
        let path = format!("/api/v1/namespaces/default/pods/{}/binding", pod.name_any());
        let request = http::Request::post(path).body(serde_json::to_vec(&binding).unwrap());
        world.client.request_text(request.unwrap()).await.unwrap();
    }
    world
        .eventually("it is scheduled", async |world| {
            scheduled(world).await.is_some_and(|(status, _)| status == "True")
        })
        .await;
}

/// KAI #1124: an API that was not there left all pods pending without a word.
#[tokio::test(start_paused = true)]
async fn pain_kai_1124_a_missing_queue_or_api_is_told_and_repaired() {
    let mut world = World::without_operator(1, [NodeSpec::new("n0")]).await;
    world.launch(&placed_by_kai(&["rack", "host"])).await.unwrap();
    world.try_create(&set("w", (1, 1), packed("rack"))).await.unwrap();
    let told = async |world: &World, text: &str| {
        let status = world.set("w").await.and_then(|set| set.status).unwrap_or_default();
        status.last_errors.iter().any(|error| error.description.contains(text))
    };
    world
        .eventually("the queue is missed", async |world| {
            told(world, "names no KAI queue").await
        })
        .await;
    let patch = json!({"metadata": {"labels": {"kai.scheduler/queue": "research"}}});
    world.patch_set("w", patch).await.unwrap();
    world
        .eventually("the API is missed", async |world| told(world, "install KAI").await)
        .await;
    world.install(pod_group_definition()).await;
    world
        .eventually("a PodGroup is made and all is well", async |world| {
            let status = world.set("w").await.and_then(|set| set.status).unwrap_or_default();
            spec(world, "w-0").await.is_some() && status.last_errors.is_empty()
        })
        .await;
}
