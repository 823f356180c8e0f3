//! What schedulers other than ours receive: a `Topology` resource of their own for each topology, and constraints in
//! levels that they know.
//!
//! Owns what such a resource looks like, whose it is, and the one step that brings it up to date. Their levels are
//! immutable, so a change is a deletion and a creation. A resource of the same name that is not ours is never touched.
//! Whether their API is there at all is for the caller to find out.

use std::fmt;

use grove_api::config::{ProfileName, Scheduler, SchedulerProfile, TopologyAwareScheduling, TopologySource};
use grove_api::labels::{MANAGED_BY, MANAGED_BY_OPERATOR};
use grove_api::podgang::{GangTopologyConstraint, PackConstraint};
use grove_api::{GROUP, TOPOLOGY_DOMAIN_GROUP, VERSION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{DynamicObject, TypeMeta, Version};
use serde_json::{Value, json};

use crate::levels::{Topology, TopologyKind};

/// The version of KAI's Topology that is known.
pub const KAI_VERSION: &str = "v1alpha1";

/// Schedulers that keep a topology resource of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    Kai,
    Kueue,
}

impl Backend {
    /// Kind of the resource, in every backend.
    pub const KIND: &'static str = "Topology";
    pub const PLURAL: &'static str = "topologies";

    pub const fn group(self) -> &'static str {
        match self {
            Self::Kai => "kai.scheduler",
            Self::Kueue => "kueue.x-k8s.io",
        }
    }

    /// The version to write of those that are served. KAI has one that is known; of Kueue's, which look alike, stable
    /// before beta before alpha, the newest of each.
    pub fn version<'a>(self, served: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let mut served = served.into_iter();
        match self {
            Self::Kai => served.find(|version| *version == KAI_VERSION),
            Self::Kueue => served.max_by_key(|version| Version::parse(version).priority()),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kai => "KAI",
            Self::Kueue => "Kueue",
        })
    }
}

/// The backends that topologies of `kind` are written to. Objects of the source that is not in use get none.
///
/// With a TopologyDomain as the source, Kueue is told also without its profile, where its API is served.
pub fn backends(
    kind: TopologyKind,
    tas: &TopologyAwareScheduling,
    scheduler: &Scheduler,
    kueue_is_served: bool,
) -> Vec<Backend> {
    let from_domain = matches!(tas.source, TopologySource::TopologyDomain { .. });
    if from_domain != (kind == TopologyKind::TopologyDomain) {
        return Vec::new();
    }
    let has_kai = |profile: &SchedulerProfile| match profile {
        SchedulerProfile::Kai(config) => config.create_topology_resources,
        SchedulerProfile::Grove | SchedulerProfile::Default | SchedulerProfile::Kueue => false,
    };
    let kai = scheduler.profiles.iter().any(has_kai);
    let kueue = scheduler.profiles.contains(&SchedulerProfile::Kueue) || (from_domain && kueue_is_served);
    let wanted = [(Backend::Kai, kai), (Backend::Kueue, kueue)];
    wanted
        .into_iter()
        .filter_map(|(backend, is_wanted)| is_wanted.then_some(backend))
        .collect()
}

/// The name of the KAI Topology without which KAI, if that is the placer, cannot keep any level of `topology`, and which
/// the operator does not make: somebody else must have made it.
pub fn relies_on<'a>(scheduler: &Scheduler, placer: ProfileName, topology: &'a Topology) -> Option<&'a str> {
    let makes = |profile: &SchedulerProfile| matches!(profile, SchedulerProfile::Kai(config) if config.create_topology_resources);
    // A binding is somebody else's, and so is what schedulers are told of it.
    let is_made = topology.kind() != TopologyKind::ClusterTopologyBinding && scheduler.profiles.iter().any(makes);
    let is_wanted = placer == ProfileName::KaiScheduler;
    (is_wanted && !is_made).then(|| topology.name())
}

/// What an author is told where the KAI Topology of [`relies_on`] is missing.
pub fn missing_kai_topology(name: &str) -> String {
    format!(
        "kai-scheduler has no Topology '{name}' and would hold the pods for ever; create it, or set \
         createTopologyResources: true in the operator's kai-scheduler profile"
    )
}

