//! The map, told of a cluster one object at a time.

use grove_api::{ClusterTopology, ClusterTopologyBinding};
use serde_json::{Value, json};

use super::*;
use crate::seen::PodState;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node(name: &str, rack: Option<&str>) -> Arc<SeenNode> {
    let labels = match rack {
        Some(rack) => json!({"zone": rack.get(..2), "rack": rack, "kubernetes.io/hostname": name}),
        None => json!({}),
    };
    let status = json!({"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]});
    let object = json!({"metadata": {"name": name, "labels": labels}, "status": status});
    Arc::new(SeenNode::new(read(object)))
}

fn pod(name: &str, gang: Option<&str>, node: Option<&str>, gpus: u32) -> Arc<SeenPod> {
    let labels = match gang {
        Some(gang) => json!({"grove.io/podgang": gang, "grove.io/podclique": format!("{gang}-worker")}),
        None => json!({}),
    };
    let limits = json!({"nvidia.com/gpu": gpus.to_string()});
    let object = json!({
        "metadata": {"name": name, "namespace": "ns", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]},
    });
    Arc::new(SeenPod::new(read(object)))
}

fn gang(name: &str, status: Value) -> Arc<PodGang> {
    let required = |key: &str| json!({"packConstraint": {"required": key, "preferred": "rack"}});
    Arc::new(read(json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"app.kubernetes.io/part-of": "set"},
            "annotations": {"grove.io/preferred-by-policy": format!("{name},{name}-worker")}},
        "spec": {
            "topologyRef": "t", "topologyConstraint": required("zone"),
            "podgroups": [{"name": format!("{name}-worker"), "podReferences": [], "minReplicas": 2,
                "topologyConstraint": required("gone")}],
            "topologyConstraintGroupConfigs": [{"name": "group", "podGroupNames": [format!("{name}-worker")],
                "topologyConstraint": required("rack")}],
        },
        "status": status,
    })))
}

