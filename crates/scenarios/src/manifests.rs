//! Configurations and objects, as people write them.

use grove_api::PodCliqueSet;
use serde_json::{Value, json};

pub const RACK: &str = "topology.kubernetes.io/rack";
pub const BLOCK: &str = "topology.kubernetes.io/block";
pub const HOST: &str = "kubernetes.io/hostname";
pub const NUMA: &str = "topology.kubernetes.io/numa";
pub const DEFAULT: &str = "grove-topology";

/// The operator without topologies.
pub const OFF: &str = "scheduler: {profiles: [{name: default-scheduler, default: true}]}\n";

/// The operator with these levels, by their words.
pub fn levels(words: &[&str]) -> String {
    with_policies(words, "")
}

/// The same, with more settings of topologies.
pub fn with_policies(words: &[&str], policies: &str) -> String {
    format!("{OFF}{}", block(words, policies))
}

/// The same as [`levels`], with KAI as a second scheduler, so that it is told of topologies.
pub fn with_kai(words: &[&str]) -> String {
    let profiles = "scheduler: {profiles: [{name: default-scheduler, default: true}, {name: kai-scheduler}]}\n";
    format!("{profiles}{}", block(words, ""))
}

/// The same, with KAI as the scheduler that places gangs.
pub fn placed_by_kai(words: &[&str]) -> String {
    let profiles = "scheduler: {profiles: [{name: kai-scheduler, default: true}]}\n";
    format!("{profiles}{}", block(words, ""))
}

fn block(words: &[&str], policies: &str) -> String {
    let level = |word: &&str| {
        let key = if *word == "host" {
            HOST.to_owned()
        } else {
            format!("topology.kubernetes.io/{word}")
        };
        format!("{{domain: {word}, key: {key}}}")
    };
    let levels: Vec<String> = words.iter().map(level).collect();
    format!(
        "topologyAwareScheduling: {{enabled: true, levels: [{}]{policies}}}\n",
        levels.join(", ")
    )
}

/// A set with one clique; `template` is more of its template.
pub fn set(name: &str, (replicas, pods): (i32, i32), template: Value) -> PodCliqueSet {
    let mut object = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"cliques": [clique("a", pods)]}},
    });
    for (field, value) in template.as_object().into_iter().flatten() {
        object["spec"]["template"][field] = value.clone();
    }
    serde_json::from_value(object).expect("a set")
}

pub fn clique(name: &str, pods: i32) -> Value {
    let container = json!({"name": "main", "image": "one", "resources": {"requests": {"cpu": "100m"}}});
    let spec =
        json!({"roleName": name, "replicas": pods, "minAvailable": pods, "podSpec": {"containers": [container]}});
    json!({"name": name, "spec": spec})
}

/// A template that demands one domain for each replica.
pub fn packed(word: &str) -> Value {
    json!({"topologyConstraint": {"packDomain": word}})
}

/// The same on a topology that is named.
pub fn on(topology: &str, word: &str) -> Value {
    let mut template = packed(word);
    template["clusterTopologyName"] = json!(topology);
    template
}

/// The definition of another scheduler's Topology, whose levels cannot be changed.
pub fn topology_definition(group: &str, versions: &[&str]) -> Value {
    let label = json!({"type": "string", "maxLength": 316});
    let levels = json!({
        "type": "array", "maxItems": 16,
        "items": {"type": "object", "required": ["nodeLabel"], "properties": {"nodeLabel": label, "alias": label}},
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}],
    });
    let spec = json!({"type": "object", "required": ["levels"], "properties": {"levels": levels}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version = |(index, name): (usize, &&str)| json!({"name": name, "served": true, "storage": index == 0, "schema": {"openAPIV3Schema": schema}});
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({"metadata": {"name": format!("topologies.{group}")}, "spec": {"group": group, "scope": "Cluster",
        "names": {"kind": "Topology", "plural": "topologies", "singular": "topology", "listKind": "TopologyList"},
        "versions": versions}})
}

pub fn kai_definition() -> Value {
    topology_definition("kai.scheduler", &["v1alpha1"])
}

/// The definition of KAI's PodGroup.
pub fn pod_group_definition() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}}});
    json!({"metadata": {"name": "podgroups.scheduling.run.ai"}, "spec": {"group": "scheduling.run.ai",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"},
        "versions": [{"name": "v2alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}
