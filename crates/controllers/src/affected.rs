//! Which things must be looked at when an object changes. Every edge along which one thing depends on another is here;
//! nothing is found by looking again after a while.

use std::collections::BTreeSet;
use std::sync::Arc;

use grove_api::conditions::podclique::MIN_AVAILABLE_BREACHED;
use grove_api::podcliqueset::{CliqueStartupType, PodCliqueSetStatus, PodCliqueSetUpdateProgress};
use grove_api::{
    ClusterTopology, ClusterTopologyBinding, ComputeDomain, PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang,
    TopologyDomain, labels,
};
use grove_runtime::{Change, ObjectKey};
use grove_topology::{TopologyKind, resolve};
use grove_workload::availability::{group_minimum, placed_at};
use grove_workload::conditions;
use grove_workload::expand::has_mnnvl_group;
use grove_workload::names;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};

use crate::key::Key;
use crate::kinds::{KeptPod, Kind, View, set_shelf};
use crate::served::ForeignKind;
use crate::topology;

/// A kind whose changes concern others.
pub(crate) trait Affects: Kind + Sized {
    /// Whether changes come in bursts, so that one look at what they concern is enough for many.
    const BURSTS: bool = false;

    fn affected(change: &Change<Self>, view: &View) -> Vec<Key>;

    /// Whom it concerns that the API of a kind that can be missing came or went.
    fn awaited_by(_: &View) -> Vec<Key> {
        vec![]
    }
}

/// Whether anything but the status changed: what was asked for, who owns it, or that it shall go.
fn is_structural<K: Resource>(old: Option<&K>, new: Option<&K>) -> bool {
    let look = |object: &K| {
        let meta = object.meta();
        (
            meta.uid.clone(),
            meta.generation,
            meta.deletion_timestamp.is_some(),
            meta.labels.clone(),
            meta.annotations.clone(),
            meta.finalizers.clone(),
            meta.owner_references.clone(),
        )
    };
    old.map(look) != new.map(look)
}

impl Affects for PodCliqueSet {
    fn affected(change: &Change<Self>, view: &View) -> Vec<Key> {
        let mut keys = Vec::new();
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if is_structural(old, new) {
            keys.extend(old.and_then(|set| topology::leaving_with(set, view)));
        }
        let status = |set: Option<&Self>| set.and_then(|set| set.status.clone());
        let (before, now) = (status(old), status(new));
        // A status that somebody else wrote is found wrong only by looking.
        if is_structural(old, new) || before != now {
            keys.push(Key::Set(change.key.clone()));
        }
        match turns(before.as_ref(), now.as_ref()) {
            Turns::Same => {}
            Turns::All => keys.extend(all_parts(&change.key, view)),
            Turns::Of(replicas) => keys.extend(
                replicas
                    .into_iter()
                    .flat_map(|replica| parts_of(&change.key, replica, view)),
            ),
        }
        keys
    }
}

/// Whose turn in an update has changed.
enum Turns {
    Same,
    Of(BTreeSet<i32>),
    All,
}

fn turns(old: Option<&PodCliqueSetStatus>, new: Option<&PodCliqueSetStatus>) -> Turns {
    let frame = |status: Option<&PodCliqueSetStatus>| {
        let progress = status.and_then(|status| status.update_progress.as_ref());
        let ended = progress.map(|progress| progress.update_ended_at.is_some());
        (status.and_then(|status| status.current_generation_hash.clone()), ended)
    };
    if frame(old) != frame(new) {
        return Turns::All;
    }
    let updating = |status: Option<&PodCliqueSetStatus>| -> BTreeSet<i32> {
        let progress: Option<&PodCliqueSetUpdateProgress> = status.and_then(|status| status.update_progress.as_ref());
        let entries = progress.iter().flat_map(|progress| &progress.currently_updating);
        entries.map(|entry| entry.replica_index).collect()
    };
    let (old, new) = (updating(old), updating(new));
    let changed: BTreeSet<i32> = old.symmetric_difference(&new).copied().collect();
    if changed.is_empty() {
        Turns::Same
    } else {
        Turns::Of(changed)
    }
}

