//! The user stories, played with the files in `examples/` that users start from.

use grove_api::{ClusterTopology, PodCliqueSet};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::look::{Look, keys, keys_of, refusal};
use crate::manifests::{HOST, cells_definition, levels, nodes};
use crate::stage::Stage;

const PORTABLE: &str = include_str!("../../../examples/portable.yaml");
const DISAGGREGATED: &str = include_str!("../../../examples/disaggregated.yaml");
const NUMA: &str = include_str!("../../../examples/numa.yaml");
const TWO_TOPOLOGIES: &str = include_str!("../../../examples/two-topologies.yaml");
const ANOTHER_TRY: &str = include_str!("../../../examples/another-try.yaml");

/// The objects of an example.
fn objects(example: &str) -> (Vec<ClusterTopology>, Vec<PodCliqueSet>) {
    let (mut topologies, mut sets) = (Vec::new(), Vec::new());
    for document in example.split("\n---\n") {
        let value: Value = serde_saphyr::from_str(document).expect("a manifest");
        if value["kind"] == "ClusterTopology" {
            topologies.push(serde_json::from_value(value).expect("a topology"));
        } else {
            sets.push(serde_json::from_value(value).expect("a set"));
        }
    }
    (topologies, sets)
}

/// The same set in a size that a small cluster can run.
fn small(mut set: PodCliqueSet) -> PodCliqueSet {
    for clique in &mut set.spec.template.cliques {
        clique.spec.replicas = clique.spec.replicas.min(2);
        let containers = clique.spec.pod_spec.containers.iter_mut();
        containers.for_each(|container| container.resources = None);
    }
    set
}

async fn apply(stage: &impl Stage, example: &str) {
    let (topologies, sets) = objects(example);
    create_topologies(stage, &topologies).await;
    for set in sets {
        stage.try_create(&small(set)).await.expect("a set that is taken");
    }
}

async fn create_topologies(stage: &impl Stage, topologies: &[ClusterTopology]) {
    for topology in topologies {
        let made = stage.topologies().create(&PostParams::default(), topology).await;
        made.expect("a topology that is taken");
    }
}

/// The same file on clusters whose racks are labelled in other ways.
// shows: G244-11
pub async fn story_1_a_workload_moves_between_clusters_unchanged(stage: &mut impl Stage) {
    for key in ["cloud.example/rack", "onprem.example/rack"] {
        let levels = format!("[{{domain: rack, key: {key}}}, {{domain: host, key: {HOST}}}]");
        let configuration = format!("topologyAwareScheduling: {{enabled: true, levels: {levels}}}\n");
        stage.launch(&configuration).await;
        apply(stage, PORTABLE).await;
        stage.await_gang_keys("portable-0", keys(key, HOST)).await;
        stage.remove_set("portable").await;
    }
}

// shows: G244-12, G244-57
pub async fn story_2_disaggregated_inference_keeps_its_parts_close(stage: &mut impl Stage) {
    stage.launch(&levels(&["zone", "block", "rack", "host"])).await;
    apply(stage, DISAGGREGATED).await;
    let key = |word: &str| format!("topology.kubernetes.io/{word}");
    let zone = keys(&key("zone"), HOST);
    stage.await_gang_keys("disaggregated-0", zone).await;
    let base = stage.gang("disaggregated-0").await.unwrap();
    let configs = base.spec.topology_constraint_group_configs.iter();
    let configs: Vec<(String, Option<String>)> = configs
        .map(|config| (config.name.clone(), keys_of(config.topology_constraint.as_ref()).0))
        .collect();
    let expected = [
        ("disaggregated-0-prefill-0", "block"),
        ("disaggregated-0-decode-0", "rack"),
    ];
    assert_eq!(configs, expected.map(|(name, word)| (name.to_owned(), Some(key(word)))));
    let mut pod_groups = base.spec.pod_groups.iter();
    let leader = pod_groups.find(|group| group.name == "disaggregated-0-prefill-0-p-leader");
    let leader = leader
        .expect("the leader of a prefill group")
        .topology_constraint
        .as_ref();
    assert_eq!(keys_of(leader), keys(&key("rack"), HOST));
    for (scaled, word) in [
        ("disaggregated-0-prefill-0", "block"),
        ("disaggregated-0-decode-0", "rack"),
    ] {
        stage.await_gang_keys(scaled, keys(&key(word), HOST)).await;
    }
    // A router, and two replicas of each group: three pods of prefill, three of decode.
    stage.await_running(13).await;
    for replica in ["decode-0", "decode-1"] {
        stage
            .domain_of(&format!("disaggregated-0-{replica}-"), &key("rack"))
            .await;
    }
    stage.domain_of("disaggregated-0-", &key("zone")).await;
}

