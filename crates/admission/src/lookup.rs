//! What rules must know of the cluster, read from the API server at the moment of the question.
//!
//! Rules that guard against races (does the topology exist, is a pod scheduled) would be wrong on a cache, which lags.
//! Each read is one request, and only rules that need it cause it.

use grove_api::config::{TopologyAwareScheduling, TopologySource};
use grove_api::dynamo::Component;
use grove_api::podgang::NamespacedName;
use grove_api::{
    ClusterTopology, ClusterTopologyBinding, DynamoGraphDeployment, DynamoGraphDeploymentScalingAdapter, PodClique,
    PodCliqueScalingGroup, PodCliqueSet, TopologyDomain, labels,
};
use grove_dynamo::framework::Grove;
use grove_topology::backend::{Backend, KAI_VERSION};
use grove_topology::cells;
use grove_topology::resolve::{Found, named_or_default};
use grove_topology::usage::Usage;
use grove_topology::{TopologyKind, resolve};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde::de::DeserializeOwned;

/// Pods of a set that sit on a node and have not ended. That they are not being deleted is asked of each.
const SCHEDULED: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Sets that are read at once: a thousand are below 20 MB.
const SETS_PER_PAGE: u32 = 500;

/// Reads from the API server.
#[derive(Clone)]
pub struct Lookup {
    client: Client,
}

/// The objects behind the topology that a set names.
#[derive(Debug, Default)]
pub(crate) struct Topologies {
    cluster_topology: Option<ClusterTopology>,
    binding: Option<ClusterTopologyBinding>,
    topology_domain: Option<TopologyDomain>,
}

impl Topologies {
    pub(crate) fn found(&self) -> Found<'_> {
        Found {
            cluster_topology: self.cluster_topology.as_ref(),
            binding: self.binding.as_ref(),
            topology_domain: self.topology_domain.as_ref(),
        }
    }
}

impl Lookup {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Topologies as a graph of Dynamo asks for them.
    pub(crate) fn framework(&self, tas: &TopologyAwareScheduling) -> Grove {
        Grove {
            client: self.client.clone(),
            tas: tas.clone(),
        }
    }

    /// The component that an adapter scales; none where its graph does not have it any more.
    pub(crate) async fn scaled_component(&self, adapter: &NamespacedName) -> Result<Option<Component>, kube::Error> {
        let adapters: Api<DynamoGraphDeploymentScalingAdapter> =
            Api::namespaced(self.client.clone(), &adapter.namespace);
        let Some(adapter) = get(&adapters, &adapter.name).await? else {
            return Ok(None);
        };
        let (of, namespace) = (adapter.spec.dgd_ref, adapter.metadata.namespace.unwrap_or_default());
        let graphs: Api<DynamoGraphDeployment> = Api::namespaced(self.client.clone(), &namespace);
        let graph = get(&graphs, &of.name).await?;
        let mut components = graph.into_iter().flat_map(|graph| graph.spec.components);
        Ok(components.find(|component| component.name == of.component_name))
    }

    /// What exists under the name that `set` uses.
    pub(crate) async fn topologies(
        &self,
        set: &PodCliqueSet,
        tas: &TopologyAwareScheduling,
    ) -> Result<Topologies, kube::Error> {
        let mut found = Topologies::default();
        if !tas.enabled {
            return Ok(found);
        }
        if let TopologySource::TopologyDomain {
            topology_domain_name, ..
        } = &tas.source
        {
            let domains: Api<TopologyDomain> = Api::all(self.client.clone());
            found.topology_domain = get(&domains, topology_domain_name).await?;
        } else if resolve::reference(set, &tas.source).is_some() {
            let name = named_or_default(&set.spec.template, &tas.source).name;
            let topologies: Api<ClusterTopology> = Api::all(self.client.clone());
            found.cluster_topology = get(&topologies, name).await?;
            let bindings: Api<ClusterTopologyBinding> = Api::all(self.client.clone());
            found.binding = get(&bindings, name).await?;
        }
        Ok(found)
    }

    /// Whether KAI has a Topology of this name.
    pub(crate) async fn kai_topology_exists(&self, name: &str) -> Result<bool, kube::Error> {
        let kind = GroupVersionKind::gvk(Backend::Kai.group(), KAI_VERSION, Backend::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, Backend::PLURAL);
        let topologies: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        Ok(get(&topologies, name).await?.is_some())
    }

    /// Whether any node publishes what its NUMA cells have left.
    pub(crate) async fn cells_are_published(&self) -> Result<bool, kube::Error> {
        let kind = GroupVersionKind::gvk(cells::GROUP, cells::VERSION, cells::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, cells::PLURAL);
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        match nodes.list_metadata(&ListParams::default().limit(1)).await {
            Ok(found) => Ok(!found.items.is_empty()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many live pods of a set have a node now.
    pub(crate) async fn scheduled_pods(&self, set: &NamespacedName) -> Result<usize, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &set.namespace);
        let of_set = format!("{}={}", labels::PART_OF, set.name);
        let params = ListParams::default().labels(&of_set).fields(SCHEDULED);
        let pods = pods.list_metadata(&params).await?;
        let is_live = |pod: &&kube::core::PartialObjectMeta<Pod>| pod.metadata.deletion_timestamp.is_none();
        Ok(pods.items.iter().filter(is_live).count())
    }

    /// The sets that use a ClusterTopology and have a scheduled pod, in order.
    pub(crate) async fn scheduled_users(
        &self,
        topology: &str,
        source: &TopologySource,
    ) -> Result<Vec<NamespacedName>, kube::Error> {
        let sets = self.all_sets().await?;
        let usage = Usage::of(&sets, source);
        let mut scheduled = Vec::new();
        for user in usage.users_of(TopologyKind::ClusterTopology, topology) {
            if self.scheduled_pods(&user.set).await? > 0 {
                scheduled.push(user.set.clone());
            }
        }
        Ok(scheduled)
    }

    async fn all_sets(&self) -> Result<Vec<PodCliqueSet>, kube::Error> {
        let api: Api<PodCliqueSet> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(SETS_PER_PAGE);
        let mut sets = Vec::new();
        loop {
            let page = api.list(&params).await?;
            sets.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(sets),
            }
        }
    }

    pub(crate) async fn set(&self, name: &NamespacedName) -> Result<Option<PodCliqueSet>, kube::Error> {
        let sets: Api<PodCliqueSet> = Api::namespaced(self.client.clone(), &name.namespace);
        get(&sets, &name.name).await
    }

    /// `minAvailable` of a clique or scaling group that exists.
    pub(crate) async fn min_available(
        &self,
        kind: Scalable,
        object: &NamespacedName,
    ) -> Result<Option<i32>, kube::Error> {
        let (client, name) = (self.client.clone(), object.name.as_str());
        match kind {
            Scalable::Clique => {
                let cliques: Api<PodClique> = Api::namespaced(client, &object.namespace);
                let clique = get(&cliques, name).await?;
                Ok(clique.and_then(|clique| clique.spec.min_available))
            }
            Scalable::ScalingGroup => {
                let groups: Api<PodCliqueScalingGroup> = Api::namespaced(client, &object.namespace);
                let group = get(&groups, name).await?;
                Ok(group.and_then(|group| group.spec.min_available))
            }
        }
    }
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup").finish_non_exhaustive()
    }
}

/// The object, if it exists. Where its kind is not even installed the answer is a bare 404, which the client library's own
/// `get_opt` takes for a failure.
async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.get(name).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// What can be scaled by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalable {
    Clique,
    ScalingGroup,
}
