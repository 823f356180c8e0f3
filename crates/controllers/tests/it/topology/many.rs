//! Several topologies in one cluster: partitions by hardware, protection of what is in use, another try elsewhere.

use grove_api::{ClusterTopology, ClusterTopologyBinding, PodCliqueSet};
use grove_simcluster::NodeSpec;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::hooks::refusal;
use super::kit::{
    HOST, RACK, clique, delete, kai_definition, keys, keys_of, levels, packed, set, two_racks, with_kai, world,
};
use crate::support::World;

const CONSTRAINTS: &str = "TopologyConstraints";
const H100: [(&str, &str); 3] = [
    ("zone", "topology.kubernetes.io/zone"),
    ("rack", "h100/rack"),
    ("host", HOST),
];
const GB200: [(&str, &str); 4] = [
    ("zone", "topology.kubernetes.io/zone"),
    ("block", "gb200/block"),
    ("rack", "gb200/nvl72"),
    ("host", HOST),
];

fn on(topology: &str, word: &str) -> Value {
    let mut template = packed(word);
    template["clusterTopologyName"] = json!(topology);
    template
}

// shows: G244-14, G244-79, G244-82, G244-4, G244-48
/// Multi-topology test of the newest design: some nodes are relabelled, a second topology names the new keys, and each
/// workload is translated by the topology that it names.
#[tokio::test(start_paused = true)]
async fn h100_and_gb200_side_by_side_on_relabelled_nodes() {
    let mut world = World::without_operator(1, (0..4).map(|i| NodeSpec::new(&format!("n{i}")))).await;
    world.install(kai_definition()).await;
    world.launch(&with_kai(&["rack", "host"])).await.unwrap();
    let nodes = Api::<Node>::all(world.client.clone());
    for (node, labels) in [
        ("n0", json!({"h100/rack": "r1"})),
        ("n1", json!({"h100/rack": "r1"})),
        ("n2", json!({"gb200/block": "b1", "gb200/nvl72": "d1"})),
        ("n3", json!({"gb200/block": "b1", "gb200/nvl72": "d1"})),
    ] {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
    }
    world.create_topology("h100-topology", &H100).await;
    world.create_topology("gb200-topology", &GB200).await;
    world
        .try_create(&set("on-h100", (1, 2), on("h100-topology", "rack")))
        .await
        .unwrap();
    world
        .try_create(&set("on-gb200", (1, 2), on("gb200-topology", "block")))
        .await
        .unwrap();
    world
        .try_create(&set("on-default", (1, 2), packed("rack")))
        .await
        .unwrap();
    world.await_gang_keys("on-h100-0", keys("h100/rack", HOST)).await;
    world.await_gang_keys("on-gb200-0", keys("gb200/block", HOST)).await;
    world.await_gang_keys("on-default-0", keys(RACK, HOST)).await;
    for (gang, topology) in [("on-h100-0", "h100-topology"), ("on-gb200-0", "gb200-topology")] {
        let gang = world.gang(gang).await.unwrap();
        assert_eq!(gang.annotations()["grove.io/topology-name"], topology);
        assert_eq!(gang.spec.topology_ref.as_deref(), Some(topology));
    }
    let keys_of = |levels: &[(&str, &'static str)]| levels.iter().map(|(_, key)| *key).collect::<Vec<_>>();
    world.await_kai_labels("h100-topology", &keys_of(&H100)).await;
    world.await_kai_labels("gb200-topology", &keys_of(&GB200)).await;
}

// shows: G244-11
/// The same workload on two topologies, word for word.
#[tokio::test(start_paused = true)]
async fn story_1_a_workload_moves_between_clusters_unchanged() {
    let workload = set("w", (1, 1), packed("rack"));
    for key in ["cloud.example/rack", "onprem.example/rack"] {
        let configuration = format!(
            "topologyAwareScheduling: {{enabled: true, levels: [{{domain: rack, key: {key}}}, {{domain: host, key: {HOST}}}]}}"
        );
        let world = world(&configuration).await;
        world.try_create(&workload).await.unwrap();
        world.await_gang_keys("w-0", keys(key, HOST)).await;
    }
}

// shows: G244-12, G244-57
/// The example of the newest design: prefill and decode inside a zone, each group in its block or rack.
#[tokio::test(start_paused = true)]
async fn story_2_disaggregated_inference_keeps_its_parts_close() {
    let world = world(&levels(&["zone", "block", "rack", "host"])).await;
    let member = |name: &str, word: &str| {
        let mut member = clique(name, 1);
        member["topologyConstraint"] = json!({"packDomain": word});
        member
    };
    let group = |name: &str, word: &str, members: [&str; 2]| {
        json!({"name": name, "cliqueNames": members, "replicas": 2, "minAvailable": 1,
               "topologyConstraint": {"packDomain": word}})
    };
    let template = json!({
        "topologyConstraint": {"packDomain": "zone"},
        "cliques": [member("router", "block"), member("p-leader", "rack"), member("p-worker", "rack"),
                    member("d-leader", "rack"), member("d-worker", "rack")],
        "podCliqueScalingGroups": [group("prefill", "block", ["p-leader", "p-worker"]),
                                   group("decode", "rack", ["d-leader", "d-worker"])],
    });
    world.try_create(&set("di", (1, 1), template)).await.unwrap();
    let key = |word: &str| format!("topology.kubernetes.io/{word}");
    world.await_gang_keys("di-0", keys(&key("zone"), HOST)).await;
    let base = world.gang("di-0").await.unwrap();
    let configs = base.spec.topology_constraint_group_configs.iter();
    let configs: Vec<(String, Option<String>)> = configs
        .map(|config| (config.name.clone(), keys_of(config.topology_constraint.as_ref()).0))
        .collect();
    let expected = [("di-0-prefill-0", "block"), ("di-0-decode-0", "rack")];
    assert_eq!(configs, expected.map(|(name, word)| (name.to_owned(), Some(key(word)))));
    let router = base
        .spec
        .pod_groups
        .iter()
        .find(|group| group.name == "di-0-router")
        .unwrap();
    assert_eq!(keys_of(router.topology_constraint.as_ref()), keys(&key("block"), HOST));
    world.await_gang_keys("di-0-prefill-0", keys(&key("block"), HOST)).await;
    world.await_gang_keys("di-0-decode-0", keys(&key("rack"), HOST)).await;
}

// shows: G244-24, G244-25
#[tokio::test(start_paused = true)]
async fn a_topology_in_use_stays_until_its_last_user_is_gone() {
    let world = world(&levels(&["host"])).await;
    world.create_topology("mine", &[("rack", RACK)]).await;
    world.try_create(&set("w", (1, 1), on("mine", "rack"))).await.unwrap();
    world
        .eventually("it is guarded", async |world| {
            let finalizers = world.topology("mine").await.unwrap().finalizers().to_vec();
            finalizers == ["grove.io/clustertopology.grove.io"]
        })
        .await;
    world
        .await_condition("w", CONSTRAINTS, ("True", "TopologyLevelsAvailable"))
        .await;
    delete::<ClusterTopology>(&world, "mine").await;
    // One that is leaving still holds for those that use it.
    world.patch_set("w", json!({"spec": {"replicas": 2}})).await.unwrap();
    world.await_gang_keys("w-1", keys(RACK, RACK)).await;
    assert!(
        world
            .topology("mine")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );

    world
        .all::<PodCliqueSet>()
        .delete("w", &DeleteParams::default())
        .await
        .unwrap();
    world
        .eventually("it is let go of", async |world| world.topology("mine").await.is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_uses_goes_at_once() {
    let world = world(&levels(&["host"])).await;
    world.create_topology("mine", &[("rack", RACK)]).await;
    world.await_topology_ready("mine", ("True", "TopologyReady")).await;
    delete::<ClusterTopology>(&world, "mine").await;
    world
        .eventually("it is gone", async |world| world.topology("mine").await.is_none())
        .await;
}

// shows: G244-26, G244-27, G244-29
/// Levels of a topology change only while no set that uses it has a pod on a node; its labels change any time.
#[tokio::test(start_paused = true)]
async fn levels_in_use_by_scheduled_pods_are_locked() {
    let configuration = levels(&["host"]);
    let world = world(&configuration).await;
    world.serve_webhooks(&configuration).await;
    world.create_topology("mine", &[("rack", RACK), ("host", HOST)]).await;
    world.try_create(&set("w", (1, 1), on("mine", "rack"))).await.unwrap();
    world
        .eventually("it runs", async |world| world.ready().await == 1)
        .await;
    let edit = async |patch: Value| {
        let patch = Patch::Merge(patch);
        world.topologies().patch("mine", &PatchParams::default(), &patch).await
    };
    let shorter = json!({"spec": {"levels": [{"domain": "rack", "key": RACK}]}});
    let said = refusal(edit(shorter).await);
    assert!(
        said.contains("topology in use by scheduled workloads: default/w"),
        "{said}"
    );
    edit(json!({"metadata": {"labels": {"team": "a"}}})).await.unwrap();
}

// shows: G244-16, G244-17, G244-62
/// A gang that waits for room is sent to another part of the cluster; once it runs there, it stays.
#[tokio::test(start_paused = true)]
async fn story_5_another_topology_while_nothing_is_scheduled() {
    let configuration = levels(&["host"]);
    // No node yet: nothing can be scheduled.
    let mut world = World::without_operator(1, []).await;
    world.launch(&configuration).await.unwrap();
    world.serve_webhooks(&configuration).await;
    world
        .create_topology("east", &[("rack", "east/rack"), ("host", HOST)])
        .await;
    world
        .create_topology("west", &[("rack", "west/rack"), ("host", HOST)])
        .await;
    world.try_create(&set("w", (1, 2), on("east", "rack"))).await.unwrap();
    world.await_gang_keys("w-0", keys("east/rack", HOST)).await;

    let to = |name: &str| json!({"spec": {"template": {"clusterTopologyName": name}}});
    let said = refusal(world.patch_set("w", to("nowhere")).await);
    assert!(said.contains("ClusterTopology 'nowhere' not found"), "{said}");
    world.patch_set("w", to("west")).await.unwrap();
    world.await_gang_keys("w-0", keys("west/rack", HOST)).await;
    assert_eq!(
        world.gang("w-0").await.unwrap().annotations()["grove.io/topology-name"],
        "west"
    );
    // The one that was left is free to go.
    delete::<ClusterTopology>(&world, "east").await;
    world
        .eventually("east is gone", async |world| world.topology("east").await.is_none())
        .await;

    two_racks().into_iter().for_each(|node| world.cluster.fleet().add(node));
    world
        .eventually("two pods run", async |world| world.ready().await == 2)
        .await;
    world.create_topology("east", &[("rack", "east/rack")]).await;
    let said = refusal(world.patch_set("w", to("east")).await);
    assert!(
        said.contains("clusterTopologyName cannot be changed from 'west' to 'east'"),
        "{said}"
    );
}

/// Newer clusters keep their topology under another kind; ours of the same name wins.
#[tokio::test(start_paused = true)]
async fn a_binding_is_read_as_a_topology() {
    let world = world(&levels(&["host"])).await;
    let binding = json!({"metadata": {"name": "bound"}, "spec": {"levels": [{"domain": "row", "key": "their/row"}]}});
    let binding: ClusterTopologyBinding = serde_json::from_value(binding).unwrap();
    let bindings = Api::<ClusterTopologyBinding>::all(world.client.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    world.try_create(&set("w", (1, 1), on("bound", "row"))).await.unwrap();
    world.await_gang_keys("w-0", keys("their/row", "their/row")).await;

    world.create_topology("bound", &[("rack", RACK)]).await;
    world
        .await_condition("w", CONSTRAINTS, ("False", "TopologyLevelNotFound"))
        .await;
    delete::<ClusterTopology>(&world, "bound").await;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let _ = world.topologies().patch("bound", &PatchParams::default(), &patch).await;
    world.await_gang_keys("w-0", keys("their/row", "their/row")).await;
}
