//! Configurations and objects, as people write them.

use std::collections::BTreeMap;

use grove_api::PodCliqueSet;
use grove_api::config::{self, OperatorConfiguration, Overrides, ProfileName, SchedulerProfile};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use serde_json::{Value, json};

pub const RACK: &str = "topology.kubernetes.io/rack";
pub const BLOCK: &str = "topology.kubernetes.io/block";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const HOST: &str = "kubernetes.io/hostname";
pub const NUMA: &str = "topology.kubernetes.io/numa";
pub const DEFAULT: &str = "grove-topology";

const GPU: &str = "nvidia.com/gpu";

/// What each node of a stage has.
pub const CAPACITY: [(&str, &str); 4] = [("cpu", "64"), ("memory", "512Gi"), ("pods", "110"), (GPU, "8")];

/// The nodes of a stage: four in two racks of one block, each with its labels.
pub fn nodes() -> [(&'static str, [(&'static str, &'static str); 3]); 4] {
    let in_rack = |rack| [(ZONE, "zone-a"), (BLOCK, "block-a"), (RACK, rack)];
    [
        ("n0", in_rack("rack-a")),
        ("n1", in_rack("rack-a")),
        ("n2", in_rack("rack-b")),
        ("n3", in_rack("rack-b")),
    ]
}

/// The operator without topologies.
pub const OFF: &str = "topologyAwareScheduling: {enabled: false}\n";

/// The operator with these levels, by their words.
pub fn levels(words: &[&str]) -> String {
    with_policies(words, "")
}

/// The same as [`levels`], with KAI as a second scheduler, so that it is told of topologies.
pub fn with_kai(words: &[&str]) -> String {
    format!("scheduler: {{profiles: [{{name: kai-scheduler}}]}}\n{}", levels(words))
}

/// The same, with KAI as the scheduler that places gangs.
pub fn placed_by_kai(words: &[&str]) -> String {
    let profiles = "scheduler: {profiles: [{name: kai-scheduler, default: true}]}\n";
    format!("{profiles}{}", levels(words))
}

/// The configuration of which a text says only what a scenario cares about. Gangs are placed by `placer`, unless the
/// text names somebody else.
pub fn configuration(text: &str, placer: &SchedulerProfile) -> OperatorConfiguration {
    let loaded = config::parse(text.as_bytes(), &Overrides::default());
    let mut configuration = loaded.expect("the configuration of a test is valid").configuration;
    let scheduler = &mut configuration.scheduler;
    if scheduler.default_profile == ProfileName::GroveScheduler {
        scheduler.default_profile = placer.name();
        scheduler.profiles.retain(|profile| *profile != SchedulerProfile::Grove);
        scheduler.profiles.push(placer.clone());
    }
    configuration
}

/// The operator with these levels, and more settings of topologies.
pub fn with_policies(words: &[&str], policies: &str) -> String {
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

/// The same set with so many GPUs for each pod.
pub fn with_gpus(mut set: PodCliqueSet, gpus: u32) -> PodCliqueSet {
    let amount = BTreeMap::from([(GPU.to_owned(), Quantity(gpus.to_string()))]);
    let cliques = set.spec.template.cliques.iter_mut();
    for container in cliques.flat_map(|clique| &mut clique.spec.pod_spec.containers) {
        let resources = container.resources.get_or_insert_default();
        resources.requests.get_or_insert_default().extend(amount.clone());
        resources.limits.get_or_insert_default().extend(amount.clone());
    }
    set
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

/// The template of a set whose clique is a member of a scaling group, with a constraint at each scope.
pub fn three_scopes([replica, group, member]: [&str; 3]) -> Value {
    let mut member_clique = clique("a", 2);
    member_clique["topologyConstraint"] = json!({"packDomain": member});
    json!({
        "topologyConstraint": {"packDomain": replica},
        "cliques": [member_clique],
        "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["a"], "replicas": 2, "minAvailable": 1,
                                    "topologyConstraint": {"packDomain": group}}],
    })
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

/// The definition of NVIDIA's ComputeDomain, as far as it matters here: a spec that cannot be changed, a default, a status
/// of its own.
pub fn compute_domain_definition() -> Value {
    let mode = json!({"type": "string", "default": "Single"});
    let template = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let channel = json!({"type": "object", "properties": {"resourceClaimTemplate": template, "allocationMode": mode}});
    let spec = json!({
        "type": "object", "properties": {"numNodes": {"type": "integer"}, "channel": channel},
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "A computeDomain.spec is immutable"}],
    });
    let version = json!({
        "name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    });
    json!({
        "metadata": {"name": "computedomains.resource.nvidia.com"},
        "spec": {
            "group": "resource.nvidia.com", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "ComputeDomain", "plural": "computedomains", "singular": "computedomain",
                      "listKind": "ComputeDomainList"},
        },
    })
}

/// The definition of the kind in which nodes publish what their NUMA cells have left, as far as it matters here.
pub fn cells_definition() -> Value {
    let amount = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    let text = json!({"type": "string"});
    let resource = json!({
        "type": "object", "required": ["name", "capacity", "allocatable", "available"],
        "properties": {"name": text, "capacity": amount, "allocatable": amount, "available": amount},
    });
    let zone = json!({
        "type": "object", "required": ["name", "type"],
        "properties": {"name": text, "type": text, "resources": {"type": "array", "items": resource}},
    });
    let zones = json!({"type": "array", "items": zone});
    let schema = json!({"type": "object", "required": ["zones"], "properties": {"zones": zones}});
    json!({
        "metadata": {
            "name": "noderesourcetopologies.topology.node.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
        },
        "spec": {
            "group": "topology.node.k8s.io", "scope": "Cluster",
            "names": {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies",
                      "singular": "noderesourcetopology", "listKind": "NodeResourceTopologyList"},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// What a node of [`CAPACITY`] publishes when its two NUMA cells have so many GPUs left.
pub fn cells(node: &str, gpus: [u32; 2]) -> Value {
    let resource = |name: &str, all: &str, left: &str| json!({"name": name, "capacity": all, "allocatable": all, "available": left});
    let zone = |index: usize| {
        json!({"name": format!("node-{index}"), "type": "Node", "resources": [
            resource(GPU, "4", &gpus[index].to_string()), resource("cpu", "32", "32"), resource("memory", "256Gi", "256Gi"),
        ]})
    };
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": node}, "zones": [zone(0), zone(1)],
    })
}

/// A set whose every level shares claims: one for all of it and one for each of its replicas or pods.
pub const SHARED: &str = r#"
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: w}
spec:
  replicas: 1
  template:
    terminationDelay: 10s
    resourceClaimTemplates:
    - name: fabric
      templateSpec:
        spec: {devices: {requests: [{name: d, exactly: {deviceClassName: fabric.example}}]}}
    resourceSharing:
    - {name: fabric, scope: AllReplicas}
    - {name: fabric, scope: PerReplica}
    cliques:
    - name: solo
      resourceSharing: [{name: fabric, scope: AllReplicas}, {name: fabric, scope: PerReplica}]
      spec:
        roleName: solo
        replicas: 2
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one}]}
    - name: member
      spec:
        roleName: member
        replicas: 1
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one}]}
    podCliqueScalingGroups:
    - name: sg
      cliqueNames: [member]
      replicas: 2
      minAvailable: 1
      resourceSharing: [{name: fabric, scope: AllReplicas}, {name: fabric, scope: PerReplica}]
"#;

/// How many claims each kind of owner has; those on their way out do not count.
pub fn claims_by_owner<'a>(claims: impl IntoIterator<Item = &'a ResourceClaim>) -> BTreeMap<String, usize> {
    let mut owners = BTreeMap::new();
    let staying = |claim: &&ResourceClaim| claim.metadata.deletion_timestamp.is_none();
    for claim in claims.into_iter().filter(staying) {
        let owner = claim.owner_references().first();
        let kind = owner.map_or("nobody", |owner| owner.kind.as_str());
        *owners.entry(kind.to_owned()).or_default() += 1;
    }
    owners
}

/// So many claims of the set, of its groups and of its cliques.
pub fn claim_counts(set: usize, group: usize, clique: usize) -> BTreeMap<String, usize> {
    let named = [
        ("PodCliqueSet", set),
        ("PodCliqueScalingGroup", group),
        ("PodClique", clique),
    ];
    let named = named.into_iter().filter(|(_, count)| *count > 0);
    named.map(|(kind, count)| (kind.to_owned(), count)).collect()
}
