use std::collections::BTreeMap;

use grove_api::ClusterTopology;
use grove_placement::{Budget, Outcome, Solver};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::cells::NodeResourceTopology;
use crate::unsupported::Unsupported;

fn key(pod: &Pod) -> PodKey {
    PodView::from(pod).key
}

fn topology() -> grove_topology::Topology {
    let object: ClusterTopology = serde_json::from_value(json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "grove-topology"},
        "spec": {"levels": [
            {"domain": "rack", "key": "x/rack"},
            {"domain": "host", "key": "kubernetes.io/hostname"},
            {"domain": "numa", "key": "x/numa"},
        ]},
    }))
    .unwrap();
    (&object).into()
}

fn node(name: &str, rack: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"x/rack": rack, "kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": "8", "pods": "110"}},
    })
}

fn pod(name: &str, index: usize, extra: Value) -> Pod {
    let mut spec = json!({"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {
            "app": "llm", "grove.io/podgang": "g", "grove.io/podclique-pod-index": index.to_string(),
            "app.kubernetes.io/part-of": "set", "grove.io/podcliqueset-replica-index": "0",
        }},
        "spec": spec,
    }))
    .unwrap()
}

fn gang(pods: &[Pod], minimum: usize, required: &str) -> PodGang {
    let references: Vec<Value> = pods
        .iter()
        .map(|pod| json!({"namespace": "ns", "name": pod.metadata.name}))
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
        "metadata": {"name": "g", "namespace": "ns", "labels": {
            "app.kubernetes.io/part-of": "set", "grove.io/podcliqueset-replica-index": "0",
        }},
        "spec": {
            "topologyRef": "grove-topology",
            "topologyConstraint": {"packConstraint": {"required": required}},
            "podgroups": [{"name": "w", "podReferences": references, "minReplicas": minimum}],
        },
    }))
    .unwrap()
}

fn mirror(nodes: &[Value]) -> Mirror {
    let mut mirror = Mirror::new("grove-topology");
    mirror.set_topology(&topology());
    for node in nodes {
        mirror.set_node(&serde_json::from_value(node.clone()).unwrap());
    }
    mirror
}

fn two_racks() -> Mirror {
    mirror(&[node("a1", "a"), node("b1", "b"), node("a2", "a"), node("b2", "b")])
}

fn request(mirror: &mut Mirror, gang: &PodGang, pods: &[Pod]) -> Result<GangRequest, NotPlaceable> {
    let by_key: BTreeMap<PodKey, &Pod> = pods.iter().map(|pod| (key(pod), pod)).collect();
    mirror.gang(gang, |key| by_key.get(key).copied())
}

fn place(mirror: &mut Mirror, gang: &PodGang, pods: &[Pod]) -> Option<Vec<(String, String)>> {
    let request = request(mirror, gang, pods).unwrap();
    let mut solver = Solver::new();
    match solver.solve(mirror.cluster_mut(), &request.gang, Budget::UNLIMITED) {
        Outcome::Placed(plan) => {
            let bindings = request.bindings(mirror.cluster(), plan);
            Some(
                bindings
                    .into_iter()
                    .map(|binding| (binding.pod.name, binding.node))
                    .collect(),
            )
        }
        _ => None,
    }
}

fn pods(count: usize, extra: &Value) -> Vec<Pod> {
    (0..count)
        .map(|index| pod(&format!("p{index}"), index, extra.clone()))
        .collect()
}

#[test]
fn a_gang_goes_into_one_rack_with_neighbours_side_by_side() {
    let pods = pods(4, &json!({}));
    let placed = place(&mut two_racks(), &gang(&pods, 4, "x/rack"), &pods).unwrap();
    let nodes: Vec<&str> = placed.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(nodes[0], nodes[1]);
    assert_eq!(nodes[2], nodes[3]);
    assert_ne!(nodes[1], nodes[2]);
    assert_eq!(nodes[1][..1], nodes[2][..1], "one rack");
}

