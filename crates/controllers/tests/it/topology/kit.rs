//! What the tests of topologies share: configurations, manifests, and short ways to look.

use std::collections::BTreeMap;

use grove_api::podgang::GangTopologyConstraint;
use grove_api::{ClusterTopology, PodCliqueSet, PodGang};
use grove_simcluster::NodeSpec;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::support::World;

pub(crate) const RACK: &str = "topology.kubernetes.io/rack";
pub(crate) const BLOCK: &str = "topology.kubernetes.io/block";
pub(crate) const HOST: &str = "kubernetes.io/hostname";
pub(crate) const NUMA: &str = "topology.kubernetes.io/numa";
pub(crate) const DEFAULT: &str = "grove-topology";

/// The operator without topologies.
pub(crate) const OFF: &str = "scheduler: {profiles: [{name: default-scheduler, default: true}]}\n";

/// The operator with these levels, by their words.
pub(crate) fn levels(words: &[&str]) -> String {
    with_policies(words, "")
}

/// The same, with more settings of topologies.
pub(crate) fn with_policies(words: &[&str], policies: &str) -> String {
    format!("{OFF}{}", block(words, policies))
}

/// The same as [`levels`], with KAI as a second scheduler, so that it is told of topologies.
pub(crate) fn with_kai(words: &[&str]) -> String {
    let profiles = "scheduler: {profiles: [{name: default-scheduler, default: true}, {name: kai-scheduler}]}\n";
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

/// Four nodes in two racks.
pub(crate) fn two_racks() -> Vec<NodeSpec> {
    let node = |i: usize| NodeSpec::new(&format!("n{i}")).label(RACK, if i < 2 { "rack-a" } else { "rack-b" });
    (0..4).map(node).collect()
}

/// A cluster with four nodes in two racks, and an operator.
pub(crate) async fn world(configuration: &str) -> World {
    let mut world = World::without_operator(1, two_racks()).await;
    world.launch(configuration).await.expect("an operator that starts");
    world
}

/// A set with one clique; `template` is more of its template, as YAML in braces.
pub(crate) fn set(name: &str, (replicas, pods): (i32, i32), template: Value) -> PodCliqueSet {
    let mut object = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "template": {"cliques": [clique("a", pods)]}},
    });
    for (field, value) in template.as_object().into_iter().flatten() {
        object["spec"]["template"][field] = value.clone();
    }
    serde_json::from_value(object).expect("a set")
}

pub(crate) fn clique(name: &str, pods: i32) -> Value {
    let container = json!({"name": "main", "image": "one", "resources": {"requests": {"cpu": "100m"}}});
    let spec =
        json!({"roleName": name, "replicas": pods, "minAvailable": pods, "podSpec": {"containers": [container]}});
    json!({"name": name, "spec": spec})
}

/// A template that demands one domain for each replica.
pub(crate) fn packed(word: &str) -> Value {
    json!({"topologyConstraint": {"packDomain": word}})
}

/// Required and preferred key of a constraint.
pub(crate) type Keys = (Option<String>, Option<String>);

pub(crate) fn keys(required: &str, preferred: &str) -> Keys {
    let some = |key: &str| Some(key.to_owned()).filter(|key| !key.is_empty());
    (some(required), some(preferred))
}

pub(crate) fn keys_of(constraint: Option<&GangTopologyConstraint>) -> Keys {
    let pack = constraint.and_then(|constraint| constraint.pack_constraint.clone());
    pack.map(|pack| (pack.required, pack.preferred)).unwrap_or_default()
}

impl World {
    pub(crate) async fn try_create(&self, set: &PodCliqueSet) -> Result<PodCliqueSet, kube::Error> {
        self.all().create(&PostParams::default(), set).await
    }