/// The cliques and scaling groups of one replica.
fn parts_of(set: &ObjectKey, replica: i32, view: &View) -> Vec<Key> {
    let shelf = set_shelf(set);
    parts(
        &view.groups.of_part(&shelf, replica),
        &view.cliques.of_part(&shelf, replica),
    )
}

/// All cliques and scaling groups of a set.
pub(crate) fn all_parts(set: &ObjectKey, view: &View) -> Vec<Key> {
    let shelf = set_shelf(set);
    parts(&view.groups.of(&shelf), &view.cliques.of(&shelf))
}

fn parts(groups: &[Arc<PodCliqueScalingGroup>], cliques: &[Arc<PodClique>]) -> Vec<Key> {
    let groups = groups.iter().map(|group| Key::Group(ObjectKey::of(&group.metadata)));
    let cliques = cliques
        .iter()
        .map(|clique| Key::Clique(ObjectKey::of(&clique.metadata)));
    groups.chain(cliques).collect()
}

impl Affects for PodCliqueScalingGroup {
    const BURSTS: bool = true;

    fn affected(change: &Change<Self>, view: &View) -> Vec<Key> {
        let mut keys = vec![Key::Group(change.key.clone())];
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let waited_for = |group: Option<&Self>| group.map(group_minimum);
        if waited_for(old) != waited_for(new) {
            keys.extend(
                old.or(new)
                    .into_iter()
                    .flat_map(|group| that_wait(&group.metadata, view)),
            );
        }
        for group in [old, new].into_iter().flatten() {
            keys.extend(Key::set_of(&group.metadata).map(Key::Set));
            if is_structural(old, new) || old.map(breached) != new.map(breached) {
                keys.extend(Key::replica_of(&group.metadata));
            }
        }
        keys
    }
}

/// What a recycling of the whole replica depends on.
fn breached(group: &PodCliqueScalingGroup) -> Vec<(String, String)> {
    let conditions = group.status.iter().flat_map(|status| &status.conditions);
    conditions
        .map(|condition| (condition.type_.clone(), condition.status.clone()))
        .collect()
}

impl Affects for PodClique {
    const BURSTS: bool = true;

    fn affected(change: &Change<Self>, view: &View) -> Vec<Key> {
        let mut keys = vec![Key::Clique(change.key.clone())];
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let is_breached = |clique: Option<&Self>| {
            let status = clique.and_then(|clique| clique.status.as_ref());
            status.is_some_and(|status| conditions::is_true(&status.conditions, MIN_AVAILABLE_BREACHED))
        };
        let turns = is_breached(old) != is_breached(new);
        for clique in [old, new].into_iter().flatten() {
            let meta = &clique.metadata;
            keys.extend(Key::set_of(meta).map(Key::Set));
            keys.extend(Key::gang_of(meta));
            // Whether the whole replica is recycled depends on the members of its groups too.
            keys.extend(Key::replica_of(meta).filter(|_| turns));
            match meta
                .labels
                .as_ref()
                .and_then(|labels| labels.get(labels::SCALING_GROUP))
            {
                Some(group) => keys.push(Key::Group(ObjectKey::new(change.key.namespace.clone(), group))),
                None => keys.extend(Key::replica_of(meta)),
            }
        }
        let scheduled = |clique: Option<&Self>| {
            clique
                .and_then(|clique| clique.status.as_ref())
                .map(|status| status.scheduled_replicas)
        };
        if scheduled(old) != scheduled(new) {
            keys.extend(new.into_iter().flat_map(|clique| waiting_for_base(clique, view)));
        }
        // One that is not there yet has, or will have, pods.
        let is_parent = |clique: Option<&Self>| {
            let stays = clique.filter(|clique| clique.metadata.deletion_timestamp.is_none());
            stays.is_none_or(|clique| clique.spec.replicas > 0)
        };
        if is_parent(old) != is_parent(new) {
            keys.extend(
                old.or(new)
                    .into_iter()
                    .flat_map(|clique| that_wait(&clique.metadata, view)),
            );
        }
        keys
    }
}

