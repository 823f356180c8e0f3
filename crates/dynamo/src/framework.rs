//! Which words there are: asked of the framework that places gangs and keeps their constraints.
//!
//! Graphs speak Dynamo's own words for closeness. What a framework makes of them, and where it keeps its topologies, is
//! behind [`Framework`]; [`Grove`] is the one that there is. Nothing else of this crate knows a kind of topology.

use std::future::Future;

use grove_api::config::{TopologyAwareScheduling, TopologySource};
use grove_api::podcliqueset::PodCliqueSetTemplate;
use grove_api::{ClusterTopology, ClusterTopologyBinding, TopologyDomain};
use grove_topology::resolve::{Found, Resolution, named_or_default, resolve};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use thiserror::Error;

/// What a framework says about a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It is there; these are its words.
    Levels {
        /// What the framework calls such an object, for messages.
        kind: String,
        name: String,
        words: Vec<String>,
    },
    /// There is none of this name.
    NotFound { kind: String, name: String },
    /// The framework keeps no constraints at all.
    Disabled,
}

/// Whoever places gangs, as far as a graph must know it.
pub trait Framework {
    /// Why a topology could not be read, and what to do about it.
    type Error: std::fmt::Display;

    /// What the framework calls a topology, for messages.
    fn kind(&self) -> &str;

    /// The topology of this name as it is now, or the one that holds where none is named. It is read, never remembered: a
    /// graph that is created right after its topology must find it.
    fn topology(&self, name: Option<&str>) -> impl Future<Output = Result<Reading, Self::Error>> + Send;
}

/// Why Grove's topologies could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// However often it is asked, it will not be told.
    #[error("{0}; give the operator the rights that `grove rbac` prints")]
    Forbidden(String),
    #[error("{0}; try again")]
    Failed(String),
}

impl From<kube::Error> for ReadError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(status.message.clone()),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Grove: topologies are ClusterTopologies, bindings to them, or one TopologyDomain.
#[derive(Clone)]
pub struct Grove {
    pub client: Client,
    pub tas: TopologyAwareScheduling,
}

impl std::fmt::Debug for Grove {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grove").field("tas", &self.tas).finish_non_exhaustive()
    }
}

impl Framework for Grove {
    type Error = ReadError;

    fn kind(&self) -> &str {
        match self.tas.source {
            TopologySource::TopologyDomain { .. } => "TopologyDomain",
            TopologySource::ClusterTopology { .. } => "ClusterTopology",
        }
    }

    async fn topology(&self, name: Option<&str>) -> Result<Reading, ReadError> {
        if !self.tas.enabled {
            return Ok(Reading::Disabled);
        }
        let template = PodCliqueSetTemplate {
            cluster_topology_name: name.map(str::to_owned),
            ..PodCliqueSetTemplate::default()
        };
        let reference = named_or_default(&template, &self.tas.source);
        let (mut cluster_topology, mut binding, mut topology_domain) = (None, None, None);
        match &self.tas.source {
            TopologySource::TopologyDomain { .. } => {
                topology_domain = get::<TopologyDomain>(&self.client, reference.name).await?;
            }
            TopologySource::ClusterTopology { .. } => {
                cluster_topology = get::<ClusterTopology>(&self.client, reference.name).await?;
                binding = get::<ClusterTopologyBinding>(&self.client, reference.name).await?;
            }
        }
        let found = Found {
            cluster_topology: cluster_topology.as_ref(),
            binding: binding.as_ref(),
            topology_domain: topology_domain.as_ref(),
        };
        Ok(match resolve(Some(reference), &self.tas, &found).for_new_reference() {
            Resolution::InForce { topology, .. } => Reading::Levels {
                kind: topology.kind().to_string(),
                name: topology.name().to_owned(),
                words: topology.levels().iter().map(|level| level.word.clone()).collect(),
            },
            Resolution::Missing { kind, name } => Reading::NotFound {
                kind: kind.to_string(),
                name,
            },
            Resolution::Unused | Resolution::Disabled => Reading::Disabled,
        })
    }
}

/// The object, if it exists. Where its kind is not even installed the answer is a bare 404.
async fn get<K>(client: &Client, name: &str) -> Result<Option<K>, kube::Error>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    match Api::<K>::all(client.clone()).get(name).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
