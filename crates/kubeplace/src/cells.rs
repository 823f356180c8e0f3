//! What nodes publish about their NUMA cells, zone by zone, in NodeResourceTopology objects.
//!
//! A node publishes what each cell has left, some time after pods came or went, and the kubelet alone knows which cells a
//! pod got. So what was published stands until the node publishes again: pods that come later count in every cell, and
//! pods that leave free nothing in any.

use std::collections::BTreeMap;

use grove_placement::{Amounts, Cluster, Resource};
use grove_topology::cells;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Metadata};
use serde::Deserialize;

use crate::mirror::PodKey;
use crate::quantity::{Round, amount};

/// The part of a NodeResourceTopology (`topology.node.k8s.io`) that is read; it has the name of its node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeResourceTopology {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub zones: Vec<Zone>,
}

impl k8s_openapi::Resource for NodeResourceTopology {
    const API_VERSION: &'static str = cells::API_VERSION;
    const GROUP: &'static str = cells::GROUP;
    const KIND: &'static str = cells::KIND;
    const VERSION: &'static str = cells::VERSION;
    const URL_PATH_SEGMENT: &'static str = cells::PLURAL;
    type Scope = ClusterResourceScope;
}

impl Metadata for NodeResourceTopology {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A part of a node.
#[derive(Clone, Debug, Deserialize)]
pub struct Zone {
    pub name: String,
    /// `Node` is a NUMA node.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub resources: Vec<ZoneResource>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ZoneResource {
    pub name: String,
    /// What is left of it.
    pub available: Quantity,
}

/// What a node said last.
#[derive(Debug)]
pub(crate) struct Publication {
    /// Left in each cell.
    available: Vec<Vec<(Resource, u64)>>,
    /// Pods that were there, and so are counted in it.
    pub(crate) counted: BTreeMap<PodKey, Amounts>,
}

impl Publication {
    pub(crate) fn new(
        cluster: &mut Cluster,
        published: &NodeResourceTopology,
        counted: BTreeMap<PodKey, Amounts>,
    ) -> Self {
        let mut zones: Vec<&Zone> = published.zones.iter().filter(|zone| zone.kind == "Node").collect();
        // node-0, node-1, …, node-10
        zones.sort_by_key(|zone| (zone.name.len(), &zone.name));
        let mut left = |resource: &ZoneResource| {
            let left = amount(&resource.name, &resource.available, Round::Down);
            (cluster.resource(&resource.name), left)
        };
        let available = zones.iter().map(|zone| zone.resources.iter().map(&mut left).collect());
        Publication {
            available: available.collect(),
            counted,
        }
    }

    /// The cells as the engine takes them, which counts in every cell all that runs on the node.
    pub(crate) fn cells(&self) -> Vec<Vec<(Resource, u64)>> {
        let counted = |resource: Resource| self.counted.values().map(|amounts| amounts.get(resource)).sum::<u64>();
        let cell = |cell: &Vec<(Resource, u64)>| {
            let stated = cell
                .iter()
                .map(|(resource, left)| (*resource, left.saturating_add(counted(*resource))));
            stated.collect()
        };
        self.available.iter().map(cell).collect()
    }
}