#[test]
fn what_runs_takes_room_until_it_ends() {
    let mut mirror = two_racks();
    for (index, node) in ["a1", "b2"].into_iter().enumerate() {
        let mut other = pod(&format!("other{index}"), 0, json!({"nodeName": node}));
        other.metadata.labels = None;
        mirror.set_pod(&other);
    }
    let pods = pods(4, &json!({}));
    let gang = gang(&pods, 4, "x/rack");
    assert_eq!(place(&mut mirror, &gang, &pods), None);
    let mut ended = pod("other0", 0, json!({"nodeName": "a1"}));
    ended.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    mirror.set_pod(&ended);
    assert!(place(&mut mirror, &gang, &pods).is_some());
}

#[test]
fn a_pod_may_be_seen_before_its_node() {
    let mut mirror = mirror(&[]);
    let mut other = pod("other", 0, json!({"nodeName": "a1"}));
    other.metadata.labels = None;
    mirror.set_pod(&other);
    mirror.set_node(&serde_json::from_value(node("a1", "a")).unwrap());
    let pods = pods(2, &json!({}));
    assert_eq!(
        place(&mut mirror, &gang(&pods, 2, "x/rack"), &pods),
        None,
        "4 of 8 GPUs are taken"
    );
}

#[test]
fn an_assumed_bind_holds_its_place_until_it_is_taken_back() {
    let mut mirror = two_racks();
    let pods = pods(2, &json!({}));
    mirror.assume(&pods[0], "b1");
    mirror.set_pod(&pods[0]);
    assert_eq!(mirror.node_of(&key(&pods[0])), Some("b1"), "the API does not know yet");
    let placed = place(&mut mirror, &gang(&pods, 2, "x/rack"), &pods).unwrap();
    assert_eq!(
        placed,
        [("p1".to_owned(), "b1".to_owned())],
        "beside the one that is bound"
    );
    mirror.remove_pod(&key(&pods[0]));
    assert_eq!(place(&mut mirror, &gang(&pods, 2, "x/rack"), &pods).unwrap().len(), 2);
}

#[test]
fn a_scaled_gang_stays_in_the_domain_of_its_replica() {
    let mut mirror = two_racks();
    let mut base = pod("base", 0, json!({"nodeName": "b2"}));
    base.metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("grove.io/podgang".into(), "base".into());
    mirror.set_pod(&base);
    let pods = pods(2, &json!({}));
    let mut gang = gang(&pods, 2, "kubernetes.io/hostname");
    let annotations = BTreeMap::from([("grove.io/replica-pack-required".to_owned(), "x/rack".to_owned())]);
    gang.metadata.annotations = Some(annotations);
    let placed = place(&mut mirror, &gang, &pods).unwrap();
    assert!(placed.iter().all(|(_, node)| node == "b1"), "{placed:?}");
}

#[test]
fn cordons_taints_selectors_and_affinity_are_heeded() {
    let mut nodes = [node("a1", "a"), node("a2", "a"), node("a3", "a"), node("a4", "a")];
    nodes[0]["spec"] = json!({"unschedulable": true});
    nodes[1]["spec"] = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    nodes[2]["spec"] = json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]});
    let used = |extra: Value| -> Vec<String> {
        let pods = pods(1, &extra);
        let placed = place(&mut mirror(&nodes), &gang(&pods, 1, "x/rack"), &pods);
        placed.into_iter().flatten().map(|(_, node)| node).collect()
    };
    let only = |names: &[&str]| {
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": names}]);
        let terms = json!([{"matchFields": fields}]);
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    };
    assert_eq!(used(json!({"nodeSelector": {"kubernetes.io/hostname": "a4"}})), ["a4"]);
    assert_eq!(used(json!({"affinity": only(&["a3"])})), ["a3"]);
    assert!(used(json!({"affinity": only(&["a1", "a2"])})).is_empty());
    let tolerant = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    assert_eq!(
        used(json!({"affinity": only(&["a1", "a2"]), "tolerations": tolerant})),
        ["a2"]
    );
    let wrong = json!([{"key": "k", "value": "w"}]);
    assert!(used(json!({"affinity": only(&["a2"]), "tolerations": wrong})).is_empty());
}

#[test]
fn preferred_nodes_are_taken_where_nothing_else_speaks_against_them() {
    let prefers = |name: &str| {
        let expressions = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]);
        let term = json!({"weight": 10, "preference": {"matchExpressions": expressions}});
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    for name in ["a1", "b2"] {
        let pods = pods(2, &prefers(name));
        let placed = place(&mut two_racks(), &gang(&pods, 2, "x/rack"), &pods).unwrap();
        assert!(placed.iter().all(|(_, node)| node == name), "{placed:?}");
    }
}