/// Every host of eight GPUs has two left, and one of them has them side by side.
// shows: G244-13
pub async fn story_3_two_gpus_of_one_numa_cell(stage: &mut impl Stage) {
    stage.install(cells_definition()).await;
    for (node, _) in nodes() {
        stage
            .publish_cells(node, if node == "n2" { [0, 2] } else { [1, 1] })
            .await;
    }
    stage.launch(&levels(&["rack", "host"])).await;
    let (topologies, sets) = objects(NUMA);
    create_topologies(stage, &topologies).await;
    let [mut benchmark] = sets.try_into().expect("one set");
    stage.try_create(&benchmark).await.expect("a set that is taken");
    stage.await_running(1).await;
    assert_eq!(stage.domain_of("benchmark-", HOST).await, "n2");

    // A second one finds no cell, until another host has two of one.
    benchmark.metadata.name = Some("second".to_owned());
    stage.try_create(&benchmark).await.expect("a set that is taken");
    stage
        .eventually("the second waits", async |stage| {
            let status = stage.gang("second-0").await.and_then(|gang| gang.status);
            status.is_some_and(|status| status.pending.is_some())
        })
        .await;
    stage.publish_cells("n1", [2, 0]).await;
    stage.await_running(2).await;
    assert_eq!(stage.domain_of("second-", HOST).await, "n1");
}

// shows: G244-14, G244-8
pub async fn story_4_two_kinds_of_hardware_side_by_side(stage: &mut impl Stage) {
    stage.launch(&levels(&["host"])).await;
    apply(stage, TWO_TOPOLOGIES).await;
    let gb200 = keys("example.com/gb200-nvl72", HOST);
    stage.await_gang_keys("on-gb200-0", gb200.clone()).await;
    stage.await_gang_keys("on-gb200-1", gb200).await;
    let gang = stage.gang("on-gb200-0").await.unwrap();
    assert_eq!(gang.annotations()["grove.io/topology-name"], "gb200");
}

/// A gang that waits for room is sent to another part of the cluster; once it runs there, it stays.
// shows: G244-16, G244-17, G244-62
pub async fn story_5_another_topology_while_nothing_is_scheduled(stage: &mut impl Stage) {
    let cordon = |on: bool| move |_| json!({"spec": {"unschedulable": on}});
    stage.patch_nodes(cordon(true)).await;
    stage.launch(&levels(&["host"])).await;
    apply(stage, ANOTHER_TRY).await;
    stage
        .await_gang_keys("another-try-0", keys("east.example/rack", HOST))
        .await;

    let to = |name: &str| json!({"spec": {"template": {"clusterTopologyName": name}}});
    let said = refusal(stage.patch_set("another-try", to("nowhere")).await);
    assert!(said.contains("ClusterTopology 'nowhere' not found"), "{said}");
    stage.patch_set("another-try", to("west")).await.unwrap();
    stage
        .await_gang_keys("another-try-0", keys("west.example/rack", HOST))
        .await;
    let gang = stage.gang("another-try-0").await.unwrap();
    assert_eq!(gang.annotations()["grove.io/topology-name"], "west");
    // The one that was left is free to go.
    stage.delete_topology("east").await;
    stage.await_topology_gone("east").await;

    stage
        .patch_nodes(|_| json!({"metadata": {"labels": {"west.example/rack": "r1"}}, "spec": {"unschedulable": false}}))
        .await;
    stage.await_running(2).await;
    stage.domain_of("another-try-", "west.example/rack").await;
    stage.create_topology("east", &[("rack", "east.example/rack")]).await;
    let said = refusal(stage.patch_set("another-try", to("east")).await);
    let expected = "clusterTopologyName cannot be changed from 'west' to 'east'";
    assert!(said.contains(expected), "{said}");
}
