//! Short ways to look at a cluster and to change it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use grove_api::podgang::GangTopologyConstraint;
use grove_api::{ClusterTopology, PodCliqueSet, PodGang};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::embedded::is_ready;
use crate::manifests::cells;
use crate::stage::Stage;

/// Required and preferred key of a constraint.
pub type Keys = (Option<String>, Option<String>);

pub fn keys(required: &str, preferred: &str) -> Keys {
    let some = |key: &str| Some(key.to_owned()).filter(|key| !key.is_empty());
    (some(required), some(preferred))
}

pub fn keys_of(constraint: Option<&GangTopologyConstraint>) -> Keys {
    let pack = constraint.and_then(|constraint| constraint.pack_constraint.clone());
    pack.map(|pack| (pack.required, pack.preferred)).unwrap_or_default()
}

/// What the API server said to a write that it refused.
pub fn refusal<T: Debug>(result: Result<T, kube::Error>) -> String {
    match result {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Node labels of another scheduler's Topology.
pub fn node_labels(object: &DynamicObject) -> Option<Vec<String>> {
    let levels = object.data["spec"]["levels"].as_array()?;
    levels
        .iter()
        .map(|level| Some(level["nodeLabel"].as_str()?.to_owned()))
        .collect()
}

/// What scenarios do on a [`Stage`].
#[expect(async_fn_in_trait, reason = "a scenario runs on the thread of its test")]
pub trait Look: Stage {
    fn of<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client().clone(), self.namespace())
    }

    /// Everything of a kind, by name.
    async fn found<K>(&self) -> BTreeMap<String, K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let found = self.of::<K>().list(&ListParams::default()).await.expect("a list");
        let named = found.items.into_iter().map(|object| (object.name_any(), object));
        named.collect()
    }

    async fn try_create(&self, set: &PodCliqueSet) -> Result<PodCliqueSet, kube::Error> {
        self.of().create(&PostParams::default(), set).await
    }

    async fn patch_set(&self, name: &str, patch: Value) -> Result<PodCliqueSet, kube::Error> {
        self.of()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Deletes a set and waits until it is gone.
    async fn remove_set(&self, name: &str) {
        let deleted = self.of::<PodCliqueSet>().delete(name, &DeleteParams::default()).await;
        deleted.expect("a set");
        self.eventually("the set is gone", async |stage| stage.set(name).await.is_none())
            .await;
    }

    async fn set(&self, name: &str) -> Option<PodCliqueSet> {
        self.of().get_opt(name).await.expect("an answer")
    }

    async fn gang(&self, name: &str) -> Option<PodGang> {
        self.of().get_opt(name).await.expect("an answer")
    }

    /// Required and preferred key of a gang; none without the gang.
    async fn gang_keys(&self, name: &str) -> Option<Keys> {
        let gang = self.gang(name).await?;
        Some(keys_of(gang.spec.topology_constraint.as_ref()))
    }

    async fn await_gang_keys(&self, name: &str, keys: Keys) {
        let what = format!("gang {name} has {keys:?}");
        self.eventually(&what, async |stage| stage.gang_keys(name).await.as_ref() == Some(&keys))
            .await;
    }

    async fn condition(&self, set: &str, type_: &str) -> Option<Condition> {
        let status = self.set(set).await?.status?;
        status.conditions.into_iter().find(|condition| condition.type_ == type_)
    }

    /// Waits until a condition of a set has this status and reason.
    async fn await_condition(&self, set: &str, type_: &str, (status, reason): (&str, &str)) -> Condition {
        let what = format!("{type_} of {set} is {status} {reason}");
        let is_it = |condition: &Condition| condition.status == status && condition.reason == reason;
        self.eventually(&what, async |stage| {
            stage
                .condition(set, type_)
                .await
                .is_some_and(|condition| is_it(&condition))
        })
        .await;
        self.condition(set, type_).await.expect("it was just there")
    }

    fn topologies(&self) -> Api<ClusterTopology> {
        Api::all(self.client().clone())
    }

    async fn topology(&self, name: &str) -> Option<ClusterTopology> {
        self.topologies().get_opt(name).await.expect("an answer")
    }

    async fn create_topology(&self, name: &str, levels: &[(&str, &str)]) -> ClusterTopology {
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

    async fn delete_topology(&self, name: &str) {
        let deleted = self.topologies().delete(name, &DeleteParams::default()).await;
        deleted.expect("a deletion that is taken");
    }

    async fn await_topology_gone(&self, name: &str) {
        let what = format!("ClusterTopology {name} is gone");
        self.eventually(&what, async |stage| stage.topology(name).await.is_none())
            .await;
    }

    /// The `Ready` condition of a topology: status, reason, message.
    async fn topology_ready(&self, name: &str) -> Option<(String, String, String)> {
        let status = self.topology(name).await?.status?;
        let ready = status
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready")?;
        Some((ready.status, ready.reason, ready.message))
    }

    async fn await_topology_ready(&self, name: &str, (status, reason): (&str, &str)) {
        let what = format!("ClusterTopology {name} is {status} {reason}");
        self.eventually(&what, async |stage| {
            let ready = stage.topology_ready(name).await;
            ready.is_some_and(|ready| ready.0 == status && ready.1 == reason)
        })
        .await;
    }

    /// Waits until so many pods run, and no others are there.
    async fn await_running(&self, count: usize) {
        let what = format!("{count} pods run");
        self.eventually(&what, async |stage| {
            let pods = stage.found::<Pod>().await;
            pods.len() == count && pods.values().all(is_ready)
        })
        .await;
    }

    /// UIDs and nodes of all pods, by name.
    async fn placement(&self) -> BTreeMap<String, (String, Option<String>)> {
        let pods = self.found::<Pod>().await.into_iter();
        pods.map(|(name, pod)| {
            let node = pod.spec.clone().and_then(|spec| spec.node_name);
            (name, (pod.uid().unwrap_or_default(), node))
        })
        .collect()
    }

    /// The domains of a level, given by its node label, that hold the bound pods whose names begin so.
    async fn domains_of(&self, prefix: &str, key: &str) -> BTreeSet<String> {
        let nodes = Api::<Node>::all(self.client().clone());
        let nodes = nodes.list(&ListParams::default()).await.expect("the nodes");
        let domain = |node: &str| {
            let node = nodes.iter().find(|known| known.name_any() == node)?;
            node.labels().get(key).cloned()
        };
        let pods = self.placement().await.into_iter();
        let pods = pods.filter(|(name, _)| name.starts_with(prefix));
        pods.filter_map(|(_, (_, node))| domain(&node?)).collect()
    }

    /// The one domain of a level that holds the pods whose names begin so.
    async fn domain_of(&self, prefix: &str, key: &str) -> String {
        let found: Vec<String> = self.domains_of(prefix, key).await.into_iter().collect();
        match found.as_slice() {
            [one] => one.clone(),
            others => panic!("pods {prefix} are in these domains of {key}: {others:?}"),
        }
    }

    /// Changes the nodes, in the order of their names.
    async fn patch_nodes(&self, patch: impl Fn(usize) -> Value) {
        let nodes = Api::<Node>::all(self.client().clone());
        let mut names: Vec<String> = nodes
            .list(&ListParams::default())
            .await
            .expect("the nodes")
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        names.sort();
        for (index, name) in names.iter().enumerate() {
            let patch = Patch::Merge(patch(index));
            let patched = nodes.patch(name, &PatchParams::default(), &patch).await;
            patched.expect("a node");
        }
    }

    /// Waits until Events about an object of this name have told these reasons.
    async fn await_told(&self, name: &str, reasons: &[&str]) {
        let events = Api::<Event>::all(self.client().clone());
        let what = format!("{reasons:?} are told of {name}");
        self.eventually(&what, async |_| {
            let all = events.list(&ListParams::default()).await.expect("the events").items;
            let about = |event: &&Event| {
                event
                    .regarding
                    .as_ref()
                    .is_some_and(|it| it.name.as_deref() == Some(name))
            };
            let told: Vec<&str> = all
                .iter()
                .filter(about)
                .filter_map(|event| event.reason.as_deref())
                .collect();
            reasons.iter().all(|reason| told.contains(reason))
        })
        .await;
    }

    /// Installs another scheduler's kind.
    async fn install(&self, definition: Value) {
        let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("a definition");
        let api = Api::<CustomResourceDefinition>::all(self.client().clone());
        api.create(&PostParams::default(), &definition)
            .await
            .expect("a definition");
    }

    /// A node publishes what its two NUMA cells have left: so many GPUs each. Waits until that can be published.
    async fn publish_cells(&self, node: &str, gpus: [u32; 2]) {
        let kind = GroupVersionKind::gvk("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology");
        let resource = ApiResource::from_gvk_with_plural(&kind, "noderesourcetopologies");
        let api: Api<DynamicObject> = Api::all_with(self.client().clone(), &resource);
        let published = Patch::Apply(cells(node, gpus));
        let what = format!("{node} publishes its cells");
        self.eventually(&what, async |_| {
            let params = PatchParams::apply("topology-updater");
            api.patch(node, &params, &published).await.is_ok()
        })
        .await;
    }

    fn backend_topologies(&self, group: &str, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, "Topology");
        let resource = ApiResource::from_gvk_with_plural(&kind, "topologies");
        Api::all_with(self.client().clone(), &resource)
    }

    fn kai_topologies(&self) -> Api<DynamicObject> {
        self.backend_topologies("kai.scheduler", "v1alpha1")
    }

    fn pod_groups(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("scheduling.run.ai", "v2alpha2", "PodGroup");
        let resource = ApiResource::from_gvk_with_plural(&kind, "podgroups");
        Api::namespaced_with(self.client().clone(), self.namespace(), &resource)
    }

    /// Node labels of a KAI Topology; none without it.
    async fn kai_labels(&self, name: &str) -> Option<Vec<String>> {
        node_labels(&self.kai_topologies().get_opt(name).await.ok().flatten()?)
    }

    async fn await_kai_labels(&self, name: &str, labels: &[&str]) {
        let what = format!("KAI Topology {name} has {labels:?}");
        self.eventually(&what, async |stage| {
            stage.kai_labels(name).await.is_some_and(|found| found == labels)
        })
        .await;
    }
}

impl<S: Stage> Look for S {}