#[test]
fn pods_that_must_not_share_a_host_do_not() {
    let term = json!([{"labelSelector": {"matchLabels": {"app": "llm"}}, "topologyKey": "kubernetes.io/hostname"}]);
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    let pods = pods(2, &apart);
    let mut mirror = two_racks();
    let placed = place(&mut mirror, &gang(&pods, 2, "x/rack"), &pods).unwrap();
    assert_ne!(placed[0].1, placed[1].1);
    // One that runs and matches keeps them off its host, though it states nothing itself.
    mirror.set_pod(&pod("other", 0, json!({"nodeName": "a1"})));
    let placed = place(&mut mirror, &gang(&pods, 2, "x/rack"), &pods).unwrap();
    assert!(placed.iter().all(|(_, node)| node.starts_with('b')), "{placed:?}");
}

#[test]
fn pods_are_kept_apart_by_any_label_and_from_others_too() {
    let away_from = |app: &str, key: &str| {
        let term = json!([{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}]);
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}})
    };
    let mut mirror = two_racks();
    let others = |name: &str, node: &str, extra: Value| {
        let mut other = pod(name, 0, extra);
        other
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .insert("app".into(), "batch".into());
        other.spec.as_mut().unwrap().node_name = Some(node.to_owned());
        other
    };
    // What the gang avoids.
    mirror.set_pod(&others("o1", "a1", json!({})));
    let shy = pods(2, &away_from("batch", "x/rack"));
    let placed = place(&mut mirror, &gang(&shy, 2, "x/rack"), &shy).unwrap();
    assert!(placed.iter().all(|(_, node)| node.starts_with('b')), "{placed:?}");
    assert_eq!(placed[0].1, placed[1].1, "they do not mind each other");
    // What avoids the gang, which states nothing.
    mirror.set_pod(&others("o2", "b1", away_from("llm", "kubernetes.io/hostname")));
    let plain = pods(2, &json!({}));
    let placed = place(&mut mirror, &gang(&plain, 2, "kubernetes.io/hostname"), &plain).unwrap();
    assert!(
        placed.iter().all(|(_, node)| node == "b2" || node == "a2"),
        "{placed:?}"
    );
    mirror.remove_pod(&key(&others("o2", "b1", json!({}))));
    // One pod for each rack leaves no rack for both.
    let spread = pods(2, &away_from("llm", "x/rack"));
    assert_eq!(place(&mut mirror, &gang(&spread, 2, "x/rack"), &spread), None);
}

#[test]
fn a_volume_keeps_its_pod_where_it_is() {
    let mut mirror = two_racks();
    mirror.set_volume(
        &serde_json::from_value(
            json!({"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b2"]}]}]}}}}),
        )
        .unwrap(),
    );
    let claim = json!({"metadata": {"name": "data", "namespace": "ns"}, "spec": {"volumeName": "pv"}});
    mirror.set_claim(&serde_json::from_value(claim).unwrap());
    let volumes = json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]});
    let mut pods = pods(3, &json!({}));
    pods[1] = pod("p1", 1, volumes);
    let placed = place(&mut mirror, &gang(&pods, 3, "x/rack"), &pods).unwrap();
    assert!(placed.contains(&("p1".to_owned(), "b2".to_owned())), "{placed:?}");
    assert!(placed.iter().all(|(_, node)| node.starts_with('b')), "{placed:?}");
}

