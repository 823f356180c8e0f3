//! What makes a unit that waits worth another try: the thing that it lacks, when that changes, and no clock.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::seen::Kept;

mod binds;
mod holds;
mod wholeness;

const RACK: &str = "example.com/rack";

/// A scheduler whose requests are all carried out, at one moment.
struct Table {
    core: Core,
    now: Timestamp,
}

impl Table {
    fn new(nodes: &[Value]) -> Self {
        let mut table = Self {
            core: Core::new(Policy::default()),
            now: Timestamp::UNIX_EPOCH,
        };
        nodes.iter().for_each(|node| table.see::<Node>(node));
        table
    }

    fn see<K>(&mut self, object: &Value)
    where
        K: Kept + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object.clone()).unwrap();
        let key = grove_runtime::ObjectKey::of(object.meta());
        self.core.see(K::seen(key, Some(Arc::new(K::slim(object)))));
    }

    fn lose<K>(&mut self, object: &Value)
    where
        K: Kept + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object.clone()).unwrap();
        let key = grove_runtime::ObjectKey::of(object.meta());
        self.core.see(K::seen(key, None));
    }

    /// Decides until there is nothing to decide: "one@n0" for a bind, "-one" for an eviction, "!one" for a release, and
    /// what is said.
    fn run(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(decided) = self.core.step(self.now) {
            for action in decided.actions {
                let done = match action {
                    Action::Bind { pod, node } => {
                        told.push(format!("{}@{node}", pod.name()));
                        Done::Bound { pod }
                    }
                    Action::Evict { pod, .. } => {
                        told.push(format!("-{}", pod.name()));
                        Done::Other
                    }
                    Action::Release { pod } => {
                        told.push(format!("!{}", pod.name()));
                        Done::Other
                    }
                    Action::Say { gang, statement } => {
                        told.push(statement.message.clone());
                        Done::Said {
                            gang: grove_runtime::ObjectKey::of(&gang.metadata),
                            uid: gang.uid().unwrap_or_default(),
                            is_written: true,
                        }
                    }
                    _ => Done::Other,
                };
                self.core.done(done, self.now);
            }
        }
        told
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn node(name: &str, rack: &str, cpu: &str) -> Value {
    let labels = json!({"kubernetes.io/hostname": name, RACK: rack});
    let has = json!({"cpu": cpu, "pods": "10"});
    json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": has}})
}

/// A pod of this scheduler that asks for so much, or of another one on a node.
fn pod(name: &str, cpu: &str, on: Option<&str>) -> Value {
    let scheduler = if on.is_some() { "other" } else { "grove-scheduler" };
    let container = json!({"name": "main", "resources": {"requests": {"cpu": cpu}}});
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": name}},
        "spec": {"schedulerName": scheduler, "nodeName": on, "containers": [container]},
        "status": {},
    })
}

