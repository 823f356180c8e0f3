//! What the commands look at, read once.

use std::fmt::Debug;

use grove_api::config::{
    ConstraintUpdates, OnBackendTopologyFailure, OnTopologyMissing, OnTopologyMissingAtStart, PreferredPacking,
    ScaleOut, TopologyAwareScheduling, TopologySource,
};
use grove_api::{ClusterTopology, ClusterTopologyBinding, PodCliqueSet, TopologyDomain};
use grove_topology::resolve::{self, Found};
use grove_topology::survey::NodeLabels;
use grove_topology::usage::Usage;
use grove_topology::{Resolution, Topology, TopologyKind};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::client::{Cluster, no_answer};
use crate::exit::Failure;

/// Objects that are read at once.
const PAGE: u32 = 500;

/// Everything that topologies are made of.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) cluster_topologies: Vec<ClusterTopology>,
    bindings: Vec<ClusterTopologyBinding>,
    pub(super) topology_domains: Vec<TopologyDomain>,
    pub(super) sets: Vec<PodCliqueSet>,
    pub(super) nodes: Vec<NodeLabels>,
    tas: TopologyAwareScheduling,
}

impl Seen {
    pub(super) async fn read(cluster: &Cluster, topology_domain_name: Option<String>) -> Result<Self, Failure> {
        let failed = |error| Failure::NoAnswer(no_answer(&cluster.address, error));
        let client = &cluster.client;
        let nodes = list::<PartialObjectMeta<Node>>(client).await.map_err(failed)?;
        let node = |node: PartialObjectMeta<Node>| NodeLabels {
            name: node.name_any(),
            labels: node.metadata.labels.unwrap_or_default(),
        };
        Ok(Self {
            cluster_topologies: list(client).await.map_err(failed)?,
            bindings: list(client).await.map_err(failed)?,
            topology_domains: list(client).await.map_err(failed)?,
            sets: list(client).await.map_err(failed)?,
            nodes: nodes.into_iter().map(node).collect(),
            tas: assumed(topology_domain_name),
        })
    }

    /// All topologies, each with whether its object is ready, as far as it says so. A ClusterTopology hides a binding of
    /// its name.
    pub(super) fn topologies(&self) -> Vec<(Topology, Option<String>)> {
        let ready = |conditions: Option<&Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>>| {
            let mut ready = conditions?.iter().filter(|condition| condition.type_ == "Ready");
            ready.next().map(|condition| condition.status.clone())
        };
        let own = self.cluster_topologies.iter().map(|object| {
            let conditions = object.status.as_ref().map(|status| &status.conditions);
            (Topology::from(object), ready(conditions))
        });
        let hidden = |binding: &&ClusterTopologyBinding| {
            let mut names = self.cluster_topologies.iter().map(ResourceExt::name_any);
            !names.any(|name| name == binding.name_any())
        };
        let bindings = self
            .bindings
            .iter()
            .filter(hidden)
            .map(|object| (Topology::from(object), None));
        let domains = self.topology_domains.iter().map(|object| {
            let conditions = object.status.as_ref().map(|status| &status.conditions);
            (Topology::from(object), ready(conditions))
        });
        own.chain(bindings).chain(domains).collect()
    }

    pub(super) fn usage(&self) -> Usage {
        Usage::of(&self.sets, &self.tas.source)
    }

    /// How many sets use a topology. A binding is used as the ClusterTopology that it stands for.
    pub(super) fn users(&self, topology: &Topology) -> usize {
        let kind = match topology.kind() {
            TopologyKind::ClusterTopologyBinding => TopologyKind::ClusterTopology,
            kind => kind,
        };
        self.usage().users_of(kind, topology.name()).len()
    }

    pub(super) fn resolve(&self, set: &PodCliqueSet) -> Resolution {
        let Some(reference) = resolve::reference(set, &self.tas.source) else {
            return Resolution::Unused;
        };
        fn named<'a, K: Resource>(objects: &'a [K], name: &str) -> Option<&'a K> {
            objects.iter().find(|object| object.name_any() == name)
        }
        let found = Found {
            cluster_topology: named(&self.cluster_topologies, reference.name),
            binding: named(&self.bindings, reference.name),
            topology_domain: named(&self.topology_domains, reference.name),
        };
        resolve::resolve(Some(reference), &self.tas, &found)
    }
}

/// The operator's configuration is a file that this command does not have; what matters of it here is the source.
fn assumed(topology_domain_name: Option<String>) -> TopologyAwareScheduling {
    let source = match topology_domain_name {
        Some(topology_domain_name) => TopologySource::TopologyDomain {
            topology_domain_name,
            on_topology_missing_at_start: OnTopologyMissingAtStart::Fail,
            on_topology_missing: OnTopologyMissing::RejectConstrained,
        },
        None => TopologySource::ClusterTopology { levels: vec![] },
    };
    TopologyAwareScheduling {
        enabled: true,
        source,
        preferred_packing: PreferredPacking::Constrained,
        constraint_updates: ConstraintUpdates::Immutable,
        scale_out: ScaleOut::SameDomain,
        default_pack_domain: None,
        protect_default_topology: true,
        on_backend_topology_failure: OnBackendTopologyFailure::Retry,
    }
}

/// All objects of a kind, by namespace and name; none where the kind is not installed.
async fn list<K>(client: &Client) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api = Api::<K>::all(client.clone());
    let mut parameters = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = match api.list(&parameters).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(vec![]),
            Err(error) => return Err(error),
        };
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break,
        }
    }
    objects.sort_by_key(|object: &K| (object.namespace(), object.name_any()));
    Ok(objects)
}