#[test]
fn what_cannot_be_heeded_is_said() {
    let error = |extra: Value| {
        let pods = pods(1, &extra);
        request(&mut two_racks(), &gang(&pods, 1, "x/rack"), &pods).unwrap_err()
    };
    let unsupported = |what| NotPlaceable::Unsupported {
        pod: PodKey {
            namespace: "ns".to_owned(),
            name: "p0".to_owned(),
        },
        what,
    };
    let claims = json!({"resourceClaims": [{"name": "gpus", "resourceClaimName": "c"}]});
    assert_eq!(error(claims), unsupported(Unsupported::ResourceClaims));
    let affinity = json!([{"topologyKey": "x/rack", "labelSelector": {}}]);
    let affinity = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}}});
    assert_eq!(error(affinity), unsupported(Unsupported::PodAffinity));
    let spread = json!([{"maxSkew": 1, "topologyKey": "x/rack", "whenUnsatisfiable": "DoNotSchedule"}]);
    let key = "x/rack".to_owned();
    assert_eq!(
        error(json!({"topologySpreadConstraints": spread})),
        unsupported(Unsupported::TopologySpread { key })
    );
    let towards = |selector: Value| {
        let term = json!([{"topologyKey": "x/rack", "labelSelector": {}, "namespaceSelector": selector}]);
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}})
    };
    let by_team = towards(json!({"matchLabels": {"team": "a"}}));
    assert_eq!(error(by_team), unsupported(Unsupported::NamespaceSelector));
    let by_name = pods(
        1,
        &towards(json!({"matchLabels": {"kubernetes.io/metadata.name": "ns"}})),
    );
    assert!(request(&mut two_racks(), &gang(&by_name, 1, "x/rack"), &by_name).is_ok());
}

#[test]
fn a_claim_must_be_bound_where_nobody_binds_it_later() {
    let pods = pods(
        1,
        &json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}),
    );
    let gang = gang(&pods, 1, "x/rack");
    let mut mirror = two_racks();
    assert!(request(&mut mirror, &gang, &pods).is_ok());
    mirror.need_bound_claims();
    let told = request(&mut mirror, &gang, &pods).unwrap_err().to_string();
    assert!(told.starts_with("pod ns/p0: volume claim data is not bound"), "{told}");
    let bound = json!({"metadata": {"name": "data", "namespace": "ns"}, "spec": {"volumeName": "v1"}});
    mirror.set_claim(&serde_json::from_value(bound).unwrap());
    let told = request(&mut mirror, &gang, &pods).unwrap_err().to_string();
    assert_eq!(
        told,
        "pod ns/p0: volume claim data is bound to volume v1, which does not exist"
    );
    mirror.set_volume(&serde_json::from_value(json!({"metadata": {"name": "v1"}})).unwrap());
    assert!(request(&mut mirror, &gang, &pods).is_ok());
}

#[test]
fn what_a_policy_prefers_is_told_from_what_the_author_does() {
    let pods = pods(2, &json!({}));
    let mut mirror = mirror(&[node("a1", "a"), node("a2", "a")]);
    let mut gang = gang(&pods, 2, "x/rack");
    let pack = json!({"packConstraint": {"required": "x/rack", "preferred": "kubernetes.io/hostname"}});
    gang.spec.topology_constraint = Some(serde_json::from_value(pack).unwrap());
    let asked = request(&mut mirror, &gang, &pods).unwrap();
    assert_eq!(asked.clone().without_policy(), asked);
    let by_policy = [(annotation::PREFERRED_BY_POLICY.to_owned(), "g".to_owned())];
    gang.metadata.annotations = Some(by_policy.into());
    let filled = request(&mut mirror, &gang, &pods).unwrap();
    assert_eq!(filled.gang, asked.gang, "it is placed the same");
    assert_eq!(filled.without_policy().gang.pack.preferred, None);
    let spread: Vec<Assignment> = ["a1", "a2"]
        .map(|node| Assignment {
            pod_group: 0,
            node: mirror.cluster().node(node).unwrap(),
            shape: asked.gang.pod_groups[0].shape,
            pods: 1,
            cell: None,
        })
        .into();
    let filled = request(&mut mirror, &gang, &pods).unwrap();
    assert_eq!(asked.report(mirror.cluster(), &spread)[0].standing, Standing::Missed);
    assert_eq!(
        filled.report(mirror.cluster(), &spread)[0].standing,
        Standing::Indifferent
    );
}