/// The scaling groups of a replica whose cliques start in an order: whom they wait for depends on how many replicas
/// the others have. Standalone cliques are written with their replica.
fn that_wait(meta: &ObjectMeta, view: &View) -> Vec<Key> {
    let Some(Key::Replica(set, replica)) = Key::replica_of(meta) else {
        return vec![];
    };
    let order = view.sets.get(&set).map(|set| set.spec.template.clique_startup_type);
    if order.is_none_or(|order| order == CliqueStartupType::AnyOrder) {
        return vec![];
    }
    parts(&view.groups.of_part(&set_shelf(&set), replica), &[])
}

/// The cliques whose gates wait until the base gang, of which this clique is a part, is scheduled.
fn waiting_for_base(clique: &PodClique, view: &View) -> Vec<Key> {
    let (Some(set), Some(gang)) = (Key::set_of(&clique.metadata), clique.labels().get(labels::PODGANG)) else {
        return vec![];
    };
    let replica = grove_workload::names::index_label(&clique.metadata, labels::PCS_REPLICA_INDEX).unwrap_or_default();
    let siblings = view.cliques.of_part(&set_shelf(&set), replica);
    let waiting = siblings
        .iter()
        .filter(|other| other.labels().get(labels::BASE_PODGANG) == Some(gang));
    waiting
        .map(|other| Key::Clique(ObjectKey::of(&other.metadata)))
        .collect()
}

impl Affects for PodGang {
    const BURSTS: bool = true;

    fn affected(change: &Change<Self>, _: &View) -> Vec<Key> {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let mut keys = Vec::new();
        for gang in [old, new].into_iter().flatten() {
            keys.extend(Key::set_of(&gang.metadata).map(Key::Set));
            keys.extend(gang_key(gang));
            if is_structural(old, new) {
                keys.extend(Key::replica_of(&gang.metadata));
            }
        }
        let groups = |gang: Option<&Self>| gang.map(|gang| gang.spec.pod_groups.clone()).unwrap_or_default();
        // What whoever places says of the gang, its cliques may not know of themselves.
        let placed = |gang: Option<&Self>| gang.and_then(placed_at);
        if groups(old) != groups(new) || placed(old) != placed(new) {
            let listed = groups(new).into_iter();
            keys.extend(listed.map(|group| Key::Clique(ObjectKey::new(change.key.namespace.clone(), group.name))));
        }
        keys
    }
}

impl Affects for KeptPod {
    const BURSTS: bool = true;

    fn affected(change: &Change<Self>, _: &View) -> Vec<Key> {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if old == new {
            return vec![];
        }
        let pods = || [old, new].into_iter().flatten();
        let cliques = pods().filter_map(|pod| pod.clique.clone()).map(Key::Clique);
        let gangs = pods().filter_map(|pod| pod.gang.clone());
        let compute_domains = pods()
            .filter_map(|pod| pod.compute_domain.clone())
            .map(Key::ComputeDomain);
        cliques.chain(gangs).chain(compute_domains).collect()
    }
}

impl Affects for ComputeDomain {
    fn affected(change: &Change<Self>, _: &View) -> Vec<Key> {
        let both = [change.old.as_deref(), change.new.as_deref()];
        let owners = both.into_iter().flatten().flat_map(|domain| owner(&domain.metadata));
        owners.chain([Key::ComputeDomain(change.key.clone())]).collect()
    }

    fn awaited_by(view: &View) -> Vec<Key> {
        let sets = view.sets.all().into_iter().filter(|set| has_mnnvl_group(set));
        let replicas = sets.flat_map(|set| {
            let key = ObjectKey::of(&set.metadata);
            names::replicas(&set).map(move |replica| Key::Replica(key.clone(), replica))
        });
        replicas.collect()
    }
}