#[test]
fn a_pod_that_is_resized_makes_room_when_its_node_has_taken_it_back() {
    let mut table = Table::new(&[node("n0", "r0", "4")]);
    let mut runs = pod("runs", "4", Some("n0"));
    table.see::<Pod>(&runs);
    table.see::<Pod>(&pod("waits", "2", None));
    assert!(table.run().is_empty());
    let holds = |cpu: &str| {
        json!([{"name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "",
        "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}])
    };
    runs["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    runs["status"]["containerStatuses"] = holds("4");
    table.see::<Pod>(&runs);
    assert!(table.run().is_empty(), "it still holds what it had");
    runs["status"]["containerStatuses"] = holds("1");
    table.see::<Pod>(&runs);
    assert_eq!(table.run(), ["waits@n0"]);
}

#[test]
fn a_pod_that_grows_takes_room_at_once() {
    let mut table = Table::new(&[node("n0", "r0", "4")]);
    let mut runs = pod("runs", "1", Some("n0"));
    table.see::<Pod>(&runs);
    runs["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3");
    table.see::<Pod>(&runs);
    table.see::<Pod>(&pod("waits", "2", None));
    assert!(table.run().is_empty());
}

/// A pod that wants no rack in which an app is.
fn away_from(app: &str) -> Value {
    let mut pod = pod("waits", "2", None);
    let term = json!({"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": app}}});
    pod["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    pod
}

/// Two nodes of a rack: the pod in the way is on the one that is too small for who waits.
fn kept_away() -> (Table, Value) {
    let mut table = Table::new(&[node("small", "r0", "1"), node("large", "r0", "4")]);
    let runs = pod("rival", "1", Some("small"));
    table.see::<Pod>(&runs);
    table.see::<Pod>(&away_from("rival"));
    assert!(table.run().is_empty());
    (table, runs)
}

#[test]
fn who_is_kept_away_from_a_rack_is_tried_when_the_pod_in_its_way_leaves_any_node_of_it() {
    let (mut table, runs) = kept_away();
    table.lose::<Pod>(&runs);
    assert_eq!(table.run(), ["waits@large"]);
}

#[test]
fn who_is_kept_away_from_a_rack_is_tried_when_the_pod_in_its_way_has_other_labels() {
    let (mut table, mut runs) = kept_away();
    runs["metadata"]["labels"]["app"] = json!("friend");
    table.see::<Pod>(&runs);
    assert_eq!(table.run(), ["waits@large"]);
}

#[test]
fn who_is_kept_away_from_a_rack_is_tried_when_the_node_of_the_pod_in_its_way_leaves_it() {
    let (mut table, _) = kept_away();
    table.see::<Node>(&node("small", "r1", "1"));
    assert_eq!(table.run(), ["waits@large"]);
    let (mut table, _) = kept_away();
    table.lose::<Node>(&node("small", "r0", "1"));
    assert_eq!(table.run(), ["waits@large"]);
}

#[test]
fn who_is_kept_away_is_not_tried_because_somebody_else_leaves() {
    let (mut table, _) = kept_away();
    let other = pod("other", "1", Some("large"));
    table.see::<Pod>(&other);
    assert!(table.run().is_empty());
    table.lose::<Pod>(&pod("unknown", "1", Some("large")));
    assert!(table.core.step(table.now).is_none(), "nothing happened");
}

fn claim(volume: &str) -> Value {
    json!({"metadata": {"name": "data", "namespace": "ns"}, "spec": {"volumeName": volume}})
}

fn volume(node: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
}

#[test]
fn a_pod_waits_for_its_claim_and_then_for_its_volume_and_for_no_clock() {
    let mut table = Table::new(&[node("n0", "r0", "4"), node("n1", "r0", "4")]);
    let mut waits = pod("waits", "2", None);
    waits["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    table.see::<Pod>(&waits);
    table.pass(100);
    assert!(table.run().is_empty());
    table.see::<PersistentVolumeClaim>(&claim(""));
    assert!(table.run().is_empty());
    // Watches overtake each other: where the volume can be used is not known before it is seen.
    table.see::<PersistentVolumeClaim>(&claim("v"));
    assert!(table.run().is_empty());
    table.see::<PersistentVolume>(&volume("n1"));
    assert_eq!(table.run(), ["waits@n1"]);
}

#[test]
fn a_pod_whose_volume_can_be_used_elsewhere_now_is_tried_there() {
    let mut table = Table::new(&[node("n0", "r0", "1"), node("n1", "r0", "4")]);
    let mut waits = pod("waits", "2", None);
    waits["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    table.see::<Pod>(&waits);
    table.see::<PersistentVolumeClaim>(&claim("v"));
    table.see::<PersistentVolume>(&volume("n0"));
    assert!(table.run().is_empty());
    table.see::<PersistentVolume>(&volume("n1"));
    assert_eq!(table.run(), ["waits@n1"]);
}

/// A gang of so many pods, and its pods.
fn gang(name: &str, pods: usize, class: Option<&str>) -> (Value, Vec<Value>) {
    let names: Vec<String> = (0..pods).map(|index| format!("{name}-{index}")).collect();
    let references: Vec<Value> = names
        .iter()
        .map(|name| json!({"namespace": "ns", "name": name}))
        .collect();
    let gang = json!({"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"priorityClassName": class,
            "podgroups": [{"name": "a", "minReplicas": pods, "podReferences": references}]}});
    let pods = names.iter().map(|pod_name| {
        let mut pod = pod(pod_name, "2", None);
        pod["metadata"]["labels"]["grove.io/podgang"] = json!(name);
        pod
    });
    (gang, pods.collect())
}

#[test]
fn a_gang_whose_priority_class_comes_late_evicts_then() {
    let mut table = Table::new(&[node("n0", "r0", "4")]);
    let low = pod("low", "4", None);
    table.see::<Pod>(&low);
    assert_eq!(table.run(), ["low@n0"]);
    let mut bound = low;
    bound["spec"]["nodeName"] = json!("n0");
    table.see::<Pod>(&bound);
    let (gang, pods) = gang("late", 2, Some("high"));
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    let told = table.run();
    assert!(told.iter().all(|told| !told.starts_with('-')), "{told:?}");
    table.see::<PriorityClass>(&json!({"metadata": {"name": "other"}, "value": 2000}));
    assert!(table.core.step(table.now).is_none(), "nobody has that class");
    table.see::<PriorityClass>(&json!({"metadata": {"name": "high"}, "value": 1000}));
    let told = table.run();
    assert!(told.contains(&"-low".to_owned()), "{told:?}");
}

#[test]
fn a_gang_that_anothers_gate_holds_back_names_the_pod_and_the_gate() {
    let mut table = Table::new(&[node("n0", "r0", "8")]);
    let (gang, mut pods) = gang("w", 3, None);
    pods[1]["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]);
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    assert!(table.run().is_empty(), "it may be forming");
    table.pass(5);
    let told = "pod-group a has 2 of the 3 pods that it needs: pod w-1 has the scheduling gate example.com/quota";
    assert_eq!(table.run(), [told]);
    pods[1]["spec"]["schedulingGates"] = Value::Null;
    table.see::<Pod>(&pods[1]);
    assert_eq!(table.run()[..3], ["w-0@n0", "w-1@n0", "w-2@n0"]);
}

#[test]
fn nothing_is_said_of_a_gang_as_long_as_pods_are_being_made() {
    let mut table = Table::new(&[node("n0", "r0", "8")]);
    let ((slow, pods), (other, others)) = (gang("slow", 3, None), gang("other", 20, None));
    table.see::<PodGang>(&slow);
    table.see::<PodGang>(&other);
    for index in 0..3 {
        table.see::<Pod>(&pods[index]);
        // Meanwhile those of another one are made.
        for other in &others[index * 4..index * 4 + 4] {
            if index < 2 {
                assert_eq!(table.run(), [""; 0]);
            }
            table.pass(4);
            table.see::<Pod>(other);
        }
    }
    assert_eq!(
        table.run(),
        ["slow-0@n0", "slow-1@n0", "slow-2@n0"],
        "its binds, and not a word"
    );
    table.pass(4);
    assert_eq!(table.run(), [""; 0]);
    table.pass(1);
    assert_eq!(table.run(), ["pod-group a has 12 of the 20 pods that it needs"]);
}

#[test]
fn a_gang_in_which_nothing_happens_is_spoken_of_however_busy_others_are() {
    let mut table = Table::new(&[node("n0", "r0", "1")]);
    let (gang, pods) = gang("stuck", 2, None);
    table.see::<PodGang>(&gang);
    table.see::<Pod>(&pods[0]);
    let mut told = Vec::new();
    for second in 0..61 {
        let mut born = pod(&format!("single-{second}"), "8", None);
        born["metadata"]["labels"] = json!({});
        table.see::<Pod>(&born);
        told.extend(table.run().into_iter().map(|told| (second, told)));
        table.pass(1);
    }
    assert_eq!(told, [(60, "pod-group a has 1 of the 2 pods that it needs".to_owned())]);
}

#[test]
fn nothing_is_left_of_gangs_that_are_gone() {
    let mut table = Table::new(&[node("n0", "r0", "8")]);
    for name in ["a", "b"] {
        let (mut gang, pods) = gang(name, 2, None);
        gang["metadata"]["labels"] =
            json!({"app.kubernetes.io/part-of": name, "grove.io/podcliqueset-replica-index": "0"});
        table.see::<PodGang>(&gang);
        pods.iter().for_each(|pod| table.see::<Pod>(pod));
        table.run();
        pods.iter().for_each(|pod| table.lose::<Pod>(pod));
        table.lose::<PodGang>(&gang);
        table.run();
    }
    assert_eq!(table.core.state.remembered(), 0);
    assert!(table.core.records.is_empty());
}

/// Pods that fill two nodes of ten, if five, three and two share one: whoever puts the largest where it fits best fails.
fn tight(name: &str) -> (Value, Vec<Value>) {
    let sizes = [(5, 1), (4, 2), (3, 1), (2, 2)];
    let (mut groups, mut pods) = (Vec::new(), Vec::new());
    for (cpu, count) in sizes {
        let names: Vec<String> = (0..count).map(|index| format!("{name}-{cpu}-{index}")).collect();
        let references = names.iter().map(|name| json!({"namespace": "ns", "name": name}));
        let references: Vec<Value> = references.collect();
        groups.push(json!({"name": format!("of{cpu}"), "minReplicas": count, "podReferences": references}));
        for pod_name in names {
            let mut pod = pod(&pod_name, &cpu.to_string(), None);
            pod["metadata"]["labels"]["grove.io/podgang"] = json!(name);
            pods.push(pod);
        }
    }
    let gang = json!({"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
        "metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"podgroups": groups}});
    (gang, pods)
}

#[test]
fn a_gang_that_is_not_decided_in_time_is_searched_for_longer_when_nobody_else_waits() {
    let mut table = Table::new(&[node("n0", "r0", "10"), node("n1", "r0", "10"), node("n2", "r0", "1")]);
    table.core.budget.find = 0;
    let (gang, pods) = tight("g");
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    assert!(table.core.step(table.now).unwrap().actions.is_empty());
    assert_eq!(table.core.undecided.len(), 1);
    table.core.budget = Budget::default();
    table.see::<Pod>(&pod("single", "1", None));
    let told = table.run();
    assert_eq!(told[0], "single@n2", "{told:?}");
    let binds = told.iter().filter(|told| told.starts_with("g-") && told.contains('@'));
    assert_eq!(binds.count(), 6, "{told:?}");
}
