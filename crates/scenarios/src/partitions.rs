//! Several topologies in one cluster: partitions by hardware, and protection of what is in use.

use grove_api::PodCliqueSet;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::look::{Look, keys, refusal};
use crate::manifests::{
    HOST, RACK, ZONE, kai_definition, levels, on, packed, placed_by_kai, pod_group_definition, set, with_gpus, with_kai,
};
use crate::stage::Stage;

const H100: [(&str, &str); 3] = [("zone", ZONE), ("rack", "h100/rack"), ("host", HOST)];
const GB200: [(&str, &str); 4] = [
    ("zone", ZONE),
    ("block", "gb200/block"),
    ("rack", "gb200/nvl72"),
    ("host", HOST),
];

fn keys_in(levels: &[(&str, &'static str)]) -> Vec<&'static str> {
    levels.iter().map(|(_, key)| *key).collect()
}

/// The first two nodes become H100 machines, the others GB200 racks.
async fn relabel(stage: &impl Stage) {
    stage
        .patch_nodes(|index| {
            let labels = match index {
                0 | 1 => json!({"h100/rack": "r1"}),
                _ => json!({"gb200/block": "b1", "gb200/nvl72": "d1"}),
            };
            json!({"metadata": {"labels": labels}})
        })
        .await;
    stage.create_topology("h100-topology", &H100).await;
    stage.create_topology("gb200-topology", &GB200).await;
}

/// The multi-topology test of the newest design: some nodes are relabelled, topologies name the new keys, and each workload
/// is translated by the topology that it names, and runs on that topology's nodes alone.
// shows: G244-14, G244-79, G244-82, G244-4, G244-48
pub async fn h100_and_gb200_side_by_side_on_relabelled_nodes(stage: &mut impl Stage) {
    stage.install(kai_definition()).await;
    stage.launch(&with_kai(&["rack", "host"])).await;
    relabel(stage).await;
    for (name, topology, word) in [
        ("on-h100", "h100-topology", "rack"),
        ("on-gb200", "gb200-topology", "block"),
    ] {
        // A pod leaves no room for another of its kind on its host.
        let workload = with_gpus(set(name, (1, 2), on(topology, word)), 6);
        stage.try_create(&workload).await.unwrap();
    }
    stage.await_running(4).await;
    let beside = with_gpus(set("on-default", (1, 2), packed("rack")), 2);
    stage.try_create(&beside).await.unwrap();
    stage.await_gang_keys("on-h100-0", keys("h100/rack", HOST)).await;
    stage.await_gang_keys("on-gb200-0", keys("gb200/block", HOST)).await;
    stage.await_gang_keys("on-default-0", keys(RACK, HOST)).await;
    for (gang, topology) in [("on-h100-0", "h100-topology"), ("on-gb200-0", "gb200-topology")] {
        let gang = stage.gang(gang).await.unwrap();
        assert_eq!(gang.annotations()["grove.io/topology-name"], topology);
        assert_eq!(gang.spec.topology_ref.as_deref(), Some(topology));
    }
    stage.await_kai_labels("h100-topology", &keys_in(&H100)).await;
    stage.await_kai_labels("gb200-topology", &keys_in(&GB200)).await;
    stage.await_running(6).await;
    assert_eq!(stage.domain_of("on-h100-", "h100/rack").await, "r1");
    assert_eq!(stage.domain_of("on-gb200-", "gb200/block").await, "b1");
    for workload in ["on-h100-", "on-gb200-"] {
        assert_eq!(stage.domains_of(workload, HOST).await.len(), 2, "{workload}");
    }
    stage.domain_of("on-default-", RACK).await;
}

// shows: G244-83, G244-82
pub async fn the_kai_pod_group_names_the_topology_of_its_set(stage: &mut impl Stage) {
    stage.install(kai_definition()).await;
    stage.install(pod_group_definition()).await;
    stage.launch(&placed_by_kai(&["rack", "host"])).await;
    relabel(stage).await;
    let mut workload = set("w", (1, 2), on("gb200-topology", "rack"));
    workload.metadata.labels = Some([("kai.scheduler/queue".to_owned(), "research".to_owned())].into());
    stage.try_create(&workload).await.unwrap();
    let expected = json!({"topology": "gb200-topology", "requiredTopologyLevel": "gb200/nvl72",
                          "preferredTopologyLevel": HOST});
    stage
        .eventually("the PodGroup names its topology", async |stage| {
            let found = stage.pod_groups().get_opt("w-0").await.ok().flatten();
            found.is_some_and(|group| group.data["spec"]["topologyConstraint"] == expected)
        })
        .await;
}

// shows: G244-24, G244-25
pub async fn a_topology_in_use_stays_until_its_last_user_is_gone(stage: &mut impl Stage) {
    stage.launch(&levels(&["host"])).await;
    stage.create_topology("mine", &[("rack", RACK)]).await;
    stage.try_create(&set("w", (1, 1), on("mine", "rack"))).await.unwrap();
    stage
        .eventually("it is guarded", async |stage| {
            let topology = stage.topology("mine").await.expect("the topology");
            topology.finalizers() == ["grove.io/clustertopology.grove.io"]
        })
        .await;
    let fine = ("True", "TopologyLevelsAvailable");
    stage.await_condition("w", "TopologyConstraints", fine).await;
    stage.delete_topology("mine").await;
    // One that is leaving still holds for those that use it.
    stage.patch_set("w", json!({"spec": {"replicas": 2}})).await.unwrap();
    stage.await_gang_keys("w-1", keys(RACK, RACK)).await;
    let leaving = stage.topology("mine").await.unwrap();
    assert!(leaving.metadata.deletion_timestamp.is_some());

    let sets = stage.of::<PodCliqueSet>();
    sets.delete("w", &DeleteParams::default()).await.unwrap();
    stage.await_topology_gone("mine").await;
}

/// Levels of a topology change only while no set that uses it has a pod on a node; its labels change any time.
// shows: G244-26, G244-27, G244-29
pub async fn levels_in_use_by_scheduled_pods_are_locked(stage: &mut impl Stage) {
    stage.launch(&levels(&["host"])).await;
    stage.create_topology("mine", &[("rack", RACK), ("host", HOST)]).await;
    stage.try_create(&set("w", (1, 1), on("mine", "rack"))).await.unwrap();
    stage.await_running(1).await;
    let edit = async |patch: Value| {
        let patch = Patch::Merge(patch);
        stage.topologies().patch("mine", &PatchParams::default(), &patch).await
    };
    let shorter = json!({"spec": {"levels": [{"domain": "rack", "key": RACK}]}});
    let said = refusal(edit(shorter).await);
    let expected = format!("topology in use by scheduled workloads: {}/w", stage.namespace());
    assert!(said.contains(&expected), "{said}");
    edit(json!({"metadata": {"labels": {"team": "a"}}})).await.unwrap();
}