/// The resource of `topology` in `backend`'s API of `version`. `uid` is that of the topology object, which owns it.
pub fn desired(backend: Backend, version: &str, topology: &Topology, uid: &str) -> DynamicObject {
    let levels: Vec<Value> = topology
        .node_keys()
        .into_iter()
        .map(|key| json!({ "nodeLabel": key }))
        .collect();
    DynamicObject {
        types: Some(TypeMeta {
            api_version: format!("{}/{version}", backend.group()),
            kind: Backend::KIND.to_owned(),
        }),
        metadata: ObjectMeta {
            name: Some(topology.name().to_owned()),
            labels: Some([(MANAGED_BY.to_owned(), MANAGED_BY_OPERATOR.to_owned())].into()),
            owner_references: Some(vec![OwnerReference {
                api_version: format!("{}/{VERSION}", owner_group(topology.kind())),
                kind: topology.kind().as_str().to_owned(),
                name: topology.name().to_owned(),
                uid: uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        data: json!({ "spec": { "levels": levels } }),
    }
}

/// What brings a backend's resource up to date.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Keep,
    Create,
    /// Delete the existing resource and create the desired one.
    Recreate,
    /// The existing resource is being deleted; look again when it is gone.
    Wait,
    /// The existing resource is somebody else's and stays as it is. Says whose, and what to do.
    Leave(String),
}

/// The step from `existing` to `desired`, both of `backend`.
pub fn step(backend: Backend, desired: &DynamicObject, existing: Option<&DynamicObject>) -> Step {
    let Some(existing) = existing else {
        return Step::Create;
    };
    let Some(owner) = controller(desired) else {
        return Step::Keep;
    };
    match ownership(existing, owner) {
        Ownership::Foreign(whose) => Step::Leave(format!(
            "{backend} Topology '{}' exists and {whose}; delete it, or give the {} another name",
            owner.name, owner.kind
        )),
        _ if existing.metadata.deletion_timestamp.is_some() => Step::Wait,
        Ownership::Ours if node_labels(existing) == node_labels(desired) => Step::Keep,
        Ownership::Ours | Ownership::Left => Step::Recreate,
    }
}

/// The merge patch that lets go of an existing resource without deleting it, or `None` where it is not held. It keeps
/// the label that says who made it, so that it is taken back when it is wanted again.
pub fn release(topology: &Topology, existing: &DynamicObject) -> Option<Value> {
    let is_ours = |owner: &OwnerReference| {
        owner.kind == topology.kind().as_str()
            && owner.name == topology.name()
            && group_of(owner) == owner_group(topology.kind())
    };
    let owners = existing.metadata.owner_references.as_ref()?;
    let others: Vec<_> = owners.iter().filter(|owner| !is_ours(owner)).collect();
    (others.len() < owners.len()).then(|| {
        json!({ "metadata": {
            "ownerReferences": others,
            "resourceVersion": existing.metadata.resource_version,
        }})
    })
}

/// `constraint` as a backend takes it: in levels of its Topology, so that what is narrower than a host becomes the host.
/// Nothing where `topology` is not in force: a backend holds pods for ever whose level it does not know.
pub fn backend_constraint(
    topology: Option<&Topology>,
    constraint: Option<&GangTopologyConstraint>,
) -> Option<PackConstraint> {
    let (topology, pack) = (topology?, constraint?.pack_constraint.as_ref()?);
    let clamp = |key: &Option<String>| topology.node_key(key.as_ref()?).map(str::to_owned);
    let (required, preferred) = (clamp(&pack.required), clamp(&pack.preferred));
    (required.is_some() || preferred.is_some()).then_some(PackConstraint { required, preferred })
}

enum Ownership {
    /// Owned by our topology object as it is now.
    Ours,
    /// Made by us for an object that is gone, or let go of.
    Left,
    /// Somebody else's; how we know.
    Foreign(String),
}

fn ownership(existing: &DynamicObject, owner: &OwnerReference) -> Ownership {
    let Some(found) = controller(existing) else {
        let labels = existing.metadata.labels.as_ref();
        let is_labelled =
            labels.is_some_and(|labels| labels.get(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_OPERATOR));
        return if is_labelled {
            Ownership::Left
        } else {
            Ownership::Foreign("was not made by the operator".to_owned())
        };
    };
    let is_same = found.kind == owner.kind && found.name == owner.name && group_of(found) == group_of(owner);
    if !is_same {
        return Ownership::Foreign(format!("belongs to {} '{}'", found.kind, found.name));
    }
    if found.uid == owner.uid {
        Ownership::Ours
    } else {
        Ownership::Left
    }
}

fn controller(object: &DynamicObject) -> Option<&OwnerReference> {
    let owners = object.metadata.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.controller == Some(true))
}

fn group_of(owner: &OwnerReference) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

fn owner_group(kind: TopologyKind) -> &'static str {
    match kind {
        TopologyKind::ClusterTopology | TopologyKind::ClusterTopologyBinding => GROUP,
        TopologyKind::TopologyDomain => TOPOLOGY_DOMAIN_GROUP,
    }
}

/// The labels in order. Whatever else a level has (KAI's aliases) is its admin's.
fn node_labels(object: &DynamicObject) -> Option<Vec<&str>> {
    let levels = object.data.pointer("/spec/levels")?.as_array()?;
    levels.iter().map(|level| level.get("nodeLabel")?.as_str()).collect()
}
