//! What is looked at: one thing that can be brought in order by itself.

use std::fmt;

use grove_api::labels;
use grove_topology::TopologyKind;
use grove_workload::names::index_label;
use kube::core::ObjectMeta;

use grove_runtime::ObjectKey;

/// One thing to look at. A set is looked at in parts, so that a change costs what it touches and not what there is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A PodCliqueSet: its records, what its replicas share, its status.
    Set(ObjectKey),
    /// One replica of a set: its cliques, scaling groups, Service and autoscalers, and whether it must be recycled.
    Replica(ObjectKey, i32),
    /// A PodCliqueScalingGroup: its cliques, their update, its status.
    Group(ObjectKey),
    /// A PodClique: its pods, their gates, its status.
    Clique(ObjectKey),
    /// A PodGang of a replica of a set: whom it lists, its constraints, its status.
    Gang(ObjectKey, i32, String),
    /// A ComputeDomain: whether one that is being deleted may go.
    ComputeDomain(ObjectKey),
    /// A topology, by its kind and name: who holds it in place, what other schedulers are told of it, its status.
    Topology(TopologyKind, String),
}

impl Key {
    /// Everything that [`Key::controller`] can say.
    pub(crate) const CONTROLLERS: [&'static str; 7] = [
        "podcliqueset",
        "podcliqueset-replica",
        "podcliquescalinggroup",
        "podclique",
        "podgang",
        "computedomain",
        "topology",
    ];

    /// Whose turn it is, for those who count.
    pub(crate) fn controller(&self) -> &'static str {
        Self::CONTROLLERS[match self {
            Self::Set(_) => 0,
            Self::Replica(..) => 1,
            Self::Group(_) => 2,
            Self::Clique(_) => 3,
            Self::Gang(..) => 4,
            Self::ComputeDomain(_) => 5,
            Self::Topology(..) => 6,
        }]
    }

    /// Whether this is the set, or a part of it that has no status of its own: what goes wrong there, the set tells.
    pub(crate) fn belongs_to(&self, set: &ObjectKey) -> bool {
        match self {
            Self::Set(other) | Self::Replica(other, _) | Self::Gang(other, _, _) => other == set,
            Self::Group(_) | Self::Clique(_) | Self::ComputeDomain(_) | Self::Topology(..) => false,
        }
    }

    /// The set that a managed object belongs to, by its labels.
    pub(crate) fn set_of(meta: &ObjectMeta) -> Option<ObjectKey> {
        let name = meta.labels.as_ref()?.get(labels::PART_OF)?;
        Some(ObjectKey::new(meta.namespace.clone()?, name))
    }

    /// The replica of a set that a managed object belongs to, by its labels.
    pub(crate) fn replica_of(meta: &ObjectMeta) -> Option<Self> {
        let replica = index_label(meta, labels::PCS_REPLICA_INDEX)?;
        Some(Self::Replica(Self::set_of(meta)?, replica))
    }

    /// The gang that a clique or one of its pods belongs to, by its labels.
    pub(crate) fn gang_of(meta: &ObjectMeta) -> Option<Self> {
        let name = meta.labels.as_ref()?.get(labels::PODGANG)?;
        Some(Self::Gang(
            Self::set_of(meta)?,
            index_label(meta, labels::PCS_REPLICA_INDEX)?,
            name.clone(),
        ))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(key) => write!(f, "PodCliqueSet {key}"),
            Self::Replica(set, replica) => write!(f, "replica {replica} of PodCliqueSet {set}"),
            Self::Group(key) => write!(f, "PodCliqueScalingGroup {key}"),
            Self::Clique(key) => write!(f, "PodClique {key}"),
            Self::Gang(set, _, name) => write!(f, "PodGang {}/{name}", set.namespace),
            Self::ComputeDomain(key) => write!(f, "ComputeDomain {key}"),
            Self::Topology(kind, name) => write!(f, "{kind} {name}"),
        }
    }
}