#[test]
fn gangs_that_cannot_be_read_say_why() {
    let pods = pods(2, &json!({}));
    let mut mirror = two_racks();
    let incomplete = request(&mut mirror, &gang(&pods, 3, "x/rack"), &pods).unwrap_err();
    assert_eq!(incomplete.to_string(), "pod-group w has 2 of the 3 pods that it needs");
    let unknown = request(&mut mirror, &gang(&pods, 2, "x/pod"), &pods).unwrap_err();
    assert!(
        unknown.to_string().contains("no level with the node label x/pod"),
        "{unknown}"
    );
    mirror.remove_topology("grove-topology");
    let gone = request(&mut mirror, &gang(&pods, 2, "x/rack"), &pods).unwrap_err();
    assert!(
        gone.to_string().contains("topology grove-topology does not exist"),
        "{gone}"
    );
}

#[test]
fn levels_below_the_host_are_met_by_a_host() {
    let pods = pods(2, &json!({}));
    let placed = place(&mut two_racks(), &gang(&pods, 2, "x/numa"), &pods).unwrap();
    assert_eq!(placed[0].1, placed[1].1);
}

/// A node with two cells that have this many GPUs left; CPUs are plenty.
fn cells(node: &str, gpus: [u32; 2]) -> NodeResourceTopology {
    let zone = |cell: usize| {
        json!({"name": format!("node-{cell}"), "type": "Node", "resources": [
            {"name": "nvidia.com/gpu", "capacity": "4", "allocatable": "4", "available": gpus[cell].to_string()},
            {"name": "cpu", "capacity": "32", "allocatable": "32", "available": "32"},
        ]})
    };
    let socket = json!({"name": "socket-0", "type": "Socket"});
    serde_json::from_value(json!({"metadata": {"name": node}, "zones": [zone(1), socket, zone(0)]})).unwrap()
}

// shows: G244-13
#[test]
fn two_gpus_of_one_numa_cell_are_found_on_hosts_of_eight() {
    let two = json!({"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "16"}}}]});
    let (bench, loose) = (pods(1, &two), pod("loose", 0, two.clone()));
    let mut mirror = two_racks();
    let place = |mirror: &mut Mirror, level: &str| place(mirror, &gang(&bench, 1, level), &bench);
    for host in ["a1", "a2", "b1"] {
        mirror.set_cells(&cells(host, [1, 1]));
    }
    mirror.set_cells(&cells("b2", [1, 2]));
    let placed = place(&mut mirror, "x/numa").unwrap();
    assert_eq!(
        placed,
        [("p0".to_owned(), "b2".to_owned())],
        "the only cell with two left"
    );
    // A pod that came after b2 spoke may sit in that very cell.
    mirror.assume(&loose, "b2");
    assert_eq!(place(&mut mirror, "x/numa"), None);
    assert!(
        place(&mut mirror, "kubernetes.io/hostname").is_some(),
        "a host is easier to find"
    );
    // The node speaks again: the pod got the other cell's, and when it leaves that is not known to be free before the
    // node says so.
    mirror.remove_pod(&key(&loose));
    let mut running = loose.clone();
    running.spec.as_mut().unwrap().node_name = Some("b2".to_owned());
    mirror.set_pod(&running);
    mirror.set_cells(&cells("b2", [0, 1]));
    assert_eq!(place(&mut mirror, "x/numa"), None);
    mirror.remove_pod(&key(&loose));
    assert_eq!(place(&mut mirror, "x/numa"), None);
    mirror.remove_cells("b2");
    assert!(
        place(&mut mirror, "x/numa").is_some(),
        "a host that says nothing is one cell"
    );
}

#[test]
fn a_topology_that_changes_changes_the_domains() {
    let mut mirror = two_racks();
    let pods = pods(6, &json!({}));
    let gang = gang(&pods, 6, "x/rack");
    assert_eq!(place(&mut mirror, &gang, &pods), None);
    let wider: ClusterTopology = serde_json::from_value(json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "grove-topology"},
        "spec": {"levels": [{"domain": "rack", "key": "x/row"}]},
    }))
    .unwrap();
    mirror.set_topology(&(&wider).into());
    for (name, rack) in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")] {
        let mut node = node(name, rack);
        node["metadata"]["labels"]["x/row"] = json!("one");
        mirror.set_node(&serde_json::from_value(node).unwrap());
    }
    let mut moved = gang.clone();
    moved.spec.topology_constraint = serde_json::from_value(json!({"packConstraint": {"required": "x/row"}})).unwrap();
    assert_eq!(place(&mut mirror, &moved, &pods).unwrap().len(), 6);
}
