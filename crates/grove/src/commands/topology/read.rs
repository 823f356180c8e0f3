//! What the commands look at, read once.

use std::collections::BTreeMap;
use std::fmt::Debug;

use grove_api::{ClusterTopologyBinding, PodCliqueSet};
use grove_kubeplace::quantity::{Round, amount};
use grove_kubeplace::requests;
use grove_topology::survey::{Amounts, Capacity, NodeLabels};
use grove_topology::usage::Usage;
use grove_topology::{Resolution, Topologies, Topology, TopologyKind};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::client::Cluster;
use crate::exit::Failure;

/// Objects that are read at once.
const PAGE: u32 = 500;

/// Everything that topologies are made of.
#[derive(Debug)]
pub(super) struct Seen {
    objects: Topologies,
    pub(super) sets: Vec<PodCliqueSet>,
    pub(super) nodes: Vec<NodeLabels>,
    /// When it was read.
    pub(super) at: Timestamp,
    /// What each node has for pods.
    rooms: BTreeMap<String, Amounts>,
}

impl Seen {
    pub(super) async fn read(
        cluster: &Cluster,
        topology_domain_name: Option<String>,
        at: Timestamp,
    ) -> Result<Self, Failure> {
        let failed = |error| cluster.failed(error);
        let client = &cluster.client;
        let nodes = list::<Node>(client).await.map_err(failed)?;
        let rooms = nodes.iter().map(|node| (node.name_any(), room(node)));
        let rooms = rooms.collect();
        let node = |node: Node| NodeLabels {
            name: node.name_any(),
            labels: node.metadata.labels.unwrap_or_default(),
        };
        let mut objects = Topologies::new(topology_domain_name);
        objects.cluster_topologies = list(client).await.map_err(failed)?;
        objects.bindings = list(client).await.map_err(failed)?;
        objects.topology_domains = list(client).await.map_err(failed)?;
        Ok(Self {
            objects,
            sets: list(client).await.map_err(failed)?,
            nodes: nodes.into_iter().map(node).collect(),
            at,
            rooms,
        })
    }

    /// All topologies, each with whether its object is ready, as far as it says so. A ClusterTopology hides a binding of
    /// its name.
    pub(super) fn topologies(&self) -> Vec<(Topology, Option<String>)> {
        let ready = |conditions: Option<&Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>>| {
            let mut ready = conditions?.iter().filter(|condition| condition.type_ == "Ready");
            ready.next().map(|condition| condition.status.clone())
        };
        let own = self.objects.cluster_topologies.iter().map(|object| {
            let conditions = object.status.as_ref().map(|status| &status.conditions);
            (Topology::from(object), ready(conditions))
        });
        let hidden = |binding: &&ClusterTopologyBinding| {
            let mut names = self.objects.cluster_topologies.iter().map(ResourceExt::name_any);
            !names.any(|name| name == binding.name_any())
        };
        let bindings = self
            .objects
            .bindings
            .iter()
            .filter(hidden)
            .map(|object| (Topology::from(object), None));
        let domains = self.objects.topology_domains.iter().map(|object| {
            let conditions = object.status.as_ref().map(|status| &status.conditions);
            (Topology::from(object), ready(conditions))
        });
        own.chain(bindings).chain(domains).collect()
    }

    pub(super) fn usage(&self) -> Usage {
        Usage::of(&self.sets, &self.objects.tas.source)
    }

    /// How many sets use a topology. A binding is used as the ClusterTopology that it stands for.
    pub(super) fn users(&self, topology: &Topology) -> usize {
        let kind = match topology.kind() {
            TopologyKind::ClusterTopologyBinding => TopologyKind::ClusterTopology,
            kind => kind,
        };
        self.usage().users_of(kind, topology.name()).len()
    }

    /// What a set asks for beside what the nodes have.
    pub(super) fn capacity(&self, set: &PodCliqueSet) -> Capacity {
        let cliques = set.spec.template.cliques.iter();
        let per_pod = cliques.map(|clique| (clique.name.clone(), requests::of_spec(&clique.spec.pod_spec)));
        Capacity {
            per_pod: per_pod.collect(),
            rooms: self.rooms.clone(),
        }
    }

    pub(super) fn resolve(&self, set: &PodCliqueSet) -> Resolution {
        self.objects.resolve(set)
    }
}

/// What a node has for pods, used or not.
fn room(node: &Node) -> Amounts {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amounts = allocatable.into_iter().flatten();
    amounts
        .map(|(resource, quantity)| (resource.clone(), amount(resource, quantity, Round::Down)))
        .collect()
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