    pub(crate) async fn patch_set(&self, name: &str, patch: Value) -> Result<PodCliqueSet, kube::Error> {
        self.all()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    pub(crate) async fn set(&self, name: &str) -> Option<PodCliqueSet> {
        self.list::<PodCliqueSet>().await.remove(name)
    }

    pub(crate) async fn gang(&self, name: &str) -> Option<PodGang> {
        self.list::<PodGang>().await.remove(name)
    }

    /// Required and preferred key of a gang; none without the gang.
    pub(crate) async fn gang_keys(&self, name: &str) -> Option<Keys> {
        let gang = self.gang(name).await?;
        Some(keys_of(gang.spec.topology_constraint.as_ref()))
    }

    pub(crate) async fn await_gang_keys(&self, name: &str, keys: Keys) {
        let what = format!("gang {name} has {keys:?}");
        self.eventually(&what, async |world| world.gang_keys(name).await.as_ref() == Some(&keys))
            .await;
    }

    pub(crate) async fn condition(&self, set: &str, type_: &str) -> Option<Condition> {
        let status = self.set(set).await?.status?;
        status.conditions.into_iter().find(|condition| condition.type_ == type_)
    }

    /// Waits until a condition of a set has this status and reason.
    pub(crate) async fn await_condition(&self, set: &str, type_: &str, (status, reason): (&str, &str)) -> Condition {
        let what = format!("{type_} of {set} is {status} {reason}");
        let is_it = |condition: &Condition| condition.status == status && condition.reason == reason;
        self.eventually(&what, async |world| {
            world
                .condition(set, type_)
                .await
                .is_some_and(|condition| is_it(&condition))
        })
        .await;
        self.condition(set, type_).await.expect("it was just there")
    }

    pub(crate) fn topologies(&self) -> Api<ClusterTopology> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn topology(&self, name: &str) -> Option<ClusterTopology> {
        self.topologies().get_opt(name).await.expect("an answer")
    }

    pub(crate) async fn create_topology(&self, name: &str, levels: &[(&str, &str)]) -> ClusterTopology {
        let levels: Vec<Value> = levels
            .iter()
            .map(|(word, key)| json!({"domain": word, "key": key}))
            .collect();
        let object = json!({"metadata": {"name": name}, "spec": {"levels": levels}});
        let object: ClusterTopology = serde_json::from_value(object).expect("a topology");
        self.topologies()
            .create(&PostParams::default(), &object)
            .await
            .expect("a topology that is taken")
    }

    /// The `Ready` condition of a topology: status, reason, message.
    pub(crate) async fn topology_ready(&self, name: &str) -> Option<(String, String, String)> {
        let status = self.topology(name).await?.status?;
        let ready = status
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready")?;
        Some((ready.status, ready.reason, ready.message))
    }

    pub(crate) async fn await_topology_ready(&self, name: &str, (status, reason): (&str, &str)) {
        let what = format!("ClusterTopology {name} is {status} {reason}");
        self.eventually(&what, async |world| {
            let ready = world.topology_ready(name).await;
            ready.is_some_and(|ready| ready.0 == status && ready.1 == reason)
        })
        .await;
    }

    /// UIDs and nodes of all pods, by name.
    pub(crate) async fn placement(&self) -> BTreeMap<String, (String, Option<String>)> {
        let pods = self.pods().await.into_iter();
        pods.map(|pod| {
            let node = pod.spec.clone().and_then(|spec| spec.node_name);
            (pod.name_any(), (pod.uid().unwrap_or_default(), node))
        })
        .collect()
    }

    /// Installs another scheduler's kind.
    pub(crate) async fn install(&self, definition: Value) {
        let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("a definition");
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        api.create(&PostParams::default(), &definition)
            .await
            .expect("a definition");
    }

    pub(crate) fn backend_topologies(&self, group: &str, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, "Topology");
        Api::all_with(
            self.client.clone(),
            &ApiResource::from_gvk_with_plural(&kind, "topologies"),
        )
    }

    pub(crate) fn kai_topologies(&self) -> Api<DynamicObject> {
        self.backend_topologies("kai.scheduler", "v1alpha1")
    }

    /// Node labels of a KAI Topology; none without it.
    pub(crate) async fn kai_labels(&self, name: &str) -> Option<Vec<String>> {
        node_labels(&self.kai_topologies().get_opt(name).await.ok().flatten()?)
    }

    pub(crate) async fn await_kai_labels(&self, name: &str, labels: &[&str]) {
        let what = format!("KAI Topology {name} has {labels:?}");
        self.eventually(&what, async |world| {
            world.kai_labels(name).await.is_some_and(|found| found == labels)
        })
        .await;
    }
}

pub(crate) fn node_labels(object: &DynamicObject) -> Option<Vec<String>> {
    let levels = object.data["spec"]["levels"].as_array()?;
    levels
        .iter()
        .map(|level| Some(level["nodeLabel"].as_str()?.to_owned()))
        .collect()
}

/// Deletes an object of the whole cluster.
pub(crate) async fn delete<K>(world: &World, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let api = Api::<K>::all(world.client.clone());
    api.delete(name, &DeleteParams::default())
        .await
        .expect("a deletion that is taken");
}

/// The definition of another scheduler's Topology, whose levels cannot be changed.
pub(crate) fn topology_definition(group: &str, versions: &[&str]) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["levels"], "properties": {
        "levels": {"type": "array", "maxItems": 16, "items": {"type": "object", "required": ["nodeLabel"],
                   "properties": {"nodeLabel": {"type": "string"}, "alias": {"type": "string"}}},
                   "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}]}}}}});
    let version = |(index, name): (usize, &&str)| json!({"name": name, "served": true, "storage": index == 0, "schema": {"openAPIV3Schema": schema}});
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({"metadata": {"name": format!("topologies.{group}")}, "spec": {"group": group, "scope": "Cluster",
        "names": {"kind": "Topology", "plural": "topologies", "singular": "topology", "listKind": "TopologyList"},
        "versions": versions}})
}

pub(crate) fn kai_definition() -> Value {
    topology_definition("kai.scheduler", &["v1alpha1"])
}