/// What belongs to one replica of a set, or to the set as a whole.
fn owner(meta: &ObjectMeta) -> Vec<Key> {
    let set = Key::set_of(meta).map(Key::Set);
    Key::replica_of(meta).or(set).into_iter().collect()
}

macro_rules! affects_its_owner {
    ($($kind:ty),*) => {$(
        impl Affects for $kind {
            fn affected(change: &Change<Self>, _: &View) -> Vec<Key> {
                let both = [change.old.as_deref(), change.new.as_deref()];
                both.into_iter().flatten().flat_map(|object| owner(&object.metadata)).collect()
            }
        }
    )*};
}

affects_its_owner!(Service, HorizontalPodAutoscaler, ControllerRevision, Role, RoleBinding);

impl Affects for ResourceClaim {
    fn affected(change: &Change<Self>, _: &View) -> Vec<Key> {
        let both = [change.old.as_deref(), change.new.as_deref()];
        let owners = both.into_iter().flatten().flat_map(|claim| {
            let namespace = claim.namespace().unwrap_or_default();
            claim
                .owner_references()
                .iter()
                .map(move |owner| (owner.kind.clone(), namespace.clone(), owner.name.clone()))
        });
        let key = |(kind, namespace, name): (String, String, String)| match kind.as_str() {
            "PodCliqueSet" => Some(Key::Set(ObjectKey::new(namespace, name))),
            "PodCliqueScalingGroup" => Some(Key::Group(ObjectKey::new(namespace, name))),
            "PodClique" => Some(Key::Clique(ObjectKey::new(namespace, name))),
            _ => None,
        };
        owners.filter_map(key).collect()
    }
}

/// The topology itself, and, unless only its status changed, the sets that it applies to and their gangs.
fn topology_and_users<K: Resource>(kind: TopologyKind, change: &Change<K>, view: &View) -> Vec<Key> {
    let name = &change.key.name;
    let mut keys = vec![Key::Topology(kind, name.clone())];
    if !is_structural(change.old.as_deref(), change.new.as_deref()) {
        return keys;
    }
    for set in view.sets.all() {
        let reference = resolve::packing_reference(&set, &view.tas);
        if reference.is_none_or(|reference| reference.name != name) {
            continue;
        }
        let key = ObjectKey::of(&set.metadata);
        keys.extend(view.gangs.of(&set_shelf(&key)).iter().filter_map(|gang| gang_key(gang)));
        keys.push(Key::Set(key));
    }
    keys
}

macro_rules! affects_its_users {
    ($($kind:ident),*) => {$(
        impl Affects for $kind {
            fn affected(change: &Change<Self>, view: &View) -> Vec<Key> {
                topology_and_users(TopologyKind::$kind, change, view)
            }
        }
    )*};
}

affects_its_users!(ClusterTopology, ClusterTopologyBinding, TopologyDomain);

/// What an object of another scheduler concerns: the topology or the gang of its name.
pub(crate) fn of_foreign(kind: ForeignKind, key: &ObjectKey, view: &View) -> Vec<Key> {
    match kind {
        ForeignKind::Topology(_) => [TopologyKind::ClusterTopology, TopologyKind::TopologyDomain]
            .map(|kind| Key::Topology(kind, key.name.clone()))
            .into(),
        ForeignKind::KaiPodGroup => view
            .gangs
            .get(key)
            .and_then(|gang| gang_key(&gang))
            .into_iter()
            .collect(),
    }
}

/// What is concerned when the API of another scheduler comes or goes.
pub(crate) fn all_of_foreign(kind: ForeignKind, view: &View) -> Vec<Key> {
    match kind {
        ForeignKind::Topology(_) => topology::all(view),
        ForeignKind::KaiPodGroup => view.gangs.all().iter().filter_map(|gang| gang_key(gang)).collect(),
    }
}

fn gang_key(gang: &PodGang) -> Option<Key> {
    match Key::replica_of(&gang.metadata)? {
        Key::Replica(set, replica) => Some(Key::Gang(set, replica, gang.name_any())),
        _ => None,
    }
}