fn topology(name: &str, levels: &[(&str, &str)]) -> Topology {
    let levels: Vec<Value> = levels
        .iter()
        .map(|(word, key)| json!({"domain": word, "key": key}))
        .collect();
    let object: ClusterTopology = read(json!({"metadata": {"name": name}, "spec": {"levels": levels}}));
    Topology::from(&object)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

const LEVELS: [(&str, &str); 3] = [("zone", "zone"), ("rack", "rack"), ("host", "kubernetes.io/hostname")];

fn see_topology(map: &mut Map, levels: &[(&str, &str)]) {
    map.see_topology(TopologyKind::ClusterTopology, "t", Some(topology("t", levels)));
}

/// Two zones, three racks, five hosts, one without labels; nothing is left to tell.
fn map() -> Map {
    let mut map = Map::default();
    see_topology(&mut map, &LEVELS);
    for (name, rack) in [("h1", "z1r1"), ("h2", "z1r1"), ("h3", "z1r10"), ("h4", "z2r2")] {
        map.see_node(name, Some(node(name, Some(rack))));
    }
    map.see_node("stray", Some(node("stray", None)));
    map.take_change();
    map
}

fn see_pod(map: &mut Map, pod: &Arc<SeenPod>) {
    map.see_pod(&pod.key, Some(pod.clone()));
}

#[test]
fn domains_are_nested_and_hosts_are_in_them() {
    let snapshot = serde_json::to_value(map().snapshot()).unwrap();
    let expected = json!([{"name": "t", "kind": "ClusterTopology", "levels": ["zone", "rack", "host"],
        "domains": [
            {"name": "z1", "domains": [{"name": "z1r1", "hosts": ["h1", "h2"]}, {"name": "z1r10", "hosts": ["h3"]}]},
            {"name": "z2", "domains": [{"name": "z2r2", "hosts": ["h4"]}]},
        ],
        "unlabelled": ["stray"]}]);
    assert_eq!(snapshot["topologies"], expected);
    assert_eq!(snapshot["hosts"].as_array().unwrap().len(), 5);
    assert_eq!(
        snapshot["hosts"][0],
        json!({"name": "h1", "gpus": 8, "state": "ready", "cells": []})
    );
}

#[test]
fn a_pod_changes_its_host_and_its_gang_and_nothing_else() {
    let mut map = map();
    see_pod(&mut map, &pod("p1", Some("g"), Some("h2"), 6));
    let change = map.take_change();
    assert_eq!(change.topologies, None);
    let hosts: Vec<(&str, &[u32])> = change.hosts.iter().map(|host| (&*host.name, &*host.cells)).collect();
    assert_eq!(hosts, [("h2", &[1, 6][..])]);
    assert_eq!(
        (change.gangs[0].pods, change.gangs[0].placed, change.gangs[0].gpus),
        (1, 1, 6)
    );
    see_pod(&mut map, &pod("p1", Some("g"), Some("h2"), 6));
    assert!(map.take_change().is_empty(), "the same is no news");
}

#[test]
fn cells_tell_who_holds_them_and_neighbours_of_one_gang_are_one() {
    let mut map = map();
    for (name, gang, gpus) in [
        ("a", Some("g"), 2),
        ("b", Some("g"), 1),
        ("c", None, 3),
        ("d", Some("f"), 2),
    ] {
        see_pod(&mut map, &pod(name, gang, Some("h1"), gpus));
    }
    see_pod(&mut map, &pod("router", Some("g"), Some("h1"), 0));
    let change = map.take_change();
    assert_eq!(change.hosts[0].cells, [1, 3, 0, 3, 2, 2]);
}

#[test]
fn a_pod_that_moves_or_ends_leaves_its_host() {
    let mut map = map();
    see_pod(&mut map, &pod("p", Some("g"), Some("h1"), 8));
    map.take_change();
    map.see_pod(&key("p"), None);
    let change = map.take_change();
    assert_eq!((change.hosts[0].cells.len(), &change.gangs_gone[..]), (0, &[1][..]));
    // The name comes back as another gang, under another number.
    see_pod(&mut map, &pod("p", Some("g"), Some("h4"), 8));
    assert_eq!(map.take_change().hosts[0].cells, [2, 8]);
}

#[test]
fn a_gang_tells_its_scopes_in_the_words_of_its_topology() {
    let mut map = map();
    let placement = json!([{"scope": "g", "level": "zone", "domains": ["z1"]},
        {"scope": "group", "level": "rack", "domains": ["z1r1"]}]);
    let initialized = json!({"type": "Initialized", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"phase": "Running", "conditions": [initialized], "placement": placement});
    map.see_gang(&key("g"), Some(gang("g", status)));
    let view = map.take_change().gangs.remove(0);
    assert_eq!((view.state, &*view.set), (GangState::Running, "set"));
    let told = view.scopes.iter().map(|scope| {
        let (required, preferred) = (scope.required.as_deref(), scope.preferred.as_deref());
        (scope.kind, required, preferred, scope.placement.len())
    });
    let scopes: Vec<(&str, Option<&str>, Option<&str>, usize)> = told.collect();
    // What the operator's policy prefers is nobody's wish; a level that the topology lost is told by its key.
    let expected = [
        ("gang", Some("zone"), None, 1),
        ("group", Some("rack"), Some("rack"), 1),
        ("clique", Some("gone"), None, 0),
    ];
    assert_eq!(scopes, expected);
    // The words are the topology's: when it changes, so do they.
    see_topology(&mut map, &[("datacenter", "zone"), ("rack", "rack")]);
    assert_eq!(
        map.take_change().gangs[0].scopes[0].required.as_deref(),
        Some("datacenter")
    );
}

#[test]
fn a_gang_that_waits_carries_its_proof() {
    let mut map = map();
    let pending = json!({"reason": "TooLarge", "message": "m", "waiting": "Never", "level": "rack",
        "nearest": [{"domain": "z1r1", "free": "2 hosts", "missing": "1 host"}]});
    map.see_gang(
        &key("g"),
        Some(gang("g", json!({"phase": "Pending", "pending": pending}))),
    );
    let told = serde_json::to_value(map.take_change()).unwrap();
    assert_eq!(told["gangs"][0]["state"], "pending");
    assert_eq!(told["gangs"][0]["pending"]["nearest"][0]["domain"], "z1r1");
    map.see_gang(&key("g"), Some(gang("g", json!({"phase": "Pending"}))));
    assert_eq!(map.take_change().gangs[0].state, GangState::Forming);
    let lost = json!({"type": "Scheduled", "status": "False", "reason": "MembersMissing", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    map.see_gang(
        &key("g"),
        Some(gang("g", json!({"phase": "Pending", "conditions": [lost]}))),
    );
    assert_eq!(map.take_change().gangs[0].state, GangState::Degraded);
}

#[test]
fn pods_of_a_gang_are_listed_clique_by_clique() {
    let mut map = map();
    see_pod(&mut map, &pod("b", Some("g"), Some("h1"), 8));
    see_pod(&mut map, &pod("a", Some("g"), None, 8));
    let pods = map.pods_of(&key("g")).unwrap();
    let told: Vec<(&str, &str, PodState)> = pods.iter().map(|pod| (&*pod.name, &*pod.host, pod.state)).collect();
    assert_eq!(told, [("a", "", PodState::Waiting), ("b", "h1", PodState::Starting)]);
    assert_eq!(map.pods_of(&key("other")), None);
}

/// Watches are not in step with each other: whatever comes first, the end is the same.
#[test]
fn the_order_of_arrival_does_not_matter() {
    let mut late = Map::default();
    see_pod(&mut late, &pod("p", Some("g"), Some("h1"), 8));
    late.see_gang(&key("g"), Some(gang("g", json!({"phase": "Starting"}))));
    assert!(
        late.snapshot().hosts.is_empty(),
        "a host is shown when its node is known"
    );
    late.see_node("h1", Some(node("h1", Some("z1r1"))));
    see_topology(&mut late, &LEVELS);

    let mut early = Map::default();
    see_topology(&mut early, &LEVELS);
    early.see_node("h1", Some(node("h1", Some("z1r1"))));
    early.see_gang(&key("g"), Some(gang("g", json!({"phase": "Starting"}))));
    see_pod(&mut early, &pod("p", Some("g"), Some("h1"), 8));
    assert_eq!(late.snapshot(), early.snapshot());

    early.see_node("h1", None);
    let change = early.take_change();
    assert_eq!(change.hosts_gone, ["h1"]);
    assert!(change.topologies.unwrap()[0].domains.is_empty());
}

#[test]
fn a_cluster_topology_hides_a_binding_of_its_name() {
    let mut map = map();
    let binding = |name: &str| -> Topology {
        let levels = json!([{"domain": "zone", "key": "zone"}]);
        let object: ClusterTopologyBinding = read(json!({"metadata": {"name": name}, "spec": {"levels": levels}}));
        Topology::from(&object)
    };
    for name in ["t", "other"] {
        map.see_topology(TopologyKind::ClusterTopologyBinding, name, Some(binding(name)));
    }
    let shown = map.snapshot().topologies;
    let shown: Vec<(&str, &str)> = shown.iter().map(|one| (one.kind, &*one.name)).collect();
    assert_eq!(shown, [("ClusterTopology", "t"), ("ClusterTopologyBinding", "other")]);
}
