//! A gang as the page tells of it: its state, what it asks for scope by scope, where it is, or why it waits.

use grove_api::conditions::podgang::INITIALIZED;
use grove_api::labels::annotation;
use grove_api::podgang::{GangTopologyConstraint, PendingExplanation, PodGangPhase, PodGangStatus, ScopePlacement};
use grove_api::{PodGang, labels};
use grove_runtime::ObjectKey;
use grove_topology::Topology;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

use crate::seen::{PodState, SeenPod};

/// How far a gang has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GangState {
    /// Its pods are being created.
    Forming,
    Pending,
    /// It was placed whole and has lost members since; the others run.
    Degraded,
    Starting,
    Running,
}

/// A gang on the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GangView {
    pub number: u32,
    pub namespace: String,
    pub name: String,
    /// The PodCliqueSet that it belongs to.
    pub set: String,
    /// The gang that must be placed before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    pub state: GangState,
    /// Since when it is placed, or waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub pods: usize,
    pub placed: usize,
    pub ready: usize,
    /// GPUs of all its pods.
    pub gpus: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// The gang, its groups, its cliques.
    pub scopes: Vec<ScopeView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingExplanation>,
}

/// A part of a gang that asks for closeness, or has pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeView {
    pub name: String,
    /// `gang`, `group` or `clique`.
    pub kind: &'static str,
    /// The word of the level that it must share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// How many pods must be placed; of cliques only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<i32>,
    /// The cliques in it; of groups only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cliques: Vec<String>,
    /// The domains that hold its pods, level by level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<ScopePlacement>,
}

/// A pod of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    pub name: String,
    pub clique: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    pub gpus: u32,
    pub state: PodState,
}

impl PodView {
    pub(super) fn new(pod: &SeenPod) -> Self {
        Self {
            name: pod.key.name.clone(),
            clique: pod.clique.clone(),
            host: pod.node.clone(),
            gpus: pod.gpus,
            state: pod.state,
        }
    }
}

impl GangView {
    pub(super) fn new(
        key: &ObjectKey,
        (number, object): (u32, Option<&PodGang>),
        pods: &[&SeenPod],
        topology: Option<&Topology>,
    ) -> Self {
        let status = object.and_then(|object| object.status.as_ref());
        let label = |name: &str| object.and_then(|object| object.labels().get(name).cloned());
        Self {
            number,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            set: label(labels::PART_OF).unwrap_or_else(|| key.name.clone()),
            base: label(labels::BASE_PODGANG),
            state: status.map_or(GangState::Forming, state),
            since: status.and_then(since),
            pods: pods.len(),
            placed: pods.iter().filter(|pod| pod.holds_room()).count(),
            ready: pods.iter().filter(|pod| pod.state == PodState::Ready).count(),
            gpus: pods.iter().map(|pod| u64::from(pod.gpus)).sum(),
            score: status.and_then(|status| status.placement_score),
            topology: object.and_then(|object| object.spec.topology_ref.clone()),
            scopes: object.map(|object| scopes(object, topology)).unwrap_or_default(),
            pending: status.and_then(|status| status.pending.clone()),
        }
    }
}

fn state(status: &PodGangStatus) -> GangState {
    if status.is_degraded() {
        return GangState::Degraded;
    }
    let mut initialized = status.conditions.iter().filter(|one| one.type_ == INITIALIZED);
    let is_formed = initialized.next().is_some_and(|condition| condition.status == "True");
    match status.phase {
        PodGangPhase::Running => GangState::Running,
        PodGangPhase::Starting => GangState::Starting,
        PodGangPhase::Pending if is_formed || status.pending.is_some() => GangState::Pending,
        PodGangPhase::Pending => GangState::Forming,
    }
}

fn since(status: &PodGangStatus) -> Option<Timestamp> {
    status.scheduled().map(|condition| condition.last_transition_time.0)
}

fn scopes(gang: &PodGang, topology: Option<&Topology>) -> Vec<ScopeView> {
    let placement = gang.status.as_ref().map(|status| status.placement.as_slice());
    // What the operator's policy filled in, nobody asked for.
    let by_policy = gang.annotations().get(annotation::PREFERRED_BY_POLICY);
    let is_by_policy = |name: &str| by_policy.is_some_and(|names| names.split(',').any(|one| one == name));
    let scope = |name: &str, kind: &'static str, constraint: Option<&GangTopologyConstraint>| {
        let pack = constraint.and_then(|constraint| constraint.pack_constraint.as_ref());
        let places = placement.unwrap_or_default().iter().filter(|place| place.scope == name);
        ScopeView {
            name: name.to_owned(),
            kind,
            required: pack.and_then(|pack| word(pack.required.as_deref(), topology)),
            preferred: pack
                .filter(|_| !is_by_policy(name))
                .and_then(|pack| word(pack.preferred.as_deref(), topology)),
            minimum: None,
            cliques: vec![],
            placement: places.cloned().collect(),
        }
    };
    let spec = &gang.spec;
    let whole = scope(&gang.name_any(), "gang", spec.topology_constraint.as_ref());
    let groups = spec.topology_constraint_group_configs.iter().map(|group| ScopeView {
        cliques: group.pod_group_names.clone(),
        ..scope(&group.name, "group", group.topology_constraint.as_ref())
    });
    let cliques = spec.pod_groups.iter().map(|group| ScopeView {
        minimum: Some(group.min_replicas),
        ..scope(&group.name, "clique", group.topology_constraint.as_ref())
    });
    std::iter::once(whole).chain(groups).chain(cliques).collect()
}

/// A level in the words of its topology; by its key where the topology does not have it (any more).
fn word(key: Option<&str>, topology: Option<&Topology>) -> Option<String> {
    let key = key?;
    let mut levels = topology.iter().flat_map(|topology| topology.levels());
    let level = levels.find(|level| level.key == key);
    Some(level.map_or(key, |level| &level.word).to_owned())
}
