//! What KAI is told of a gang.

use grove_api::podgang::{GangTopologyConstraint, PackConstraint, PodGroup, TopologyConstraintGroupConfig};
use grove_api::{PodCliqueSet, PodGang, PodGangSpec};
use grove_topology::Topology;
use grove_topology::kai::{QUEUE, mark_pod, pod_group, pod_group_patch, queue};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::fixtures::{grove_topology, set};

fn queued() -> PodCliqueSet {
    let mut set = set("w");
    set.metadata.labels = Some([(QUEUE.to_owned(), "research".to_owned())].into());
    set
}

fn pack(required: &str) -> Option<GangTopologyConstraint> {
    Some(GangTopologyConstraint {
        pack_constraint: Some(PackConstraint {
            required: Some(required.to_owned()),
            preferred: None,
        }),
    })
}

fn gang() -> PodGang {
    let group = |name: &str, min_replicas| PodGroup {
        name: name.to_owned(),
        min_replicas,
        topology_constraint: (name == "w-0-a").then(|| pack("topology.kubernetes.io/numa")).flatten(),
        ..PodGroup::default()
    };
    let spec = PodGangSpec {
        pod_groups: vec![group("w-0-a", 2), group("w-0-g-0-b", 3)],
        topology_constraint: pack("topology.kubernetes.io/rack"),
        topology_constraint_group_configs: vec![TopologyConstraintGroupConfig {
            name: "w-0-g-0".into(),
            pod_group_names: vec!["w-0-g-0-b".into()],
            topology_constraint: pack("kubernetes.io/hostname"),
        }],
        priority_class_name: Some("inference".into()),
        ..PodGangSpec::default()
    };
    let mut gang = PodGang::new("w-0", spec);
    gang.metadata.uid = Some("u1".into());
    gang
}

// shows: G244-13
#[test]
fn parents_come_first_and_nothing_is_below_the_host() {
    let topology = Topology::from(&grove_topology(&["rack", "host", "numa"]));
    let made = pod_group(&queued(), &gang(), Some(&topology)).unwrap();
    let level = |key: &str| json!({"topology": "grove-topology", "requiredTopologyLevel": key});
    assert_eq!(
        made.data["spec"],
        json!({
            "minMember": 5, "queue": "research", "priorityClassName": "inference",
            "topologyConstraint": level("topology.kubernetes.io/rack"),
            "subGroups": [
                {"name": "w-0-g-0", "minSubGroup": 1, "topologyConstraint": level("kubernetes.io/hostname")},
                {"name": "w-0-a", "minMember": 2, "topologyConstraint": level("kubernetes.io/hostname")},
                {"name": "w-0-g-0-b", "parent": "w-0-g-0", "minMember": 3},
            ],
        })
    );
    let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("PodGang", "u1"));
}

#[test]
fn without_a_topology_there_is_no_constraint_and_what_kai_wrote_stays() {
    let topology = Topology::from(&grove_topology(&["rack", "host", "numa"]));
    let mut stored = pod_group(&queued(), &gang(), Some(&topology)).unwrap();
    stored.data["spec"]["schedulingBackoff"] = json!(1);
    let desired = pod_group(&queued(), &gang(), Some(&topology)).unwrap();
    assert_eq!(pod_group_patch(&desired, &stored), None);
    let mut preferred = desired.clone();
    preferred.data["spec"]["topologyConstraint"] = json!({"topology": "t", "preferredTopologyLevel": "k"});
    let patch = pod_group_patch(&preferred, &stored).unwrap();
    assert_eq!(
        patch["spec"]["topologyConstraint"],
        json!({"topology": "t", "preferredTopologyLevel": "k", "requiredTopologyLevel": null})
    );
    let bare = pod_group(&queued(), &gang(), None).unwrap();
    let patch = pod_group_patch(&bare, &stored).unwrap();
    assert_eq!(patch["spec"]["topologyConstraint"], json!(null));
    assert!(patch["spec"].get("schedulingBackoff").is_none() && patch["spec"].get("queue").is_none());
    assert!(!patch["spec"]["subGroups"].to_string().contains("topology"));
}

#[test]
fn labels_that_were_taken_are_given_back_and_those_of_others_stay() {
    let mut gang = gang();
    gang.metadata.labels = Some([("app.kubernetes.io/part-of".to_owned(), "w".to_owned())].into());
    let desired = pod_group(&queued(), &gang, None).unwrap();
    let mut stored = desired.clone();
    stored.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    let patch = pod_group_patch(&desired, &stored).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({"app.kubernetes.io/part-of": "w"}));
    stored
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .extend(desired.metadata.labels.clone().unwrap());
    assert_eq!(pod_group_patch(&desired, &stored), None);
}

#[test]
fn the_queue_is_the_sets_or_that_of_all_its_cliques() {
    assert_eq!(queue(&queued()).unwrap(), "research");
    let bare = set("w");
    let said = queue(&bare).unwrap_err();
    assert!(
        said.ends_with("names no KAI queue; label it with kai.scheduler/queue"),
        "{said}"
    );
    let mut cliques = bare.clone();
    cliques.spec.template.cliques = vec![Default::default(), Default::default()];
    cliques.spec.template.cliques[0].labels.insert(QUEUE.into(), "a".into());
    assert_eq!(queue(&cliques).unwrap(), "a");
    cliques.spec.template.cliques[1]
        .annotations
        .insert(QUEUE.into(), "b".into());
    assert!(queue(&cliques).unwrap_err().contains("several KAI queues (a, b)"));
}

#[test]
fn pods_say_which_part_of_which_group_they_join() {
    let mut pod = Pod::default();
    mark_pod(&mut pod, "w-0", "w-0-a");
    let (annotations, labels) = (pod.metadata.annotations.unwrap(), pod.metadata.labels.unwrap());
    assert_eq!(annotations["pod-group-name"], "w-0");
    assert_eq!(annotations["kai.scheduler/skip-podgrouper"], "true");
    assert_eq!(labels["kai.scheduler/subgroup-name"], "w-0-a");
}
